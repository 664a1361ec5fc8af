"""SupervisorSlots: 28913 tells what /metrics tells, also of what only the supervisor knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metrics import metrics_table as table
from broker.metrics.metrics_answers import MetricsAnswers
from broker.metrics.page_metrics import page_sources
from broker.metrics.supervisor_slots import FILES_STEPS, SupervisorSlots
from broker.supervisor.control_slots import REMOTING_READY
from store.control_slots import STORE_STATE, StoreState
from store.errors import StoreError
from tests.broker.metrics_world import MetricsWorld, child


class World(MetricsWorld):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.page.counters[STORE_STATE] = StoreState.READY
        self.page.counters[REMOTING_READY] = 1
        self.copier = SupervisorSlots(self.slots_fd, 10_000, self.collector.own_sources)
        self.copier.wait_for_running = lambda _ms: True  # type: ignore[method-assign, assignment]
        self.answers = MetricsAnswers(self.slots_fd, self.page, self.clock)

    def asked(self, name: str) -> list[tuple[dict[str, str], float]]:
        return self.answers.answer((name,)).metrics.get(name, [])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.copier._slots.close()
    made.answers._view._reader.close()
    made.close()


def test_everything_that_the_supervisor_shows_is_answered(world: World) -> None:
    world.children[1].restarts = 2
    world.copier.step()
    shown = {metric.name: rows for metric, rows in world.collector.collect()}
    asked = world.answers.answer(("",)).metrics
    assert table.PROCESS_UP.name in asked
    assert shown.keys() == asked.keys()
    for metric in world.collector.own_sources:
        if metric.name in shown and metric is not table.STORAGE_SIZE:
            labels = [dict(zip(metric.labels, each, strict=True)) for each, _ in shown[metric.name]]
            values = [numbers[0] for _, numbers in shown[metric.name]]
            assert asked[metric.name] == list(zip(labels, values, strict=True)), metric.name


def test_what_changes_is_told_a_second_later(world: World) -> None:
    world.copier.step()
    up, ready = table.PROCESS_UP.name, table.READY.name
    assert world.asked(ready) == [({}, 1.0)]
    world.children[2] = child("remoting", process=None, restarts=1)
    world.copier.step()
    assert ({"process": "remoting"}, 0.0) in world.asked(up)
    assert world.asked(ready) == [({}, 0.0)]
    del world.children[1]
    world.copier._sources = {
        metric: source
        for metric, source in world.copier._sources.items()
        if metric is table.PROCESS_UP
    }
    world.copier.step()
    assert [labels["process"] for labels, _ in world.asked(up)] == ["store", "remoting"]


def test_files_are_looked_at_less_often(world: World) -> None:
    looks: list[int] = []

    def look() -> list[tuple[tuple[str, ...], list[float]]]:
        looks.append(len(looks))
        if len(looks) == 2:
            raise StoreError("it is being replaced")
        return [(table.STORAGE, [7.0])]

    world.copier._sources = {table.TIMER_DEQUEUE_LAG: look}
    name = table.TIMER_DEQUEUE_LAG.name
    for _ in range(FILES_STEPS):
        world.copier.step()
    assert (len(looks), len(world.asked(name))) == (1, 1)
    world.copier.step()
    assert (len(looks), world.asked(name)) == (2, [])


def test_the_supervisor_copies_nothing_that_others_write(world: World) -> None:
    own = world.collector.own_sources.keys()
    assert not own & page_sources(world.page.counters, world.clock).keys()
    assert table.HA_REPLICAS not in own
