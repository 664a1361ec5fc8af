"""Replication now: groups as rows, each replica's state and lag; one group with all that it says.

What haStatus says is made by the command's own functions (console/ha_answers.py), and the JSON of
both pages is what `mqadmin haStatus --json` prints.

Tested by tests/console/test_replication_view.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from console import ha_answers
from console.figures import LAG_BYTES, LAG_SECONDS
from console.health import group_url
from console.page import ConsoleError, Page, Query, Reader, View
from console.plots import Line, plot_data
from console.snapshot import NOT_SUPPORTED, BrokerSeen
from console.tables import Table, TableCell, badge, link, moment
from console.views.overview import broker_state
from remoting.body.ha_runtime_info import HAConnectionRuntimeInfo, HARuntimeInfo
from tools.commands.ha_status import duration_text, replica_state, size_text
from tools.report import columns

GROUPS: Final = columns(
    "Group brokerName | Cluster cluster | Master master | Log end logEnd > | In sync inSync > | "
    "Replicas replicas > | Ack level ackLevel | Takes messages takesMessages | Epoch epoch > | "
    "Refused links refusedLinks > | Without master(s) withoutMaster >"
)
REPLICAS: Final = columns(
    "Group brokerName | Replica id | Address addr | State state | Counted counted | "
    "Lag lagBytes > | Lag(s) lagSeconds > | Speed speed > | Since since | Last error lastError | "
    "Error age errorAge >"
)
MEMBERS: Final = columns(
    "Broker broker | Address brokerAddr | State state | Role role | Epoch epoch > | "
    "Log end logEnd > | Lag lagBytes > | Promotable promotable | Says says"
)
ROLES: Final = columns(
    "Broker broker | Took role role | Epoch epoch > | At at | Because cause | "
    "Before oldMaster | Without master(s) withoutMaster > | Unconfirmed unconfirmedBytes >"
)
SYNC: Final = columns(
    "Broker broker | Metadata kind | Age(s) age > | Failures failures > | Last error lastError | "
    "Error at errorAt"
)
REFUSALS: Final = columns("Broker broker | Reason reason | Links count >")


def replication(reader: Reader, query: Query) -> Page:
    """Every group and every replica of every master."""
    groups = reader.snapshot.groups()
    rows = [
        row for broker in reader.snapshot.brokers for row in _replica_rows(broker, reader.now_ms)
    ]
    return Page(
        context={"without": _without_status(reader)},
        tables=[
            Table(
                "groups",
                "Broker groups",
                GROUPS,
                [_group_row(cluster, name, group) for (cluster, name), group in groups.items()],
                empty_text="The name servers know no broker.",
            ),
            Table("replicas", "Replicas", REPLICAS, rows, empty_text="No master has a replica."),
        ],
        data=[one for members in groups.values() for one in ha_answers.data(members)],
    )


def group(reader: Reader, query: Query) -> Page:
    """One broker group: its members, and what each says of its end of the link."""
    cluster, name, members = _members(reader, query)
    rows = [row for broker in members for row in _replica_rows(broker, reader.now_ms)]
    return Page(
        title=name,
        context={
            "cluster": cluster,
            "name": name,
            "lag_url": _lag_url(cluster, name),
            "history_url": f"/replication/history?{group_query(cluster, name)}",
            "crumbs": [("Replication now", "/replication")],
            "said": [ha_answers.lines(broker, members, reader.now_ms) for broker in members],
        },
        tables=[
            Table("members", "Members", MEMBERS, [_member(broker, members) for broker in members]),
            Table("replicas", "Replicas", REPLICAS, rows, empty_text="It has no replica."),
            Table("roles", "Elections", ROLES, list(_roles(members)), empty_text=_NO_ROLES),
            Table(
                "metadata",
                "Metadata of slaves",
                SYNC,
                list(_sync(members)),
                empty_text="No slave says how old its metadata is: slaves of this project do.",
            ),
            Table(
                "refusals",
                "Links refused or closed",
                REFUSALS,
                list(_refusals(members)),
                empty_text="None that a broker tells of; Java brokers do not count them.",
            ),
        ],
        data=ha_answers.data(members),
    )


_NO_ROLES: Final = (
    "No member says which role it took last: only members of a group with a controller of this "
    "project do. Elections of the past are in the history."
)


def lag_series(reader: Reader, query: Query) -> Page:
    """The lag of each replica of a group over the last minutes, for the plot: JSON only."""
    _, _, members = _members(reader, query)
    minutes = query.number("minutes", 15, 1, 360)
    first_ms = reader.now_ms - minutes * 60_000
    return Page(data=plot_data(lag_lines(reader, members, first_ms, reader.now_ms)))


def lag_lines(
    reader: Reader, members: Sequence[BrokerSeen], first_ms: int, last_ms: int
) -> list[Line]:
    """What the console itself has seen of a group's replicas."""
    addresses = {broker.place.address for broker in members}
    lines = []
    for owner, figure in reader.history.names():
        address, _, replica = owner.partition(" ")
        if figure in (LAG_SECONDS, LAG_BYTES) and address in addresses:
            read = reader.history.read((owner, figure), first_ms, last_ms)
            lines.append(Line(replica, "s" if figure == LAG_SECONDS else "bytes", read))
    return lines


def group_query(cluster: str, name: str) -> str:
    """Names a broker group in a URL."""
    return f"cluster={quote(cluster, safe='')}&name={quote(name, safe='')}"


def _lag_url(cluster: str, name: str) -> str:
    return f"/replication/group/lag.json?{group_query(cluster, name)}"


def _members(reader: Reader, query: Query) -> tuple[str, str, list[BrokerSeen]]:
    cluster, name = query.needed("cluster"), query.needed("name")
    members = reader.snapshot.groups().get((cluster, name))
    if members is None:
        raise ConsoleError(f"there is no broker group {name} in cluster {cluster}", 404)
    return cluster, name, members


def _without_status(reader: Reader) -> list[str]:
    """Masters whose replicas are not known, and why."""
    said = []
    for broker in reader.snapshot.masters():
        if broker.ha.error is None or broker.ha.value is not None:
            continue
        why = broker.ha.error
        if NOT_SUPPORTED in why:
            why = (
                "it does not know HA status (request 907), which Java brokers have from 5.0 on; "
                "its own log tells of its slaves"
            )
        said.append(f"{broker.title}: {why}")
    return said


# -- groups ------------------------------------------------------------------------------------


def _group_row(cluster: str, name: str, members: list[BrokerSeen]) -> list[object]:
    master = next((broker for broker in members if broker.is_master and broker.registered), None)
    info = None if master is None or master.ha.value is None else master.ha.value.info
    own = [link(name, group_url(cluster, name)), cluster]
    if master is None:
        return [*own, badge("gone", "no master"), *[None] * (len(GROUPS) - 3)]
    state = badge(broker_state(master), master.place.address)
    if info is None:
        return [*own, state, *[None] * (len(GROUPS) - 3)]
    member = info.group_info
    return [
        *own,
        state,
        info.master_commit_log_max_offset,
        info.in_sync_slave_nums,
        len(info.ha_connection_info),
        _ack_level(info, master),
        None if member is None else ("yes" if member.takes_messages else "NO"),
        None if member is None else member.epoch,
        None if info.refusals is None else sum(info.refusals.values()),
        None if member is None else member.without_master_total_millis / 1000,
    ]


def _ack_level(info: HARuntimeInfo, master: BrokerSeen) -> str | None:
    """For whom a send waits, as far as the master says it."""
    member = info.group_info
    if member is not None:
        return f"{member.min_in_sync_replicas} of {len(member.sync_state_set)} in the SyncStateSet"
    metrics = master.metrics.value
    if metrics is None:
        return None
    roles = {labels.get("role") for labels, _ in metrics.rows("rocketmq_ha_replica_in_sync")}
    return ", ".join(sorted(role for role in roles if role)) or None


# -- replicas ----------------------------------------------------------------------------------


def _replica_rows(broker: BrokerSeen, now_ms: int) -> Iterator[list[object]]:
    told = broker.ha.value
    if told is None or not told.info.master:
        return
    stale = broker.ha.error is not None or not broker.registered
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
        None if replica.counted is None else ("yes" if replica.counted else "no"),
        TableCell(exact + size_text(max(replica.diff, 0)), replica.diff),
        None if lag is None else TableCell(f"{at_least}{lag:.1f} s", lag),
        TableCell(
            f"{size_text(replica.transferred_byte_in_second)}/s",
            replica.transferred_byte_in_second,
        ),
        moment(since),
        replica.last_error,
        _age(replica.last_error_timestamp, now_ms + broker.skew_ms),
    ]


def _age(ms: int | None, now_ms: int) -> TableCell | None:
    return TableCell(duration_text(max(now_ms - ms, 0) / 1000), now_ms - ms) if ms else None


# -- members -----------------------------------------------------------------------------------


def _infos(members: list[BrokerSeen]) -> Iterator[tuple[BrokerSeen, HARuntimeInfo]]:
    for broker in members:
        if broker.ha.value is not None:
            yield broker, broker.ha.value.info


def _member(broker: BrokerSeen, members: list[BrokerSeen]) -> list[object]:
    own = [broker.title, broker.place.address, badge(broker_state(broker))]
    says: Any = broker.newest_error or broker.ha.error
    if broker.ha.value is None:
        return [*own, None, None, None, None, None, says]
    info = broker.ha.value.info
    member, client = info.group_info, info.ha_client_runtime_info
    lag = ha_answers.lag_of(broker, members).size
    return [
        *own,
        None if member is None else member.role,
        None if member is None else member.epoch,
        info.master_commit_log_max_offset if info.master else client.max_offset,
        None if lag is None else TableCell(size_text(max(lag, 0)), lag),
        _promotable(info),
        says or info.isolated or (None if info.master else client.state),
    ]


def _promotable(info: HARuntimeInfo) -> str | None:
    objection = info.promotion_objection
    if objection is None:
        return None
    return f"no: {objection}" if objection else "yes"


def _roles(members: list[BrokerSeen]) -> Iterator[list[object]]:
    for broker, info in _infos(members):
        taken = None if info.group_info is None else info.group_info.last_role
        if taken is None:
            continue
        unconfirmed = max(taken.log_end - taken.confirm_offset, 0)
        gap = taken.without_master_millis
        yield [
            broker.title,
            taken.role,
            taken.epoch,
            moment(taken.timestamp),
            taken.cause,
            f"broker {taken.old_master_id} in epoch {taken.old_epoch}" if taken.old_epoch else None,
            None if gap is None else gap / 1000,
            TableCell(size_text(unconfirmed), unconfirmed),
        ]


def _sync(members: list[BrokerSeen]) -> Iterator[list[object]]:
    for broker, info in _infos(members):
        now_ms = info.timestamp or broker.ha.wall_ms
        for kind, sync in (info.slave_sync or {}).items():
            last = sync.last_success_timestamp
            age = None if not last else max(now_ms - last, 0) / 1000
            yield [
                broker.title,
                kind,
                age,
                sync.failures,
                sync.last_error,
                moment(sync.last_error_timestamp),
            ]


def _refusals(members: list[BrokerSeen]) -> Iterator[list[object]]:
    for broker, info in _infos(members):
        for reason, count in sorted((info.refusals or {}).items()):
            yield [broker.title, reason, count]


VIEWS: Final = [
    View("/replication", "Replication now", "Replication", "replication.html.j2", replication),
    View("/replication/group", "Broker group", "", "group.html.j2", group),
    View("/replication/group/lag", "Lag", "", "", lag_series),
]
