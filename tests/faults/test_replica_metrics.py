"""What the metrics say of a real slave: killed, back, and while the master's process `ha` dies.

Read from the master's metric slots in shared memory, as its supervisor does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metrics import metrics_table as table
from ha.replica_memory import FILE_NAME
from ipc.metric_slots import MetricSlotsReader
from remoting.metrics.metric import Metric
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = [pytest.mark.slow]

SLAVE_ID = "broker-a:1"
ROLE = "ASYNC_MASTER"
QUICK = {"haSendHeartbeatInterval": 500, "haHousekeepingInterval": 5_000}
_PAUSE_S = 0.05


class Seen:
    """The master's metrics."""

    def __init__(self, reader: MetricSlotsReader) -> None:
        self._reader = reader

    def of(self, metric: Metric, replica: str = SLAVE_ID) -> float:
        return self._value(metric, (replica, ROLE))

    def value(self, metric: Metric) -> float:
        return self._value(metric, ())

    def rejected(self, reason: str) -> float:
        return self._value(table.HA_REJECTED_ACKS, (SLAVE_ID, reason))

    def seconds(self) -> dict[str, float]:
        rows = self._reader.read(table.HA_STATE_SECONDS.name)
        return {labels[1]: values[0] for labels, values in rows if labels[0] == SLAVE_ID}

    def replicas(self) -> set[str]:
        return {labels[0] for labels, _ in self._reader.read(table.HA_REPLICA_CONNECTED.name)}

    def _value(self, metric: Metric, labels: tuple[str, ...]) -> float:
        found = dict(self._reader.read(metric.name)).get(labels)
        return -1.0 if found is None else found[0]


@contextlib.contextmanager
def metrics_of(broker: OurBroker) -> Iterator[Seen]:
    """The metric slots of a running broker."""
    entries = Path(f"/proc/{broker.pid}/fd").iterdir()
    entry = next(e for e in entries if os.readlink(e).startswith("/memfd:mqbroker-metric-slots"))
    fd = os.open(entry, os.O_RDWR)
    try:
        reader = MetricSlotsReader(fd)
    finally:
        os.close(fd)
    yield Seen(reader)
    reader.close()


def write_for(client: FrameClient, seconds: float) -> None:
    """A message every 50 ms."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert client.send(TOPIC, 0, b"x" * 100).code == 0
        time.sleep(_PAUSE_S)


def test_a_slave_is_killed_comes_back_and_the_master_s_ha_dies(tmp_path: Path) -> None:
    with Group(tmp_path).running() as group:
        group.start(group.first, ASYNC_MASTER, **QUICK)
        group.start(group.second, SLAVE, **QUICK)
        with group.first.client(timeout_s=30) as client, metrics_of(group.first) as seen:
            write_for(client, 0.5)
            wait_until(lambda: seen.of(table.HA_REPLICA_IN_SYNC) == 1, 20)
            wait_until(lambda: seen.of(table.HA_REPLICA_LAG_BYTES) == 0, 20)
            assert seen.of(table.HA_REPLICA_CONNECTED) == 1
            assert seen.of(table.HA_RECONNECTS) == 0
            assert seen.of(table.HA_TRANSFERRED) >= seen.of(table.HA_ACK_OFFSET) - 1 > 0
            wait_until(lambda: seen.seconds()["in_sync"] > 1)
            assert seen.seconds()["disconnected"] == 0

            _slave_is_away(group, client, seen)
            group.start(group.second, SLAVE, **QUICK)
            wait_until(lambda: seen.of(table.HA_REPLICA_IN_SYNC) == 1, 20)
            assert seen.of(table.HA_RECONNECTS) == 1
            wait_until(lambda: seen.of(table.HA_REPLICA_LAG_BYTES) == 0, 20)
            assert seen.value(table.HA_UNREPLICATED_BYTES) == 0

            _ha_dies(group.first, client, seen)
            assert seen.replicas() == {SLAVE_ID}, "nobody was told of by its ip"
        _master_starts_without_its_slave(group)


def _slave_is_away(group: Group, client: FrameClient, seen: Seen) -> None:
    transferred = seen.of(table.HA_TRANSFERRED)
    group.second.crash()
    wait_until(lambda: seen.of(table.HA_REPLICA_CONNECTED) == 0)
    assert seen.of(table.HA_REPLICA_IN_SYNC) == 0
    write_for(client, 0.3)
    lags, gone = [], seen.seconds()["disconnected"]
    for _ in range(3):
        write_for(client, 0.5)
        lags.append((seen.of(table.HA_REPLICA_LAG_SECONDS), seen.of(table.HA_REPLICA_LAG_BYTES)))
    assert all(after[0] >= before[0] + 0.2 for before, after in itertools.pairwise(lags))
    assert all(after[1] > before[1] for before, after in itertools.pairwise(lags))
    assert seen.seconds()["disconnected"] > gone + 1
    assert seen.value(table.HA_UNREPLICATED_BYTES) >= lags[0][1]
    assert seen.value(table.HA_OLDEST_UNREPLICATED) >= lags[0][0]
    assert seen.of(table.HA_TRANSFERRED) >= transferred


def _ha_dies(master: OurBroker, client: FrameClient, seen: Seen) -> None:
    before, transferred = seen.seconds(), seen.of(table.HA_TRANSFERRED)
    observed_ms = seen.value(table.HA_OBSERVED_MS)
    first = master.kill("ha")
    master.child("ha", other_than=first)
    wait_until(lambda: seen.of(table.HA_RECONNECTS) == 2, 20)
    wait_until(lambda: seen.of(table.HA_REPLICA_IN_SYNC) == 1, 20)
    between = seen.seconds()
    assert between["disconnected"] > before["disconnected"]
    write_for(client, 0.5)
    wait_until(lambda: seen.of(table.HA_TRANSFERRED) > transferred)
    after, now_ms = seen.seconds(), seen.value(table.HA_OBSERVED_MS)
    assert all(after[state] >= before[state] for state in before)
    grown = sum(after.values()) - sum(before.values())
    assert grown == pytest.approx((now_ms - observed_ms) / 1000, abs=0.5), "all of the time"

    # One that hangs is disconnected for as long as it hangs.
    before = seen.seconds()
    hung = master.stop("ha")
    write_for(client, 2.5)
    os.kill(hung, signal.SIGCONT)
    wait_until(lambda: seen.seconds()["disconnected"] > before["disconnected"] + 2, 20)
    wait_until(lambda: seen.of(table.HA_REPLICA_IN_SYNC) == 1, 20)


def _master_starts_without_its_slave(group: Group) -> None:
    """It is missed from the start: the file in the store's directory knows it."""
    assert group.second.terminate() == 0
    assert group.first.terminate() == 0
    assert (group.first.store_dir / FILE_NAME).exists()
    group.start(group.first, ASYNC_MASTER, **QUICK)
    with metrics_of(group.first) as seen:
        wait_until(lambda: seen.of(table.HA_REPLICA_CONNECTED) == 0, 20)
        assert seen.of(table.HA_REPLICA_LEFT) > 0
        wait_until(lambda: seen.seconds()["disconnected"] > 0.5)
        with group.first.client() as client:
            write_for(client, 0.5)
        wait_until(lambda: seen.of(table.HA_REPLICA_LAG_BYTES) > 0)
