"""Consumer groups: all of them, one with its lag by queue and its members; settings and resets.

Tested by tests/console/test_groups_view.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from console.cells import FRESH_MS, age_cell, rate_cell, unanswered_cell
from console.group_answers import (
    Members,
    Owners,
    Progress,
    joined,
    members,
    owners,
    progress,
)
from console.known_groups import known_groups
from console.metric_names import LAG_MS
from console.page import ConsoleError, Page, Query, Reader, View
from console.snapshot import BrokerSeen
from console.tables import ShownTable, Table, TableCell, link, moment
from console.views.topics import group_url, topic_url
from remoting.body.client_connection import Connection
from remoting.body.stats import ConsumeStats, OffsetWrapper
from remoting.mq_version import version_name
from tools.commands.consumer_progress import (
    client_ip,
    group_consume_info,
    in_order,
    info_data,
    progress_report,
)
from tools.commands.ha_status import duration_text
from tools.report import columns

GROUPS: Final = columns("Group group | Lag diffTotal > | Consumes/s consumeTps >")
QUEUES: Final = columns(
    "Topic topic | Broker brokerName | Queue queueId > | End brokerOffset > | "
    "Consumed up to consumerOffset > | Lag diff > | Last consumed lastTimestamp | "
    "Behind at most behindMs > | Owner clientId"
)
TOPICS: Final = columns(
    "Topic topic | Broker brokerName | Lag diff > | Oldest that waits oldestMs > | Known known"
)
EXACT: Final = "exact"
AT_MOST: Final = "at most"
MEMBERS: Final = columns(
    "Client clientId | Address clientAddr | Language language | Version version"
)
SUBSCRIPTIONS: Final = columns("Topic topic | Filter subString")
STATS_AGE_MS: Final = 5_000
LIST_AGE_MS: Final = 60_000
COUNTED: Final = 30
"""Groups on a page of the list, whose progress is read: each costs its brokers a request."""


def lag_of(stats: ConsumeStats) -> int:
    """Messages of all queues that a group has not consumed."""
    return sum(max(_lag(offset), 0) for offset in stats.offset_table.values())


def diff_of(stats: ConsumeStats) -> int:
    """The lag as consumerProgress adds it up."""
    return sum(map(_lag, stats.offset_table.values()))


def _lag(offset: OffsetWrapper) -> int:
    return offset.broker_offset - offset.consumer_offset


def groups(reader: Reader, query: Query) -> Page:
    """Consumer groups, those of the shown page with their lag and rate, as their brokers tell them.

    The JSON is what consumerProgress prints of these. begins: only groups that begin so; system=1:
    RocketMQ's own, too; page.
    """
    begins = query.text("begins")
    with_system = query.choice("system", ("0", "1")) == "1"
    known = known_groups(reader, with_system=with_system)
    names = [name for name in known.names if name.startswith(begins)]
    shown = ShownTable(_groups_table(names, {}), "", query.fields)
    seen = {
        name: progress(reader, name, LIST_AGE_MS, is_later=True)
        for name in (row[0].value for row in shown.rows)
    }
    online = {name: members(reader, name, LIST_AGE_MS, is_later=True) for name in seen}
    return Page(
        context={
            "begins": begins,
            "with_system": with_system,
            "untold": known.untold,
            "counted": len(seen),
        },
        tables=[_groups_table(names, seen)],
        data=_progress_data(seen, online),
    )


def _progress_data(
    seen: Mapping[str, Progress], online: Mapping[str, Members]
) -> list[dict[str, Any]]:
    """As consumerProgress prints it; without groups whose brokers have not told all yet."""
    infos = [
        group_consume_info(
            name, (told.stats.consume_tps, diff_of(told.stats)), online[name].connection
        )
        for name, told in seen.items()
        if told.problem is None and online[name].problem is None
    ]
    return [info_data(info) for info in sorted(infos, key=in_order)]


def _groups_table(names: Sequence[str], seen: Mapping[str, Progress]) -> Table:
    return Table(
        "groups",
        "Consumer groups",
        GROUPS,
        [_group_row(name, seen.get(name)) for name in names],
        empty_text="There is none.",
        page_rows=COUNTED,
        by_page=frozenset(column.key for column in GROUPS[1:]),
    )


def _group_row(name: str, seen: Progress | None) -> list[object]:
    if seen is None:
        return [link(name, group_url(name)), None, None]
    if seen.problem is not None:
        return [link(name, group_url(name)), unanswered_cell(seen.problem), None]
    return [link(name, group_url(name)), lag_of(seen.stats), rate_cell(seen.stats.consume_tps)]


def group_page(reader: Reader, query: Query) -> Page:
    """One group: its lag by queue in messages and in time, its members, what it subscribes to.

    name: the group.
    """
    name = query.needed("name")
    told = progress(reader, name, STATS_AGE_MS)
    online = members(reader, name, STATS_AGE_MS)
    stats, connection = told.stats, online.connection
    problem = joined([each for each in (told.problem, online.problem) if each])
    if not stats.offset_table and connection is None and problem is None:
        known = known_groups(reader, with_system=True)
        if name not in known.names:
            raise ConsoleError(f"no broker knows a consumer group {name}", 404)
    owned = owners(reader, name, online)
    waiting = _waiting_rows(reader, name, stats)
    subscriptions = [] if connection is None else list(connection.subscription_table.values())
    return Page(
        title=name,
        context={
            "name": name,
            "problem": problem,
            "lag": lag_of(stats),
            "tps": rate_cell(stats.consume_tps),
            "connection": connection,
            "has_bound": any(row[-1] == AT_MOST for row in waiting),
            "sentences": [*owned.sentences, *_cut_members(online)],
            "crumbs": [("Consumer groups", "/groups")],
        },
        tables=[
            Table(
                "topics",
                "Lag",
                TOPICS,
                waiting,
                empty_text="It has consumed nothing yet.",
                sort="diff",
                descending=True,
            ),
            Table(
                "queues",
                "Progress",
                QUEUES,
                _queue_rows(stats, owned, name, reader.now_ms),
                empty_text="It has consumed nothing yet.",
                sort="diff",
                descending=True,
            ),
            Table(
                "members",
                "Members",
                MEMBERS,
                [
                    _member(member, name)
                    for member in (connection.connection_set if connection else ())
                ],
                empty_text="No member is online.",
            ),
            Table(
                "subscriptions",
                "Subscriptions",
                SUBSCRIPTIONS,
                [
                    [link(each.topic, topic_url(each.topic or "")), each.sub_string]
                    for each in subscriptions
                ],
                empty_text="No member is online to say.",
            ),
        ],
        data=progress_report(
            stats, {queue: client_ip(names[0]) for queue, names in owned.by_queue.items()}
        ).data,
    )


def _cut_members(online: Members) -> list[str]:
    kept = 0 if online.connection is None else len(online.connection.connection_set)
    return [f"The first {kept} of {online.total} members are shown."] if kept < online.total else []


def _waiting_rows(reader: Reader, group: str, stats: ConsumeStats) -> list[list[object]]:
    """By topic and broker: how much waits, and how old the oldest of it is."""
    told = {broker.place.broker_name: broker for broker in reader.snapshot.masters()}
    at_ms = reader.snapshot.taken_at_ms
    lags: dict[tuple[str, str], int] = {}
    bounds: dict[tuple[str, str], int | None] = {}
    for queue, offset in stats.offset_table.items():
        key, lag = (queue.topic, queue.broker_name), max(_lag(offset), 0)
        lags[key] = lags.get(key, 0) + lag
        if lag:
            bound, before = _behind_ms(offset, reader.now_ms), bounds.get(key, 0)
            bounds[key] = None if bound is None or before is None else max(bound, before)
    rows = []
    for (topic, name), lag in lags.items():
        bound = bounds.get((topic, name), 0)
        broker = told.get(name)
        is_fresh = broker is not None and at_ms - broker.metrics.at_ms <= FRESH_MS
        exact = 0 if not lag else _oldest_ms(broker, group, topic) if is_fresh else None
        age = _behind(bound) if exact is None else age_cell(exact)
        known = EXACT if exact is not None else None if bound is None else AT_MOST
        rows.append([link(topic, topic_url(topic)), name, lag, age, known])
    return rows


def _oldest_ms(broker: BrokerSeen | None, group: str, topic: str) -> float | None:
    """How old the oldest message that waits is, as its broker has told: those of this project do,
    of groups that are online. None: not known, or nothing waited yet when it was told."""
    if broker is None or broker.metrics.value is None:
        return None
    ages = [
        value
        for labels, value in broker.metrics.value.rows(LAG_MS)
        if labels.get("consumer_group") == group and labels.get("topic") == topic
    ]
    return max(ages, default=0) or None


def _queue_rows(stats: ConsumeStats, owned: Owners, group: str, now_ms: int) -> list[list[object]]:
    rows = []
    for queue in sorted(stats.offset_table, key=lambda q: (q.topic, q.broker_name, q.queue_id)):
        offset = stats.offset_table[queue]
        lag, last = _lag(offset), offset.last_timestamp
        behind_ms = _behind_ms(offset, now_ms)
        rows.append(
            [
                link(queue.topic, topic_url(queue.topic)),
                queue.broker_name,
                queue.queue_id,
                offset.broker_offset,
                offset.consumer_offset,
                lag,
                moment(last),
                _behind(behind_ms),
                _owner(owned.by_queue.get(queue, ()), group),
            ]
        )
    return rows


def _behind_ms(offset: OffsetWrapper, now_ms: int) -> int | None:
    """What the age of the oldest message that waits in a queue cannot exceed."""
    if _lag(offset) <= 0:
        return 0
    return max(now_ms - offset.last_timestamp, 0) if offset.last_timestamp > 0 else None


def _behind(ms: int | None) -> TableCell | None:
    """The oldest message that waits is younger than the last that was consumed."""
    if ms is None:
        return None
    return TableCell(f"≤ {duration_text(ms / 1000)}" if ms else "0 s", ms)


def _owner(clients: Sequence[str], group: str) -> TableCell | None:
    """One, but where each message goes to every member; who rebalances now may be named twice."""
    if not clients:
        return None
    more = f" and {len(clients) - 1} more" if len(clients) > 1 else ""
    return TableCell(clients[0] + more, clients[0], url=client_url(group, clients[0]))


def client_url(group: str, client_id: str) -> str:
    """The page of a member."""
    return "/client?" + urlencode({"id": client_id, "group": group}, errors="replace")


def _member(member: Connection, group: str) -> list[object]:
    return [
        link(member.client_id, client_url(group, member.client_id)),
        member.client_addr,
        member.language,
        version_name(member.version),
    ]


VIEWS: Final = [
    View("/groups", "Consumer groups", "Topics", "groups.html.j2", groups),
    View("/group", "Consumer group", "", "consumer_group.html.j2", group_page),
]
