"""Lists of topics and groups that are deleted (5002, 5003): the bodies of RocketMQ 5.5.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.admin.paced_deletions import PacedDeletions
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from tests.broker.processor_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.with_config(batch_delete_topic_max_rate=0.0, batch_delete_subscription_group_max_rate=0.0)
    made.topics.update(*(TopicConfig(topic_name=name) for name in ("t1", "t2", "t3")))
    made.groups.update(*(SubscriptionGroupConfig(group_name=name) for name in ("g1", "g2", "g3")))
    for topic in ("t1", "t2", "t3"):
        for group in ("g1", "g2", "g3"):
            made.offsets.commit_offset("test", group, topic, 0, 5)
    return made


def ask(world: World, code: int, **body: Any) -> RemotingCommand:
    processor = world.admin_topic() if code == 5002 else world.admin_group()
    return world.ask(processor, RemotingCommand.request(code, body=json.dumps(body).encode()))


def left(world: World) -> set[str]:
    names = {*world.topics.topic_names(), *world.groups.group_names()}
    return names & {"t1", "t2", "t3", "g1", "g2", "g3"}


def offset(world: World, group: str, topic: str) -> int | None:
    return world.offsets.query_offset(group, topic, 0)


def test_topics_go_with_their_queues_and_offsets(world: World) -> None:
    assert ask(world, 5002, topicList=["t1", "t3", "t1", "unknown"]).code == 0
    assert left(world) == {"t2", "g1", "g2", "g3"}
    assert offset(world, "g1", "t2") == 5
    assert offset(world, "g1", "t1") is None
    deleted = ["t1", "t3", "unknown"]
    assert world.store.commands == [("delete_topic_queues", name) for name in deleted]


@pytest.mark.parametrize(("clean", "kept"), [(True, None), (False, 5)])
def test_groups_go_with_their_offsets_if_asked(world: World, clean: bool, kept: int | None) -> None:
    assert ask(world, 5003, groupNameList=["g1", "g2"], cleanOffset=clean).code == 0
    assert left(world) == {"t1", "t2", "t3", "g3"}
    assert offset(world, "g1", "t1") == kept
    assert offset(world, "g3", "t1") == 5


@pytest.mark.parametrize(
    ("code", "body", "remark"),
    [
        (5002, {}, "The specified topic list is blank."),
        (5002, {"topicList": []}, "The specified topic list is blank."),
        (5002, {"topicList": ["t1", " "]}, "The specified topic is blank."),
        (5002, {"topicList": ["t1", "TBW102"]}, "system topic"),
        (5002, {"topicList": ["t1", "a/b"]}, "illegal characters"),
        (5003, {}, "The specified group name list is blank."),
        (5003, {"groupNameList": ["g1", ""]}, "The specified group name is blank."),
    ],
)
def test_a_list_with_a_name_that_is_refused_deletes_nothing(
    world: World, code: int, body: dict[str, Any], remark: str
) -> None:
    answer = ask(world, code, **body)
    assert answer.code != 0
    assert remark in (answer.remark or "")
    assert left(world) == {"t1", "t2", "t3", "g1", "g2", "g3"}


def test_offsets_of_the_brokers_own_groups_stay(world: World) -> None:
    own = "CID_RMQ_SYS_REVIVE_GROUP"
    assert ask(world, 5003, groupNameList=["g1", own], cleanOffset=True).code != 0
    assert "g1" in left(world)


@pytest.mark.parametrize("code", [5002, 5003])
def test_a_slave_deletes_nothing(world: World, code: int) -> None:
    world.is_slave = True
    assert ask(world, code, topicList=["t1"], groupNameList=["g1"]).code != 0
    assert len(left(world)) == 6


def test_one_list_at_a_time_and_so_many_names_a_second() -> None:
    waited: list[float] = []
    deletions = PacedDeletions(lambda: True, waited.append)
    names = deletions.each(["a", "b", "a", "c"], 4.0)
    assert next(names) == "a"
    with pytest.raises(RequestError, match="another list is being deleted"):
        next(deletions.each(["x"], 4.0))
    assert list(names) == ["b", "c"]
    assert sum(waited) == pytest.approx(2 / 4.0)
    assert max(waited) <= 0.1, "so long may a stop wait"
    waited.clear()
    assert list(deletions.each(["a", "b"], 0.0)) == ["a", "b"]
    assert waited == []


def test_the_stop_of_a_broker_ends_a_list_with_words() -> None:
    served = iter([True, True, True, False, False])

    def names() -> Iterator[str]:
        yield from PacedDeletions(lambda: next(served), lambda _s: None).each("abc", 10.0)

    told = names()
    assert next(told) == "a"
    assert next(told) == "b"
    with pytest.raises(RequestError, match="the broker stops: 2 of 3 are deleted, up to b"):
        next(told)
