"""PopMetrics: what is counted, with which labels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.metrics import metrics_table as table
from broker.metrics.pop_metrics import PopMetrics
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, create_metric_slots
from remoting.metrics.metric import Metric
from remoting.response_code import ResponseCode


class World:
    def __init__(self) -> None:
        self.slots = MetricSlots(create_metric_slots(), ProcessIndex.REMOTING)
        self.metrics = PopMetrics(self.slots)

    def shown(self, metric: Metric) -> dict[tuple[str, ...], float]:
        return {each: self.slots.values[at] for each, at in self.slots.series(metric.name).items()}


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.slots.close()


def test_records_and_copies(world: World) -> None:
    metrics = world.metrics
    for code in (
        ResponseCode.SUCCESS,
        ResponseCode.SUCCESS,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.SYSTEM_BUSY,
    ):
        metrics.stored("G", "T", "CK", code)
    metrics.stored("G", "T", "ACK", ResponseCode.SERVICE_NOT_AVAILABLE)
    metrics.taken("G", "T", 3, "ACK")
    metrics.copied("G", "T", ResponseCode.SUCCESS)
    assert world.shown(table.POP_REVIVE_IN) == {
        ("G", "T", "CK", "PUT_OK"): 2,
        ("G", "T", "CK", "MESSAGE_ILLEGAL"): 1,
        ("G", "T", "CK", "UNKNOWN_ERROR"): 1,
        ("G", "T", "ACK", "SERVICE_NOT_AVAILABLE"): 1,
    }
    assert world.shown(table.POP_REVIVE_OUT) == {("G", "T", "3", "ACK"): 1}
    assert world.shown(table.POP_REVIVE_RETRY) == {("G", "T", "PUT_OK"): 1}


def test_what_is_gone_is_hidden(world: World) -> None:
    metrics = world.metrics
    for group, topic in (("G", "T"), ("G", "gone"), ("gone", "T")):
        metrics.stored(group, topic, "CK", ResponseCode.SUCCESS)
        metrics.taken(group, topic, 0, "CK")
        metrics.copied(group, topic, ResponseCode.SUCCESS)
    metrics.hide_gone({"T"}, {"G"})
    metrics.stored("G", "T", "CK", ResponseCode.SUCCESS)
    assert world.shown(table.POP_REVIVE_IN) == {("G", "T", "CK", "PUT_OK"): 2}
    assert world.shown(table.POP_REVIVE_OUT) == {("G", "T", "0", "CK"): 1}
    assert world.shown(table.POP_REVIVE_RETRY) == {("G", "T", "PUT_OK"): 1}


def test_gauges_and_scans(world: World) -> None:
    world.metrics.sample(4, 3, [(0, 7, 1500), (1, 0, 0)])
    assert world.shown(table.POP_OFFSET_BUFFER_SIZE) == {(): 4}
    assert world.shown(table.POP_CHECKPOINT_BUFFER_SIZE) == {(): 3}
    assert world.shown(table.POP_REVIVE_LAG) == {("0",): 7, ("1",): 0}
    assert world.shown(table.POP_REVIVE_LATENCY) == {("0",): 1500, ("1",): 0}
    for elapsed_ms in (0.2, 1, 50, 9_000):
        world.metrics.scanned(elapsed_ms)
    first = world.slots.series(table.POP_BUFFER_SCAN_TIME.name)[()]
    size = table.POP_BUFFER_SCAN_TIME.size
    assert list(world.slots.values[first : first + size]) == [2, 0, 1, 0, 0, 0, 1, 9_051.2]
