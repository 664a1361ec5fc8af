"""The walk over a topic's queues, beside the two lines of RocketMQ 5.5's PopMessageProcessor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.pop.queue_walk import QueueWalk
from broker.settings.broker_config import BrokerConfig

SETTINGS = BrokerConfig(pop_from_retry_probability=20, pop_from_retry_probability_for_priority=5)


@pytest.mark.parametrize("ascending", [True, False])
def test_every_walk_there_is(ascending: bool) -> None:
    """index = (isPriorityOrderAsc ? readQueueNums - 1 - i : i) + randomQ; index % readQueueNums"""
    settings = replace(SETTINGS, priority_order_asc=ascending)
    for count in range(18):
        for drawn in range(100):
            walk = QueueWalk.of(drawn, 0, settings)
            expected = [((count - 1 - i if ascending else i) + drawn) % count for i in range(count)]
            assert list(walk.queues(count)) == expected


def test_a_pop_by_priority_begins_with_the_highest_queue() -> None:
    for drawn in range(100):
        walk = QueueWalk.of(drawn, 100, SETTINGS)
        assert list(walk.queues(4)) == [3, 2, 1, 0]
        walk = QueueWalk.of(drawn, 100, replace(SETTINGS, priority_order_asc=False))
        assert list(walk.queues(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("factor", [0, 1, 70, 100])
def test_as_many_percent_of_the_pops_go_by_priority_as_the_group_says(factor: int) -> None:
    starts = [QueueWalk.of(drawn, factor, SETTINGS).start for drawn in range(100)]
    assert starts == [0] * factor + list(range(factor, 100))


@pytest.mark.parametrize("factor", [0, 3, 10, 70, 100])
def test_when_the_retry_topic_comes_first(factor: int) -> None:
    """By priority: for popFromRetryProbabilityForPriority of 100 numbers drawn; else the other."""
    first = {drawn for drawn in range(100) if QueueWalk.of(drawn, factor, SETTINGS).retry_first}
    by_priority, ordinary = set(range(factor)), set(range(factor, 100))
    assert first == by_priority & set(range(5)) | ordinary & set(range(20))


def test_by_default_it_never_comes_first_by_priority() -> None:
    assert not any(QueueWalk.of(drawn, 100, BrokerConfig()).retry_first for drawn in range(100))
