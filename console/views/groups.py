"""Consumer groups: all of them, one with its lag by queue and its members; settings and resets.

Tested by tests/console/test_topics_view.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from console.lanes import ANSWER_ERRORS, WAITING
from console.page import Action, ConsoleError, Done, Field, Page, Query, Reader, View
from console.tables import Table, TableCell, link, moment
from console.views.topics import group_url, topic_url
from remoting.body.client_connection import Connection, ConsumerConnection
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import ConsumeStats, OffsetWrapper
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.mq_version import version_name
from remoting.request_code import RequestCode
from tools.admin_client import RETRY_PREFIX, AdminClient
from tools.commands.ha_status import duration_text
from tools.commands.offset import reset_by_time
from tools.message_puller import MessagePuller
from tools.report import columns

GROUPS: Final = columns("Group group | Lag diffTotal > | Consumes/s consumeTps >")
QUEUES: Final = columns(
    "Topic topic | Broker brokerName | Queue queueId > | End brokerOffset > | "
    "Consumed up to consumerOffset > | Lag diff > | Last consumed lastTimestamp | Behind behindMs >"
)
MEMBERS: Final = columns(
    "Client clientId | Address clientAddr | Language language | Version version"
)
SUBSCRIPTIONS: Final = columns("Topic topic | Filter subString")
STATS_AGE_MS: Final = 5_000
LIST_AGE_MS: Final = 30_000
COUNTED: Final = 30
"""Groups whose progress is read for the list: each costs its brokers a request."""


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
    try:
        return GroupSeen(client.consume_stats(name), client.find_consumer_connection(name))
    except ANSWER_ERRORS as error:
        return GroupSeen(problem=str(error))


def group_names(reader: Reader) -> list[str]:
    """Groups that have a retry topic at a name server: all that ever consumed in clustering."""
    topics = reader.snapshot.topics.value or ()
    return [topic[len(RETRY_PREFIX) :] for topic in topics if topic.startswith(RETRY_PREFIX)]


def groups(reader: Reader, query: Query) -> Page:
    """All consumer groups; of the first thirty also lag and rate, as their brokers tell them.

    begins: only groups that begin so.
    """
    begins = query.text("begins")
    names = [name for name in group_names(reader) if name.startswith(begins)]
    client = reader.laned(LIST_AGE_MS, is_later=True)
    seen = [_progress(client, name) for name in names[:COUNTED]]
    rows: list[list[object]] = [
        _group_row(name, found) for name, found in zip(names, seen, strict=False)
    ]
    rows += [[link(name, group_url(name)), None, None] for name in names[COUNTED:]]
    return Page(
        context={"begins": begins, "uncounted": max(len(names) - COUNTED, 0)},
        tables=[
            Table("groups", "Consumer groups", GROUPS, rows, empty_text="There is none."),
        ],
    )


def _progress(client: AdminClient, name: str) -> GroupSeen:
    """Without its members: the list asks its brokers for one thing about each group."""
    try:
        return GroupSeen(client.consume_stats(name))
    except ANSWER_ERRORS as error:
        return GroupSeen(problem=str(error))


def _group_row(name: str, seen: GroupSeen) -> list[object]:
    if seen.problem is not None:
        said = "asked soon" if seen.problem == WAITING else seen.problem
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
        known = name in group_names(reader)
        if not known:
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
    """How long ago the last message that was consumed was stored; nothing when all is consumed."""
    if ms is None:
        return None
    return TableCell(duration_text(ms / 1000) if ms else "0 s", ms)


def _member(member: Connection) -> list[object]:
    return [
        member.client_id,
        member.client_addr,
        member.language,
        version_name(member.version),
    ]


# -- changes ---------------------------------------------------------------------------------------


def _config(query: Query) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(
        group_name=query.needed("group"),
        consume_enable=query.choice("consume", ("true", "false")) == "true",
        retry_queue_nums=query.number("retryQueues", 1, 0, 1_000),
        retry_max_times=query.number("retries", 16, -1, 1_000),
    )


def _plan_group(reader: Reader, query: Query) -> list[str]:
    config, client = _config(query), reader.client()
    what = (
        f"may consume: {config.consume_enable}, {config.retry_max_times} retries, "
        f"{config.retry_queue_nums} retry queues"
    )
    masters = client.masters(query.needed("cluster"))
    return [f"{each.broker_name}: group {config.group_name}, {what}." for each in masters]


def _update_group(reader: Reader, query: Query) -> Done:
    config, client = _config(query), reader.client()
    code, done, failed = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, [], []
    for master in client.masters(query.needed("cluster")):
        try:
            client.call(master.address, code, body=config.to_json_bytes())
            done.append(master.broker_name)
        except ANSWER_ERRORS as error:
            failed.append(str(error))
    sentences = [f"Group {config.group_name}: done at {', '.join(done) or 'no broker'}.", *failed]
    return Done(sentences, group_url(config.group_name or ""), ok=not failed)


def _new_offsets(
    client: AdminClient, query: Query
) -> list[tuple[MessageQueue, OffsetWrapper, int]]:
    """Each queue of the topic with what the group has consumed, and where it would go on."""
    group, topic = query.needed("group"), query.needed("topic")
    when_ms = query.time_ms("time")
    if when_ms is None:
        raise ConsoleError("time is missing")
    stats = client.consume_stats(group, topic)
    puller = MessagePuller(client, topic)
    found = []
    for queue in puller.queues():
        offset = stats.offset_table.get(queue)
        if offset is not None:
            found.append((queue, offset, puller.search_offset(queue, when_ms)))
    if not found:
        raise ConsoleError(f"group {group} has consumed nothing of topic {topic} yet")
    return found


def _plan_reset(reader: Reader, query: Query) -> list[str]:
    found = _new_offsets(reader.client(), query)
    moved = sum(offset.consumer_offset - new for _, offset, new in found)
    words = f"{moved} messages are consumed again" if moved >= 0 else f"{-moved} are skipped"
    return [
        f"Group {query.needed('group')} goes on from there in topic {query.needed('topic')}: "
        f"{words}.",
        *(
            f"{queue.broker_name} queue {queue.queue_id}: {offset.consumer_offset} becomes {new}."
            for queue, offset, new in found
        ),
    ]


def _reset(reader: Reader, query: Query) -> Done:
    group, topic = query.needed("group"), query.needed("topic")
    when_ms = query.time_ms("time")
    if when_ms is None:
        raise ConsoleError("time is missing")
    data = reset_by_time(reader.client(), group, topic, when_ms).data
    who = "its members were told" if data["online"] else "nobody is online: set at the brokers"
    lines = [
        f"{row['brokerName']} queue {row['queueId']}: "
        f"{row.get('offset', row.get('rollbackOffset'))}."
        for row in data["queues"]
    ]
    return Done([f"Group {group}, topic {topic}: {who}.", *lines], group_url(group))


VIEWS: Final = [
    View("/groups", "Consumer groups", "Topics", "groups.html.j2", groups),
    View("/group", "Consumer group", "", "consumer_group.html.j2", group_page),
]
ACTIONS: Final = [
    Action(
        "updateGroup",
        "Create or change the group",
        [
            Field("group", "Group"),
            Field("cluster", "Cluster", default="DefaultCluster"),
            Field("consume", "May consume", "select", ("true", "false"), needed=False),
            Field("retries", "Retries", kind="number", needed=False, default="16"),
            Field("retryQueues", "Retry queues", kind="number", needed=False, default="1"),
        ],
        _plan_group,
        _update_group,
    ),
    Action(
        "resetOffset",
        "Reset the group's offsets",
        [
            Field("group", "Group"),
            Field("topic", "Topic"),
            Field("time", "To the time (UTC)", kind="datetime-local"),
        ],
        _plan_reset,
        _reset,
        is_destructive=True,
    ),
]
