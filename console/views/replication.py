"""Replication now: groups as rows, each replica's state and lag; one group with all that it says.

Tested by tests/console/test_replication_view.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from console.figures import LAG_BYTES, LAG_SECONDS
from console.health import group_url
from console.page import ConsoleError, Page, Query, Reader, View
from console.plots import Line, plot_data
from console.snapshot import BrokerSeen
from console.tables import Table, TableCell, badge, link, moment
from console.views.overview import broker_state
from remoting.body.ha_runtime_info import HAConnectionRuntimeInfo
from tools.commands.ha_status import duration_text, replica_state, size_text
from tools.report import columns

REPLICAS: Final = columns(
    "Group brokerName | Replica id | Address addr | State state | Lag lagBytes > | "
    "Lag(s) lagSeconds > | Speed speed > | Since since | Last error lastError | "
    "Error age errorAge >"
)
MEMBERS: Final = columns(
    "Broker broker | Address brokerAddr | State state | Log end logEnd > | Says says"
)


def replication(reader: Reader, query: Query) -> Page:
    """Every replica of every master."""
    rows = [
        row for broker in reader.snapshot.brokers for row in _replica_rows(broker, reader.now_ms)
    ]
    return Page(
        context={"without": _without_status(reader)},
        tables=[
            Table(
                "replicas",
                "Replicas",
                REPLICAS,
                rows,
                empty_text="No master has a replica.",
            )
        ],
    )


def group(reader: Reader, query: Query) -> Page:
    """One broker group: its members, and what each says of its end of the link."""
    cluster, name = query.needed("cluster"), query.needed("name")
    members = reader.snapshot.groups().get((cluster, name))
    if members is None:
        raise ConsoleError(f"there is no broker group {name} in cluster {cluster}", 404)
    rows = [row for broker in members for row in _replica_rows(broker, reader.now_ms)]
    return Page(
        title=name,
        context={"cluster": cluster, "name": name, "members": members},
        tables=[
            Table("members", "Members", MEMBERS, [_member(broker) for broker in members]),
            Table("replicas", "Replicas", REPLICAS, rows, empty_text="It has no replica."),
        ],
    )


def lag_series(reader: Reader, query: Query) -> Page:
    """The lag of each replica of a group over the last minutes, for the plot: JSON only."""
    cluster, name = query.needed("cluster"), query.needed("name")
    minutes = query.number("minutes", 15, 1, 360)
    members = reader.snapshot.groups().get((cluster, name), [])
    addresses = {broker.place.address for broker in members}
    first_ms = reader.now_ms - minutes * 60_000
    lines = []
    for owner, figure in reader.history.names():
        address, _, replica = owner.partition(" ")
        if figure in (LAG_SECONDS, LAG_BYTES) and address in addresses:
            read = reader.history.read((owner, figure), first_ms, reader.now_ms)
            lines.append(Line(replica, "s" if figure == LAG_SECONDS else "bytes", read))
    return Page(data=plot_data(lines))


def _without_status(reader: Reader) -> list[str]:
    """Masters whose replicas are not known, and why."""
    return [
        f"{broker.title}: {broker.ha.error}"
        for broker in reader.snapshot.masters()
        if broker.ha.error is not None and broker.ha.value is None
    ]


def _replica_rows(broker: BrokerSeen, now_ms: int) -> Iterator[list[object]]:
    told = broker.ha.value
    if told is None or not told.info.master:
        return
    stale = broker.ha.error is not None
    for replica in told.info.ha_connection_info:
        yield _replica_row(broker, replica, now_ms, stale=stale)


def _replica_row(
    broker: BrokerSeen, replica: HAConnectionRuntimeInfo, now_ms: int, *, stale: bool
) -> list[object]:
    place = broker.place
    since = replica.disconnected_since or replica.connected_since
    lag = replica.lag_seconds
    exact = "" if replica.lag_bytes_exact is not False else "≤ "
    at_least = "" if replica.lag_seconds_exact is not False else "≥ "
    state = "stale" if stale else replica_state(replica)
    return [
        link(place.broker_name, group_url(place.cluster, place.broker_name)),
        replica.id or replica.addr,
        replica.addr,
        badge(state),
        TableCell(exact + size_text(max(replica.diff, 0)), replica.diff),
        None if lag is None else TableCell(f"{at_least}{lag:.1f} s", lag),
        TableCell(
            f"{size_text(replica.transferred_byte_in_second)}/s",
            replica.transferred_byte_in_second,
        ),
        moment(since),
        replica.last_error,
        _age(replica.last_error_timestamp, now_ms),
    ]


def _age(ms: int | None, now_ms: int) -> TableCell | None:
    return TableCell(duration_text(max(now_ms - ms, 0) / 1000), now_ms - ms) if ms else None


def _member(broker: BrokerSeen) -> list[object]:
    told = broker.ha.value
    end: int | None = None
    says: Any = broker.newest_error or broker.ha.error
    if told is not None:
        info = told.info
        client = info.ha_client_runtime_info
        end = info.master_commit_log_max_offset if info.master else client.max_offset
        says = says or (None if info.master else client.state)
    return [broker.title, broker.place.address, badge(broker_state(broker)), end, says]


VIEWS: Final = [
    View("/replication", "Replication now", "Replication", "replication.html.j2", replication),
    View("/replication/{cluster}/{name}", "Broker group", "", "group.html.j2", group),
    View("/replication/{cluster}/{name}/lag", "Lag", "", "", lag_series),
]
