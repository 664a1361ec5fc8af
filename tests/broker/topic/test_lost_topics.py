"""Messages that were taken while their topic had more queues, or by a leader that alone knew it:
whoever delivers them has their queue read. What was answered SEND_OK is not put where nobody reads
(seed 31 of mqchaos --controller --etcd 3)."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from broker.topic.lost_topics import LostTopics
from broker.topic.topic_config_manager import MAX_TOPIC_QUEUES, TopicChange, TopicConfigManager
from remoting.body.topic_config import TopicConfig
from remoting.response_code import ResponseCode
from store.errors import MessageIllegalError
from store.topic_queue_table import rebuild_topic_queue_table
from tests.broker.hot_path_world import HotPathWorld
from tests.broker.schedule.test_schedule_message_service import Delays
from tests.broker.transaction_world import COMMIT, Half, TransactionWorld
from tests.support.timer_delivery import TimerDelivery
from tests.support.timer_life import START_MS


def queues(topics: TopicConfigManager, topic: str) -> tuple[int, int] | None:
    """(read, write)."""
    found = topics.find(topic)
    return None if found is None else (found.read_queue_nums, found.write_queue_nums)


def lead_anew(world: HotPathWorld, topics: TopicConfigManager) -> None:
    """What is in the log was taken by another leader, whose last topics were not copied."""
    world.log.close()
    rebuild_topic_queue_table(world.log, world.page, world.table, world.loop_reader)
    world.log.open(world.log.store_host)
    world.dispatch()
    topics.delete("T")


def commit(world: TransactionWorld, half: Half) -> int:
    answer = world.end(half, COMMIT)
    assert answer is not None
    return answer.code


@pytest.fixture
def world(tmp_path: Path) -> TransactionWorld:
    return TransactionWorld(tmp_path)


def test_a_half_of_a_queue_that_the_topic_lacks(world: TransactionWorld) -> None:
    """The topic was put back with fewer queues, or an operator took some away."""
    half = world.prepare(b"half", queue_id=2)
    world.hot.topic("T", queues=1)
    assert commit(world, half) == 0
    assert queues(world.hot.topics, "T") == (3, 1), "it is read, and gets no sends"
    assert [(m.topic, m.queue_id) for m in world.hot.records() if m.body == b"half"][-1] == ("T", 2)


def test_a_half_of_a_topic_that_was_not_copied(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    half = world.prepare(b"half", queue_id=2)
    lead_anew(world.hot, world.hot.topics)
    told: list[tuple[TopicChange, TopicConfig | None]] = []
    world.hot.topics.add_listener(lambda *change: told.append(change))
    with caplog.at_level(logging.ERROR):
        assert commit(world, half) == 0
    assert queues(world.hot.topics, "T") == (8, 8)
    assert [change for change, _ in told] == [TopicChange.NEW], "the name servers hear of it"
    assert "topic T: is not in the table of this broker, but the message at " in caplog.text


def test_a_half_of_a_topic_that_was_deleted(world: TransactionWorld) -> None:
    """Under this leader: nobody wants it any more."""
    half = world.prepare(b"half", queue_id=2)
    world.hot.topics.delete("T")
    assert commit(world, half) == ResponseCode.TOPIC_NOT_EXIST
    assert queues(world.hot.topics, "T") is None


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_delayed_message(tmp_path: Path, is_copied: bool) -> None:
    delays = Delays(tmp_path)
    assert delays.send(1, b"late", queue_id=3).code == 0
    delays.world.dispatch()
    lead_anew(delays.world, delays.world.topics)
    if is_copied:
        delays.world.topic("T", queues=1)
    for _ in range(4):
        delays.step(500)
    assert [(m.queue_id, m.body) for m in delays.delivered()] == [(3, b"late")]
    assert queues(delays.world.topics, "T") == ((4, 1) if is_copied else (8, 8))


def test_a_delayed_message_of_a_topic_that_was_deleted(tmp_path: Path) -> None:
    delays = Delays(tmp_path)
    assert delays.send(1, b"late").code == 0
    delays.world.topics.delete("T")
    for _ in range(4):
        delays.step(500)
    assert queues(delays.world.topics, "T") is None


def test_a_timer_asks_for_its_topic(tmp_path: Path) -> None:
    world = TimerDelivery(tmp_path / "store")
    world.put("late", START_MS + 500)
    world.pass_ms(1_000, 50)
    assert world.keys() == ["late"]
    assert [(topic, queue_id) for topic, queue_id, _ in world.needed] == [("T", 0)]
    assert world.needed[0][2] < world.life.log.position
    world.close()


def test_what_is_never_put_back(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path)
    lost = LostTopics(world.topics, world.log)
    world.log.opened_at = 100
    assert lost.put_back("rmq_sys_wheel_timer", 0, 50), "the broker's own need no entry"
    assert queues(world.topics, "rmq_sys_wheel_timer") is None
    with pytest.raises(MessageIllegalError):
        lost.put_back("../up", 0, 50)
    assert queues(world.topics, "../up") is None
    assert not lost.put_back("deleted", 0, 100)


def test_a_queue_that_no_topic_can_have(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = HotPathWorld(tmp_path)
    world.topic("T", queues=1)
    world.topics.make_readable("T", MAX_TOPIC_QUEUES)
    assert queues(world.topics, "T") == (1, 1)
    assert "topic T: it cannot have a queue 65536: nobody reads it" in caplog.text
    world.topics.make_readable("SCHEDULE_TOPIC_XXXX", 30)
    assert queues(world.topics, "SCHEDULE_TOPIC_XXXX") == (18, 18)


def test_what_an_operator_lets_nobody_read_stays_so(tmp_path: Path) -> None:
    """Senders fill writeQueueNums; only a queue beyond both counts was taken by other ones."""
    world = HotPathWorld(tmp_path)
    world.topic("T", queues=1)
    found = world.topics.find("T")
    assert found is not None
    world.topics.update(replace(found, write_queue_nums=4))
    world.topics.make_readable("T", 3)
    assert queues(world.topics, "T") == (1, 4)
    world.topics.make_readable("T", 4)
    assert queues(world.topics, "T") == (5, 4)
