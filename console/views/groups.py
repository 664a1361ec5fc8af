"""Consumer groups: all of them, one with its lag by queue and its members; settings and resets.

Tested by tests/console/test_groups_view.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from console.cells import rate_cell
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
from console.lanes import BUSY, WAITING
from console.page import ConsoleError, Page, Query, Reader, View
from console.tables import ShownTable, Table, TableCell, link, moment
from console.views.topics import group_url, topic_url
from remoting.body.client_connection import Connection
from remoting.body.stats import ConsumeStats, OffsetWrapper
from remoting.mq_version import version_name
from tools.commands.ha_status import duration_text
from tools.report import columns

GROUPS: Final = columns("Group group | Lag diffTotal > | Consumes/s consumeTps >")
QUEUES: Final = columns(
    "Topic topic | Broker brokerName | Queue queueId > | End brokerOffset > | "
    "Consumed up to consumerOffset > | Lag diff > | Last consumed lastTimestamp | "
    "Behind at most behindMs > | Owner clientId"
)
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


def _lag(offset: OffsetWrapper) -> int:
    return offset.broker_offset - offset.consumer_offset


def groups(reader: Reader, query: Query) -> Page:
    """Consumer groups, those of the shown page with their lag and rate, as their brokers tell them.

    begins: only groups that begin so; system=1: RocketMQ's own, too; page.
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
    return Page(
        context={
            "begins": begins,
            "with_system": with_system,
            "untold": known.untold,
            "counted": len(seen),
        },
        tables=[_groups_table(names, seen)],
    )


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
        said = "asked soon" if seen.problem in (BUSY, WAITING) else seen.problem
        return [link(name, group_url(name)), TableCell(said, None), None]
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
    subscriptions = [] if connection is None else list(connection.subscription_table.values())
    return Page(
        title=name,
        context={
            "name": name,
            "problem": problem,
            "lag": lag_of(stats),
            "tps": rate_cell(stats.consume_tps),
            "connection": connection,
            "sentences": [*owned.sentences, *_cut_members(online)],
            "crumbs": [("Consumer groups", "/groups")],
        },
        tables=[
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
    )


def _cut_members(online: Members) -> list[str]:
    kept = 0 if online.connection is None else len(online.connection.connection_set)
    return [f"The first {kept} of {online.total} members are shown."] if kept < online.total else []


def _queue_rows(stats: ConsumeStats, owned: Owners, group: str, now_ms: int) -> list[list[object]]:
    rows = []
    for queue in sorted(stats.offset_table, key=lambda q: (q.topic, q.broker_name, q.queue_id)):
        offset = stats.offset_table[queue]
        lag, last = _lag(offset), offset.last_timestamp
        behind_ms = max(now_ms - last, 0) if lag > 0 and last > 0 else 0 if lag <= 0 else None
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
