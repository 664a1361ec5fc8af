"""Static topics: updateStaticTopic, remappingStaticTopic.

Both write what the brokers have before, and what they shall have, to files in a new directory among
the temporary files (RocketMQ's: to names that anybody can foresee); a plan that was interrupted is
sent again with -mf (which RocketMQ's commands name, but cannot read). (Java:
UpdateStaticTopicSubCommand, RemappingStaticTopicSubCommand, MQAdminUtils.)
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import click

from conf.atomic_file import write_atomic
from remoting.body.route import ClusterInfo
from remoting.body.stats import TopicStatsTable
from remoting.body.topic_config import TopicConfigAndQueueMapping
from remoting.headers.topic import (
    CreateTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from remoting.request_code import RequestCode
from remoting.resource_names import validate_topic
from remoting.response_code import ResponseCode
from tools.admin_client import MASTER_ID, AdminClient, unknown
from tools.command_line import command
from tools.commands.topic_admin import TEMPLATE_TOPIC
from tools.errors import AdminError
from tools.options import POSITIVE, Topic
from tools.report import Report
from tools.static_topic_plan import (
    TopicRemappingDetailWrapper,
    check_consistence,
    create_plan,
    decide_offsets,
    led_queues,
    mapping_of,
    remap_plan,
    with_decided,
    with_every_broker,
)

_Brokers = Annotated[str | None, "-b --brokers", "Broker names, comma separated."]
_Clusters = Annotated[
    str | None, "-c --clusters", "All brokers of these clusters, comma separated."
]
_MapFile = Annotated[
    Path | None,
    "-mf --mapFile",
    "Send the plan in this file instead of making one.",
    click.Path(exists=True, dir_okay=False, path_type=Path),
]
_Force = Annotated[
    bool,
    "-fr --forceReplace",
    "With -mf: replace what the brokers have, whatever it is (true|false).",
]


@command("updateStaticTopic")
def update_static_topic(
    admin: AdminClient,
    *,
    topic: Topic,
    brokers: _Brokers,
    clusters: _Clusters,
    map_file: _MapFile,
    force: _Force = False,
    queue_num: Annotated[int | None, "-qn --totalQueueNum", "Queues in all.", POSITIVE],
) -> Report:
    """Create a static topic, or add queues to one."""
    validate_topic(topic)
    info = admin.cluster_info()
    if map_file is not None:
        plan = _read_plan(topic, map_file)
        if plan.broker_to_map_in:
            raise AdminError(f"{map_file} is a plan of remappingStaticTopic")
        return _create(admin, info, plan, [], force=force)
    if queue_num is None:
        raise click.UsageError("-qn NUMBER is needed")
    targets = _targets(info, brokers, clusters)
    before = _ask_all(admin, info, topic)
    now_ms = admin.now_ms()
    epoch = check_consistence(topic, before)[0] if before else now_ms
    old = TopicRemappingDetailWrapper(topic=topic, epoch=epoch, broker_config_map=before)
    planned = create_plan(topic, queue_num, targets | before.keys(), before, now_ms)
    new_epoch = mapping_of("", next(iter(planned.values()))).epoch
    new = replace(old, epoch=new_epoch, broker_config_map=planned)
    lines = _write_plans(old, new)
    return _create(admin, info, new, lines, force=False)


@command("remappingStaticTopic")
def remapping_static_topic(
    admin: AdminClient,
    topic: Topic,
    brokers: _Brokers,
    clusters: _Clusters,
    map_file: _MapFile,
    force: _Force = False,
) -> Report:
    """Share the queues of a static topic among other brokers; nothing is moved."""
    validate_topic(topic)
    info = admin.cluster_info()
    if map_file is not None:
        plan = _read_plan(topic, map_file)
        configs = with_decided(plan.broker_config_map, _ask_all(admin, info, topic))
        return _remap(admin, info, replace(plan, broker_config_map=configs), [], force=force)
    targets = _targets(info, brokers, clusters)
    before = _ask_all(admin, info, topic)
    if not before:
        raise AdminError(f"topic {topic}: no broker has it")
    epoch, _ = check_consistence(topic, before)
    old = TopicRemappingDetailWrapper(topic=topic, epoch=epoch, broker_config_map=before)
    new = remap_plan(topic, targets, before, admin.now_ms())
    lines = _write_plans(old, new)
    return _remap(admin, info, new, lines, force=False)


# -- what the brokers have -----------------------------------------------------------------------


def _targets(info: ClusterInfo, brokers: str | None, clusters: str | None) -> set[str]:
    """Names of brokers. AdminError for one that is not there."""
    if (brokers is None) == (clusters is None):
        raise click.UsageError("one of -b BROKERS and -c CLUSTERS is needed")
    table = info.cluster_addr_table
    if clusters is not None:
        names = [name.strip() for name in clusters.split(",")]
        for name in names:
            if name not in table:
                raise AdminError(unknown("cluster", name, table))
        found = {broker for name in names for broker in table[name]}
    else:
        found = {name.strip() for name in (brokers or "").split(",")}
    for broker in found:
        _master(info, broker)
    return found


def _master(info: ClusterInfo, broker: str) -> str:
    data = info.broker_addr_table.get(broker)
    address = None if data is None else data.broker_addrs.get(MASTER_ID)
    if address is None:
        raise AdminError(f"Can't find addr for broker {broker}")
    return address


def _ask_all(
    admin: AdminClient, info: ClusterInfo, topic: str
) -> dict[str, TopicConfigAndQueueMapping]:
    """What every broker has of the topic."""
    header = GetTopicConfigRequestHeader(topic=topic, lo=True)
    found = {}
    for broker in sorted(info.broker_addr_table):
        response = admin.call(
            _master(info, broker),
            RequestCode.GET_TOPIC_CONFIG,
            header,
            accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        if response.code == ResponseCode.SUCCESS:
            found[broker] = TopicConfigAndQueueMapping.from_json_bytes(response.body)
    return found


def _neighbours(info: ClusterInfo, brokers: Iterable[str]) -> list[str]:
    """All brokers of the clusters that one of `brokers` belongs to."""
    wanted = set(brokers)
    return sorted(
        {
            name
            for names in info.cluster_addr_table.values()
            if not wanted.isdisjoint(names)
            for name in names
        }
    )


# -- files ---------------------------------------------------------------------------------------


def _write_plans(old: TopicRemappingDetailWrapper, new: TopicRemappingDetailWrapper) -> list[str]:
    directory = Path(tempfile.mkdtemp(prefix="static-topic-"))
    before = directory / f"{old.topic}-{old.epoch}.before"
    after = directory / f"{new.topic}-{new.epoch}.after"
    write_atomic(before, old.to_json_bytes())
    write_atomic(after, new.to_json_bytes())
    return [
        f"The old mapping data is written to file {before}",
        f"The new mapping data is written to file {after}",
    ]


def _read_plan(topic: str, path: Path) -> TopicRemappingDetailWrapper:
    plan = TopicRemappingDetailWrapper.from_json_bytes(path.read_bytes())
    check_consistence(topic, plan.broker_config_map)
    led_queues(topic, plan.broker_config_map)
    return plan


# -- sending -------------------------------------------------------------------------------------


def _create(
    admin: AdminClient,
    info: ClusterInfo,
    plan: TopicRemappingDetailWrapper,
    lines: list[str],
    *,
    force: bool,
) -> Report:
    configs = plan.broker_config_map
    configs = with_every_broker(plan.topic, configs, _neighbours(info, configs))
    _send(admin, info, configs, configs, force=force)
    return _report(replace(plan, broker_config_map=configs), lines)


def _remap(
    admin: AdminClient,
    info: ClusterInfo,
    plan: TopicRemappingDetailWrapper,
    lines: list[str],
    *,
    force: bool,
) -> Report:
    """First the new leaders take sends, then the old ones refuse them, then where they ended
    decides at which offsets the new ones begin."""
    topic, map_in, map_out = plan.topic, plan.broker_to_map_in, plan.broker_to_map_out
    configs = plan.broker_config_map
    configs = with_every_broker(topic, configs, _neighbours(info, configs))
    _send(admin, info, configs, map_in, force=force)
    _send(admin, info, configs, map_out, force=force)
    for broker in map_out:
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        response = admin.call(_master(info, broker), RequestCode.GET_TOPIC_STATS_INFO, header)
        stats = TopicStatsTable.from_json_bytes(response.body)
        configs = decide_offsets(broker, topic, stats, configs)
    _send(admin, info, configs, map_in, force=force)
    others = [broker for broker in configs if broker not in {*map_in, *map_out}]
    _send(admin, info, configs, others, force=force)
    return _report(replace(plan, broker_config_map=configs), lines)


def _send(
    admin: AdminClient,
    info: ClusterInfo,
    configs: dict[str, TopicConfigAndQueueMapping],
    brokers: Iterable[str],
    *,
    force: bool,
) -> None:
    """513 to the masters of `brokers`; all of them are known to be there before the first."""
    targets = {broker: _master(info, broker) for broker in brokers}
    for broker, address in targets.items():
        config = configs[broker]
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=TEMPLATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            force=force,
        )
        body = mapping_of(broker, config).to_json_bytes()
        admin.call(address, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, body)


def _report(plan: TopicRemappingDetailWrapper, lines: list[str]) -> Report:
    """Each logic queue with the physical queue that is written to."""
    shown = [*lines]
    queues = []
    for broker, config in sorted(plan.broker_config_map.items()):
        for global_id, items in mapping_of(broker, config).hosted_queues.items():
            if items and items[-1].bname == broker:
                queues.append((global_id, items[-1]))
    for global_id, item in sorted(queues, key=lambda row: row[0]):
        shown.append(
            f"queue {global_id}: {item.bname}-{item.queue_id} from offset {item.logic_offset}"
        )
    data = {
        "topic": plan.topic,
        "epoch": plan.epoch,
        "queues": [
            {
                "globalId": global_id,
                "brokerName": item.bname,
                "queueId": item.queue_id,
                "logicOffset": item.logic_offset,
            }
            for global_id, item in sorted(queues, key=lambda row: row[0])
        ],
    }
    return Report("\n".join(shown), data)
