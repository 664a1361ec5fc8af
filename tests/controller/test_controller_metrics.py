"""/metrics, /healthz and /readyz of a controller, over HTTP, while brokers speak to it."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import controller.controller_service as service_module
import controller.controller_site as site_module
from controller.controller_config import ControllerConfig
from controller.controller_metrics import METRICS, ControllerMetrics
from controller.controller_seen import ControllerSeen, StoreSeen, rows_of
from controller.controller_server import ControllerServer
from controller.controller_site import ControllerSite
from controller.election import Choice, Liveness, LogReport
from controller.group_state import GroupState, Replica
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from tests.controller.controller_peer import DEADLINE_S, Peer
from tests.controller.test_life import ELECT, GROUP, group_of_two
from tests.controller.test_store_failures import Failing
from tests.support.deadline import wait_until

SET = {"cluster": "C", "broker_set": "b"}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Shown:
    """A controller with its metrics port."""

    def __init__(self, port: int, http_port: int) -> None:
        self.port = port
        self.http_port = http_port

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def samples(self) -> Samples:
        status, text = self.get("/metrics")
        assert status == 200
        found: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = dict(sample.labels)
                assert labels.pop("address") == f"127.0.0.1:{self.port}"
                assert (labels.pop("group"), labels.pop("peer_id")) == ("group1", "n0")
                found[sample.name, frozenset(labels.items())] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, frozenset(labels.items())))


@contextmanager
def shown(directory: Path, **settings: object) -> Iterator[Shown]:
    listening = socket.create_server(("127.0.0.1", 0))
    metrics = socket.create_server(("127.0.0.1", 0))
    port, http_port = (int(one.getsockname()[1]) for one in (listening, metrics))
    config = ControllerConfig(
        controller_store_path=str(directory / "store"),
        **settings,  # type: ignore[arg-type]
    )
    server = ControllerServer(config, RemotingServerConfig(), RemotingClientConfig(), listening)
    server.show_metrics(metrics)
    server.open()
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Shown(port, http_port)
    finally:
        server.request_stop()
        thread.join(DEADLINE_S)
        metrics.close()
        assert not thread.is_alive()


def test_a_group_its_elections_and_its_requests(tmp_path: Path) -> None:
    with shown(tmp_path, leader_warm_up_millis=500) as one, group_of_two(one.port) as (first, _):
        wait_until(lambda: one.value("rocketmq_controller_ready") == 1, DEADLINE_S)
        assert first.call(1002, {**ELECT, "brokerId": 1}).code == 2011
        assert first.call(1001, {"brokerName": "b"}, b"{").code != 0
        found = one.samples()

        def value(name: str, **labels: str) -> float | None:
            return found.get((name, frozenset(labels.items())))

        assert (value("role"), value("rocketmq_controller_groups")) == (3, 1)
        assert value("active_broker_num", **SET) == 2
        assert value("rocketmq_controller_group_master_id", **SET) == 1
        assert value("rocketmq_controller_group_without_master", **SET) == 0
        assert value("rocketmq_controller_group_master_epoch", **SET) == 1
        assert value("rocketmq_controller_group_sync_state_set_epoch", **SET) == 2
        assert value("rocketmq_controller_group_sync_state_set_size", **SET) == 2
        assert value("rocketmq_controller_group_brokers", **SET) == 2
        assert value("election_total", **SET, election_result="new_master_elected") == 1
        assert value("election_total", **SET, election_result="keep_current_master") == 1
        done = {"request_handle_status": "success"}
        assert value("request_total", request_type="controller_apply_broker_id", **done) == 2
        assert value("request_total", request_type="controller_broker_heartbeat", **done) == 2
        assert value("request_total", request_type="controller_elect_master", **done) == 2
        latency = {"request_type": "controller_apply_broker_id"}
        assert value("request_latency_microseconds_count", **latency) == 2
        assert (value("request_latency_microseconds_sum", **latency) or 0) > 2
        stored = {"dledger_operation": "append", "dLedger_operation_status": "success"}
        assert value("dledger_op_total", **stored) == 4, "two ids, an election, a set"
        assert value("dledger_op_latency_microseconds_count", **stored) == 4
        assert one.get("/readyz") == (200, "ready; leads 1 groups\n")
        assert one.get("/healthz") == (200, "ok\n")


def test_a_dead_master_is_seen_by_all(tmp_path: Path) -> None:
    """Nobody can stand in for it: the only other broker is in no set."""
    with shown(tmp_path, leader_warm_up_millis=500) as one, Peer(one.port) as peer:
        apply = {**GROUP, "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:1;1"}
        assert peer.call(1013, apply).code == 0
        assert one.value("rocketmq_controller_group_without_master", **SET) == 0, "none yet"
        beat = {"brokerId": 1, "brokerAddr": "127.0.0.1:1", "heartbeatTimeoutMills": 60_000}
        register = {"brokerId": 1, "brokerAddress": "127.0.0.1:1", "invokeTime": 1}
        assert peer.call(1003, {**GROUP, **register}).code == 0
        with Peer(one.port) as broker:
            assert broker.call(904, {**GROUP, **beat}).code == 0
            assert broker.call(1002, {**ELECT, "brokerId": 1}).code == 0
            wait_until(lambda: one.get("/readyz")[0] == 200, DEADLINE_S)
            assert one.value("rocketmq_controller_group_without_master", **SET) == 0
        wait_until(
            lambda: one.value("rocketmq_controller_group_without_master", **SET) == 1, DEADLINE_S
        )
        wait_until(
            lambda: one.value("election_total", **SET, election_result="no_master_elected") == 1,
            DEADLINE_S,
        )
        assert one.value("rocketmq_controller_group_master_id", **SET) == 0
        assert one.get("/readyz") == (200, "ready; leads 1 groups; without a master: b\n")


def test_a_store_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "_RETRY_S", 0.05)
    with (
        shown(tmp_path, leader_warm_up_millis=500) as one,
        group_of_two(one.port) as (first, _),
        pytest.MonkeyPatch.context() as patch,
    ):
        wait_until(lambda: one.get("/readyz")[0] == 200, DEADLINE_S)
        failing = Failing(patch, "replace", 1, 10**6)
        asked = first.post(1002, {**ELECT, "brokerId": 2, "designateElect": "true"})
        wait_until(lambda: one.get("/readyz")[0] == 503, DEADLINE_S)
        assert "the store fails, nothing changes" in one.get("/readyz")[1]
        assert "No space left" in one.get("/readyz")[1]
        assert one.value("rocketmq_controller_ready") == 0
        assert one.value("rocketmq_controller_waiting_requests") == 1
        assert one.get("/healthz")[0] == 200
        failed = {"dledger_operation": "append", "dLedger_operation_status": "failed"}
        assert (one.value("dledger_op_total", **failed) or 0) >= 1
        assert first.take(asked).code == 2
        timeout = {"request_type": "controller_elect_master", "request_handle_status": "timeout"}
        assert one.value("request_total", **timeout) == 1
        failing.left = 0
        wait_until(lambda: one.get("/readyz")[0] == 200, DEADLINE_S)
        assert one.value("rocketmq_controller_waiting_requests") == 0


def test_after_a_start_it_says_that_nobody_is_judged(tmp_path: Path) -> None:
    with shown(tmp_path, leader_warm_up_millis=60_000) as one:
        status, text = one.get("/readyz")
        assert status == 503
        assert "leaderWarmUpMillis" in text
        assert one.get("/healthz")[0] == 200
        assert one.get("/other")[0] == 404


def test_many_clients_are_one_look_at_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look takes the loop's time, which is the brokers'."""
    looks = 0

    def look() -> ControllerSeen:
        nonlocal looks
        looks += 1
        return ControllerSeen(is_leader=True, waiting=looks)

    monkeypatch.setattr(site_module, "_LOOK_AGAIN_S", 3_600.0)
    site = ControllerSite(ControllerMetrics(), {}, look, lambda run: run())
    for _ in range(50):
        assert site.health().is_fine
        assert site.readiness().is_fine
        site.text("")
    assert looks == 1
    monkeypatch.setattr(site_module, "_LOOK_AGAIN_S", 0.0)
    site = ControllerSite(ControllerMetrics(), {}, look, lambda run: run())
    site.health()
    assert b"rocketmq_controller_waiting_requests 3.0" in site.text("")[0]


def test_a_loop_that_hangs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "_PATIENCE_S", 0.05)
    site = ControllerSite(ControllerMetrics(), {}, ControllerSeen, lambda _: None)
    assert not site.health().is_fine
    assert "loop has not answered" in site.readiness().text
    with pytest.raises(site_module.LoopHangsError):
        site.text("")


READY = ControllerSeen(is_leader=True)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (READY, ""),
        (READY._replace(is_stopping=True), "stopping"),
        (READY._replace(warm_up_ms=2_000), "nobody is taken for dead for another 2 s"),
        (READY._replace(store=StoreSeen("full", 0), warm_up_ms=9), "the store fails"),
        (READY._replace(store=StoreSeen("", 2_999)), ""),
        (READY._replace(store=StoreSeen("", 4_000)), "the store has not answered for 4 s"),
        (ControllerSeen(leader_address="c2:9877", warm_up_ms=5_000), ""),
        (ControllerSeen(), "no controller is known to lead: nobody has the lease"),
        (ControllerSeen(leadership_trouble="etcd is gone"), "to lead: etcd is gone"),
    ],
)
def test_why_it_is_not_ready(seen: ControllerSeen, why: str) -> None:
    assert why in seen.why_not_ready
    assert bool(why) == bool(seen.why_not_ready)


def test_roles_are_those_of_java_and_followers_show_no_groups() -> None:
    follower = ControllerSeen(leader_address="c2:9877", groups=READY.groups)
    assert [one.role for one in (READY, follower, ControllerSeen())] == [3, 2, 1]
    names = {metric.name for metric, rows in ControllerMetrics().collect(follower) if rows}
    assert "rocketmq_controller_groups" not in names
    assert "2:9877 leads" in follower.detail


def test_who_is_without_a_master() -> None:
    group = GroupState("C", "b").with_replica(1, Replica("h:1", "h:1;1"))
    alive = Liveness({1: LogReport(1, 1)})

    def is_without(state: GroupState, liveness: Liveness) -> bool:
        return rows_of([(state, liveness)])[0].is_without_master

    assert not is_without(group, Liveness({})), "it has only an id yet"
    assert is_without(group, alive), "alive, and nobody was elected"
    led = group.with_master(1)
    assert not is_without(led, alive)
    assert not is_without(led, Liveness({}, master_presumed_alive=True))
    assert is_without(led, Liveness({}))
    assert is_without(led.without_master(), alive)
    assert not is_without(led.without_replicas(frozenset((1,))), Liveness({})), "cleaned away"


def test_each_metric_has_rows_of_its_own_form() -> None:
    metrics = ControllerMetrics()
    metrics.answered(1002, 0, 1.5)
    metrics.answered(77, 3, 1e9)
    metrics.elected("C", "b", Choice(elected=1))
    metrics.wrote(0.001, failed=True)
    group = GroupState("C", "b").with_replica(1, Replica("h:1", "h:1;1")).with_master(1)
    seen = READY._replace(groups=rows_of([(group, Liveness({}))]))
    rows = dict(metrics.collect(seen))
    assert list(rows) == list(METRICS)
    for metric, series in rows.items():
        assert series, metric.name
        for labels, values in series:
            assert (len(labels), len(values)) == (len(metric.labels), metric.size)
