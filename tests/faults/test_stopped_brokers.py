"""A whole broker of a pair stands still (SIGSTOP), as on a machine that swaps or a frozen guest.

Real brokers. What is said of it is read where an operator reads it: in the answers to a producer
and on the page of metrics.
"""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.request
from dataclasses import dataclass

import pytest

from remoting.response_code import ResponseCode
from tests.support.broker_group import ASYNC_MASTER, SLAVE, SYNC_MASTER, TOPIC, Group, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker, drain, stands_still

pytestmark = [pytest.mark.slow]

SEND_OK = ResponseCode.SUCCESS
SLACK_S = 2.0


@dataclass(frozen=True, slots=True)
class Times:
    """stop_s: how long it stands still; the rest are settings."""

    stop_s: float
    housekeeping_ms: int
    slave_timeout_ms: int

    @property
    def settings(self) -> dict[str, object]:
        return {
            "haHousekeepingInterval": self.housekeeping_ms,
            "haSendHeartbeatInterval": self.housekeeping_ms // 4,
            "slaveTimeout": self.slave_timeout_ms,
        }


SHORT = Times(3.5, 2_000, 400)
REAL = Times(30.0, 20_000, 3_000)
TIMES = [
    pytest.param(SHORT, id="short"),
    pytest.param(REAL, id="30 s", marks=pytest.mark.long),
]


def stop_all(broker: OurBroker) -> list[int]:
    """SIGSTOP to each process; their pids."""
    pids = [broker.pid, *broker.children().values()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        wait_until(lambda p=pid: stands_still(p))  # type: ignore[misc]
    return pids


def go_on(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def metric(broker: OurBroker, name: str) -> float:
    """The only sample of a metric; -1 as long as there is none."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{broker.ports['metrics']}/metrics", timeout=10
    ) as page:
        text = page.read().decode()
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    assert len(values) <= 1, values
    return float(values[0]) if values else -1.0


@pytest.mark.fault(8)
@pytest.mark.parametrize("times", TIMES)
def test_a_slave_that_stands_still(group: Group, times: Times) -> None:
    master = group.start(group.first, SYNC_MASTER, **times.settings)
    slave = group.start(group.second, SLAVE, **times.settings)
    with master.client(timeout_s=30) as client:
        wait_until(lambda: client.send(TOPIC, 0, b"before").code == SEND_OK, 20)
        wait_until(lambda: metric(master, "rocketmq_ha_replica_lag_seconds") == 0, 20)
        pids = stop_all(slave)
        began = time.monotonic()
        codes: list[int] = []
        dropped_s = 0.0
        lags: list[tuple[float, float]] = []
        while time.monotonic() - began < times.stop_s or codes[-1] != 11:
            sent_at = time.monotonic()
            codes.append(client.send(TOPIC, 0, b"x").code)
            answered_at = time.monotonic()
            assert answered_at - sent_at < times.slave_timeout_ms / 1000 + SLACK_S
            if codes[-1] == ResponseCode.SLAVE_NOT_AVAILABLE and not dropped_s:
                dropped_s = answered_at - began
            lags.append((answered_at, metric(master, "rocketmq_ha_replica_lag_seconds")))
            assert answered_at - began < times.stop_s + 20, codes
        first_11 = codes.index(ResponseCode.SLAVE_NOT_AVAILABLE)
        assert first_11 > 0
        assert set(codes[:first_11]) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
        assert set(codes[first_11:]) == {ResponseCode.SLAVE_NOT_AVAILABLE}
        assert dropped_s < times.housekeeping_ms / 1000 + times.slave_timeout_ms / 1000 + SLACK_S
        (first_at, first_lag), (last_at, _) = lags[0], lags[-1]
        assert last_at - first_at > times.stop_s / 2
        for at, lag in lags:
            assert lag - first_lag == pytest.approx(at - first_at, abs=1.0)
        go_on(pids)
        wait_until(lambda: client.send(TOPIC, 0, b"after").code == SEND_OK, 30)
        wait_until(lambda: metric(master, "rocketmq_ha_replica_lag_seconds") == 0, 20)
        wait_until(lambda: log_of(slave) == log_of(master), 20)


@pytest.mark.fault(9)
@pytest.mark.parametrize("times", TIMES)
def test_a_master_that_stands_still(group: Group, times: Times) -> None:
    master = group.start(group.first, ASYNC_MASTER, **times.settings)
    slave = group.start(group.second, SLAVE, **times.settings)
    bodies = [b"before %d" % number for number in range(50)]
    with master.client(timeout_s=90) as client, slave.client() as reader:
        for body in bodies:
            assert client.send(TOPIC, 0, body).code == SEND_OK
        wait_until(lambda: reader.pull(TOPIC, 0, 0).code == SEND_OK, 20)
        wait_until(lambda: reader.offset(30, TOPIC, 0) == len(bodies), 20)
        pids = stop_all(master)
        began = time.monotonic()
        wait_until(lambda: metric(slave, "rocketmq_ha_client_connected") == 0, 60)
        while time.monotonic() - began < times.stop_s:
            assert [each.body for each in drain(reader, TOPIC, 0)] == bodies
        go_on(pids)
        assert client.send(TOPIC, 0, b"after").code == SEND_OK
        wait_until(lambda: reader.offset(30, TOPIC, 0) == len(bodies) + 1, 30)
        assert [each.body for each in drain(reader, TOPIC, 0)] == [*bodies, b"after"]
    wait_until(lambda: metric(slave, "rocketmq_ha_client_connected") == 1, 20)
    wait_until(lambda: log_of(slave) == log_of(master), 20)
    assert slave.terminate() == 0
    assert slave.check().is_clean
