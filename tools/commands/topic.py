"""Topics as the name server and brokers know them: topicList, topicRoute,
topicStatus, topicClusterList, allocateMQ.

(Java: TopicListSubCommand, TopicRouteSubCommand, TopicStatusSubCommand, TopicClusterSubCommand,
AllocateMQSubCommand.)

Tested by tests/tools/test_mqadmin_every_command.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from remoting.body.message_queue import MessageQueue
from remoting.body.route import TopicRouteData
from remoting.remoting_serializable import dumps_java, dumps_java_pretty
from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.message_puller import readable_queues
from tools.message_text import time_text
from tools.report import Column, Report, safe_line, table

LIST_COLUMNS = (
    Column("#Cluster Name", "clusterName"),
    Column("#Topic", "topic"),
    Column("#Consumer Group", "consumerGroup"),
)
ROUTE_COLUMNS = (
    Column("#ClusterName", "clusterName"),
    Column("#BrokerName", "brokerName"),
    Column("#BrokerAddrs", "brokerAddrs"),
    Column("#ReadQueue", "readQueueNums"),
    Column("#WriteQueue", "writeQueueNums"),
    Column("#Perm", "perm"),
)
STATUS_COLUMNS = (
    Column("#Broker Name", "brokerName"),
    Column("#QID", "queueId"),
    Column("#Min Offset", "minOffset"),
    Column("#Max Offset", "maxOffset"),
    Column("#Last Updated", "lastUpdated"),
)


@command("topicList")
@click.option("-c", "--clusterModel", "with_clusters", is_flag=True, help="Add cluster and groups.")
def topic_list(admin: AdminClient, with_clusters: bool) -> Report:
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
@click.option("-t", "--topic", required=True, help="Topic name.")
def topic_cluster_list(admin: AdminClient, topic: str) -> Report:
    """The clusters whose brokers have the topic."""
    clusters = _clusters(admin.route(topic))
    return Report("\n".join(clusters), clusters)


@command("topicRoute")
@click.option("-t", "--topic", required=True, help="Topic name.")
@click.option("-l", "--list", "as_list", is_flag=True, help="Print a table.")
def topic_route(admin: AdminClient, topic: str, as_list: bool) -> Report:
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
@click.option("-t", "--topic", required=True, help="Topic name.")
@click.option(
    "-c", "--cluster", "route_of", help="Ask the brokers of this cluster or topic instead."
)
def topic_status(admin: AdminClient, topic: str, route_of: str | None) -> Report:
    """One row for each queue: first and next offset, time of the newest message."""
    offsets = admin.topic_stats(topic, route_of).offset_table
    if not offsets:
        raise AdminError(f"no broker has statistics of topic {topic}")
    queues = sorted(offsets, key=lambda queue: (queue.broker_name, queue.queue_id))
    rows: list[Sequence[object]] = []
    data = []
    for queue in queues:
        offset = offsets[queue]
        updated = offset.last_update_timestamp
        facts = [queue.broker_name, queue.queue_id, offset.min_offset, offset.max_offset]
        rows.append([*facts, time_text(updated) if updated > 0 else ""])
        keys = [column.key for column in STATUS_COLUMNS[:4]]
        data.append(dict(zip(keys, facts, strict=True)) | {"lastUpdateTimestamp": updated})
    return Report(table(STATUS_COLUMNS, rows).text, data)


@command("allocateMQ")
@click.option("-t", "--topic", required=True, help="Topic name.")
@click.option("-i", "--ipList", "ip_list", required=True, help="Consumers, separated by commas.")
def allocate_mq(admin: AdminClient, topic: str, ip_list: str) -> Report:
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
