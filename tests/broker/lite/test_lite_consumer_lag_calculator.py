"""How far lite groups have come, and how often it is looked for."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from broker.lite.lite_consumer_lag_calculator import (
    LiteConsumerLagCalculator,
    LiteLag,
    LiteLagSources,
)
from broker.lite.lite_metadata_util import find_lite_group
from broker.metrics.consumer_lag_calculator import LiteProgress
from remoting.lite_names import to_lmq_name
from store.errors import QueueDamagedError
from tests.broker.lite.served_world import PARENT, RECORD, LiteServed
from tests.broker.lite.test_lite_manager_processor import SETTINGS


class World:
    """a: three messages, one acknowledged; b: one, out. A message was stored each ms."""

    def __init__(self, path: Path) -> None:
        self.served = served = LiteServed(path)
        self.settings = SETTINGS
        self.looks = 0
        self.cost_ms = 0
        """Of a look."""
        self.store = mock.MagicMock()
        self.store.offsets.side_effect = served.bounds
        self.store.unit_at.side_effect = self._unit_at
        self.store.store_timestamp_at.side_effect = lambda place: 5_000 + place // RECORD
        self.lags = LiteConsumerLagCalculator(
            LiteLagSources(
                lite_topics=self._lite_topics,
                queues=served.lite_queues,
                store=self.store,
                find_group=served.groups.get,
                group_names=lambda: [*served.groups, "unknown"],
                settings=lambda: self.settings,
                monotonic_ms=lambda: served.now_ms,
            )
        )
        served.subscribe("PARTIAL_ADD", "a", "b")
        served.send("b", "a", "a", "a")
        served.popped()
        served.ack("a", 0)

    def _unit_at(self, lmq: str, _queue_id: int, offset: int) -> tuple[int, int, int] | None:
        low, high = self.served.bounds(lmq, 0)
        if not low <= offset < high:
            return None
        place = bytes(self.served.queues[lmq][offset]).strip(b"\0")
        return int.from_bytes(place), RECORD, 0

    def _lite_topics(self, _parent: str) -> list[str]:
        self.looks += 1
        self.served.now_ms += self.cost_ms
        return list(self.served.queues)

    def set(self, **changed: bool) -> None:
        self.settings = self.settings._replace(**changed)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_a_group_has_not_consumed(world: World) -> None:
    group = find_lite_group(world.served.groups["G"])
    assert group is not None
    a, b = to_lmq_name(PARENT, "a"), to_lmq_name(PARENT, "b")
    assert sorted(world.lags.lags(group)) == [LiteLag(a, 2, 1), LiteLag(b, 1, 0)]
    world.served.group("Other")
    other = find_lite_group(world.served.groups["Other"])
    assert other is not None
    assert list(world.lags.lags(other)) == []
    assert world.lags.stored_ms(a, 3) == -1


@pytest.mark.parametrize(
    ("counts", "times", "shown"),
    [(True, True, (3, 5_000)), (True, False, (3, None)), (False, True, (None, 5_000))],
)
def test_the_metrics_of_a_group(
    world: World, counts: bool, times: bool, shown: tuple[int | None, int | None]
) -> None:
    world.set(shows_lag_counts=counts, shows_lag_times=times)
    assert world.lags.all_progress() == [LiteProgress("G", PARENT, *shown)]


def test_a_group_that_has_all_has_neither_lag_nor_age(world: World) -> None:
    world.served.ack("b", 0)
    for offset in (1, 2):
        world.served.ack("a", offset)
    assert world.lags.all_progress() == [LiteProgress("G", PARENT, 0, 0)]


def test_nothing_is_looked_for_that_nobody_asked_for(world: World) -> None:
    world.set(shows_lag_counts=False, shows_lag_times=False)
    assert world.lags.all_progress() == []
    assert world.looks == 0


def test_the_first_message_may_be_gone_or_its_queue_damaged(world: World) -> None:
    world.served.gone[to_lmq_name(PARENT, "a")] = 2
    world.served.ack("b", 0)
    assert world.lags.all_progress() == [LiteProgress("G", PARENT, 2, 5_003)]
    world.store.unit_at.side_effect = QueueDamagedError("broken")
    assert world.lags.all_progress() == [LiteProgress("G", PARENT, 2, 0)]


def test_a_long_look_is_not_taken_again_at_once(world: World) -> None:
    world.cost_ms = 1_000
    first = world.lags.all_progress()
    world.served.send("a")
    world.served.now_ms += 19_999
    assert (world.lags.all_progress(), world.looks) == (first, 1)
    world.served.now_ms += 1
    assert world.lags.all_progress() == [LiteProgress("G", PARENT, 4, 5_000)]
    world.set(shows_lag_counts=False, shows_lag_times=False)
    assert world.lags.all_progress() == []
