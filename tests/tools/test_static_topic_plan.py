"""tools.static_topic_plan: who gets which logic queue, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from remoting.body.message_queue import MessageQueue
from remoting.body.stats import TopicOffset, TopicStatsTable
from remoting.body.topic_config import TopicConfigAndQueueMapping
from remoting.body.topic_queue_mapping import LogicQueueMappingItem
from tools.errors import AdminError
from tools.static_topic_plan import (
    TopicRemappingDetailWrapper,
    check_consistence,
    create_plan,
    decide_offsets,
    led_queues,
    mapping_of,
    remap_plan,
    with_every_broker,
)

NOW = 1_700_000_000_000
Configs = Mapping[str, TopicConfigAndQueueMapping]


def created(queues: int, *brokers: str, before: Configs | None = None) -> Configs:
    return create_plan("T", queues, set(brokers), before or {}, NOW)


def leaders(configs: Configs) -> dict[int, str]:
    return {key: items[-1].bname for key, items in led_queues("T", configs).items()}


def stats(broker: str, *ends: int) -> TopicStatsTable:
    return TopicStatsTable(
        offset_table={
            MessageQueue(topic="T", broker_name=broker, queue_id=number): TopicOffset(
                max_offset=end
            )
            for number, end in enumerate(ends)
        }
    )


def test_new_queues_go_to_those_that_lead_fewest() -> None:
    first = created(5, "a", "b")
    assert sorted(Counter(leaders(first).values()).values()) == [2, 3]
    assert check_consistence("T", first) == (NOW + 1_000, 5)
    for config in first.values():
        assert config.write_queue_nums == config.read_queue_nums
    more = created(9, "a", "b", "c", before=first)
    assert Counter(leaders(more).values()) == {"a": 3, "b": 3, "c": 3}
    assert {key: leaders(more)[key] for key in range(5)} == leaders(first), "they stay"
    assert check_consistence("T", more) == (NOW + 2_000, 9)


@pytest.mark.parametrize(
    ("queues", "remark"), [(4, "do nothing"), (3, "Cannot decrease the queue num .* 3 < 4")]
)
def test_queues_are_only_added(queues: int, remark: str) -> None:
    with pytest.raises(AdminError, match=remark):
        created(queues, "a", before=created(4, "a"))


def test_a_remapping_moves_as_few_as_it_can() -> None:
    before = created(4, "a")
    plan = remap_plan("T", {"a", "b"}, before, NOW)
    after = plan.broker_config_map
    assert leaders(after) == {0: "a", 1: "a", 2: "b", 3: "b"}
    assert (plan.broker_to_map_in, plan.broker_to_map_out) == (["b"], ["a"])
    new = mapping_of("b", after["b"]).hosted_queues[3][-1]
    assert new == LogicQueueMappingItem(bname="b", gen=1, queue_id=1, logic_offset=-1)
    assert (after["b"].write_queue_nums, after["a"].write_queue_nums) == (2, 4)
    assert (
        mapping_of("a", after["a"]).hosted_queues[3]
        == mapping_of(*("b", after["b"])).hosted_queues[3]
    )
    assert TopicRemappingDetailWrapper.from_json_bytes(plan.to_json_bytes()) == plan
    unmoved = remap_plan("T", {"a"}, before, NOW)
    assert (unmoved.broker_to_map_in, unmoved.broker_to_map_out) == ([], [])


def test_where_the_new_leaders_begin() -> None:
    after = remap_plan("T", {"b"}, created(2, "a"), NOW).broker_config_map
    decided = decide_offsets("a", "T", stats("a", 12, 7_000), after)
    for broker in ("a", "b"):
        hosted = mapping_of(broker, decided[broker]).hosted_queues
        assert [hosted[key][-1].logic_offset for key in (0, 1)] == [10_000, 20_000]
    back = remap_plan("T", {"a"}, decided, NOW).broker_config_map
    again = decide_offsets("b", "T", stats("b", 3, 5_000), back)
    hosted = mapping_of("a", again["a"]).hosted_queues
    assert [item.logic_offset for item in hosted[1]] == [0, 20_000, 40_000]
    assert again["a"].write_queue_nums == 4, "a physical queue is never used again"
    with pytest.raises(AdminError, match="cannot get the max offset of b-0"):
        decide_offsets("b", "T", stats("a", 1), back)


def test_every_other_broker_learns_of_the_topic() -> None:
    before = created(2, "a")
    whole = with_every_broker("T", before, ["a", "c"])
    assert whole["a"] is before["a"]
    assert whole["c"].write_queue_nums == 0
    assert check_consistence("T", whole) == check_consistence("T", before)
    assert leaders(whole) == leaders(before)


def test_what_contradicts_itself_is_not_sent() -> None:
    one, two = created(2, "a"), created(2, "b")
    item = LogicQueueMappingItem(bname="a")

    def with_queues(**queues: list[LogicQueueMappingItem]) -> Configs:
        hosted = {int(name[1:]): items for name, items in queues.items()}
        detail = replace(mapping_of("a", one["a"]), hosted_queues=hosted)
        return {"a": replace(one["a"], mapping_detail=detail)}

    for configs, remark in (
        ({**one, **two}, "queue 0 of topic T is led by a and b"),
        (with_queues(q0=[item]), r"topic T has 2 queues, led are \[0\]"),
        (with_queues(q0=[item], q1=[item]), "queue id 0 and 1 shared the same physical queue a-0"),
        (with_queues(q0=[item], q1=[replace(item, queue_id=2)]), "beyond the write queues there"),
        (with_queues(q0=[item, item]), "The gen does not increase"),
    ):
        with pytest.raises(AdminError, match=remark):
            led_queues("T", configs)
    for configs, remark in (
        ({"a": replace(one["a"], mapping_detail=None)}, "Mapping info should not be null in"),
        ({"b": one["a"]}, "The broker name is not equal b != a"),
        ({**one, "b": created(3, "b")["b"]}, "the brokers' mappings of topic T differ"),
        ({}, "differ: none"),
    ):
        with pytest.raises(AdminError, match=remark):
            check_consistence("T", configs)
