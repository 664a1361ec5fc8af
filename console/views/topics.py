"""Topics: all of them, one of them with its queues, groups and routes; create, alter, delete.

Tested by tests/console/test_topics_view.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from console.lanes import ANSWER_ERRORS
from console.page import Action, ConsoleError, Done, Field, Page, Query, Reader, View
from console.snapshot import ClusterSnapshot
from console.tables import Table, TableCell, badge, link, moment
from remoting.body.route import QueueData, TopicRouteData
from remoting.body.stats import TopicStatsTable
from remoting.headers.topic import CreateTopicRequestHeader
from remoting.request_code import RequestCode
from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient, unknown
from tools.commands.ha_status import duration_text
from tools.message_sender import TEMPLATE_TOPIC
from tools.removal import delete_topic
from tools.report import columns

TOPICS: Final = columns("Topic topic | Kind kind")
QUEUES: Final = columns(
    "Broker brokerName | Queue queueId > | First minOffset > | End maxOffset > | Depth depth > | "
    "Newest lastUpdateTimestamp | Age ageMs >"
)
ROUTES: Final = columns(
    "Broker brokerName | Read queues readQueueNums > | Write queues writeQueueNums > | "
    "Permission perm | Master master"
)
CONSUMERS: Final = columns("Group group")
KINDS: Final = ("normal", "retry", "dead letters", "system")
STATS_AGE_MS: Final = 5_000
MAX_QUEUES: Final = 65_536
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
    """All topics that the name servers know.

    kind: normal (the default), retry, dead letters, system, all.
    """
    wanted = query.choice("kind", (*KINDS, "all"))
    told = reader.snapshot.topics
    rows: list[list[object]] = []
    own = own_names(reader.snapshot)
    for topic in told.value or ():
        kind = topic_kind(topic, own)
        if wanted in (kind, "all"):
            rows.append([link(topic, topic_url(topic)), kind])
    return Page(
        context={"wanted": wanted, "kinds": (*KINDS, "all"), "problem": told.error},
        tables=[Table("topics", "Topics", TOPICS, rows, empty_text="There is none of this kind.")],
    )


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """What brokers and name servers say of a topic."""

    route: TopicRouteData
    stats: TopicStatsTable
    groups: tuple[str, ...]
    problem: str | None = None


def _see(client: AdminClient, name: str) -> TopicSeen:
    route = client.find_route(name)
    if route is None:
        raise ConsoleError(unknown("topic", name, client.topic_names()), 404)
    try:
        stats = client.topic_stats(name)
        return TopicSeen(route, stats, tuple(client.groups_of_topic(name, route)))
    except ANSWER_ERRORS as error:
        return TopicSeen(route, TopicStatsTable(), (), str(error))


def topic_page(reader: Reader, query: Query) -> Page:
    """One topic: its queues with their ends and depth, the groups that consume it, its routes.

    name: the topic.
    """
    name = query.needed("name")
    seen = _see(reader.laned(STATS_AGE_MS), name)
    masters = {data.broker_name: data.broker_addrs.get(0) for data in seen.route.broker_datas}
    return Page(
        title=name,
        context={
            "name": name,
            "kind": topic_kind(name, own_names(reader.snapshot)),
            "problem": seen.problem,
            "crumbs": [("Topics", "/topics")],
        },
        tables=[
            Table(
                "queues",
                "Queues",
                QUEUES,
                _queue_rows(seen.stats, reader.now_ms),
                empty_text="No broker tells of a queue.",
            ),
            Table(
                "consumers",
                "Consumer groups",
                CONSUMERS,
                [[link(group, group_url(group))] for group in seen.groups],
                empty_text="No group consumes it.",
            ),
            Table(
                "routes",
                "Routes",
                ROUTES,
                [_route_row(queues, masters) for queues in seen.route.queue_datas],
            ),
        ],
    )


def group_url(group: str) -> str:
    """The page of a consumer group."""
    return "/group?" + urlencode({"name": group}, errors="replace")


def _queue_rows(stats: TopicStatsTable, now_ms: int) -> list[list[object]]:
    rows = []
    for queue in sorted(stats.offset_table, key=lambda q: (q.broker_name, q.queue_id)):
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
                moment(newest),
                None if age_ms is None else TableCell(duration_text(age_ms / 1000), age_ms),
            ]
        )
    return rows


def _route_row(queues: QueueData, masters: dict[str, str | None]) -> list[object]:
    master = masters.get(queues.broker_name)
    return [
        queues.broker_name,
        queues.read_queue_nums,
        queues.write_queue_nums,
        PERMISSIONS.get(queues.perm, str(queues.perm)),
        master or badge("silent", "no master"),
    ]


# -- changes ---------------------------------------------------------------------------------------


def _header(query: Query) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(
        topic=query.needed("topic"),
        default_topic=TEMPLATE_TOPIC,
        read_queue_nums=query.number("readQueues", 8, 1, MAX_QUEUES),
        write_queue_nums=query.number("writeQueues", 8, 1, MAX_QUEUES),
        perm=int(query.choice("perm", ("6", "4", "2"))),
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
        attributes=query.text("attributes") or None,
    )


def _plan_update(reader: Reader, query: Query) -> list[str]:
    header, client = _header(query), reader.client()
    masters = client.masters(query.needed("cluster"))
    route = client.find_route(header.topic)
    before = {data.broker_name: data for data in route.queue_datas} if route else {}
    sentences = []
    for master in masters:
        old = before.get(master.broker_name)
        new = (
            f"{header.read_queue_nums} read and {header.write_queue_nums} write queues, "
            f"{PERMISSIONS[header.perm]}"
        )
        if old is None:
            sentences.append(f"{master.broker_name}: topic {header.topic} is created with {new}.")
        else:
            was = (
                f"{old.read_queue_nums} read and {old.write_queue_nums} write queues, "
                f"{PERMISSIONS.get(old.perm, old.perm)}"
            )
            sentences.append(f"{master.broker_name}: {was} become {new}.")
    return sentences


def _update(reader: Reader, query: Query) -> Done:
    header, client = _header(query), reader.client()
    done, failed = [], []
    for master in client.masters(query.needed("cluster")):
        try:
            client.call(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            done.append(master.broker_name)
        except ANSWER_ERRORS as error:
            failed.append(str(error))
    sentences = [f"Topic {header.topic}: done at {', '.join(done) or 'no broker'}.", *failed]
    return Done(sentences, topic_url(header.topic), ok=not failed)


def _plan_delete(reader: Reader, query: Query) -> list[str]:
    topic, cluster, client = query.needed("topic"), query.needed("cluster"), reader.client()
    masters = client.masters(cluster)
    client.route(topic)
    stats = client.topic_stats(topic).offset_table.values()
    count = sum(max(offset.max_offset - offset.min_offset, 0) for offset in stats)
    names = ", ".join(master.broker_name for master in masters)
    return [
        f"Topic {topic} is deleted at {names}, then at the name servers.",
        f"Its {count} messages can no longer be consumed.",
    ]


def _delete(reader: Reader, query: Query) -> Done:
    topic = query.needed("topic")
    targets = delete_topic(reader.client(), topic, query.needed("cluster"))
    return Done([f"Topic {topic} was deleted at {', '.join(targets)}."], "/topics")


VIEWS: Final = [
    View("/topics", "Topics", "Topics", "topics.html.j2", topics),
    View("/topic", "Topic", "", "topic.html.j2", topic_page),
]
_CLUSTER: Final = Field("cluster", "Cluster", default="DefaultCluster")
ACTIONS: Final = [
    Action(
        "updateTopic",
        "Create or change the topic",
        [
            Field("topic", "Topic"),
            _CLUSTER,
            Field("readQueues", "Read queues", kind="number", needed=False, default="8"),
            Field("writeQueues", "Write queues", kind="number", needed=False, default="8"),
            Field(
                "perm",
                "Permission (6 both, 4 read, 2 write)",
                "select",
                ("6", "4", "2"),
                needed=False,
            ),
            Field("attributes", "Attributes of 5.x", needed=False, help="+message.type=FIFO"),
        ],
        _plan_update,
        _update,
    ),
    Action(
        "deleteTopic",
        "Delete the topic",
        [Field("topic", "Topic"), _CLUSTER],
        _plan_delete,
        _delete,
        is_destructive=True,
    ),
]
