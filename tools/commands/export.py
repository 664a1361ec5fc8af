"""Export of a cluster: exportConfigs, exportMetadata, exportMetrics write one JSON file each.

The files' names, members and texts of numbers are RocketMQ's. (Java: ExportConfigsCommand,
ExportMetadataCommand, ExportMetricsCommand.)

Tested by tests/tools/test_mqadmin_export.py.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import click

from conf.atomic_file import write_atomic
from remoting.body.subscription_group_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper, TopicList
from remoting.errors import RemotingError, RequestError
from remoting.mq_version import CURRENT_VERSION, version_name
from remoting.remoting_serializable import dumps_java_pretty
from remoting.request_code import RequestCode
from tools.admin_client import DLQ_PREFIX, MASTER_ID, RETRY_PREFIX, TIMEOUT_MS, AdminClient
from tools.broker_numbers import day_sum, first_number, number, out_tps_key
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.options import FLAG
from tools.properties_text import parse_lines
from tools.report import Report
from tools.targets import Address, master_targets

DEFAULT_DIRECTORY: Final = "/tmp/rocketmq/export"
CONFIG_KEYS: Final = (
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
)
"""The settings that exportConfigs shows; those a broker does not have are left out."""

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
SYSTEM_GROUPS: Final = frozenset(
    {
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CLIENT_INNER_PRODUCER",
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
    }
)
PUT_NUMS: Final = "TOPIC_PUT_NUMS"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

_Cluster = Annotated[str, "-c --clusterName", "Cluster name."]
_Directory = Annotated[
    Path | None,
    "-f --filePath",
    f"Directory of the file [{DEFAULT_DIRECTORY}].",
    click.Path(path_type=Path),
]


def is_system_group(group: str) -> bool:
    """Whether it is one of RocketMQ's own."""
    return group.startswith(SYSTEM_GROUP_PREFIX) or group in SYSTEM_GROUPS


def _write(directory: Path | None, name: str, tree: dict[str, Any]) -> Report:
    """Write one file whole; a default directory of another user is refused."""
    path = (directory or Path(DEFAULT_DIRECTORY)) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if directory is None and path.parent.stat().st_uid != os.getuid():
            raise AdminError(f"{path.parent} belongs to another user: choose a directory with -f")
        write_atomic(path, dumps_java_pretty(tree))
    except OSError as error:
        raise AdminError(f"cannot write {path}: {error}") from error
    return Report(f"export {path} success", {"filePath": str(path), "content": tree})


# -- exportConfigs -----------------------------------------------------------------------------


@command("exportConfigs")
def export_configs(admin: AdminClient, cluster: _Cluster, directory: _Directory) -> Report:
    """The masters' most important settings and the cluster's size: configs.json."""
    brokers = admin.brokers(cluster)
    masters = [broker for broker in brokers if broker.broker_id == MASTER_ID]
    configs = {}
    for master in masters:
        settings = parse_lines(admin.call(master.address, RequestCode.GET_BROKER_CONFIG).body)
        configs[master.broker_name] = {key: settings[key] for key in CONFIG_KEYS if key in settings}
    scale = {
        "namesrvSize": len(admin.name_servers.addresses),
        "masterBrokerSize": len(masters),
        "slaveBrokerSize": len(brokers) - len(masters),
    }
    tree = {"brokerConfigs": configs, "clusterScale": scale}
    return _write(directory, "configs.json", tree)


# -- exportMetadata ----------------------------------------------------------------------------


@command("exportMetadata")
def export_metadata(
    admin: AdminClient,
    address: Address,
    cluster: Annotated[str | None, "-c --clusterName", "Add up all masters of this cluster."],
    directory: _Directory,
    only_topics: Annotated[bool, "-t --topic", "Topics only: topic.json.", FLAG],
    only_groups: Annotated[bool, "-g --subscriptionGroup", "subscriptionGroup.json.", FLAG],
    special: Annotated[bool, "-s --specialTopic", "Retry and dead letter topics.", FLAG],
) -> Report:
    """The topics and groups that users made, of one broker or a cluster: metadata.json."""
    if only_topics and only_groups:
        raise click.UsageError("-t and -g exclude each other; without them both are exported")
    targets = master_targets(admin, address, cluster)
    if address is not None and only_topics:
        tree = _user_topics(admin, address, special=special).to_json()
    elif address is not None and only_groups:
        tree = _user_groups(admin, address).to_json()
    else:
        tree = {"exportTime": admin.now_ms()}
        if not only_topics:
            tree["subscriptionGroupTable"] = _added_groups(admin, targets)
        if not only_groups:
            tree["topicConfigTable"] = _added_topics(admin, targets, special=special)
    name = "topic" if only_topics else "subscriptionGroup" if only_groups else "metadata"
    return _write(directory, f"{name}.json", tree)


def _added_topics(admin: AdminClient, targets: list[str], *, special: bool) -> dict[str, Any]:
    """A topic of several brokers has the last one's settings and all their queues."""
    added: dict[str, TopicConfig] = {}
    for target in targets:
        for topic, config in _user_topics(
            admin, target, special=special
        ).topic_config_table.items():
            before = added.get(topic)
            if before is not None:
                config = replace(
                    config,
                    read_queue_nums=config.read_queue_nums + before.read_queue_nums,
                    write_queue_nums=config.write_queue_nums + before.write_queue_nums,
                )
            added[topic] = config
    return {topic: added[topic].to_json() for topic in sorted(added)}


def _added_groups(admin: AdminClient, targets: list[str]) -> dict[str, Any]:
    added: dict[str, SubscriptionGroupConfig] = {}
    for target in targets:
        for group, config in _user_groups(admin, target).subscription_group_table.items():
            before = added.get(group)
            if before is not None:
                queues = config.retry_queue_nums + before.retry_queue_nums
                config = replace(config, retry_queue_nums=queues)
            added[group] = config
    return {group: added[group].to_json() for group in sorted(added)}


def _user_topics(admin: AdminClient, target: str, *, special: bool) -> TopicConfigSerializeWrapper:
    """A broker's topics without the system's; with `special` those of groups stay."""
    body = admin.call(target, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_ms=2 * TIMEOUT_MS).body
    wrapper = TopicConfigSerializeWrapper.from_json_bytes(body)
    body = admin.call(target, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body
    system = set(TopicList.from_json_bytes(body).topic_list)
    topics = {
        topic: config
        for topic, config in sorted(wrapper.topic_config_table.items())
        if topic not in system and (special or not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))
    }
    return replace(wrapper, topic_config_table=topics)


def _user_groups(admin: AdminClient, target: str) -> SubscriptionGroupWrapper:
    body = admin.call(
        target, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout_ms=2 * TIMEOUT_MS
    ).body
    wrapper = SubscriptionGroupWrapper.from_json_bytes(body)
    groups = {
        group: config
        for group, config in sorted(wrapper.subscription_group_table.items())
        if not is_system_group(group)
    }
    return replace(wrapper, subscription_group_table=groups)


# -- exportMetrics -----------------------------------------------------------------------------


@command("exportMetrics")
def export_metrics(admin: AdminClient, cluster: _Cluster, directory: _Directory) -> Report:
    """The load of each master and the total: metrics.json."""
    report = {}
    tps = dict.fromkeys(("normalInTps", "normalOutTps", "scheduleInTps", "transInTps"), 0.0)
    day = dict.fromkeys(
        ("normalOneDayInNum", "normalOneDayOutNum", "scheduleOneDayInNum", "transOneDayInNum"), 0
    )
    for master in admin.masters(cluster):
        load = _load(admin, master.address)
        for name in tps:
            tps[name] += load["runtimeQuota"]["tps"][name]
        for name in day:
            day[name] += load["runtimeQuota"]["oneDayNum"][name]
        report[master.broker_name] = load
    total_tps = {f"total{name[0].upper()}{name[1:]}": value for name, value in tps.items()}
    total = {"totalOneDayNum": day, "totalTps": total_tps}
    return _write(directory, "metrics.json", {"evaluateReport": report, "totalData": total})


def _load(admin: AdminClient, target: str) -> dict[str, Any]:
    """One master's part of the report."""
    info = admin.runtime_info(target)
    settings = parse_lines(admin.call(target, RequestCode.GET_BROKER_CONFIG).body)
    groups = sorted(_user_groups(admin, target).subscription_group_table)
    environment = {
        "cpuNum": settings.get("clientCallbackExecutorThreads"),
        "totalMemKBytes": info.get("totalMemKBytes"),
    }
    version = {
        "clientInfo": _client_kinds(admin, groups),
        "rocketmqVersion": version_name(CURRENT_VERSION),
    }
    quota = _quota(admin, target, info)
    quota |= {"groupSize": len(groups)}
    return {
        "runtimeEnv": {name: text for name, text in environment.items() if text is not None},
        "runtimeQuota": dict(sorted(quota.items())),
        "runtimeVersion": version,
    }


def _quota(admin: AdminClient, target: str, info: dict[str, str]) -> dict[str, Any]:
    transactions = admin.find_stats(target, PUT_NUMS, HALF_TOPIC)
    delayed = admin.find_stats(target, PUT_NUMS, SCHEDULE_TOPIC)
    ratios = ("commitLogDiskRatio", "consumeQueueDiskRatio")
    quota: dict[str, Any] = {
        "diskRatio": {name: info[name] for name in ratios if name in info},
        "oneDayNum": {
            "normalOneDayInNum": _yesterday(info, "msgPutTotal"),
            "normalOneDayOutNum": _yesterday(info, "msgGetTotal"),
            "scheduleOneDayInNum": 0 if delayed is None else day_sum(delayed),
            "transOneDayInNum": 0 if transactions is None else day_sum(transactions),
        },
        "topicSize": len(_user_topics(admin, target, special=False).topic_config_table),
        "tps": {
            "normalInTps": first_number(info.get("putTps")),
            "normalOutTps": first_number(info.get(out_tps_key(info))),
            "scheduleInTps": 0.0 if delayed is None else delayed.stats_minute.tps,
            "transInTps": 0.0 if transactions is None else transactions.stats_minute.tps,
        },
    }
    if "putMessageAverageSize" in info:
        quota["messageAverageSize"] = info["putMessageAverageSize"]
    return quota


def _yesterday(info: dict[str, str], counter: str) -> int:
    begin, end = (number(info.get(counter + day)) for day in ("YesterdayMorning", "TodayMorning"))
    return int(end - begin)


def _client_kinds(admin: AdminClient, groups: list[str]) -> list[str]:
    """Language and version of all consumers; groups whose brokers refuse are left out."""
    kinds = set()
    for group in groups:
        try:
            found = admin.find_consumer_connection(group)
        except (AdminError, RemotingError, RequestError) as error:
            print_error("exportMetrics", f"group {group}: {error}")
            continue
        for client in found.connection_set if found is not None else ():
            kinds.add(f"{client.language}%{version_name(client.version)}")
    return sorted(kinds)
