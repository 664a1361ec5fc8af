"""TimerFacts, TimerGauges, TimerCounts: timers for /metrics, on files that a store writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metrics import metrics_table as table
from broker.metrics.timer_counts import TimerCounts
from broker.metrics.timer_facts import BOUNDS_S, TimerFacts, TimerFiles
from broker.metrics.timer_gauges import TimerGauges
from ipc.control_page import ProcessIndex
from ipc.metric_slots import OVERFLOW, MetricSlots, create_metric_slots
from remoting.metrics.metric import Metric
from store.timer import timer_wheel
from store.timer.slot import Slot
from store.timer.timer_metrics import TimerMetrics, write_timer_metrics
from store.timer.timer_slots import TIMER_COMMIT_QUEUE_OFFSET, TIMER_OPENED, TIMER_READ_TIME_MS
from store.timer.timer_wheel import TimerWheel
from tests.broker.broker_fakes import FakeClock
from tests.support.shared_memory import close_page, fresh_page

NOW_MS = 1_700_000_000_000
LOCAL = ("local", "disk")


class Queues:
    """Five timer messages, one stored each second; the newest one now."""

    def offsets(self, _topic: str, _queue_id: int) -> tuple[int, int]:
        return 0, 5

    def unit_at(self, _topic: str, _queue_id: int, queue_offset: int) -> tuple[int, int, int]:
        return queue_offset * 100, 100, 0

    def store_timestamp_at(self, phy_offset: int) -> int:
        return NOW_MS - (4 - phy_offset // 100) * 1_000


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock(NOW_MS)
        self.page = fresh_page()
        self.counters = self.page.counters
        self.counters[TIMER_OPENED] = 1
        self.counters[TIMER_READ_TIME_MS] = NOW_MS - 1_000
        self.slots = MetricSlots(create_metric_slots(), ProcessIndex.REMOTING)

    def facts(self, *, enabled: bool = True, max_series: int = 100) -> TimerFacts:
        files = TimerFiles(
            enabled=enabled,
            wheel=self.root / "timerwheel",
            metrics=self.root / "timermetrics",
            precision_ms=1_000,
        )
        return TimerFacts(files, self.page, self.clock, max_series)

    def fill(self, waiting: dict[int, int]) -> None:
        """Seconds from now to how many messages are due then."""
        wheel = TimerWheel(self.root / "timerwheel", 1_000)
        wheel.open()
        for second, num in waiting.items():
            wheel.put_slot(Slot(NOW_MS + second * 1_000, 0, 0, num))
        wheel.write_out()
        wheel.close()

    def shown(self, metric: Metric) -> dict[tuple[str, ...], float]:
        return {each: self.slots.values[at] for each, at in self.slots.series(metric.name).items()}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.slots.close()
    close_page(made.page)


def test_what_waits_by_when_it_is_due(world: World) -> None:
    # Long past; not delivered yet; at and around bounds; behind the last one.
    world.fill({-50: 7, -1: 1, 0: 2, 4: 3, 5: 4, 299: 5, 300: 6, 86_399: 8, 86_400: 9})
    facts = world.facts()
    assert facts.waiting() == [(LOCAL, [1 + 2 + 3 + 4 + 5 + 6 + 8 + 9])]
    bounds = {labels[-1]: values[0] for labels, values in facts.by_bound()}
    expected = {"5": 5, "60": 4, "300": 5, "900": 6, "86400": 8}
    assert bounds == {str(bound): expected.get(str(bound), 0) for bound in BOUNDS_S}
    assert facts.behind_ms() == [(LOCAL, [1_000])]


def test_over_the_end_of_the_wheel(world: World) -> None:
    """The slots are used in turn: those from now on begin again at the file's start."""
    turn_s = 2 * 7 * 86_400
    seconds = turn_s - NOW_MS // 1_000 % turn_s - 2
    world.clock.now = NOW_MS + seconds * 1_000
    world.counters[TIMER_READ_TIME_MS] = world.clock.now
    world.fill({seconds + ahead: 1 for ahead in range(10)})
    facts = world.facts()
    assert facts.waiting() == [(LOCAL, [10])]
    assert [values[0] for _, values in facts.by_bound()][:2] == [5, 5]


def test_without_files_and_without_timers(world: World) -> None:
    facts = world.facts()
    assert facts.waiting() == [(LOCAL, [0])]
    assert facts.by_topic() == []
    assert [values for _, values in facts.by_bound()] == [[0]] * len(BOUNDS_S)
    off = world.facts(enabled=False)
    world.counters[TIMER_OPENED] = 0
    for unreadable in (off, facts):
        reads = (unreadable.waiting, unreadable.by_topic, unreadable.by_bound, unreadable.behind_ms)
        assert [read() for read in reads] == [[], [], [], []]


def test_an_empty_wheel_is_not_looked_through(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of it is what a look would have found."""
    world.fill({})
    facts = world.facts()
    looked: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(timer_wheel, "TimerWheelReader", looked.append)
        unread = (facts.waiting(), facts.by_bound())
    assert looked == []
    world.fill({0: 0})
    with monkeypatch.context() as patched:
        real = timer_wheel.TimerWheelReader
        patched.setattr(
            timer_wheel, "TimerWheelReader", lambda *given: looked.append(given) or real(*given)
        )
        assert (facts.waiting(), facts.by_bound()) == unread
    assert len(looked) == 2


def test_topics_beyond_the_limit_are_one(world: World) -> None:
    metrics = TimerMetrics()
    for topic, count in {"a": 3, "b": 4, "c": 5}.items():
        metrics.add(topic, count, NOW_MS)
    write_timer_metrics(world.root / "timermetrics", metrics)
    assert world.facts(max_series=3).by_topic() == [
        ((*LOCAL, topic), [count]) for topic, count in (("a", 3), ("b", 4), ("c", 5))
    ]
    assert world.facts(max_series=1).by_topic() == [((*LOCAL, "a"), [3]), ((OVERFLOW,) * 3, [9])]


@pytest.mark.parametrize(("entered", "behind", "age_ms"), [(0, 5, 4_000), (3, 2, 1_000), (5, 0, 0)])
def test_what_is_not_entered(world: World, entered: int, behind: int, age_ms: int) -> None:
    world.counters[TIMER_COMMIT_QUEUE_OFFSET] = entered
    TimerGauges(world.slots, world.page, Queues(), world.clock).sample()
    assert world.shown(table.TIMER_ENQUEUE_LAG) == {LOCAL: behind}
    assert world.shown(table.TIMER_ENQUEUE_LATENCY) == {LOCAL: age_ms}


def test_counts_of_deleted_topics_are_hidden(world: World) -> None:
    counts = TimerCounts(world.slots, table.TIMER_DEQUEUE)
    counts.add_all({"a": 2, "b": 1})
    counts.add("a")
    assert world.shown(table.TIMER_DEQUEUE) == {(*LOCAL, "a"): 3, (*LOCAL, "b"): 1}
    counts.hide_gone({"b"})
    counts.add("b")
    assert world.shown(table.TIMER_DEQUEUE) == {(*LOCAL, "b"): 2}
    counts.add("a")
    assert world.shown(table.TIMER_DEQUEUE)[(*LOCAL, "a")] == 1
