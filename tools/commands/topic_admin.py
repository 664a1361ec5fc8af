"""Changing topics: updateTopic, deleteTopic.

(Java: UpdateTopicSubCommand, DeleteTopicSubCommand.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from remoting.command_custom_header import decode_header
from remoting.headers.namesrv import (
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
)
from remoting.headers.topic import CreateTopicRequestHeader
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import AdminClient, BrokerAddress
from tools.command_line import command
from tools.removal import delete_topic
from tools.report import Report

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
DEFAULT_QUEUES: Final = 8
UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2


@command("updateTopic")
@click.option("-b", "--brokerAddr", "address", help="Create it at this broker (host:port).")
@click.option("-c", "--clusterName", "cluster", help="Create it at all masters of this cluster.")
@click.option("-t", "--topic", required=True, help="Topic name.")
@click.option("-r", "--readQueueNums", "reads", type=click.IntRange(1), default=DEFAULT_QUEUES)
@click.option("-w", "--writeQueueNums", "writes", type=click.IntRange(1), default=DEFAULT_QUEUES)
@click.option(
    "-p", "--perm", type=click.IntRange(0, 7), default=6, help="2 write, 4 read, 6 both [6]."
)
@click.option("-o", "--order", type=bool, default=False, help="Ordered topic (true|false).")
@click.option("-u", "--unit", type=bool, default=False, help="Unit topic (true|false).")
@click.option("-s", "--hasUnitSub", "unit_sub", type=bool, default=False, help="Has unit sub.")
def update_topic(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    topic: str,
    reads: int,
    writes: int,
    perm: int,
    order: bool,
    unit: bool,
    unit_sub: bool,
) -> Report:
    """Create or change a topic at one broker or at every master of a cluster."""
    if (address is None) == (cluster is None):
        raise click.UsageError("one of -b ADDRESS and -c CLUSTER is needed")
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=reads,
        write_queue_nums=writes,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=UNIT_FLAG * unit | UNIT_SUB_FLAG * unit_sub,
        order=order,
    )
    masters = [] if cluster is None else admin.masters(cluster)
    targets = [address] if address is not None else [master.address for master in masters]
    lines = []
    for target in targets:
        admin.call(target, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        lines.append(f"create topic to {target} success.")
    if order:
        lines.append(_set_order(admin, topic, writes, address, masters))
    lines.append(_config_text(header))
    return Report("\n".join(lines), {"brokerAddrs": targets, "topicConfig": _config_data(header)})


def _set_order(
    admin: AdminClient,
    topic: str,
    writes: int,
    address: str | None,
    masters: Sequence[BrokerAddress],
) -> str:
    """Tell the name servers where an ordered topic's queues are: "broker:count;broker:count"."""
    if address is None:
        conf = {master.broker_name: str(writes) for master in masters}
    else:
        conf = _order_conf(admin, topic)
        names = [broker.broker_name for broker in admin.brokers() if broker.address == address]
        conf |= dict.fromkeys(names, str(writes))
    text = ";".join(f"{name}:{count}" for name, count in conf.items())
    header = PutKVConfigRequestHeader(namespace=ORDER_NAMESPACE, key=topic, value=text)
    admin.ask_every_name_server(RequestCode.PUT_KV_CONFIG, header)
    where = "cluster" if address is None else "broker"
    return f"set {where} orderConf. isOrder=true, orderConf=[{text}]"


def _order_conf(admin: AdminClient, topic: str) -> dict[str, str]:
    """Broker name to queue count as the name server has it now."""
    response = admin.ask_name_server(
        RequestCode.GET_KV_CONFIG,
        GetKVConfigRequestHeader(namespace=ORDER_NAMESPACE, key=topic),
        accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )
    value = decode_header(GetKVConfigResponseHeader, response.ext_fields).value or ""
    items = (item.rpartition(":") for item in value.split(";") if ":" in item)
    return {name: count for name, _, count in items}


def _config_text(header: CreateTopicRequestHeader) -> str:
    """A topic as Java's TopicConfig prints itself."""
    return (
        f"TopicConfig [topicName={header.topic}, readQueueNums={header.read_queue_nums}, "
        f"writeQueueNums={header.write_queue_nums}, perm={_perm_text(header.perm)}, "
        f"topicFilterType={header.topic_filter_type}, topicSysFlag={header.topic_sys_flag}, "
        f"order={str(header.order).lower()}]"
    )


def _config_data(header: CreateTopicRequestHeader) -> dict[str, Any]:
    return {
        "topicName": header.topic,
        "readQueueNums": header.read_queue_nums,
        "writeQueueNums": header.write_queue_nums,
        "perm": header.perm,
        "topicFilterType": header.topic_filter_type,
        "topicSysFlag": header.topic_sys_flag,
        "order": header.order,
    }


def _perm_text(perm: int) -> str:
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))


def _question(topic: str, cluster: str) -> str:
    return f"Delete topic {topic} with all its messages from cluster {cluster}?"


@command("deleteTopic", asks=_question)
@click.option("-t", "--topic", required=True, help="Topic name.")
@click.option("-c", "--clusterName", "cluster", required=True, help="Cluster to delete it from.")
def delete_topic_command(admin: AdminClient, topic: str, cluster: str) -> Report:
    """Delete a topic at every master of a cluster, then at the name servers."""
    targets = delete_topic(admin, topic, cluster)
    lines = [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]
    data = {"topic": topic, "brokerAddrs": targets, "nameServers": admin.name_servers.addresses}
    return Report("\n".join(lines), data)
