"""broker.pop.consumer_order_info_manager: ordered pops, against a table written by RocketMQ 5.3.3.

tests/golden/pop/consumerOrderInfo-5.3.3.json was saved by a Java broker of 5.3.3 after a FIFO
consumer had popped six messages at once and acknowledged all of them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.pop.consumer_order_info_manager import (
    CLEAN_SPAN_MS,
    ILLEGAL,
    NO_COMMIT,
    ConsumerOrderInfoManager,
)
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from tests.broker.broker_fakes import FakeClock
from tests.remoting.golden_frames import GOLDEN

JAVA_FILE = GOLDEN / "pop" / "consumerOrderInfo-5.3.3.json"
INVISIBLE_MS = 60_000


class World:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.topics = {"T": 4, "TFifo": 1}
        self.groups = {"G", "GFifo"}
        self.path = path / "consumerOrderInfo.json"
        self.free: list[tuple[str, str, int]] = []
        self.manager = self.make()

    def make(self) -> ConsumerOrderInfoManager:
        manager = ConsumerOrderInfoManager(self.path, self.clock, self.topic, self.group)
        manager.load()
        manager.watch_free_queues(lambda *key: self.free.append(key))
        return manager

    def topic(self, name: str) -> TopicConfig | None:
        queues = self.topics.get(name)
        return None if queues is None else TopicConfig(topic_name=name, read_queue_nums=queues)

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return SubscriptionGroupConfig(group_name=name) if name in self.groups else None

    def pop(self, *offsets: int, attempt: str | None = None) -> tuple[int, list[str]]:
        """Pop these from T/2 for G; the pop time and the items of orderCountInfo."""
        items: list[str] = []
        now = self.clock.now
        self.manager.update(attempt, "T", "G", 2, now, INVISIBLE_MS, list(offsets), items)
        return now, items

    def blocked(self, attempt: str | None = None) -> bool:
        return self.manager.check_block(attempt, "T", "G", 2, INVISIBLE_MS)

    def ack(self, offset: int, pop_time: int, committed: int = 0) -> int:
        return self.manager.commit_and_next("T", "G", 2, offset, pop_time, committed)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_file_is_javas_byte_for_byte(world: World) -> None:
    world.path.write_bytes(JAVA_FILE.read_bytes())
    world.manager = world.make()
    world.clock.now = 1_795_392_058_000
    assert not world.manager.check_block("other", "TFifo", "GFifo", 0, INVISIBLE_MS)
    assert world.manager.commit_and_next("TFifo", "GFifo", 0, 5, 1_795_392_057_144, 5) == 6
    world.manager.mark_changed()
    assert world.manager.save_if_changed()
    assert world.path.read_bytes() == JAVA_FILE.read_bytes()


def test_the_same_pops_and_acks_give_javas_table(world: World) -> None:
    world.clock.now = 1_795_392_057_144
    attempt = "a8f2e263-06ed-46e1-b4a3-3948bce32977"
    world.manager.update(
        attempt, "TFifo", "GFifo", 0, world.clock.now, INVISIBLE_MS, [*range(6)], []
    )
    for offset in range(6):
        world.manager.commit_and_next("TFifo", "GFifo", 0, offset, world.clock.now, 0)
    ours = json.loads(world.manager.encode().replace(b"{0:{", b'{"0":{'))
    java = json.loads(JAVA_FILE.read_text().replace("{0:{", '{"0":{'))
    row = java["table"]["TFifo@GFifo"]["0"]
    row["l"] = 1_795_392_057_144  # it took Java 3 ms
    assert ours == java


def test_a_queue_is_closed_until_all_are_acknowledged(world: World) -> None:
    assert not world.blocked()
    popped, items = world.pop(10, 11, 14)
    assert items == ["0 2 0"]
    assert world.blocked()
    assert world.ack(11, popped) == 10
    assert world.ack(10, popped) == 14
    assert world.blocked()
    assert world.ack(14, popped) == 15
    assert not world.blocked()


def test_the_same_attempt_gets_the_same_messages_and_counts(world: World) -> None:
    world.pop(10, 11, attempt="a")
    assert not world.blocked("a")
    assert world.blocked("b")
    assert world.pop(10, 11, attempt="a")[1] == ["0 2 0"]


def test_what_comes_again_is_counted(world: World) -> None:
    popped, _ = world.pop(10, 11)
    world.ack(10, popped)
    world.clock.advance(INVISIBLE_MS - 1)
    assert world.blocked()
    world.clock.advance(1)
    assert not world.blocked()
    assert world.pop(11, 12)[1] == ["0 qo2%11 1", "0 2 0"]
    assert world.pop(11)[1] == ["0 qo2%11 2", "0 2 2"]


def test_acks_that_do_not_fit(world: World) -> None:
    assert world.ack(7, 1, committed=7) == 8  # nothing is known of the queue
    assert world.ack(7, 1, committed=5) == NO_COMMIT  # 5 and 6 may be open; Java passes over them
    popped, _ = world.pop(10, 11)
    assert world.ack(12, popped) == ILLEGAL
    assert world.ack(10, popped - 1) == NO_COMMIT


def test_an_invisible_time_of_its_own(world: World) -> None:
    popped, _ = world.pop(10, 11)
    world.manager.update_next_visible_time("T", "G", 2, 10, popped, world.clock.now + 5)
    world.manager.update_next_visible_time("T", "G", 2, 11, popped - 1, world.clock.now + 5)
    world.ack(11, popped)
    world.clock.advance(4)
    assert world.blocked()
    world.clock.advance(1)
    assert not world.blocked()


def test_a_free_queue_is_told(world: World) -> None:
    popped, _ = world.pop(10, 11)
    world.manager.update_next_visible_time("T", "G", 2, 10, popped, world.clock.now + 1_000)
    world.clock.advance(1_000)
    world.manager.tell_free_queues()
    assert world.free == []  # 11 is not visible yet
    world.clock.advance(INVISIBLE_MS)
    world.manager.tell_free_queues()
    world.manager.tell_free_queues()
    assert set(world.free) == {("T", "G", 2)}
    assert not world.blocked()


def test_a_queue_that_is_free_soon_is_looked_at_soon(world: World) -> None:
    """Nothing else may happen on the loop before."""
    assert not world.manager.tell_free_queues()
    world.pop(10)
    assert not world.manager.tell_free_queues()
    world.clock.advance(INVISIBLE_MS - 1_000)
    assert not world.manager.tell_free_queues()
    world.clock.advance(1)
    assert world.manager.tell_free_queues()
    assert world.free == []
    world.clock.advance(999)
    assert not world.manager.tell_free_queues()
    assert world.free == [("T", "G", 2)]


def test_a_queue_is_free_when_all_is_acknowledged(world: World) -> None:
    popped, _ = world.pop(10, 11)
    assert world.ack(10, popped) == 11
    world.manager.tell_free_queues()
    assert world.free == []
    assert world.ack(11, popped) == 12
    world.manager.tell_free_queues()
    assert world.free == [("T", "G", 2)]
    popped, _ = world.pop(12)
    world.ack(12, popped)
    world.pop(13)
    world.manager.tell_free_queues()
    assert world.free == [("T", "G", 2)], "it is closed again"


def test_a_restart_keeps_the_queue_closed_and_tells_when_it_is_free(world: World) -> None:
    world.pop(10)
    assert world.manager.save_if_changed()
    world.manager = world.make()
    assert world.blocked()
    world.clock.advance(INVISIBLE_MS)
    world.manager.tell_free_queues()
    assert world.free == [("T", "G", 2)]


def test_an_offset_that_is_set_opens_the_queue(world: World) -> None:
    world.pop(10)
    world.manager.clear_block("T", "G", 2)
    assert not world.blocked()


@pytest.mark.parametrize("reason", ["topic", "group", "queue", "age"])
def test_what_nobody_uses_is_forgotten(world: World, reason: str) -> None:
    world.pop(10)
    if reason == "topic":
        del world.topics["T"]
    elif reason == "group":
        world.groups.remove("G")
    elif reason == "queue":
        world.topics["T"] = 2
    else:
        world.clock.advance(CLEAN_SPAN_MS + 1)
    world.manager.clean()
    assert world.manager.encode() == b'{"table":{}}'


def test_a_time_of_a_message_that_was_not_handed_out_is_not_kept(world: World) -> None:
    """Else the table grows by one for each message of the queue, and is copied each time."""
    popped, _ = world.pop(10, 11)
    world.ack(10, popped)
    for offset in (9, 10, 12, 1 << 40):
        world.manager.update_next_visible_time("T", "G", 2, offset, popped, popped + 90_000)
    world.manager.update_next_visible_time("T", "G", 2, 11, popped, popped + 90_000)
    info = world.manager._find("T", "G", 2)
    assert info is not None
    assert info.offset_next_visible_time == {11: popped + 90_000}


def test_times_that_change_often_take_no_memory(world: World) -> None:
    popped, _ = world.pop(10)
    for step in range(5_000):
        visible_ms = popped + 200_000_000 - (step % 7) * 1_000_000
        world.manager.update_next_visible_time("T", "G", 2, 10, popped, visible_ms)
    assert len(world.manager._free._times) < 500
    world.manager.update_next_visible_time("T", "G", 2, 10, popped, popped + 50)
    world.clock.advance(49)
    world.manager.tell_free_queues()
    assert world.free == []
    world.clock.advance(1)
    world.manager.tell_free_queues()
    assert world.free == [("T", "G", 2)]


def test_a_batch_of_forged_acks_is_one_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    popped, _ = world.pop(10)
    caplog.set_level("INFO")
    assert {world.ack(offset, popped) for offset in range(11, 500)} == {ILLEGAL}
    assert {world.ack(offset, popped - 1) for offset in range(11, 500)} == {NO_COMMIT}
    assert len(caplog.records) == 2


@pytest.mark.parametrize(("end", "following"), [(4, 3), (3, 1), (None, 1)])
def test_the_offset_passes_over_nothing_that_power_took(
    tmp_path: Path, end: int | None, following: int
) -> None:
    """Of four messages the second and third are acknowledged; then the log ends before the last one
    or before all. Whoever gets their offsets now was acknowledged by nobody."""
    world = World(tmp_path)
    popped_ms, _items = world.pop(0, 1, 2, 3)
    for offset in (1, 2):
        world.manager.commit_and_next("T", "G", 2, offset, popped_ms, 0)
    world.manager.save_if_changed()
    world.manager = world.make()
    world.manager.limit_to(lambda topic, queue_id: end if (topic, queue_id) == ("T", 2) else 9)
    assert world.manager.commit_and_next("T", "G", 2, 0, popped_ms, 0) == following
