"""The queues of pop's retry topics: one, or as many as the topic has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.pop.retry_queues import RetryQueues
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.topic_config import TopicConfig
from tests.broker.broker_fakes import CONFIG, FakeClock

RETRY = "%RETRY%G_T"


@dataclass(frozen=True)
class World:
    topics: TopicConfigManager
    offsets: ConsumerOffsetManager
    queues: RetryQueues

    def topic(self, queues: int) -> None:
        self.topics.update(
            TopicConfig(topic_name="T", read_queue_nums=queues, write_queue_nums=queues)
        )

    def back_in(self, queue_id: int, *, separate: bool = True) -> int | None:
        return self.queues.find_or_create(RETRY, "G", queue_id, separate=separate)

    @property
    def counts(self) -> tuple[int, int]:
        found = self.topics.find(RETRY)
        assert found is not None
        return found.read_queue_nums, found.write_queue_nums

    def offset_of(self, queue_id: int) -> int | None:
        return self.offsets.query_offset("G", RETRY, queue_id)


@pytest.fixture
def world(tmp_path: Path) -> World:
    topics = TopicConfigManager(tmp_path / "topics.json", CONFIG, FakeClock(), SystemTopics())
    topics.load()
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
    world = World(topics, offsets, RetryQueues(topics, topics.find, offsets))
    world.topic(4)
    return world


def test_one_queue_is_enough_for_all(world: World) -> None:
    assert [world.back_in(queue_id, separate=False) for queue_id in (3, 0, 99)] == [0, 0, 0]
    assert world.counts == (1, 1)
    assert world.offset_of(0) == 0


def test_a_message_comes_back_in_the_queue_that_it_had(world: World) -> None:
    assert [world.back_in(queue_id) for queue_id in (3, 0, 2)] == [3, 0, 2]
    assert world.counts == (4, 4)
    assert [world.offset_of(queue_id) for queue_id in range(4)] == [0, 0, 0, 0]


def test_a_retry_topic_grows_with_its_topic_and_keeps_its_offsets(world: World) -> None:
    assert world.back_in(3, separate=False) == 0
    world.offsets.commit_own_offset("test", "G", RETRY, 0, 7)
    assert world.back_in(3) == 3
    world.topic(6)
    assert world.back_in(5) == 5
    assert world.counts == (6, 6)
    assert [world.offset_of(queue_id) for queue_id in range(6)] == [7, 0, 0, 0, 0, 0]


def test_it_never_shrinks(world: World) -> None:
    """Messages may be in all of its queues."""
    world.back_in(3)
    world.topic(2)
    assert world.back_in(3) == 3
    assert world.counts == (4, 4)
    assert world.back_in(3, separate=False) == 0
    assert world.counts == (4, 4)


def test_a_queue_that_it_has_not_is_the_first(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.back_in(4) == 0
    assert "has no queue 4 for a message that comes back" in caplog.text


def test_a_topic_that_is_gone_or_has_no_queue_for_writing(world: World) -> None:
    world.topics.delete("T")
    assert world.back_in(0) == 0
    assert world.counts == (1, 1)
