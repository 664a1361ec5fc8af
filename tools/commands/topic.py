"""Topics as the name server and brokers know them: topicList, topicRoute, topicStatus,
topicClusterList, allocateMQ, and the entries of one consume queue: queryCq.

(Java: TopicListSubCommand, TopicRouteSubCommand, TopicStatusSubCommand, TopicClusterSubCommand,
AllocateMQSubCommand, QueryConsumeQueueCommand.)

Tested by tests/tools/test_mqadmin_every_command.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import click
import msgspec

from remoting.body.message_queue import MessageQueue
from remoting.body.query_queue import ConsumeQueueData, QueryConsumeQueueResponseBody
from remoting.body.route import TopicRouteData
from remoting.body.stats import TopicOffset
from remoting.headers.admin import QueryConsumeQueueRequestHeader
from remoting.remoting_serializable import dumps_java, dumps_java_pretty
from remoting.request_code import RequestCode
from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient, addresses
from tools.command_line import command
from tools.errors import AdminError
from tools.message_puller import readable_queues
from tools.message_text import time_text
from tools.options import FLAG, NATURAL, POSITIVE, Topic
from tools.report import Cell, Report, columns, safe_line, safe_text, table

LIST_COLUMNS: Final = columns(
    "#Cluster Name clusterName | #Topic topic | #Consumer Group consumerGroup"
)
ROUTE_COLUMNS: Final = columns(
    "#ClusterName clusterName | #BrokerName brokerName | #BrokerAddrs brokerAddrs | "
    "#ReadQueue readQueueNums | #WriteQueue writeQueueNums | #Perm perm"
)
STATUS_COLUMNS: Final = columns(
    "#Broker Name brokerName | #QID queueId | #Min Offset minOffset | #Max Offset maxOffset | "
    "#Last Updated lastUpdateTimestamp"
)


@command("topicList")
def topic_list(
    admin: AdminClient,
    with_clusters: Annotated[bool, "-c --clusterModel", "Add cluster and groups.", FLAG],
) -> Report:
    """Topic names; with -c one row for each topic and consumer group."""
    names = admin.topic_names()
    if not with_clusters:
        return Report("\n".join(safe_line(name) for name in names), names)
    rows: list[tuple[str, str, str]] = []
    for topic in names:
        if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            rows += _cluster_rows(admin, topic)
    return table(LIST_COLUMNS, rows)


def _cluster_rows(admin: AdminClient, topic: str) -> list[tuple[str, str, str]]:
    route = admin.find_route(topic)
    if route is None:
        return []
    cluster = ",".join(_clusters(route))
    return [(cluster, topic, group) for group in admin.groups_of_topic(topic, route) or [""]]


def _clusters(route: TopicRouteData) -> list[str]:
    return sorted({data.cluster or "" for data in route.broker_datas})


@command("topicClusterList")
def topic_cluster_list(admin: AdminClient, topic: Topic) -> Report:
    """The clusters whose brokers have the topic."""
    clusters = _clusters(admin.route(topic))
    return Report("\n".join(clusters), clusters)


@command("topicRoute")
def topic_route(
    admin: AdminClient, topic: Topic, as_list: Annotated[bool, "-l --list", "Print a table.", FLAG]
) -> Report:
    """The route in RocketMQ's JSON, or with -l as a table."""
    route = admin.route(topic)
    data = msgspec.json.decode(route.to_standard_json_bytes())
    if as_list:
        return Report(_route_table(route), data)
    return Report(dumps_java_pretty(route.to_json()).decode(), data)


def _route_table(route: TopicRouteData) -> str:
    queues = {data.broker_name: data for data in route.queue_datas}
    rows: list[list[object]] = []
    reads = writes = 0
    for broker in sorted(route.broker_datas, key=lambda data: data.broker_name):
        queue = queues.get(broker.broker_name)
        if queue is None:
            continue
        reads += queue.read_queue_nums
        writes += queue.write_queue_nums
        members = ", ".join(f"{n}={addr}" for n, addr in sorted(broker.broker_addrs.items()))
        numbers = [queue.read_queue_nums, queue.write_queue_nums, queue.perm]
        rows.append([broker.cluster or "", broker.broker_name, f"{{{members}}}", *numbers])
    return _with_total(rows, ["Total:", len(rows), "", reads, writes, ""])


def _with_total(rows: list[list[object]], total: list[object]) -> str:
    lines = table(ROUTE_COLUMNS, [*rows, total]).text.splitlines()
    return "\n".join([*lines[:-1], "-" * max(map(len, lines)), lines[-1]])


@command("topicStatus")
def topic_status(
    admin: AdminClient,
    topic: Topic,
    route_of: Annotated[
        str | None, "-c --cluster", "Ask the brokers of this cluster or topic instead."
    ],
) -> Report:
    """One row for each queue: first and next offset, time of the newest message."""
    offsets = admin.topic_stats(topic, route_of).offset_table
    if not offsets:
        raise AdminError(f"no broker has statistics of topic {topic}")
    return status_report(offsets)


def status_report(offsets: Mapping[MessageQueue, TopicOffset]) -> Report:
    """What topicStatus prints of these."""
    queues = sorted(offsets, key=lambda queue: (queue.broker_name, queue.queue_id))
    rows = []
    for queue in queues:
        offset = offsets[queue]
        updated = offset.last_update_timestamp
        shown = Cell(time_text(updated) if updated > 0 else "", updated)
        rows.append(
            (queue.broker_name, queue.queue_id, offset.min_offset, offset.max_offset, shown)
        )
    return table(STATUS_COLUMNS, rows)


@command("allocateMQ")
def allocate_mq(
    admin: AdminClient,
    topic: Topic,
    ip_list: Annotated[str, "-i --ipList", "Consumers, separated by commas."],
) -> Report:
    """How the averaging strategy would share the queues among these consumers."""
    members = [member.strip() for member in ip_list.split(",") if member.strip()]
    if len(set(members)) != len(members) or not members:
        raise click.UsageError("-i: a comma list of consumers, each once")
    queues = readable_queues(admin.route(topic), topic)
    shares = allocate_averagely(queues, len(members))
    result: dict[str, Any] = {
        "result": {
            member: [queue.to_json() for queue in share]
            for member, share in zip(members, shares, strict=True)
        }
    }
    return Report(dumps_java(result).decode(), result)


def allocate_averagely(queues: Sequence[MessageQueue], count: int) -> list[list[MessageQueue]]:
    """Neighbouring queues for each of `count` members, the first ones get one more."""
    each, more = divmod(len(queues), count)
    shares = []
    position = 0
    for index in range(count):
        size = each + (index < more)
        shares.append(list(queues[position : position + size]))
        position += size
    return shares


RULER: Final = "=" * 38


@command("queryCq")
def query_cq(
    admin: AdminClient,
    *,
    topic: Topic,
    queue_id: Annotated[int, "-q --queue", "Queue id.", NATURAL],
    index: Annotated[int, "-i --index", "First queue offset.", NATURAL],
    count: Annotated[int, "-c --count", "How many [10].", POSITIVE] = 10,
    address: Annotated[str | None, "-b --broker", "Broker address [default: the topic's first]."],
    group: Annotated[
        str | None, "-g --consumer", "Also show whether this group's filter matches each."
    ],
) -> Report:
    """Positions of the messages in the commit log, and their tags' hash codes."""
    target = address if address is not None else _first_broker(admin, topic)
    header = QueryConsumeQueueRequestHeader(
        topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
    )
    response = admin.call(target, RequestCode.QUERY_CONSUME_QUEUE, header)
    if not response.body:
        reason = response.remark or "no remark"
        raise AdminError(f"{target} has no entry {index} in queue {queue_id} of {topic}: {reason}")
    body = QueryConsumeQueueResponseBody.from_json_bytes(response.body)
    return Report("\n".join(_lines(body, index)), {"brokerAddr": target, **body.to_json()})


def _first_broker(admin: AdminClient, topic: str) -> str:
    found = addresses(admin.route(topic))
    if not found:
        raise AdminError(f"topic {topic} has no running broker")
    return found[0]


def _lines(body: QueryConsumeQueueResponseBody, index: int) -> list[str]:
    lines = []
    if body.subscription_data is not None:
        subscription = dumps_java_pretty(body.subscription_data.to_json()).decode()
        lines += ["Subscription data: ", safe_text(subscription), RULER]
    if body.filter_data is not None:
        lines += ["Filter data: ", safe_text(body.filter_data), RULER]
    lines += ["Queue data: ", f"max: {body.max_queue_index}, min: {body.min_queue_index}", RULER]
    for position, entry in enumerate(body.queue_data, start=index):
        lines += [f"idx: {position}", _entry_text(entry), RULER]
    return lines


def _entry_text(entry: ConsumeQueueData) -> str:
    """An entry as Java's ConsumeQueueData prints itself."""
    texts = {"extendDataJson": entry.extend_data_json, "bitMap": entry.bit_map, "msg": entry.msg}
    quoted = {name: f"'{'null' if text is None else text}'" for name, text in texts.items()}
    return safe_line(
        f"ConsumeQueueData{{physicOffset={entry.physic_offset}, physicSize={entry.physic_size}, "
        f"tagsCode={entry.tags_code}, extendDataJson={quoted['extendDataJson']}, "
        f"bitMap={quoted['bitMap']}, eval={str(entry.eval).lower()}, msg={quoted['msg']}}}"
    )
