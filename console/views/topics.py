"""Topics: all of them, one of them with its queues, groups and routes; create, alter, delete.

Tested by tests/console/test_topic_page.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from console.cells import rate_cell, whole
from console.lanes import ANSWER_ERRORS
from console.page import ConsoleError, Page, Query, Reader, View
from console.replies import MOST_AT_ONCE
from console.snapshot import ClusterSnapshot
from console.tables import ShownTable, Table, TableCell, badge, link, moment
from console.topic_answers import (
    MOST_QUEUES,
    Settings,
    flow_in,
    flow_out,
    oldest_times,
    topic_settings,
)
from remoting.body.message_queue import MessageQueue
from remoting.body.route import QueueData, TopicRouteData
from remoting.body.stats import TopicStatsTable
from remoting.body.topic_config import TopicConfig
from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient, broker_address, unknown
from tools.commands.ha_status import duration_text
from tools.commands.stats import Flow
from tools.commands.topic import status_report
from tools.report import columns

TOPICS: Final = columns("Topic topic | Kind kind")
QUEUES: Final = columns(
    "Broker brokerName | Queue queueId > | First minOffset > | End maxOffset > | Depth depth > | "
    "Oldest oldestTimestamp | Newest lastUpdateTimestamp | Age ageMs >"
)
ROUTES: Final = columns(
    "Broker brokerName | Read queues readQueueNums > | Write queues writeQueueNums > | "
    "Permission perm | Master master"
)
SETTINGS: Final = columns(
    "Broker brokerName | Read queues readQueueNums > | Write queues writeQueueNums > | "
    "Permission perm | Message type messageType | In order order | Attributes attributes"
)
CONSUMERS: Final = columns("Group group | Out/s outTps > | Out in a day outMsg24Hour >")
COUNTED: Final = 10
"""Groups on a page of a topic's, whose rate is read: each costs its brokers a request."""
KINDS: Final = ("normal", "retry", "dead letters", "system")
STATS_AGE_MS: Final = 5_000
MESSAGE_TYPE: Final = "message.type"
PERMISSIONS: Final = {6: "read and write", 4: "read", 2: "write", 0: "none"}
_SYSTEM: Final = frozenset(
    {
        *("TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX"),
        *("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        *("TRANS_CHECK_MAX_TIME_TOPIC", "BenchmarkTest", "DefaultHeartBeatSyncerTopic"),
    }
)


def own_names(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Topics that each broker has for itself, by the names of brokers and clusters."""
    names: set[str] = set()
    for broker in snapshot.brokers:
        place = broker.place
        names |= {place.broker_name, place.cluster, f"{place.cluster}_REPLY_TOPIC"}
    return frozenset(names)


def topic_kind(topic: str, own: Collection[str] = ()) -> str:
    """By its name. `own`: see own_names."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead letters"
    is_system = topic.startswith(("rmq_sys_", "RMQ_SYS_")) or topic in _SYSTEM or topic in own
    return "system" if is_system else "normal"


def topic_url(topic: str) -> str:
    """The page of a topic."""
    return "/topic?" + urlencode({"name": topic}, errors="replace")


def topics(reader: Reader, query: Query) -> Page:
    """All topics that the name servers know. Without a kind the JSON has all names, as topicList.

    kind: normal (the default), retry, dead letters, system, all.
    """
    wanted = query.choice("kind", (*KINDS, "all"))
    told = reader.snapshot.topics
    rows: list[list[object]] = []
    names: list[str] = []
    own = own_names(reader.snapshot)
    for topic in told.value or ():
        kind = topic_kind(topic, own)
        if wanted in (kind, "all"):
            names.append(topic)
            rows.append([link(topic, topic_url(topic)), kind])
    return Page(
        context={"wanted": wanted, "kinds": (*KINDS, "all"), "problem": told.error},
        tables=[Table("topics", "Topics", TOPICS, rows, empty_text="There is none of this kind.")],
        data=names if query.text("kind") else list(told.value or ()),
    )


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """What brokers and name servers say of a topic."""

    name: str
    route: TopicRouteData
    stats: TopicStatsTable
    groups: tuple[str, ...]
    problem: str | None = None

    @property
    def masters(self) -> list[tuple[str, str]]:
        """Name and address of one broker of each name: its master, if it runs."""
        found = [(data.broker_name, broker_address(data)) for data in self.route.broker_datas]
        return sorted((name, address) for name, address in found if address is not None)


def _see(client: AdminClient, name: str) -> TopicSeen:
    route = client.find_route(name)
    if route is None:
        raise ConsoleError(unknown("topic", name, client.topic_names()), 404)
    stats, problems = TopicStatsTable(), []
    groups: tuple[str, ...] = ()
    try:
        stats = client.topic_stats(name)
    except ANSWER_ERRORS as error:
        problems.append(str(error))
    try:
        groups = tuple(client.groups_of_topic(name, route))
    except ANSWER_ERRORS as error:
        problems.append(str(error))
    return TopicSeen(name, route, stats, groups, "; ".join(problems) or None)


def topic_page(reader: Reader, query: Query) -> Page:
    """One topic: rates, its queues with their ends, depth and span, who consumes it, its settings.

    name: the topic.
    """
    name = query.needed("name")
    seen = _see(reader.laned(STATS_AGE_MS), name)
    masters = {data.broker_name: data.broker_addrs.get(0) for data in seen.route.broker_datas}
    brokers = [address for _, address in seen.masters]
    oldest = _oldest(reader, query, seen)
    settings = topic_settings(reader, name, seen.masters)
    into = flow_in(reader, name, brokers)
    return Page(
        title=name,
        context={
            "name": name,
            "kind": topic_kind(name, own_names(reader.snapshot)),
            "problem": seen.problem,
            "into": None if into is None else (rate_cell(into.tps), whole(into.day)),
            "brokers_asked": min(len(brokers), MOST_AT_ONCE),
            "brokers": len(brokers),
            "oldest_ms": min(oldest.values(), default=None),
            "most_queues": MOST_QUEUES,
            "settings_problems": [
                f"{one.broker_name} did not tell the topic's settings: {one.problem}"
                for one in settings
                if one.problem
            ],
            "crumbs": [("Topics", "/topics")],
        },
        tables=[
            _queues_table(seen.stats, oldest, reader.now_ms),
            _consumers_table(reader, query, seen, brokers),
            Table(
                "settings",
                "Settings",
                SETTINGS,
                [_settings_row(one) for one in settings if one.config is not None],
                empty_text="No broker tells them.",
            ),
            Table(
                "routes",
                "Routes",
                ROUTES,
                [_route_row(queues, masters) for queues in seen.route.queue_datas],
            ),
        ],
        data=status_report(seen.stats.offset_table).data,
    )


def _oldest(reader: Reader, query: Query, seen: TopicSeen) -> dict[MessageQueue, int]:
    """Of the first queues on the page that is shown which have messages."""
    addresses = dict(seen.masters)
    shown = ShownTable(_queues_table(seen.stats, {}, 0), "", query.fields, only=False)
    wanted = {(row[0].value, row[1].value): row[4].value for row in shown.rows}
    queues = [
        (queue, addresses[queue.broker_name])
        for queue in _in_order(seen.stats)
        if wanted.get((queue.broker_name, queue.queue_id)) and queue.broker_name in addresses
    ]
    return oldest_times(reader, queues)


def _in_order(stats: TopicStatsTable) -> list[MessageQueue]:
    return sorted(stats.offset_table, key=lambda queue: (queue.broker_name, queue.queue_id))


def _consumers_table(reader: Reader, query: Query, seen: TopicSeen, brokers: list[str]) -> Table:
    def made(flows: Mapping[str, Flow | None]) -> Table:
        return Table(
            "consumers",
            "Consumer groups",
            CONSUMERS,
            [_consumer(group, flows.get(group)) for group in seen.groups],
            empty_text="No group consumes it.",
            page_rows=COUNTED,
            by_page=frozenset(column.key for column in CONSUMERS[1:]),
        )

    shown = ShownTable(made({}), "", query.fields, only=False)
    groups = [row[0].value for row in shown.rows]
    return made({group: flow_out(reader, seen.name, group, brokers) for group in groups})


def _consumer(group: str, out: Flow | None) -> list[object]:
    figures = [None, None] if out is None else [rate_cell(out.tps), whole(out.day)]
    return [link(group, group_url(group)), *figures]


def _settings_row(one: Settings) -> list[object]:
    config = one.config or TopicConfig(topic_name="")
    attributes = config.attributes or {}
    kind = attributes.get(MESSAGE_TYPE, "NORMAL") if one.is_of_5x else None
    return [
        one.broker_name,
        config.read_queue_nums,
        config.write_queue_nums,
        PERMISSIONS.get(config.perm, str(config.perm)),
        kind,
        "yes" if config.order else "no",
        ", ".join(f"{key}={value}" for key, value in sorted(attributes.items())) or None,
    ]


def group_url(group: str) -> str:
    """The page of a consumer group."""
    return "/group?" + urlencode({"name": group}, errors="replace")


def _queues_table(stats: TopicStatsTable, oldest: Mapping[MessageQueue, int], now_ms: int) -> Table:
    rows = []
    for queue in _in_order(stats):
        offset = stats.offset_table[queue]
        newest = offset.last_update_timestamp
        age_ms = max(now_ms - newest, 0) if newest > 0 else None
        rows.append(
            [
                queue.broker_name,
                queue.queue_id,
                offset.min_offset,
                offset.max_offset,
                max(offset.max_offset - offset.min_offset, 0),
                moment(oldest.get(queue)),
                moment(newest),
                None if age_ms is None else TableCell(duration_text(age_ms / 1000), age_ms),
            ]
        )
    return Table(
        "queues",
        "Queues",
        QUEUES,
        rows,
        empty_text="No broker tells of a queue.",
        by_page=frozenset({"oldestTimestamp"}),
    )


def _route_row(queues: QueueData, masters: dict[str, str | None]) -> list[object]:
    master = masters.get(queues.broker_name)
    return [
        queues.broker_name,
        queues.read_queue_nums,
        queues.write_queue_nums,
        PERMISSIONS.get(queues.perm, str(queues.perm)),
        master or badge("silent", "no master"),
    ]


VIEWS: Final = [
    View("/topics", "Topics", "Topics", "topics.html.j2", topics),
    View("/topic", "Topic", "", "topic.html.j2", topic_page),
]
