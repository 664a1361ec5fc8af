"""The settings of consumer groups: updateSubGroup, getConsumerConfig, deleteSubGroup,
setConsumeMode.

(Java: UpdateSubGroupSubCommand, GetConsumerConfigSubCommand, DeleteSubscriptionGroupCommand,
SetConsumeModeSubCommand.)

Tested by tests/tools/test_mqadmin_every_command.py.
"""

from __future__ import annotations

from typing import Annotated

import click

from remoting.body.message_request_mode import (
    SetMessageRequestModeRequestBody,
)
from remoting.body.subscription_group_config import (
    GroupRetryPolicy,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.headers.admin import DeleteSubscriptionGroupRequestHeader
from remoting.message_request_mode import MessageRequestMode
from remoting.remoting_serializable import JsonError, loads_lenient
from remoting.request_code import RequestCode
from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient, broker_address, unknown
from tools.broker_changes import CREATE_AT_MASTERS, MASTERS, Change, change
from tools.command_line import command
from tools.errors import AdminError
from tools.options import NATURAL
from tools.removal import delete_topic
from tools.report import Report, safe_line
from tools.targets import master_targets, place_text


@change("updateSubGroup", CREATE_AT_MASTERS, "create subscription group to {} success.")
def update_sub_group(
    *,
    group: Annotated[str, "-g --groupName", "Consumer group name."],
    enable: Annotated[bool, "-s --consumeEnable", "May consume."] = True,
    from_min: Annotated[bool, "-m --consumeFromMinEnable"] = False,
    broadcast: Annotated[bool, "-d --consumeBroadcastEnable"] = False,
    retry_queues: Annotated[int, "-q --retryQueueNums", NATURAL] = 1,
    retry_times: Annotated[int, "-r --retryMaxTimes"] = 16,
    broker_id: Annotated[int, "-i --brokerId", NATURAL] = 0,
    slow_id: Annotated[int, "-w --whichBrokerWhenConsumeSlowly", NATURAL] = 1,
    notify: Annotated[bool, "-a --notifyConsumerIdsChanged"] = True,
    orderly: Annotated[bool | None, "-o --consumeMessageOrderly", "5.x: in order."],
    policy: Annotated[
        str | None, "-p --groupRetryPolicy", "5.x: a policy for gRPC clients, as JSON."
    ],
    attributes: Annotated[
        str | None, "--attributes", "Attributes of 5.x: +name=value sets, -name removes."
    ],
) -> Change:
    """Create or change a group at one broker or at every master of a cluster."""
    config = SubscriptionGroupConfig(
        group_name=group,
        consume_enable=enable,
        consume_from_min_enable=from_min,
        consume_broadcast_enable=broadcast,
        retry_queue_nums=retry_queues,
        retry_max_times=retry_times,
        broker_id=broker_id,
        which_broker_when_consume_slowly=slow_id,
        notify_consumer_ids_changed_enable=notify,
        consume_message_orderly=orderly,
        group_retry_policy=None if policy is None else _policy(policy),
        attributes=None if attributes is None else _attributes(attributes),
    )
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    data = {"subscriptionGroupConfig": config.to_json()}
    return Change(code, body=config.to_json_bytes(), data=data, lines=(_config_text(config),))


def _policy(text: str) -> GroupRetryPolicy:
    try:
        return GroupRetryPolicy.from_json(loads_lenient(text))
    except (JsonError, ValueError) as error:
        raise click.UsageError(f"-p: no retry policy: {error}") from error


def _attributes(text: str) -> dict[str, str]:
    """+name=value to its value, -name to nothing, as 5.x sends them (AttributeParser)."""
    found = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if len(name) < 2 or name[0] not in "+-" or (name[0] == "+") != ("=" in part):
            raise click.UsageError(f"--attributes needs +name=value,-name: {part!r:.80}")
        if name in found:
            raise click.UsageError(f"--attributes names {name} twice")
        found[name] = value.strip()
    return found


def _config_text(config: SubscriptionGroupConfig) -> str:
    """A group as Java's SubscriptionGroupConfig prints itself."""
    texts = (f"{name}={text}" for name, text in _settings(config).items())
    return f"SubscriptionGroupConfig [{', '.join(texts)}]"


def _settings(config: SubscriptionGroupConfig) -> dict[str, str]:
    """The nine settings of 4.9 as Java's texts, in the order of Java's fields."""
    facts = {
        "groupName": config.group_name,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "retryQueueNums": config.retry_queue_nums,
        "retryMaxTimes": config.retry_max_times,
        "brokerId": config.broker_id,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in facts.items()
    }


@command("getConsumerConfig")
def get_consumer_config(
    admin: AdminClient, group: Annotated[str, "-g --groupName", "Consumer group name."]
) -> Report:
    """The group's settings at every broker name that knows it."""
    info = admin.cluster_info()
    names: set[str] = set()
    lines: list[str] = []
    data = []
    for broker_name, broker in sorted(info.broker_addr_table.items()):
        address = broker_address(broker)
        if address is None:
            continue
        body = admin.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
        groups = SubscriptionGroupWrapper.from_json_bytes(body).subscription_group_table
        names |= groups.keys()
        if group not in groups:
            continue
        cluster = next(
            (name for name, members in info.cluster_addr_table.items() if broker_name in members),
            broker.cluster or "",
        )
        lines += [_heading(cluster, broker_name), *_setting_lines(groups[group])]
        where = {"clusterName": cluster, "brokerName": broker_name}
        data.append(where | {"subscriptionGroupConfig": groups[group].to_json()})
    if not data:
        raise AdminError(unknown("group", group, names))
    return Report("\n".join(lines), data)


def _heading(cluster: str, broker_name: str) -> str:
    ruler = "=" * 29
    return safe_line(f"{ruler}{cluster}:{broker_name}{ruler}")


def _setting_lines(config: SubscriptionGroupConfig) -> list[str]:
    return [safe_line(f"{name:<40}=  {text}") for name, text in _settings(config).items()]


def _question(group: str, address: str | None, cluster: str | None, remove_offset: bool) -> str:
    lost = " with its offsets" if remove_offset else ""
    return f"Delete subscription group {group}{lost} from {place_text(address, cluster)}?"


@command("deleteSubGroup", asks=_question)
def delete_sub_group(
    admin: AdminClient,
    address: Annotated[str | None, "-b --brokerAddr", "Delete it from this broker (host:port)."],
    cluster: Annotated[
        str | None, "-c --clusterName", "Delete it from all masters of this cluster."
    ],
    group: Annotated[str, "-g --groupName", "Consumer group name."],
    remove_offset: Annotated[bool, "-r --removeOffset"] = False,
) -> Report:
    """Delete a group; from a cluster also its retry and dead letter topics."""
    return delete_group(admin, group, address, cluster, remove_offset=remove_offset)


def delete_group(
    admin: AdminClient, group: str, address: str | None, cluster: str | None, *, remove_offset: bool
) -> Report:
    """At one broker, or at all masters of a cluster, there with its retry and dead letter topic."""
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=remove_offset)
    targets = master_targets(admin, address, cluster)
    lines = []
    for target in targets:
        admin.call(target, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        inside = "" if cluster is None else f" in cluster [{cluster}]"
        lines.append(f"delete subscription group [{group}] from broker [{target}]{inside} success.")
    topics = [] if cluster is None else [RETRY_PREFIX + group, DLQ_PREFIX + group]
    for topic in topics:
        delete_topic(admin, topic, cluster or "")
        lines.append(f"delete topic [{topic}] from cluster [{cluster}] success.")
        lines.append(f"delete topic [{topic}] from NameServer success.")
    data = {"groupName": group, "brokerAddrs": targets, "topics": topics}
    return Report("\n".join(lines), data)


@change("setConsumeMode", MASTERS, "set consume mode to {} success.")
def set_consume_mode(
    topic: Annotated[str, "-t --topicName", "Topic name."],
    group: Annotated[str, "-g --groupName", "Consumer group name."],
    mode: Annotated[
        str,
        "-m --mode",
        "How its members get messages.",
        click.Choice([mode.value for mode in MessageRequestMode]),
    ],
    share: Annotated[
        int,
        "-q --popShareQueueNum",
        "How many other members a popping one shares its queues with [0: all].",
    ] = 0,
) -> Change:
    """Have the members of a group pull queues of their own, or pop."""
    body = SetMessageRequestModeRequestBody(
        topic=topic,
        consumer_group=group,
        mode=MessageRequestMode(mode),
        pop_share_queue_num=share,
    )
    line = f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]"
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    return Change(code, body=body.to_json_bytes(), data=body.to_json(), lines=(line,))
