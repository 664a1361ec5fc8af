"""Replication: haStatus of masters and slaves, resetMasterFlushOffset.

What only our brokers say (id, state, age of the lag, last error) is "-" for a Java broker. What the
master's flush offset is for: docs/replication.md. (Java: HAStatusSubCommand,
ResetMasterFlushOffsetSubCommand.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import click

from remoting.body.ha_runtime_info import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    SlaveSyncInfo,
)
from remoting.errors import RemotingError
from remoting.headers.ha import ResetMasterFlushOffsetHeader
from remoting.remoting_serializable import JsonError, loads_lenient
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import MASTER_ID, AdminClient, BrokerAddress
from tools.command_line import command, print_error
from tools.errors import AdminError, BrokerAnswerError
from tools.ha_group_text import group_lines
from tools.message_text import second_text
from tools.report import Report, columns, safe_line, table

COLUMNS: Final = columns(
    "#Replica id | #Addr addr | #State state | #Lag lag > | #Lag(s) lagSeconds > | "
    "#Speed speed > | #Since since | #Last error lastError"
)
SYNC_COLUMNS: Final = columns(
    "#Metadata kind | #Last success lastSuccess | #Failures failures > | #Last error lastError"
)
NONE: Final = "-"
BAR_WIDTH: Final = 30
CATCHING_UP: Final = "catching_up"
DISCONNECTED: Final = "disconnected"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@dataclass(frozen=True, slots=True)
class Answer:
    """One broker's answer; `name` is "" when the broker's name is not known."""

    address: str
    name: str
    broker_id: int
    info: HARuntimeInfo | None
    tree: Any
    """The JSON of the answer."""
    error: str | None

    @property
    def title(self) -> str:
        """How the broker is called in the output."""
        return f"{self.name}:{self.broker_id} {self.address}" if self.name else self.address


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a slave is behind; None where it is not known."""

    size: int | None = None
    seconds: float | None = None
    exact: bool | None = None
    """Of the seconds."""
    size_exact: bool | None = None


@command("haStatus", is_view=True)
def ha_status(
    admin: AdminClient,
    address: Annotated[str | None, "-b --brokerAddr", "Broker address, host:port."],
    cluster: Annotated[
        str | None, "-c --clusterName", "Brokers of this cluster [default: of all]."
    ],
) -> Report:
    """Every replica of every master, and the slaves' own ends of their links."""
    if address is not None and cluster is not None:
        raise click.UsageError("-b ADDRESS and -c CLUSTER exclude each other")
    if address is not None:
        answers, masters = _ask_one(admin, address)
    else:
        brokers = admin.brokers(cluster)
        slaves_first = sorted(brokers, key=lambda broker: broker.broker_id == MASTER_ID)
        found = {broker: _try_ask(admin, broker) for broker in slaves_first}
        answers = [found[broker] for broker in brokers]
        masters = {a.name: a.info for a in answers if a.info is not None and a.info.master}
    parts, data = [], []
    for answer in answers:
        lag = slave_lag(answer, masters)
        parts.append("\n".join(answer_lines(answer, lag, admin.now_ms())))
        data.append(answer_data(answer, lag))
    return Report("\n\n".join(parts), data)


# -- asking ------------------------------------------------------------------------------------


def _ask(admin: AdminClient, address: str, name: str = "", broker_id: int = 0) -> Answer:
    try:
        response = admin.call(address, RequestCode.GET_BROKER_HA_STATUS)
    except BrokerAnswerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise AdminError(
            f"broker {address} does not know HA status (request 907): Java brokers have it from "
            "5.0 on; see its log for its slaves"
        ) from error
    info = HARuntimeInfo.from_json_bytes(response.body)
    try:
        shown = loads_lenient(response.body)
    except JsonError as error:
        raise AdminError(f"broker {address}: its HA status cannot be read: {error}") from error
    return Answer(address, name, broker_id, info, shown, None)


def _try_ask(admin: AdminClient, broker: BrokerAddress) -> Answer:
    """As _ask, for one of many: a broker that does not answer gets a line, too."""
    name, broker_id = broker.broker_name, broker.broker_id
    try:
        return _ask(admin, broker.address, name, broker_id)
    except (RemotingError, AdminError) as error:
        print_error("haStatus", f"broker {name}:{broker_id}: {error}")
        return Answer(broker.address, name, broker_id, None, None, str(error))


def _ask_one(admin: AdminClient, address: str) -> tuple[list[Answer], dict[str, HARuntimeInfo]]:
    """One broker's answer and, where it is a slave, the status of its master by broker name."""
    answer = _ask(admin, address)
    if answer.info is None or answer.info.master:
        return [answer], {}
    try:
        brokers = admin.brokers()
        own = next((broker for broker in brokers if broker.address == address), None)
        if own is None:
            raise AdminError("the name server does not know this address")
        answer = replace(answer, name=own.broker_name, broker_id=own.broker_id)
        for broker in brokers:
            if (broker.broker_name, broker.broker_id) == (own.broker_name, MASTER_ID):
                status = _ask(admin, broker.address).info
                return [answer], {} if status is None else {own.broker_name: status}
        raise AdminError(f"{own.broker_name} has no running master")
    except (RemotingError, AdminError) as error:
        print_error("haStatus", f"cannot determine how far {address} is behind its master: {error}")
    return [answer], {}


def slave_lag(answer: Answer, masters: dict[str, HARuntimeInfo]) -> Lag:
    """The master's figures for this slave, else the distance between the ends of their logs."""
    if answer.info is None or answer.info.master or answer.name not in masters:
        return Lag()
    master, client = masters[answer.name], answer.info.ha_client_runtime_info
    for replica in master.ha_connection_info:
        same_link = client.local_addr is not None and replica.addr == client.local_addr
        if same_link or replica.id == f"{answer.name}:{answer.broker_id}":
            return Lag(
                replica.diff,
                replica.lag_seconds,
                replica.lag_seconds_exact,
                replica.lag_bytes_exact,
            )
    return Lag(max(master.master_commit_log_max_offset - client.max_offset, 0))


# -- showing -----------------------------------------------------------------------------------


def answer_data(answer: Answer, lag: Lag) -> dict[str, Any]:
    """What --json prints of one broker."""
    data: dict[str, Any] = {"brokerAddr": answer.address}
    if answer.name:
        data |= {"brokerName": answer.name, "brokerId": answer.broker_id}
    if answer.info is None:
        return data | {"error": answer.error}
    data["status"] = answer.tree
    if not answer.info.master:
        data |= {"lagBytes": lag.size, "lagSeconds": lag.seconds}
    return data


def answer_lines(answer: Answer, lag: Lag, now_ms: int) -> Iterator[str]:
    """What is printed of one broker; a line may be a table of several."""
    info = answer.info
    if info is None:
        yield f"{answer.title}: no HA status: {safe_line(answer.error or '')}"
    elif info.master:
        yield from _master_lines(answer.title, info)
    else:
        yield from _slave_lines(answer.title, info, lag, info.timestamp or now_ms)
    if info is not None and info.group_info is not None:
        yield from group_lines(info.group_info)
    if info is not None and info.isolated:
        yield f"NOT SERVING: {safe_line(info.isolated)}"
    if info is not None and info.refusals:
        counts = ", ".join(f"{safe_line(name)} {n}" for name, n in sorted(info.refusals.items()))
        yield f"links refused or closed: {counts}"


def _master_lines(title: str, info: HARuntimeInfo) -> Iterator[str]:
    replicas = info.ha_connection_info
    yield (
        f"{title}: master, log ends at {info.master_commit_log_max_offset}, "
        f"{info.in_sync_slave_nums} of {len(replicas)} replicas in sync"
    )
    if not replicas:
        return
    yield table(COLUMNS, [_row(replica) for replica in replicas]).text
    for replica in replicas:
        if replica_state(replica) == CATCHING_UP:
            yield f"  {_name(replica)} {_progress(replica, info.master_commit_log_max_offset)}"


def _name(replica: HAConnectionRuntimeInfo) -> str:
    return safe_line(replica.id or replica.addr or NONE)


def replica_state(replica: HAConnectionRuntimeInfo) -> str:
    """State of a replica; a Java broker says only whether it is near."""
    return replica.state or ("in_sync" if replica.in_sync else CATCHING_UP)


def _row(replica: HAConnectionRuntimeInfo) -> Sequence[object]:
    is_back = replica_state(replica) != DISCONNECTED
    since = replica.disconnected_since or replica.connected_since
    uncounted = replica.counted is False and replica.disconnected_since is None
    return [
        replica.id or NONE,
        replica.addr or NONE,
        replica_state(replica) + (" (not counted)" if uncounted else ""),
        _size(replica.diff, replica.lag_bytes_exact),
        _seconds(replica.lag_seconds, replica.lag_seconds_exact, replica.lag_bytes_exact),
        f"{size_text(replica.transferred_byte_in_second)}/s",
        second_text(since) if since else NONE,
        _error(replica.last_error, replica.last_error_timestamp, is_over=is_back),
    ]


def _error(text: str | None, when_ms: int | None, *, is_over: bool) -> str:
    """An error with its time; one that is over is marked, so that nobody searches for it."""
    if not text:
        return NONE
    return (f"{second_text(when_ms)} " if when_ms else "") + text + (" (over)" if is_over else "")


def _size(size: int, exact: bool | None) -> str:
    return f"{'' if exact is not False else '<='}{size_text(size)}"


def _seconds(seconds: float | None, exact: bool | None, size_exact: bool | None) -> str:
    """The master knows at least how old the record is, unless it does not know which one it is."""
    if seconds is None:
        return NONE
    vague = ">=" if size_exact is not False else "~"
    return f"{'' if exact is not False else vague}{seconds:.1f}"


def _progress(replica: HAConnectionRuntimeInfo, end: int) -> str:
    """How much of what this connection began with has arrived, as a bar, and the time left."""
    start = min(replica.start_offset or 0, end)
    whole, left = max(end - start, 1), min(max(replica.diff, 0), end - start)
    percent = (whole - left) * 100 // whole
    done = BAR_WIDTH * percent // 100
    rate = replica.transferred_byte_in_second
    eta = f"about {duration_text(replica.diff / rate)} left" if rate > 0 else "standing still"
    bar = "#" * done + "-" * (BAR_WIDTH - done)
    return f"[{bar}] {percent:3d} %  {size_text(replica.diff)} to go, {eta}"


def _slave_lines(title: str, info: HARuntimeInfo, lag: Lag, now_ms: int) -> Iterator[str]:
    client = info.ha_client_runtime_info
    behind = (
        "how far behind its master is unknown: the master does not answer"
        if lag.size is None
        else f"behind its master {_size(lag.size, lag.size_exact)}, "
        f"{_seconds(lag.seconds, lag.exact, lag.size_exact)} s"
    )
    yield f"{title}: slave of {safe_line(client.master_addr or 'no master yet')} (HA port)"
    yield f"  state       {_client_state(client)}"
    yield f"  log ends at {client.max_offset}, {behind}"
    yield (
        f"  speed       {size_text(client.transferred_byte_in_second)}/s, last read "
        f"{_ago(client.last_read_timestamp, now_ms)}, last report "
        f"{_ago(client.last_write_timestamp, now_ms)}"
    )
    if client.last_error:
        over = client.last_error_over
        is_over = client.state == "transfer" if over is None else over
        error = _error(client.last_error, client.last_error_timestamp, is_over=is_over)
        yield f"  {'last error' if is_over else 'error':<11} {safe_line(error)}"
    if client.last_inspection:
        since_ms = client.last_inspection_timestamp
        seen = f" ({_ago(since_ms, now_ms)})" if since_ms else ""
        yield f"  inspection  {safe_line(client.last_inspection)}{seen}"
    if info.promotion_objection is not None:
        verdict = f"no: {info.promotion_objection}" if info.promotion_objection else "yes"
        yield f"  promotable  {safe_line(verdict)}"
        if info.promotion_basis:
            yield f"              {safe_line(info.promotion_basis)}"
    if info.slave_sync:
        rows = [
            [
                kind,
                _ago(sync.last_success_timestamp, now_ms),
                sync.failures,
                _error(sync.last_error, sync.last_error_timestamp, is_over=_is_over(sync)),
            ]
            for kind, sync in info.slave_sync.items()
        ]
        yield from (f"  {line}" for line in table(SYNC_COLUMNS, rows).text.splitlines())


def _is_over(sync: SlaveSyncInfo) -> bool:
    return (sync.last_success_timestamp or 0) > (sync.last_error_timestamp or 0)


def _client_state(client: HAClientRuntimeInfo) -> str:
    since = f" since {second_text(client.connected_since)}" if client.connected_since else ""
    local = f", from {client.local_addr}" if client.local_addr else ""
    return safe_line((client.state or NONE) + since + local)


def _ago(when_ms: int | None, now_ms: int) -> str:
    return f"{max(now_ms - when_ms, 0) / 1000:.1f} s ago" if when_ms else "never"


def size_text(size: int) -> str:
    """Bytes in binary units with one decimal."""
    value, unit = float(size), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def duration_text(seconds: float) -> str:
    """A span in the two largest units that it fills: 1 h 5 min."""
    if not math.isfinite(seconds):
        return "an unknown time"
    whole = max(round(seconds), 1)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@command("resetMasterFlushOffset")
def reset_master_flush_offset(
    admin: AdminClient,
    address: Annotated[str, "-b --brokerAddr", "Slave, host:port."],
    offset: Annotated[
        int,
        "-o --offset",
        "Position in the commit log up to which the master had flushed.",
        click.IntRange(0, (1 << 63) - 1),
    ],
) -> Report:
    """Reset the master's flush offset at a slave."""
    address = address.strip()
    header = ResetMasterFlushOffsetHeader(master_flush_offset=offset)
    admin.call(address, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)
    text = f"reset master flush offset to {offset} success"
    return Report(text, {"brokerAddr": address, "masterFlushOffset": offset})
