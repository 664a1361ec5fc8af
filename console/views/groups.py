"""Consumer groups: all of them, one with its lag by queue and its members; settings and resets.

Tested by tests/console/test_topics_view.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from console.known_groups import known_groups
from console.lanes import ANSWER_ERRORS, BUSY, WAITING
from console.page import ConsoleError, Page, Query, Reader, View
from console.tables import ShownTable, Table, TableCell, link, moment
from console.views.topics import group_url, topic_url
from remoting.body.client_connection import Connection, ConsumerConnection
from remoting.body.stats import ConsumeStats, OffsetWrapper
from remoting.mq_version import version_name
from tools.admin_client import AdminClient
from tools.commands.ha_status import duration_text
from tools.report import columns

GROUPS: Final = columns("Group group | Lag diffTotal > | Consumes/s consumeTps >")
QUEUES: Final = columns(
    "Topic topic | Broker brokerName | Queue queueId > | End brokerOffset > | "
    "Consumed up to consumerOffset > | Lag diff > | Last consumed lastTimestamp | "
    "Behind at most behindMs >"
)
MEMBERS: Final = columns(
    "Client clientId | Address clientAddr | Language language | Version version"
)
SUBSCRIPTIONS: Final = columns("Topic topic | Filter subString")
STATS_AGE_MS: Final = 5_000
LIST_AGE_MS: Final = 30_000
COUNTED: Final = 30
"""Groups on a page of the list, whose progress is read: each costs its brokers a request."""


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """What brokers say of a group."""

    stats: ConsumeStats = field(default_factory=ConsumeStats)
    connection: ConsumerConnection | None = None
    problem: str | None = None

    @property
    def lag(self) -> int:
        """Messages of all queues that it has not consumed."""
        return sum(max(_lag(offset), 0) for offset in self.stats.offset_table.values())


def _lag(offset: OffsetWrapper) -> int:
    return offset.broker_offset - offset.consumer_offset


def _see(client: AdminClient, name: str) -> GroupSeen:
    seen = _progress(client, name)
    try:
        return replace(seen, connection=client.find_consumer_connection(name))
    except ANSWER_ERRORS as error:
        said = [seen.problem, str(error)]
        return replace(seen, problem="; ".join(each for each in said if each))


def groups(reader: Reader, query: Query) -> Page:
    """Consumer groups, those of the shown page with their lag and rate, as their brokers tell them.

    begins: only groups that begin so; system=1: RocketMQ's own, too; page.
    """
    begins = query.text("begins")
    with_system = query.choice("system", ("0", "1")) == "1"
    known = known_groups(reader, with_system=with_system)
    names = [name for name in known.names if name.startswith(begins)]
    shown = ShownTable(_groups_table(names, {}), "", query.fields)
    client = reader.laned(LIST_AGE_MS, is_later=True)
    seen = {name: _progress(client, name) for name in (row[0].value for row in shown.rows)}
    return Page(
        context={
            "begins": begins,
            "with_system": with_system,
            "untold": known.untold,
            "counted": len(seen),
        },
        tables=[_groups_table(names, seen)],
    )


def _groups_table(names: Sequence[str], seen: Mapping[str, GroupSeen]) -> Table:
    return Table(
        "groups",
        "Consumer groups",
        GROUPS,
        [_group_row(name, seen.get(name)) for name in names],
        empty_text="There is none.",
        page_rows=COUNTED,
        by_page=frozenset(column.key for column in GROUPS[1:]),
    )


def _progress(client: AdminClient, name: str) -> GroupSeen:
    """Without its members: the list asks its brokers for one thing about each group."""
    try:
        return GroupSeen(client.consume_stats(name))
    except ANSWER_ERRORS as error:
        return GroupSeen(problem=str(error))


def _group_row(name: str, seen: GroupSeen | None) -> list[object]:
    if seen is None:
        return [link(name, group_url(name)), None, None]
    if seen.problem is not None:
        said = "asked soon" if seen.problem in (BUSY, WAITING) else seen.problem
        return [link(name, group_url(name)), TableCell(said, None), None]
    tps = seen.stats.consume_tps
    return [link(name, group_url(name)), seen.lag, TableCell(f"{tps:.1f}", tps)]


def group_page(reader: Reader, query: Query) -> Page:
    """One group: its lag by queue in messages and in time, its members, what it subscribes to.

    name: the group.
    """
    name = query.needed("name")
    seen = _see(reader.laned(STATS_AGE_MS), name)
    if not seen.stats.offset_table and seen.connection is None and seen.problem is None:
        known = known_groups(reader, with_system=True)
        if name not in known.names:
            raise ConsoleError(f"no broker knows a consumer group {name}", 404)
    connection = seen.connection
    subscriptions = [] if connection is None else list(connection.subscription_table.values())
    return Page(
        title=name,
        context={
            "name": name,
            "problem": seen.problem,
            "lag": seen.lag,
            "tps": seen.stats.consume_tps,
            "connection": connection,
            "crumbs": [("Consumer groups", "/groups")],
        },
        tables=[
            Table(
                "queues",
                "Progress",
                QUEUES,
                _queue_rows(seen.stats, reader.now_ms),
                empty_text="It has consumed nothing yet.",
                sort="diff",
                descending=True,
            ),
            Table(
                "members",
                "Members",
                MEMBERS,
                [_member(member) for member in (connection.connection_set if connection else ())],
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


def _queue_rows(stats: ConsumeStats, now_ms: int) -> list[list[object]]:
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
            ]
        )
    return rows


def _behind(ms: int | None) -> TableCell | None:
    """The oldest message that waits is younger than the last that was consumed."""
    if ms is None:
        return None
    return TableCell(f"≤ {duration_text(ms / 1000)}" if ms else "0 s", ms)


def _member(member: Connection) -> list[object]:
    return [
        member.client_id,
        member.client_addr,
        member.language,
        version_name(member.version),
    ]


VIEWS: Final = [
    View("/groups", "Consumer groups", "Topics", "groups.html.j2", groups),
    View("/group", "Consumer group", "", "consumer_group.html.j2", group_page),
]
