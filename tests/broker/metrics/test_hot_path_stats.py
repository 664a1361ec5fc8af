"""HotPathStats: what a turn counts, and where it goes."""

from __future__ import annotations

from unittest import mock

import pytest

from broker.metrics import metrics_table as table
from broker.metrics.broker_stats_manager import BrokerStatsManager, StatsName
from broker.metrics.hot_path_stats import HotPathStats
from broker.metrics.remoting_metrics import RemotingMetrics
from broker.metrics.store_stats_service import StoreStatsService
from broker.topic.system_topics import SystemTopics
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, create_metric_slots
from remoting.metrics.metric import Metric
from tests.broker.broker_fakes import FakeClock


class World:
    def __init__(self) -> None:
        self.clock = clock = FakeClock()
        self.manager = BrokerStatsManager(clock, "C")
        self.store = StoreStatsService(clock)
        self.slots = MetricSlots(create_metric_slots(), ProcessIndex.REMOTING)
        self.metrics = RemotingMetrics(self.slots, SystemTopics())
        self.stats = HotPathStats(self.manager, self.store, self.metrics, clock)

    def series(self, metric: Metric) -> dict[tuple[str, ...], float]:
        values = self.slots.values
        return {k: values[slot] for k, slot in self.slots.series(metric.name).items()}

    def value(self, name: StatsName, key: str) -> tuple[int, int]:
        item = self.manager.item(name, key)
        return item.value, item.times


@pytest.fixture
def world() -> World:
    return World()


def test_puts(world: World) -> None:
    world.stats.add_put("T", 3, 300)
    world.stats.add_put("T", 1, 50)
    world.stats.add_put("U", 2, 10)
    assert world.value(StatsName.TOPIC_PUT_NUMS, "T") == (4, 4)
    assert world.value(StatsName.TOPIC_PUT_SIZE, "T") == (350, 4)
    assert world.value(StatsName.TOPIC_PUT_NUMS, "U") == (2, 2)
    assert world.manager.broker_put_nums.value == 6
    assert world.store.put_times == 0, "a turn's puts are added at its end"
    world.stats.end_turn(7_000_000)
    assert (world.store.put_times, world.store.put_size) == (6, 360)
    assert world.store.put_entire_time_max_ms == 7, "a turn of a millisecond is not kept back"
    world.stats.end_turn(99_000_000)
    assert (world.store.put_times, world.store.put_entire_time_max_ms) == (6, 7)


def test_gets(world: World) -> None:
    world.stats.add_get("G", "T", 32, 3200)
    world.stats.add_get("G", "T", 1, 100)
    world.stats.add_get("G", "T", 0, 0)
    assert world.value(StatsName.GROUP_GET_NUMS, "T@G") == (33, 2)
    assert world.value(StatsName.GROUP_GET_SIZE, "T@G") == (3300, 2)
    assert world.manager.broker_get_nums.value == 33
    store = world.store
    assert (store.get_found_times, store.get_miss_times, store.get_transferred) == (2, 1, 33)
    world.stats.end_turn(5_000_000)
    world.stats.add_get("G", "T", 0, 0)
    world.stats.end_turn(3_000_000)
    world.stats.end_turn(50_000_000)
    assert store.get_entire_time_max_ms == 5


def test_forgotten_counters_are_bound_anew(world: World) -> None:
    world.stats.add_put("T", 1, 1)
    world.stats.add_get("G", "T", 1, 1)
    world.manager.on_topic_deleted("T")
    world.stats.forget()
    world.stats.add_put("T", 5, 5)
    world.stats.add_get("G", "T", 7, 7)
    assert world.value(StatsName.TOPIC_PUT_NUMS, "T") == (5, 5)
    assert world.value(StatsName.GROUP_GET_NUMS, "T@G") == (7, 1)


def test_failed_puts(world: World) -> None:
    world.stats.add_put_failed()
    assert world.store.put_failed_times == 1


def test_messages_in_and_out_have_series(world: World) -> None:
    world.stats.add_put("T", 3, 300)
    world.stats.add_put("T", 2, 200, "fifo")
    world.stats.add_put("T", 1, 100)
    world.stats.add_put("RMQ_SYS_TRACE_TOPIC", 1, 7)
    world.stats.add_put("%RETRY%G", 1, 1)
    world.stats.add_get("G", "T", 5, 50)
    world.stats.add_get("CID_RMQ_SYS_X", "T", 1, 10)
    world.stats.add_get("G", "%DLQ%G", 1, 10)
    assert world.series(table.MESSAGES_IN) == {
        ("T", "normal", "false"): 4,
        ("T", "fifo", "false"): 2,
        ("RMQ_SYS_TRACE_TOPIC", "normal", "true"): 1,
    }
    assert world.series(table.THROUGHPUT_IN)["T", "normal", "false"] == 400
    assert world.series(table.MESSAGES_OUT) == {
        ("T", "G", "false"): 5,
        ("T", "CID_RMQ_SYS_X", "true"): 1,
    }
    assert world.series(table.THROUGHPUT_OUT)["T", "G", "false"] == 50


def test_what_is_gone_is_hidden_and_begins_anew(world: World) -> None:
    world.stats.add_put("T", 3, 300)
    world.stats.add_put("U", 1, 1)
    world.stats.add_get("G", "U", 5, 50)
    world.stats.hide_gone({"U"}, set())
    assert world.series(table.MESSAGES_IN) == {("U", "normal", "false"): 1}
    assert world.series(table.MESSAGES_OUT) == {}
    world.stats.add_put("T", 2, 2)
    assert world.series(table.MESSAGES_IN)["T", "normal", "false"] == 2


def rpc(world: World) -> dict[tuple[str, ...], list[float]]:
    """The latencies by request code, response code, long poll and result."""
    size = table.RPC_LATENCY.size
    return {
        labels[1:]: list(world.slots.values[slot : slot + size])
        for labels, slot in world.slots.series(table.RPC_LATENCY.name).items()
    }


def test_answers_of_a_turn_took_as_long_as_the_turn(world: World) -> None:
    world.stats.add_answers(310, 0, 3)
    world.stats.add_answers(11, 0)
    world.stats.end_turn(4_500_000)
    world.stats.end_turn(99_000_000)
    world.stats.add_late_answer(11, 19, 15_000)
    assert rpc(world) == {
        ("send_message_v2", "success", "false", "success"): [0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 13.5],
        ("pull_message", "success", "false", "success"): [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4.5],
        ("pull_message", "pull_not_found", "true", "success"): [*[0] * 9, 1, 15000],
    }


def test_oneway_requests_are_counted_as_such(world: World) -> None:
    world.stats.add_oneway(310, 0)
    world.stats.add_oneway(310, 0)
    world.stats.add_answers(310, 0)
    world.stats.end_turn(2_000_000)
    world.stats.end_turn(99_000_000)
    world.stats.add_timed_answer(37, 0, world.stats.now_ns(), oneway=True)
    assert rpc(world) == {
        ("send_message_v2", "success", "false", "oneway"): [0, 2, *[0] * 8, 4],
        ("send_message_v2", "success", "false", "success"): [0, 1, *[0] * 8, 2],
        ("end_transaction", "success", "false", "oneway"): [1, *[0] * 10],
    }


def test_a_request_that_came_before_its_turn_keeps_its_own_time(world: World) -> None:
    came_ns = world.stats.now_ns()
    world.clock.advance(2_500)
    world.stats.add_timed_answer(36, 1, came_ns)
    world.stats.end_turn(15_000)
    assert rpc(world) == {
        ("consumer_send_msg_back", "system_error", "false", "success"): [*[0] * 8, 1, 0, 2500]
    }


def test_the_loop_takes_the_lock_for_the_codes_of_pools_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their threads count into the same series; sends and pulls wait for no lock."""
    lock = mock.MagicMock()
    monkeypatch.setattr(world.metrics, "_lock", lock)
    world.stats.add_answers(310, 0)
    world.stats.add_oneway(310, 0)
    world.stats.end_turn(1)
    world.stats.add_late_answer(11, 19, 15_000)
    send(world, "T", 100)
    world.stats.end_turn(1)
    world.stats.publish()
    assert lock.__enter__.call_count == 0
    world.stats.add_timed_answer(37, 0, 0)
    assert lock.__enter__.call_count == 1
    for _ in range(5):
        world.stats.add_answers(37, 0)
        world.stats.add_oneway(37, 0)
    world.stats.end_turn(1)
    assert lock.__enter__.call_count == 3, "once a turn for all that are alike"
    values = world.slots.values
    counts = {
        labels[1:]: sum(values[slot : slot + table.RPC_LATENCY.size - 1])
        for labels, slot in world.slots.series(table.RPC_LATENCY.name).items()
    }
    assert counts["end_transaction", "success", "false", "success"] == 6
    assert counts["end_transaction", "success", "false", "oneway"] == 5


def send(world: World, topic: str, size: int, *, fifo: bool = False, waits: bool = False) -> None:
    """What the fast path does for one message."""
    sends = world.stats.sends
    counted = (sends.fifo if fifo else sends.normal).setdefault(topic, [0, 0])
    counted[0] += 1
    counted[1] += size
    sends.messages += 1
    sends.size += size
    sends.answered += not waits


def seen(world: World) -> tuple[int, int, int, list[float]]:
    """Puts and bytes of all, puts of T, and the latencies of successful sends."""
    size = table.RPC_LATENCY.size
    found = world.slots.series(table.RPC_LATENCY.name)
    latencies = [list(world.slots.values[slot : slot + size]) for slot in found.values()]
    puts = world.value(StatsName.TOPIC_PUT_NUMS, "T")[0]
    return world.store.put_times, world.store.put_size, puts, latencies[0] if latencies else []


def test_messages_that_are_stored_elsewhere_first_have_types_of_their_own(world: World) -> None:
    sends = world.stats.sends
    for table_of, name, size in (
        (sends.transactions, "T", 100),
        (sends.transactions, "RMQ_SYS_TRANS_HALF_TOPIC", 150),
        (sends.delayed, "3", 70),
        (sends.delayed, "18", 71),
    ):
        counted = table_of.setdefault(name, [0, 0])
        counted[0] += 2
        counted[1] += 2 * size
    world.stats.publish()
    schedule = "SCHEDULE_TOPIC_XXXX"
    assert world.series(table.MESSAGES_IN) == {
        ("T", "transaction", "false"): 2,
        ("RMQ_SYS_TRANS_HALF_TOPIC", "transaction", "true"): 2,
        (schedule, "delay", "true"): 4,
    }
    assert world.value(StatsName.TOPIC_PUT_SIZE, schedule) == (282, 4)
    assert world.value(StatsName.QUEUE_PUT_NUMS, f"{schedule}@2") == (2, 2)
    assert world.value(StatsName.QUEUE_PUT_SIZE, f"{schedule}@17") == (142, 2)
    world.stats.publish()
    assert world.value(StatsName.QUEUE_PUT_NUMS, f"{schedule}@2") == (2, 2)


def test_quick_turns_are_counted_together(world: World) -> None:
    for turn in range(64):
        assert seen(world) == (0, 0, 0, []), turn
        send(world, "T", 100)
        send(world, "T", 50, waits=True)
        world.stats.end_turn(250_000)
    assert seen(world) == (128, 64 * 150, 128, [64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16.0])
    assert world.store.put_entire_time_max_ms == 0
    send(world, "T", 1)
    world.stats.end_turn(1)
    assert seen(world)[0] == 128, "the next 64"


def test_what_quick_turns_counted_is_published_before_a_sleep(world: World) -> None:
    send(world, "T", 100)
    send(world, "U", 7, fifo=True)
    world.stats.end_turn(250_000)
    world.stats.publish()
    assert seen(world) == (2, 107, 1, [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5])
    assert world.series(table.MESSAGES_IN) == {
        ("T", "normal", "false"): 1,
        ("U", "fifo", "false"): 1,
    }
    world.stats.publish()
    world.stats.end_turn(250_000)
    assert seen(world)[0] == 2, "once"


def test_a_slow_turn_keeps_its_time_to_itself(world: World) -> None:
    send(world, "T", 100)
    world.stats.end_turn(500_000)
    send(world, "T", 100)
    send(world, "T", 100)
    world.stats.end_turn(4_000_000)
    assert seen(world) == (3, 300, 3, [1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 8.5])
    assert world.store.put_entire_time_max_ms == 4


def test_sends_of_a_topic_that_is_gone_are_counted_before_it_is_hidden(world: World) -> None:
    send(world, "T", 100)
    world.stats.end_turn(1)
    world.stats.hide_gone({"U"}, set())
    assert world.series(table.MESSAGES_IN) == {}
    assert world.store.put_times == 1


def pull(world: World, count: int, size: int) -> None:
    """As KnownPulls counts."""
    pulls = world.stats.pulls
    pulls.answered += 1
    counted = pulls.found.setdefault(("G", "T"), [0, 0, 0])
    counted[0] += 1
    counted[1] += count
    counted[2] += size


PULLED = ("pull_message", "success", "false", "success")


def test_pulls_of_quick_turns_are_counted_together(world: World) -> None:
    for _ in range(2):
        pull(world, 32, 3200)
        pull(world, 8, 800)
        world.stats.end_turn(400_000)
    assert world.value(StatsName.GROUP_GET_NUMS, "T@G") == (0, 0)
    assert rpc(world) == {}
    world.stats.publish()
    world.stats.publish()
    assert world.value(StatsName.GROUP_GET_NUMS, "T@G") == (80, 4)
    assert world.value(StatsName.GROUP_GET_SIZE, "T@G") == (8000, 4)
    store = world.store
    assert (store.get_found_times, store.get_transferred) == (4, 80)
    assert store.get_entire_time_max_ms == 0
    assert rpc(world)[PULLED][0] == 4
    for _ in range(64):
        pull(world, 1, 1)
        world.stats.end_turn(1)
    assert world.value(StatsName.GROUP_GET_NUMS, "T@G") == (144, 68)


def test_pulls_of_a_slow_turn_are_counted_at_its_end(world: World) -> None:
    pull(world, 32, 3200)
    world.stats.end_turn(4_000_000)
    assert world.value(StatsName.GROUP_GET_NUMS, "T@G") == (32, 1)
    assert world.store.get_entire_time_max_ms == 4
    assert rpc(world)[PULLED][-1] == 4


def test_pulls_that_are_published_within_their_turn(world: World) -> None:
    pull(world, 32, 3200)
    world.stats.forget()
    assert world.value(StatsName.GROUP_GET_NUMS, "T@G") == (32, 1)
    world.stats.end_turn(100)
    world.stats.publish()
    assert rpc(world)[PULLED][0] == 1
