"""RemotingMetrics: where answers and waits are counted."""

from __future__ import annotations

import threading

import pytest

from broker.metrics import metrics_table as table
from broker.metrics.remoting_metrics import RemotingMetrics
from broker.topic.system_topics import SystemTopics
from broker.wiring.routes import _executor_of
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, create_metric_slots
from remoting.metrics.metric import Metric
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionLike, Route
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import FakeConnection
from tests.broker.hot_path_world import ON_LOOP


class World:
    def __init__(self) -> None:
        self.fd = create_metric_slots()
        self.slots = MetricSlots(self.fd, ProcessIndex.REMOTING)
        self.metrics = RemotingMetrics(self.slots, SystemTopics())

    def series(self, metric: Metric) -> dict[tuple[str, ...], list[float]]:
        found = self.slots.series(metric.name)
        return {k: list(self.slots.values[at : at + metric.size]) for k, at in found.items()}


@pytest.fixture
def world() -> World:
    return World()


def test_connections_that_are_not_accepted_are_counted(world: World) -> None:
    assert world.series(table.FAILED_ACCEPTS) == {(): [0]}
    world.metrics.accept_failed()
    assert world.series(table.FAILED_ACCEPTS) == {(): [1]}


def test_waits_are_counted_by_result_and_time(world: World) -> None:
    """2 x 150 us and 1 x 3 s (the disk took 4) acknowledged, one not in time, one without
    replicas."""
    waited = world.metrics.waited
    waited(310, ResponseCode.SUCCESS, 150_000, 2, acked_ns=150_000)
    waited(310, ResponseCode.SUCCESS, 4_000_000_000, 1, acked_ns=3_000_000_000)
    waited(10, ResponseCode.FLUSH_SLAVE_TIMEOUT, 5_000_000_000, 1, acked_ns=None)
    waited(310, ResponseCode.SLAVE_NOT_AVAILABLE, 1_000, 1, acked_ns=None)
    assert world.series(table.HA_SYNC_RESULT) == {
        ("ok",): [3],
        ("flush_slave_timeout",): [1],
        ("slave_not_available",): [1],
        ("flush_disk_timeout",): [0],
    }
    counts = world.series(table.HA_ACK_LATENCY)[()]
    bounds = (*table.HA_ACK_LATENCY.buckets, "inf")
    assert {bounds[n]: count for n, count in enumerate(counts[:-1]) if count} == {0.0002: 2, 5: 1}
    assert counts[-1] == pytest.approx(3.0003)
    rpc = world.series(table.RPC_LATENCY)
    sends = rpc["remoting", "send_message_v2", "success", "false", "success"]
    assert (sum(sends[:-1]), sends[-1]) == (3, 4000.3)
    late = rpc["remoting", "send_message", "flush_slave_timeout", "false", "success"]
    assert late[-2:] == [1, 5000]


def test_a_flush_is_no_acknowledgement(world: World) -> None:
    world.metrics.waited(310, ResponseCode.SUCCESS, 150_000, 2, acked_ns=None)
    assert sum(world.series(table.HA_ACK_LATENCY)[()]) == 0
    assert world.series(table.HA_SYNC_RESULT)["ok",] == [2]


class Echo:
    def process_request(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        if request.ext_fields.get("fails"):
            raise KeyError("x")
        return request.response(ResponseCode.SUCCESS)


def test_every_answer_of_the_dispatcher_is_counted(world: World) -> None:
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    dispatcher = RequestDispatcher({code: Route(Echo())}, {}, world.metrics)
    connection = FakeConnection()
    dispatcher.dispatch(connection, RemotingCommand.request(code, {}))
    dispatcher.dispatch(connection, RemotingCommand.request(code, {"fails": "1"}))
    dispatcher.dispatch(connection, RemotingCommand.request(code, {}, oneway=True))
    dispatcher.dispatch(connection, RemotingCommand.request(77_777, {}))
    name = "get_broker_runtime_info"
    counts = {labels: sum(v[:-1]) for labels, v in world.series(table.RPC_LATENCY).items()}
    assert counts == {
        ("remoting", name, "success", "false", "success"): 1,
        ("remoting", name, "system_error", "false", "success"): 1,
        ("remoting", name, "success", "false", "oneway"): 1,
        ("remoting", "unknown", "request_code_not_supported", "false", "success"): 1,
    }


def test_unknown_codes_share_one_series(world: World) -> None:
    """Whoever sends a hundred thousand of them."""
    for code in range(50_000, 50_500):
        world.metrics.answered(code, 3, 0.1)
    assert len(world.series(table.RPC_LATENCY)) == 1
    (counts,) = world.series(table.RPC_LATENCY).values()
    assert counts[0] == 500


def test_threads_lose_no_answers(world: World) -> None:
    def work() -> None:
        for _ in range(3_000):
            world.metrics.answered(28, 0, 0.5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (counts,) = world.series(table.RPC_LATENCY).values()
    assert counts[0] == 12_000


def test_what_is_counted_without_a_lock_is_answered_by_the_loop_alone() -> None:
    """`Counted` lets no other code be counted so, in any test of a processor."""
    assert [code for code in ON_LOOP if _executor_of(code) is not None] == []


def test_a_restarted_process_goes_on_counting(world: World) -> None:
    world.metrics.waited(310, ResponseCode.SUCCESS, 150_000, 2, acked_ns=150_000)
    world.metrics.series_in("T", "normal")
    world.slots = MetricSlots(world.fd, ProcessIndex.REMOTING)
    world.metrics = RemotingMetrics(world.slots, SystemTopics())
    world.metrics.waited(310, ResponseCode.SUCCESS, 150_000, 1, acked_ns=150_000)
    assert world.series(table.HA_SYNC_RESULT)["ok",] == [3]
    assert sum(next(iter(world.series(table.RPC_LATENCY).values()))[:-1]) == 3
