"""Changing topics: updateTopic, updateTopicPerm, updateOrderConf, deleteTopic.

(Java: UpdateTopicSubCommand, UpdateTopicPermSubCommand, UpdateOrderConfCommand,
DeleteTopicSubCommand.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import click

from remoting.body.route import QueueData, TopicRouteData
from remoting.command_custom_header import decode_header
from remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
)
from remoting.headers.topic import CreateTopicRequestHeader
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import MASTER_ID, AdminClient, BrokerAddress
from tools.command_line import command
from tools.errors import AdminError
from tools.options import POSITIVE, Topic
from tools.removal import delete_topic
from tools.report import Report, safe_line
from tools.targets import Address, Masters, need_one, place_text

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
TEMPLATE_TOPIC: Final = "TBW102"
DEFAULT_QUEUES: Final = 8
UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2
_ORDER_CONF: Final = re.compile(r"[^:;\s]+:[0-9]+(;[^:;\s]+:[0-9]+)*;?")


@command("updateTopic")
def update_topic(
    admin: AdminClient,
    *,
    address: Annotated[str | None, "-b --brokerAddr", "Create it at this broker (host:port)."],
    cluster: Annotated[str | None, "-c --clusterName", "Create it at all masters of this cluster."],
    topic: Topic,
    reads: Annotated[int, "-r --readQueueNums", POSITIVE] = DEFAULT_QUEUES,
    writes: Annotated[int, "-w --writeQueueNums", POSITIVE] = DEFAULT_QUEUES,
    perm: Annotated[int, "-p --perm", "2 write, 4 read, 6 both [6].", click.IntRange(0, 7)] = 6,
    order: Annotated[bool, "-o --order", "Ordered topic (true|false)."] = False,
    unit: Annotated[bool, "-u --unit", "Unit topic (true|false)."] = False,
    unit_sub: Annotated[bool, "-s --hasUnitSub", "Has unit sub."] = False,
    attributes: Annotated[
        str | None, "-a --attributes", "Attributes of 5.x: +name=value sets, -name removes (a,b)."
    ],
) -> Report:
    """Create or change a topic at one broker or at every master of a cluster."""
    need_one(address, cluster)
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic=TEMPLATE_TOPIC,
        read_queue_nums=reads,
        write_queue_nums=writes,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=UNIT_FLAG * unit | UNIT_SUB_FLAG * unit_sub,
        order=order,
        attributes=attributes,
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
    """Tell the name servers the queues of an ordered topic: "broker:count;broker:count"."""
    if address is None:
        conf = {master.broker_name: str(writes) for master in masters}
    else:
        conf = _order_conf(admin, topic)
        names = [broker.broker_name for broker in admin.brokers() if broker.address == address]
        conf |= dict.fromkeys(names, str(writes))
    text = ";".join(f"{name}:{count}" for name, count in conf.items())
    _put_order_conf(admin, topic, text)
    where = "cluster" if address is None else "broker"
    return f"set {where} orderConf. isOrder=true, orderConf=[{text}]"


def _order_conf(admin: AdminClient, topic: str) -> dict[str, str]:
    """Broker name to queue count as the name server has it now."""
    value = _order_conf_text(admin, topic) or ""
    items = (item.rpartition(":") for item in value.split(";") if ":" in item)
    return {name: count for name, _, count in items}


def _order_conf_text(admin: AdminClient, topic: str) -> str | None:
    """The name server's value; None if it has none."""
    response = admin.ask_name_server(
        RequestCode.GET_KV_CONFIG,
        GetKVConfigRequestHeader(namespace=ORDER_NAMESPACE, key=topic),
        accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )
    return decode_header(GetKVConfigResponseHeader, response.ext_fields).value


def _put_order_conf(admin: AdminClient, topic: str, text: str) -> None:
    header = PutKVConfigRequestHeader(namespace=ORDER_NAMESPACE, key=topic, value=text)
    admin.ask_every_name_server(RequestCode.PUT_KV_CONFIG, header)


def _config_text(header: CreateTopicRequestHeader) -> str:
    """A topic as Java's TopicConfig prints itself; changes of attributes where there are some."""
    attributes = (
        ""
        if header.attributes is None
        else f", attributes={{{header.attributes.replace(',', ', ')}}}"
    )
    return (
        f"TopicConfig [topicName={header.topic}, readQueueNums={header.read_queue_nums}, "
        f"writeQueueNums={header.write_queue_nums}, perm={_perm_text(header.perm)}, "
        f"topicFilterType={header.topic_filter_type}, topicSysFlag={header.topic_sys_flag}, "
        f"order={str(header.order).lower()}{attributes}]"
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
        **({} if header.attributes is None else {"attributes": header.attributes}),
    }


def _perm_text(perm: int) -> str:
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))


@command("updateTopicPerm")
def update_topic_perm(
    admin: AdminClient,
    address: Address,
    cluster: Masters,
    topic: Topic,
    perm: Annotated[int, "-p --perm", "2 write, 4 read, 6 both.", click.IntRange(0, 7)],
) -> Report:
    """Change the permissions of a topic; each broker keeps its queue counts."""
    need_one(address, cluster)
    route = admin.route(topic)
    lines, data = [], []
    for target, queues in _masters_with_topic(admin, route, address, cluster):
        if queues.perm != perm:
            header = _perm_header(topic, queues, perm)
            admin.call(target, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            lines.append(f"update topic perm from {queues.perm} to {perm} in {target} success.")
            lines.append(f"{_config_text(header)}.")
        else:
            lines.append("new perm equals to the old one!")
        data.append({"brokerAddr": target, "oldPerm": queues.perm, "perm": perm})
    return Report("\n".join(lines), {"topic": topic, "brokers": data})


def _masters_with_topic(
    admin: AdminClient, route: TopicRouteData, address: str | None, cluster: str | None
) -> list[tuple[str, QueueData]]:
    """The masters meant, each with its queues of the topic. AdminError when there is none."""
    masters = {
        data.broker_name: data.broker_addrs[MASTER_ID]
        for data in route.broker_datas
        if MASTER_ID in data.broker_addrs
    }
    if cluster is not None:
        names = {master.broker_name for master in admin.masters(cluster)}
        masters = {name: target for name, target in masters.items() if name in names}
    else:
        masters = {name: target for name, target in masters.items() if target == address}
    found = [
        (masters[queues.broker_name], queues)
        for queues in route.queue_datas
        if queues.broker_name in masters
    ]
    if not found:
        raise AdminError(f"{place_text(address, cluster)}: no master there has this topic")
    return sorted(found, key=lambda item: item[0])


def _perm_header(topic: str, queues: QueueData, perm: int) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(
        topic=topic,
        default_topic=TEMPLATE_TOPIC,
        read_queue_nums=queues.read_queue_nums,
        write_queue_nums=queues.write_queue_nums,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=queues.topic_sys_flag,
        order=False,
    )


def _order_question(topic: str, conf: str | None, method: str) -> str | None:
    return f"Delete the order conf of topic {topic}?" if method == "delete" else None


@command("updateOrderConf", asks=_order_question)
def update_order_conf(
    admin: AdminClient,
    topic: Topic,
    conf: Annotated[str | None, "-v --orderConf", "brokerName1:num;brokerName2:num"],
    method: Annotated[str, "-m --method", "What to do.", click.Choice(["put", "get", "delete"])],
) -> Report:
    """Show, set or delete where the queues of an ordered topic are."""
    data = {"topic": topic, "orderConf": conf}
    if method == "put":
        if conf is None or _ORDER_CONF.fullmatch(conf) is None:
            raise click.UsageError("-m put needs -v brokerName1:num;brokerName2:num")
        _put_order_conf(admin, topic, conf)
        return Report(f"update orderConf success. topic=[{topic}], orderConf=[{conf}]", data)
    if method == "delete":
        header = DeleteKVConfigRequestHeader(namespace=ORDER_NAMESPACE, key=topic)
        admin.ask_every_name_server(RequestCode.DELETE_KV_CONFIG, header)
        return Report(f"delete orderConf success. topic=[{topic}]", {"topic": topic})
    found = _order_conf_text(admin, topic)
    if found is None:
        raise AdminError(f"topic {topic} has no order conf")
    text = f"get orderConf success. topic=[{topic}], orderConf=[{safe_line(found)}]"
    return Report(text, data | {"orderConf": found})


@command("deleteTopic", asks="Delete topic {topic} with all its messages from cluster {cluster}?")
def delete_topic_command(
    admin: AdminClient,
    topic: Topic,
    cluster: Annotated[str, "-c --clusterName", "Cluster to delete it from."],
) -> Report:
    """Delete a topic at every master of a cluster, then at the name servers."""
    targets = delete_topic(admin, topic, cluster)
    lines = [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]
    data = {"topic": topic, "brokerAddrs": targets, "nameServers": admin.name_servers.addresses}
    return Report("\n".join(lines), data)
