"""TransactionMetrics and TransactionGauges: what is shown, with which labels."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from broker.metrics import metrics_table as table
from broker.metrics.transaction_gauges import TransactionGauges
from broker.metrics.transaction_metrics import COMMIT, ROLLBACK, TransactionMetrics
from ipc.control_page import ProcessIndex
from ipc.metric_slots import OVERFLOW, MetricSlots, create_metric_slots
from remoting.metrics.metric import Metric
from tests.support.manual_clock import ManualClock

P = b"KEYS\x01a\x02PGROUP\x01P"


class World:
    def __init__(self, max_series: int = 10_000) -> None:
        self.slots = MetricSlots(
            create_metric_slots(), ProcessIndex.REMOTING, max_series=max_series
        )
        self.clock = ManualClock()
        self.topics = {"T", "U"}
        self.metrics = TransactionMetrics(self.slots)
        self.gauges = TransactionGauges(
            self.slots,
            self.metrics.waiting,
            SimpleNamespace(find=lambda name: name if name in self.topics else None),  # type: ignore[arg-type]
            self.clock,
        )

    def store(self, half: int, topic: str = "T", properties: bytes = P) -> None:
        self.metrics.stored(half, topic, properties, self.clock.now_ms())

    def shown(self, metric: Metric) -> dict[tuple[str, ...], float]:
        return {each: self.slots.values[at] for each, at in self.slots.series(metric.name).items()}

    def buckets(self, metric: Metric, label: str) -> list[float]:
        first = self.slots.series(metric.name)[(label,)]
        return list(self.slots.values[first : first + metric.size])


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.slots.close()


def test_halves_that_wait_by_topic_and_group(world: World) -> None:
    world.metrics.waiting.recovered([])
    world.store(1)
    world.clock.advance(2_500)
    world.store(2)
    world.store(3, properties=b"PGROUP\x01Q")
    world.store(4, "U", b"no group")
    world.clock.advance(1_000)
    world.gauges.sample()
    assert world.shown(table.HALF_MESSAGES) == {("T",): 3, ("U",): 1}
    assert world.shown(table.WAITING_HALVES) == {("T", "P"): 2, ("T", "Q"): 1, ("U", ""): 1}
    assert world.shown(table.OLDEST_HALF) == {("T", "P"): 3.5, ("T", "Q"): 1, ("U", ""): 1}


def test_a_topic_stays_at_zero_until_it_is_deleted(world: World) -> None:
    world.metrics.waiting.recovered([])
    world.store(1)
    world.store(2, "U")
    world.gauges.sample()
    world.metrics.ended((1,), "T", COMMIT, 0, None)
    world.metrics.waiting.remove(2)
    world.gauges.sample()
    assert world.shown(table.HALF_MESSAGES) == {("T",): 0, ("U",): 0}
    assert world.shown(table.WAITING_HALVES) == world.shown(table.OLDEST_HALF) == {}
    world.topics.remove("U")
    world.gauges.sample()
    assert world.shown(table.HALF_MESSAGES) == {("T",): 0}


def test_nothing_is_shown_before_it_is_known_and_by_a_slave(world: World) -> None:
    gauges = (table.HALF_MESSAGES, table.WAITING_HALVES, table.OLDEST_HALF)
    world.store(1)
    world.gauges.sample()
    assert [world.shown(metric) for metric in gauges] == [{}, {}, {}]
    world.metrics.waiting.recovered([])
    world.gauges.sample()
    assert world.shown(table.HALF_MESSAGES) == {("T",): 1}
    world.metrics.waiting.clear()
    world.gauges.sample()
    assert [world.shown(metric) for metric in gauges] == [{}, {}, {}]


def test_ends_by_topic_and_how_long_they_took(world: World) -> None:
    metrics = world.metrics
    for half in range(4):
        metrics.stored(half, "T", P, 1_000)
    metrics.ended((0,), "T", COMMIT, 1_004, None)
    metrics.ended((1,), "T", ROLLBACK, 2_500, 77)
    metrics.ended((2,), "T", COMMIT, 62_000, 77)
    metrics.ended((3,), "U", COMMIT, 900, None)
    assert world.shown(table.COMMIT_MESSAGES) == {("T",): 2, ("U",): 1}
    assert world.shown(table.ROLLBACK_MESSAGES) == {("T",): 1}
    # As in 5.x: commits alone, in whole seconds.
    assert world.buckets(table.FINISH_MESSAGE_LATENCY, "T") == [1, 0, 1, 0, 0, 0, 0, 61]
    assert world.buckets(table.FINISH_MESSAGE_LATENCY, "U") == [1, 0, 0, 0, 0, 0, 0, 0]
    found = world.buckets(table.TRANSACTION_FINISH, COMMIT)
    bounds = (*table.TRANSACTION_FINISH.buckets, float("inf"))
    counted = {bound: n for bound, n in zip(bounds, found, strict=False) if n}
    assert counted == {0.001: 1, 0.005: 1, 300: 1}, "a clock that was set back makes it 0"
    assert found[-1] == pytest.approx(61.004)
    assert world.buckets(table.TRANSACTION_FINISH, ROLLBACK)[-1] == 1.5


def test_an_end_of_what_is_not_known_makes_no_count_negative(world: World) -> None:
    metrics = world.metrics
    metrics.waiting.recovered([])
    world.store(1)
    metrics.ended((1, 9, 12), "T", COMMIT, 5_000, 4_000)
    metrics.ended((1, 9, 12), "T", COMMIT, 5_000, 4_000)
    world.gauges.sample()
    assert world.shown(table.HALF_MESSAGES) == {}
    assert world.shown(table.COMMIT_MESSAGES) == {("T",): 2}, "its message was delivered twice"


def test_checks_and_what_was_given_up(world: World) -> None:
    world.metrics.asked("T")
    world.metrics.asked("T")
    world.metrics.given_up("U")
    assert world.shown(table.TRANSACTION_CHECKS) == {("T",): 2}
    assert world.shown(table.HALVES_GIVEN_UP) == {("U",): 1}


def test_what_is_gone_is_hidden(world: World) -> None:
    for topic in ("T", "gone"):
        world.metrics.asked(topic)
        world.metrics.given_up(topic)
        world.store(1, topic)
        world.metrics.ended((1,), topic, COMMIT, 0, None)
        world.metrics.ended((1,), topic, ROLLBACK, 0, None)
    world.metrics.hide_gone({"T"})
    for metric in (
        table.COMMIT_MESSAGES,
        table.ROLLBACK_MESSAGES,
        table.TRANSACTION_CHECKS,
        table.HALVES_GIVEN_UP,
        table.FINISH_MESSAGE_LATENCY,
    ):
        assert world.shown(metric).keys() == {("T",)}


def test_series_beyond_the_limit_are_one() -> None:
    world = World(max_series=2)
    world.metrics.waiting.recovered([])
    for number in range(5):
        world.store(number, "T", b"PGROUP\x01P%d" % number)
        world.clock.advance(1_000)
    world.gauges.sample()
    shown = world.shown(table.WAITING_HALVES)
    assert len(shown) == 3
    assert sum(shown.values()) == 5
    assert shown[OVERFLOW, OVERFLOW] == 3
    assert world.shown(table.OLDEST_HALF)[OVERFLOW, OVERFLOW] == 3
    world.slots.close()
