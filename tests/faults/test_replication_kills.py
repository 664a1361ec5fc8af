"""kill -9 of one process of a master or of its slave, under load: nothing acknowledged is lost.

Both brokers are ours, and the master is a SYNC_MASTER: a send that was answered with 0 is at the
slave, whatever dies afterwards; one with 11 or 12 is at the master only, and the slave gets it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remoting.body.kv_table import KVTable
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.faults.ledger import TOPIC, Ledger, Senders, assert_nothing_lost, assert_stops_clean
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker, stands_still
from tools.chaos.free_ports import free_port

_NAME = "replicated"
_CATCH_UP_S = 60.0
PROCESSES = [
    ("master", "ha"),
    ("slave", "ha"),
    ("slave", "store"),
    ("slave", "remoting"),
    ("master", "remoting"),
    ("master", "store"),
]


class Replicated:
    """A SYNC_MASTER and its slave, each with a free port of its own that it keeps."""

    def __init__(self, root: Path) -> None:
        port = free_port(-2, 1)
        self.master = OurBroker(
            root / "master",
            brokerName=_NAME,
            brokerIP2="127.0.0.1",
            brokerRole="SYNC_MASTER",
            listenPort=port,
            embeddedNamesrvPort=free_port(),
            slaveTimeout=1_000,
        )
        namesrv = f"127.0.0.1:{self.master.settings['embeddedNamesrvPort']}"
        self.slave = OurBroker(
            root / "slave",
            brokerName=_NAME,
            brokerIP2="127.0.0.1",
            brokerRole="SLAVE",
            brokerId=1,
            listenPort=free_port(-2, 1),
            namesrvAddr=namesrv,
            haMasterAddress=f"127.0.0.1:{port + 1}",
            haReconnectInterval=500,
            slaveSyncInterval=1_000,
            processHangTimeoutMillis=4_000,
        )

    def start(self) -> Replicated:
        self.master.start()
        self.slave.start()
        self.wait_in_sync()
        return self

    def broker(self, side: str) -> OurBroker:
        return self.master if side == "master" else self.slave

    def wait_in_sync(self) -> None:
        """Until sends are acknowledged by the slave."""

        def is_in_sync() -> bool:
            try:
                with self.master.client() as client:
                    return client.send("Probe", 0, b"probe").code == 0
            except OSError:
                return False

        wait_until(is_in_sync, _CATCH_UP_S)

    def wait_even(self) -> int:
        """Until both logs end at the same offset; that offset."""
        ends = [0, 1]

        def is_even() -> bool:
            ends[:] = [log_end(broker) for broker in (self.master, self.slave)]
            return ends[0] == ends[1]

        wait_until(is_even, _CATCH_UP_S)
        return ends[0]

    def assert_same_log(self) -> None:
        """Byte by byte, up to where both logs end."""
        end = self.wait_even()
        logs = [read_log(broker, end) for broker in (self.master, self.slave)]
        assert len(logs[0]) >= end
        assert logs[0] == logs[1]

    def assert_whole(self, ledger: Ledger) -> None:
        """The same logs; all that was acknowledged is at both; both stop with clean stores."""
        self.assert_same_log()
        wait_until(lambda: knows_topic(self.slave), _CATCH_UP_S)
        for broker in (self.slave, self.master):
            assert_nothing_lost(broker, ledger)
            assert_stops_clean(broker)


def log_end(broker: OurBroker) -> int:
    """Where its commit log ends."""
    with broker.client() as client:
        answer = client.call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    return int(KVTable.from_json_bytes(answer.body).table["commitLogMaxOffset"])


def read_log(broker: OurBroker, end: int) -> bytes:
    """The bytes of the commit log up to `end`."""
    files = sorted((broker.store_dir / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)[:end]


def knows_topic(broker: OurBroker) -> bool:
    """Whether the slave has heard of the topic: it asks for them every few seconds."""
    with broker.client() as client:
        return client.pull(TOPIC, 0, 0, count=1).code == ResponseCode.SUCCESS


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Replicated]:
    made = Replicated(tmp_path)
    with made.master, made.slave:
        yield made.start()


def under_load(replicated: Replicated, ledger: Ledger, act: Callable[[], object]) -> None:
    """Sends before, during and after `act`, acknowledged by the slave again at the end."""
    with Senders(replicated.master, ledger, count=1):
        ledger.wait_for_more(100)
        act()
        ledger.wait_for_more(30, timeout_s=30)
        replicated.wait_in_sync()
        ledger.wait_for_more(30)


class Promises(Ledger):
    """Only what was answered with 0: the slave has it, too."""

    def note(self, place: tuple[str, int, int], body: bytes, code: int) -> None:
        if code == ResponseCode.SUCCESS:
            super().note(place, body, code)


def kill_each(replicated: Replicated, ledger: Ledger, names: list[tuple[str, str]]) -> None:
    for side, name in names:
        under_load(
            replicated,
            ledger,
            lambda s=side, n=name: replicated.broker(s).restart_by_kill(n, 30),  # type: ignore[misc]
        )
        replicated.assert_same_log()
    stored = {0, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}
    assert set(ledger.codes) <= stored, ledger.codes


def test_replication_processes_killed(replicated: Replicated) -> None:
    ledger = Ledger()
    kill_each(replicated, ledger, PROCESSES[:3])
    replicated.assert_whole(ledger)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(PROCESSES[3:], marks=pytest.mark.slow, id="the others"),
        pytest.param([*PROCESSES, *reversed(PROCESSES)] * 3, marks=pytest.mark.long, id="often"),
    ],
)
@pytest.mark.timeout(480)
def test_every_process_killed(replicated: Replicated, names: list[tuple[str, str]]) -> None:
    ledger = Ledger()
    kill_each(replicated, ledger, names)
    replicated.assert_whole(ledger)


def crash_slave(replicated: Replicated) -> None:
    """All its processes at once; it starts again."""
    replicated.slave.crash()
    replicated.slave.start()


@pytest.mark.parametrize(
    "times", [pytest.param(1, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.long)]
)
@pytest.mark.timeout(480)
def test_whole_brokers_killed(
    replicated: Replicated, times: int, proved: Callable[[str], None]
) -> None:
    """In the moment in which the master dies, the slave has everything that was answered with 0."""
    promises = Promises()
    for _ in range(times):
        under_load(replicated, promises, lambda: crash_slave(replicated))
        replicated.assert_same_log()
        wait_until(lambda: knows_topic(replicated.slave), _CATCH_UP_S)
        with Senders(replicated.master, promises) as senders:
            promises.wait_for_more(300)
            replicated.master.crash()
            senders.stop()
        assert_nothing_lost(replicated.slave, promises)
        replicated.master.start()
        replicated.wait_in_sync()
        replicated.assert_same_log()
    replicated.assert_whole(promises)
    proved(f"{times} deaths of master and slave: the slave had each of {len(promises)} messages")


@pytest.mark.fault(10)
@pytest.mark.parametrize(
    "rounds", [pytest.param(2, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.long)]
)
@pytest.mark.timeout(3_600)
def test_slave_killed_within_a_segment(
    replicated: Replicated, rounds: int, proved: Callable[[str], None]
) -> None:
    """What it leaves behind is the beginning of the master's log, and becomes all of it."""
    ledger = Ledger()
    with Senders(replicated.master, ledger, count=1, size=2_000):
        for _ in range(rounds):
            ledger.wait_for_more(100, timeout_s=60)
            replicated.slave.crash()
            left = read_log(replicated.slave, 1 << 62).rstrip(b"\0")
            assert len(left) > 0
            assert read_log(replicated.master, len(left)) == left
            replicated.slave.start()
            replicated.wait_in_sync()
    replicated.assert_whole(ledger)
    proved(f"{rounds} deaths of a slave within a segment: always the beginning of its master's log")


def test_slave_whose_ha_stands_still(replicated: Replicated) -> None:
    """FLUSH_SLAVE_TIMEOUT, never a false OK; it catches up when it goes on."""
    ledger = Ledger()
    with replicated.master.client() as client:
        pid = replicated.slave.stop("ha")
        wait_until(lambda: stands_still(pid))
        late = [client.send(TOPIC, 0, b"0:%08d:" % number) for number in range(2)]
        os.kill(pid, signal.SIGCONT)
    assert {sent.code for sent in late} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
    under_load(replicated, ledger, lambda: None)
    replicated.assert_same_log()


@pytest.mark.slow
def test_slave_whose_ha_hangs(replicated: Replicated) -> None:
    """Its supervisor replaces it, and it takes up where the other one was."""
    ledger = Ledger()

    def hang() -> None:
        pid = replicated.slave.stop("ha")
        replicated.slave.child("ha", other_than=pid, timeout_s=20)

    under_load(replicated, ledger, hang)
    assert "ha: no beat for" in replicated.slave.output()
    replicated.assert_whole(ledger)
