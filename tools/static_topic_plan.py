"""Plans of static topics: which broker gets which logic queue when one is created or remapped.

Pure functions over what each broker has of a topic (TopicConfigAndQueueMapping by broker name); the
commands of tools/commands/static_topic.py ask for it and send the result. Every plan is checked
before and after. Source: TopicQueueMappingUtils of RocketMQ 5.3.3.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from remoting.body.json_bean import JsonBean
from remoting.body.stats import TopicStatsTable
from remoting.body.topic_config import TopicConfigAndQueueMapping
from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.command_custom_header import Int64
from remoting.logic_queue import MappingError, block_seq_round_up, check_items
from tools.errors import AdminError

CREATE_OR_UPDATE: Final = "CREATE_OR_UPDATE"
REMAPPING: Final = "REMAPPING"
_EPOCH_STEP: Final = 1_000

Configs = Mapping[str, TopicConfigAndQueueMapping]
"""By broker name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemappingDetailWrapper(JsonBean):
    """A plan as the commands write it to a file, and read it again (-mf)."""

    topic: str
    type: str = CREATE_OR_UPDATE
    epoch: Int64 = 0
    broker_config_map: dict[str, TopicConfigAndQueueMapping] = field(default_factory=dict)
    broker_to_map_in: list[str] = field(default_factory=list)
    broker_to_map_out: list[str] = field(default_factory=list)


def mapping_of(broker: str, config: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    """AdminError for a topic that is not static at this broker."""
    if config.mapping_detail is None:
        raise AdminError(f"Mapping info should not be null in broker {broker}")
    return config.mapping_detail


# -- checks --------------------------------------------------------------------------------------


def check_consistence(topic: str, configs: Configs) -> tuple[int, int]:
    """Epoch and number of queues, which are the same at all brokers, or AdminError."""
    found: set[tuple[str, int, int]] = set()
    for broker, config in configs.items():
        detail = mapping_of(broker, config)
        if detail.bname != broker:
            raise AdminError(f"The broker name is not equal {broker} != {detail.bname}")
        if detail.dirty:
            raise AdminError(f"The mapping info is dirty in broker {broker}")
        if not config.topic_name == detail.topic == topic:
            raise AdminError(f"The topic name is inconsistent in broker {broker}")
        found.add((detail.scope, detail.epoch, detail.total_queues))
    if len(found) != 1:
        shown = ", ".join(f"scope {s}, epoch {e}, {n} queues" for s, e, n in sorted(found))
        raise AdminError(f"the brokers' mappings of topic {topic} differ: {shown or 'none'}")
    _, epoch, total = found.pop()
    return epoch, total


def led_queues(topic: str, configs: Configs) -> dict[int, list[LogicQueueMappingItem]]:
    """The items of each logic queue, as its leader has them; AdminError unless each queue has one
    leader and a physical queue of its own that exists."""
    found: dict[int, list[LogicQueueMappingItem]] = {}
    totals = []
    for broker, config in configs.items():
        detail = mapping_of(broker, config)
        totals.append(detail.total_queues)
        for global_id, items in detail.hosted_queues.items():
            try:
                check_items(items)
            except MappingError as error:
                raise AdminError(f"queue {global_id} in broker {broker}: {error}") from error
            if not items or items[-1].bname != broker:
                continue
            if global_id in found:
                leaders = f"{found[global_id][-1].bname} and {broker}"
                raise AdminError(f"queue {global_id} of topic {topic} is led by {leaders}")
            found[global_id] = items
    total = max(totals, default=0)
    if sorted(found) != list(range(total)):
        raise AdminError(f"topic {topic} has {total} queues, led are {sorted(found)}")
    _check_physical(topic, configs, found)
    return found


def _check_physical(
    topic: str, configs: Configs, led: Mapping[int, Iterable[LogicQueueMappingItem]]
) -> None:
    used: dict[tuple[str, int], int] = {}
    for broker, config in configs.items():
        if config.read_queue_nums < config.write_queue_nums:
            raise AdminError(f"Read queues is smaller than write queues in broker {broker}")
    for global_id, items in led.items():
        for item in items:
            place = item.bname, item.queue_id
            if place in used:
                raise AdminError(
                    f"Topic {topic} global queue id {used[place]} and {global_id} shared the same "
                    f"physical queue {item.bname}-{item.queue_id}"
                )
            used[place] = global_id
            if item.start_offset != 0:
                raise AdminError("The start offset does not begin from 0")
            if item.bname not in configs:
                raise AdminError(f"broker {item.bname} has a part of queue {global_id}, no topic")
            if item.queue_id >= configs[item.bname].write_queue_nums:
                raise AdminError(
                    f"queue {global_id} is mapped to {item.bname}-{item.queue_id}, beyond the "
                    "write queues there"
                )


# -- plans ---------------------------------------------------------------------------------------


def create_plan(
    topic: str, queue_num: int, targets: AbstractSet[str], configs: Configs, now_ms: int
) -> dict[str, TopicConfigAndQueueMapping]:
    """`configs` with queues added until there are `queue_num`, at the brokers that lead fewest."""
    led: dict[int, list[LogicQueueMappingItem]] = {}
    epoch = now_ms
    if configs:
        epoch, _ = check_consistence(topic, configs)
        led = led_queues(topic, configs)
    if queue_num < len(led):
        raise AdminError(f"Cannot decrease the queue num for static topic {queue_num} < {len(led)}")
    if queue_num == len(led):
        raise AdminError("The topic queue num is equal the existed queue num, do nothing")
    counts = Counter(dict.fromkeys((*targets, *configs), 0))
    counts.update(items[-1].bname for items in led.values())
    planned = dict(configs)
    for global_id in range(len(led), queue_num):
        least = min(counts.values())
        broker = random.choice(sorted(name for name in counts if counts[name] == least))
        counts[broker] += 1
        config = _one_queue_more(planned.get(broker) or _empty(topic, broker))
        item = LogicQueueMappingItem(bname=broker, queue_id=config.write_queue_nums - 1)
        planned[broker] = _hosting(config, global_id, [item])
    return _checked(topic, planned, queue_num, max(epoch + _EPOCH_STEP, now_ms))


def remap_plan(
    topic: str, targets: AbstractSet[str], configs: Configs, now_ms: int
) -> TopicRemappingDetailWrapper:
    """The queues shared evenly among `targets`; as many as possible stay where they are."""
    epoch, total = check_consistence(topic, configs)
    led = led_queues(topic, configs)
    wanted = _wanted_leaders(led, targets)
    planned = dict(configs)
    map_in: set[str] = set()
    map_out: set[str] = set()
    for global_id, broker in sorted(wanted.items()):
        items = led[global_id]
        last = items[-1]
        if last.bname == broker:
            continue
        map_in.add(broker)
        map_out.add(last.bname)
        config = _one_queue_more(planned.get(broker) or _empty(topic, broker))
        item = LogicQueueMappingItem(
            gen=last.gen + 1, queue_id=config.write_queue_nums - 1, bname=broker, logic_offset=-1
        )
        planned[broker] = _hosting(config, global_id, [*items, item])
        planned[last.bname] = _hosting(planned[last.bname], global_id, [*items, item])
    new_epoch = max(epoch + _EPOCH_STEP, now_ms)
    return TopicRemappingDetailWrapper(
        topic=topic,
        type=REMAPPING,
        epoch=new_epoch,
        broker_config_map=_checked(topic, planned, total, new_epoch),
        broker_to_map_in=sorted(map_in),
        broker_to_map_out=sorted(map_out),
    )


def _wanted_leaders(
    led: Mapping[int, Sequence[LogicQueueMappingItem]], targets: AbstractSet[str]
) -> dict[int, str]:
    """Broker by global id. Those that lead most already get what is left over by the division."""
    before = Counter(items[-1].bname for items in led.values())
    ordered = sorted(targets, key=lambda broker: (-before[broker], broker))
    each, more = divmod(len(led), len(ordered))
    room = {broker: each + (number < more) for number, broker in enumerate(ordered)}
    wanted: dict[int, str] = {}
    for global_id, items in sorted(led.items()):
        leader = items[-1].bname
        if room.get(leader, 0) > 0:
            room[leader] -= 1
            wanted[global_id] = leader
    places = (broker for broker in ordered for _ in range(room[broker]))
    wanted.update(zip(sorted(led.keys() - wanted.keys()), places, strict=True))
    return wanted


def with_every_broker(
    topic: str, configs: Configs, brokers: Iterable[str]
) -> dict[str, TopicConfigAndQueueMapping]:
    """`configs`, and an empty mapping for each other broker: it answers 501 then, not as if the
    topic were unknown."""
    known = mapping_of("", next(iter(configs.values())))
    completed = dict(configs)
    for broker in brokers:
        if broker not in completed:
            detail = replace(_detail(topic, broker), total_queues=known.total_queues)
            completed[broker] = TopicConfigAndQueueMapping(
                topic_name=topic,
                read_queue_nums=0,
                write_queue_nums=0,
                mapping_detail=replace(detail, epoch=known.epoch),
            )
    return completed


def with_decided(configs: Configs, found: Configs) -> dict[str, TopicConfigAndQueueMapping]:
    """A plan, with the logic offsets that new leaders have by now: consumers may have seen them, so
    they are not decided again. found: what the brokers have."""
    decided = dict(configs)
    for broker, config in configs.items():
        for global_id, items in mapping_of(broker, config).hosted_queues.items():
            if not items or items[-1].is_decided:
                continue
            theirs = found.get(items[-1].bname)
            detail = None if theirs is None else theirs.mapping_detail
            for item in () if detail is None else detail.hosted_queues.get(global_id, ()):
                if item.is_decided and replace(item, logic_offset=-1) == items[-1]:
                    decided[broker] = _hosting(decided[broker], global_id, [*items[:-1], item])
    return decided


def decide_offsets(
    broker: str, topic: str, stats: TopicStatsTable, configs: Configs
) -> dict[str, TopicConfigAndQueueMapping]:
    """`configs` with the logic offsets of the queues that were mapped out of `broker`, whose
    `stats` were read after it had been told so."""
    ends = {
        (queue.broker_name, queue.queue_id): offset.max_offset
        for queue, offset in stats.offset_table.items()
        if queue.topic == topic
    }
    decided = dict(configs)
    for global_id, items in mapping_of(broker, configs[broker]).hosted_queues.items():
        if len(items) < 2 or items[-1].is_decided or items[-2].bname != broker:
            continue
        old, new = items[-2:]
        end = ends.get((old.bname, old.queue_id))
        if end is None or end < old.start_offset:
            raise AdminError(f"cannot get the max offset of {old.bname}-{old.queue_id}: {end}")
        new = replace(new, logic_offset=block_seq_round_up(old.static_offset(end)))
        for host in (broker, new.bname):
            decided[host] = _hosting(decided[host], global_id, [*items[:-1], new])
    return decided


def _checked(
    topic: str, configs: Configs, total: int, epoch: int
) -> dict[str, TopicConfigAndQueueMapping]:
    """All with the same epoch and number of queues; AdminError if the plan contradicts itself."""
    planned = {
        broker: replace(
            config,
            mapping_detail=replace(mapping_of(broker, config), epoch=epoch, total_queues=total),
        )
        for broker, config in configs.items()
    }
    check_consistence(topic, planned)
    led_queues(topic, planned)
    return planned


def _detail(topic: str, broker: str) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail(topic=topic, bname=broker)


def _empty(topic: str, broker: str) -> TopicConfigAndQueueMapping:
    return TopicConfigAndQueueMapping(
        topic_name=topic,
        read_queue_nums=0,
        write_queue_nums=0,
        mapping_detail=_detail(topic, broker),
    )


def _one_queue_more(config: TopicConfigAndQueueMapping) -> TopicConfigAndQueueMapping:
    return replace(
        config,
        read_queue_nums=config.read_queue_nums + 1,
        write_queue_nums=config.write_queue_nums + 1,
    )


def _hosting(
    config: TopicConfigAndQueueMapping, global_id: int, items: list[LogicQueueMappingItem]
) -> TopicConfigAndQueueMapping:
    detail = mapping_of("", config)
    hosted = {**detail.hosted_queues, global_id: items}
    return replace(
        config,
        mapping_detail=replace(detail, hosted_queues={key: hosted[key] for key in sorted(hosted)}),
    )
