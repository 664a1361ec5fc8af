"""broker.metrics.metrics_answers, held against the numbers that this test counts itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from broker.metrics import metrics_table as table
from broker.metrics.metrics_answers import MAX_SERIES, MetricsAnswers
from ha.control_slots import REPLICATED_OFFSET
from remoting.body.metrics_answer import MetricsAnswer
from store.control_slots import FENCE_COUNT, FLUSHED_OFFSET
from tests.broker.metrics_world import MetricsWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MetricsWorld]:
    world = MetricsWorld(tmp_path)
    yield world
    world.close()


def ask(world: MetricsWorld, *beginnings: str) -> MetricsAnswer:
    answer = MetricsAnswers(world.slots_fd, world.page, world.clock).answer(beginnings)
    return msgspec.json.decode(msgspec.json.encode(answer), type=MetricsAnswer)


def test_series_of_all_processes_and_of_the_page(world: MetricsWorld) -> None:
    topic = "t<b>\u00fc\n" + "x" * 100
    world.set(table.MESSAGES_IN, 7, topic, "normal", "false")
    world.set(table.HA_REPLICA_LAG_BYTES, 41, "b:1", "slave", ha=True)
    world.page.counters[FENCE_COUNT] = 3
    world.page.counters[FLUSHED_OFFSET], world.page.counters[REPLICATED_OFFSET] = 500, 400
    names = (table.MESSAGES_IN.name, "rocketmq_ha_replica_lag_b", "rocketmq_store_")
    answer = ask(world, *names)
    assert not answer.cut
    assert answer.timestamp == world.clock.now_ms()
    found = answer.metrics
    labels = dict(zip(table.MESSAGES_IN.labels, (topic, "normal", "false"), strict=True))
    assert found[table.MESSAGES_IN.name] == [(labels, 7.0)]
    assert found["rocketmq_ha_replica_lag_bytes"] == [({"replica": "b:1", "role": "slave"}, 41.0)]
    assert found["rocketmq_store_fenced_ranges"] == [({}, 3.0)]
    offsets = {labels["kind"]: value for labels, value in found["rocketmq_store_offset_bytes"]}
    assert offsets == {"min": 0, "max": 0, "dispatched": 0, "flushed": 500, "replicated": 400}
    assert all(name.startswith(names) for name in found)


def test_histograms_as_in_metrics(world: MetricsWorld) -> None:
    metric = table.HA_ACK_LATENCY
    first = world.slots.find(metric.name, (), metric.size)
    observed = [2, 0, 5] + [0] * (len(metric.buckets) - 3) + [1]
    for number, value in enumerate((*observed, 9.5)):
        world.slots.values[first + number] = value
    found = ask(world, metric.name).metrics
    assert found.keys() == {f"{metric.name}_{end}" for end in ("bucket", "count", "sum")}
    buckets = {float(labels["le"]): value for labels, value in found[f"{metric.name}_bucket"]}
    assert buckets == {
        bound: sum(observed[: number + 1])
        for number, bound in enumerate((*metric.buckets, float("inf")))
    }
    assert found[f"{metric.name}_count"] == [({}, 8.0)]
    assert found[f"{metric.name}_sum"] == [({}, 9.5)]


def test_an_answer_has_room_for_so_many_series(world: MetricsWorld) -> None:
    for number in range(MAX_SERIES):
        world.set(table.THROUGHPUT_IN, 1, f"t{number}", "normal", "false")
    assert not ask(world, table.THROUGHPUT_IN.name).cut
    world.set(table.THROUGHPUT_OUT, 1, "t", "g", "false")
    answer = ask(world, table.THROUGHPUT_IN.name, table.THROUGHPUT_OUT.name)
    assert answer.cut
    assert sum(map(len, answer.metrics.values())) == MAX_SERIES


def test_a_silent_ha_is_not_shown_as_in_sync(world: MetricsWorld) -> None:
    world.set(table.HA_OBSERVED_MS, world.clock.monotonic_ms(), ha=True)
    world.set(table.HA_REPLICA_IN_SYNC, 1, "b:1", "slave", ha=True)
    name = table.HA_REPLICA_IN_SYNC.name
    assert ask(world, name).metrics[name] == [({"replica": "b:1", "role": "slave"}, 1.0)]
    world.clock.advance(10_000)
    assert ask(world, name).metrics[name] == [({"replica": "b:1", "role": "slave"}, 0.0)]
    assert table.HA_OBSERVED_MS.name not in ask(world, "rocketmq").metrics
