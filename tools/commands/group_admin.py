"""Changing consumer groups: updateSubGroup, deleteSubGroup.

(Java: UpdateSubGroupSubCommand, DeleteSubscriptionGroupCommand.)
"""

from __future__ import annotations

import click

from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.headers.admin import DeleteSubscriptionGroupRequestHeader
from remoting.request_code import RequestCode
from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient
from tools.command_line import command
from tools.removal import delete_topic
from tools.report import Report


@command("updateSubGroup")
@click.option("-b", "--brokerAddr", "address", help="Create it at this broker (host:port).")
@click.option("-c", "--clusterName", "cluster", help="Create it at all masters of this cluster.")
@click.option("-g", "--groupName", "group", required=True, help="Consumer group name.")
@click.option("-s", "--consumeEnable", "enable", type=bool, default=True, help="May consume.")
@click.option("-m", "--consumeFromMinEnable", "from_min", type=bool, default=False)
@click.option("-d", "--consumeBroadcastEnable", "broadcast", type=bool, default=False)
@click.option("-q", "--retryQueueNums", "retry_queues", type=click.IntRange(0), default=1)
@click.option("-r", "--retryMaxTimes", "retry_times", type=int, default=16)
@click.option("-i", "--brokerId", "broker_id", type=click.IntRange(0), default=0)
@click.option("-w", "--whichBrokerWhenConsumeSlowly", "slow_id", type=click.IntRange(0), default=1)
@click.option("-a", "--notifyConsumerIdsChanged", "notify", type=bool, default=True)
def update_sub_group(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    group: str,
    enable: bool,
    from_min: bool,
    broadcast: bool,
    retry_queues: int,
    retry_times: int,
    broker_id: int,
    slow_id: int,
    notify: bool,
) -> Report:
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
    )
    body = config.to_json_bytes()
    targets = _targets(admin, address, cluster)
    lines = []
    for target in targets:
        admin.call(target, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        lines.append(f"create subscription group to {target} success.")
    lines.append(_config_text(config))
    data = {"brokerAddrs": targets, "subscriptionGroupConfig": config.to_json()}
    return Report("\n".join(lines), data)


def _targets(admin: AdminClient, address: str | None, cluster: str | None) -> list[str]:
    if (address is None) == (cluster is None):
        raise click.UsageError("one of -b ADDRESS and -c CLUSTER is needed")
    if address is not None:
        return [address]
    return [master.address for master in admin.masters(cluster or "")]


def _config_text(config: SubscriptionGroupConfig) -> str:
    """A group as Java's SubscriptionGroupConfig prints itself."""
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
    texts = (
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in facts.items()
    )
    return f"SubscriptionGroupConfig [{', '.join(texts)}]"


def _question(group: str, address: str | None, cluster: str | None, remove_offset: bool) -> str:
    where = f"broker {address}" if address is not None else f"cluster {cluster}"
    lost = " with its offsets" if remove_offset else ""
    return f"Delete subscription group {group}{lost} from {where}?"


@command("deleteSubGroup", asks=_question)
@click.option("-b", "--brokerAddr", "address", help="Delete it from this broker (host:port).")
@click.option("-c", "--clusterName", "cluster", help="Delete it from all masters of this cluster.")
@click.option("-g", "--groupName", "group", required=True, help="Consumer group name.")
@click.option("-r", "--removeOffset", "remove_offset", type=bool, default=False)
def delete_sub_group(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    group: str,
    remove_offset: bool,
) -> Report:
    """Delete a group; from a cluster also its retry and dead letter topics."""
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=remove_offset)
    targets = _targets(admin, address, cluster)
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
