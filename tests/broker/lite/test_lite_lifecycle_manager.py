"""Which lite topics there are, and when they end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.lite.lite_lifecycle_manager import LifecycleParts, LiteLifecycleManager
from ipc.command_channel import CommandError
from remoting.body.topic_config import TopicConfig
from remoting.lite_names import to_lmq_name
from tests.broker.lite.served_world import PARENT, LiteServed

MINUTE_MS = 60_000
MIN_TTL_MS = 15 * MINUTE_MS


class World:
    """A parent whose lite topics end after 30 minutes."""

    def __init__(self, path: Path) -> None:
        self.served = LiteServed(path)
        self.times: dict[str, int] = {}
        self.reads: list[str] = []
        self.deleted: list[str] = []
        self.fails = False
        self.comes: Callable[[str], None] = lambda _name: None
        self.parents = {PARENT: self.parent(30)}
        self.lifecycle = LiteLifecycleManager(
            LifecycleParts(
                find_topic=self.parents.get,
                find_group=self.served.groups.get,
                group_names=lambda: list(self.served.groups),
                queue_names=lambda: list(self.served.queues),
                last_time_ms=self.last_time_ms,
                queue_end=lambda name: self.served.bounds(name, 0)[1],
                delete_unless=self.delete_unless,
                registry=self.served.registry,
                queues=self.served.lite_queues,
                wake_group=self.served.waiters.wake_group,
                on_loop=lambda function: function(),
                now_ms=lambda: self.served.now_ms,
                min_ttl_ms=lambda: MIN_TTL_MS,
            )
        )

    def parent(self, minutes: int) -> TopicConfig:
        return TopicConfig(
            topic_name=PARENT,
            attributes={"message.type": "LITE", "lite.topic.expiration": str(minutes)},
        )

    def last_time_ms(self, name: str) -> int:
        self.reads.append(name.rpartition("$")[2])
        return self.times.get(name, -1)

    def delete_unless(self, name: str, is_in_use: Callable[[], bool]) -> None:
        if self.fails:
            raise CommandError("no")
        self.comes(name)
        if not is_in_use():
            self.deleted.append(name.rpartition("$")[2])
            self.served.queues.pop(name)
            self.lifecycle.ended(name)

    def send(self, *lites: str) -> None:
        self.served.send(*lites)
        for lite in lites:
            name = to_lmq_name(PARENT, lite)
            self.times[name] = self.served.now_ms
            self.lifecycle.made(name)

    def pass_minutes(self, minutes: float) -> None:
        self.served.now_ms += int(minutes * MINUTE_MS)
        self.lifecycle.look()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_lite_topic_ends_after_its_last_message_and_is_read_once_before(world: World) -> None:
    world.send("a", "b")
    world.pass_minutes(20)
    world.send("b")
    world.pass_minutes(9.9)
    assert (world.deleted, world.reads.count("a")) == ([], 1)
    world.pass_minutes(0.2)
    assert (world.deleted, world.lifecycle.lite_topics(PARENT)) == (
        ["a"],
        [to_lmq_name(PARENT, "b")],
    )
    assert world.reads.count("b") == 2  # what is known of it is 30 minutes old
    world.pass_minutes(20)
    assert world.deleted == ["a", "b"]
    assert world.lifecycle.parents() == []


def test_nothing_of_it_stays(world: World) -> None:
    served = world.served
    served.subscribe("PARTIAL_ADD", "a")
    world.send("a", "a")
    assert served.popped() == [0, 1]
    served.ack("a", 0)
    world.pass_minutes(31)
    assert world.deleted == ["a"]
    assert served.offsets.pairs() == []
    assert len(served.order) == 0
    assert served.registry.subscription_count == 0


def test_a_message_that_comes_at_the_last_moment_keeps_it(world: World) -> None:
    world.send("a")
    world.comes = lambda _name: world.send("a")
    world.pass_minutes(31)
    assert world.deleted == []
    assert world.lifecycle.count(PARENT) == 1


def test_none_ends_soon_after_a_start_or_without_an_expiration(world: World) -> None:
    world.send("a")
    world.parents[PARENT] = world.parent(1)
    world.pass_minutes(14.9)
    assert world.deleted == []
    world.parents[PARENT] = world.parent(-1)
    world.pass_minutes(60)
    assert world.deleted == []
    del world.parents[PARENT]
    world.pass_minutes(60)
    assert world.deleted == []
    world.parents[PARENT] = world.parent(1)
    world.pass_minutes(0)
    assert world.deleted == ["a"]


def test_one_whose_messages_are_gone_ends(world: World) -> None:
    world.send("a")
    world.times.clear()
    world.pass_minutes(31)
    assert world.deleted == ["a"]


def test_what_fails_is_tried_again(world: World) -> None:
    world.send("a")
    world.fails = True
    world.pass_minutes(31)
    world.fails = False
    world.pass_minutes(2)
    assert world.deleted == ["a"]


def test_a_group_that_is_deleted_leaves_nothing(world: World) -> None:
    served = world.served
    served.subscribe("PARTIAL_ADD", "a")
    world.send("a")
    served.popped()
    world.lifecycle.end_group("G", PARENT)
    assert served.registry.is_empty
    assert (served.offsets.pairs(), len(served.order)) == ([], 0)


def test_a_start_finds_what_there_is(world: World) -> None:
    world.served.send("a", "b")
    world.served.queues["%LMQ%ordinary"] = []
    world.lifecycle.load()
    assert world.lifecycle.count(PARENT) == 2
    assert world.lifecycle.groups_of(PARENT) == ["G"]
