"""kill -9 of one process, of all, of the supervisor, under load: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from tests.faults.ledger import (
    TOPIC,
    Follower,
    Ledger,
    Senders,
    assert_keys_found,
    assert_nothing_lost,
    assert_stops_clean,
)
from tests.support.deadline import wait_until
from tests.support.our_broker import ConnectProbe, OurBroker, can_connect, is_running

CHILDREN = ("remoting", "store", "ha", "namesrv")
RESTART_S = 4.0
"""A child that has died three times within a minute waits up to this long; of the machine's own
time."""

FIRST_RESTART_S = 1.0
"""The promise for the first two deaths; of the machine's own time."""

BOOT_S = 6.0
"""With a recovery; of the machine's own time."""


def kill_under_load(
    broker: OurBroker, ledger: Ledger, names: list[str], limit_s: float = RESTART_S
) -> None:
    """Kill one after the other; each comes back, and sends are acknowledged again."""
    ports = [broker.ports[name] for name in ("main", "vip", "ha", "namesrv")]
    with ConnectProbe(ports) as probe, Follower(broker) as follower:
        with Senders(broker, ledger, count=1):
            ledger.wait_for_more()
            for name in names:
                took_s = broker.restart_by_kill(name)
                assert took_s < limit_s, f"{name}: {took_s:.1f} s"
                ledger.wait_for_more()
        follower.assert_has(ledger)
    assert probe.tries > len(ports)
    assert probe.refused == 0
    assert ledger.broken["ConnectionRefusedError"] == 0
    assert set(ledger.codes) == {0}, ledger.codes


@pytest.mark.fault(4)
def test_each_child_under_load(tmp_path: Path) -> None:
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker:
        names = ["remoting", "store", "ha", "namesrv", "remoting"]
        kill_under_load(broker, ledger, names, FIRST_RESTART_S)
        assert_nothing_lost(broker, ledger)
        assert_keys_found(broker, ledger)
        assert_stops_clean(broker)
        broker.start()
        assert "recovery: scanned" not in broker.log("store")
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.long
@pytest.mark.parametrize("number", range(8))
def test_children_at_random(tmp_path: Path, number: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    names = [name for name in CHILDREN for _ in range(3 if name in CHILDREN[:2] else 2)]
    random.Random(seed).shuffle(names)
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker:
        kill_under_load(broker, ledger, names)
        assert_nothing_lost(broker, ledger)
        assert_keys_found(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.fault(5)
def test_writer_and_store_at_once(tmp_path: Path) -> None:
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker, Senders(broker, ledger) as senders:
        ledger.wait_for_more(200)
        pids = [broker.stop(name) for name in ("store", "remoting")]
        for name in ("store", "remoting"):
            broker.kill(name)
        for name, pid in zip(("store", "remoting"), pids, strict=True):
            broker.child(name, other_than=pid)
        ledger.wait_for_more()
        senders.stop()
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.fault(4)
def test_store_alone_is_asked_to_stop(tmp_path: Path) -> None:
    """By somebody else than the supervisor: whoever writes the log goes on, so the store is not
    closed, and its successor joins the writer."""
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker, Senders(broker, ledger) as senders:
        for _ in range(2):
            ledger.wait_for_more(200)
            pid = broker.child("store")
            os.kill(pid, signal.SIGTERM)
            broker.child("store", other_than=pid)
            assert broker.has_abort
        ledger.wait_for_more(200)
        senders.stop()
        assert "rejoining a running log writer" in broker.log("store")
        assert "recovery: scanned" not in broker.log("store")
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.fault(1)
@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.long)])
def test_everything_at_once(tmp_path: Path, rounds: int) -> None:
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker:
        for _ in range(rounds):
            with Senders(broker, ledger) as senders:
                ledger.wait_for_more(300)
                broker.crash()
                senders.stop()
            assert broker.has_abort
            assert broker.check().is_clean
            broker.start(wait=False)
            broker.wait_booted(BOOT_S)
            assert "recovery: scanned" in broker.log("store")
            assert_nothing_lost(broker, ledger)
        assert_keys_found(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.fault(1)
@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_ten_seconds_for_ten_gigabytes(tmp_path: Path, proved: Callable[[str], None]) -> None:
    """Here two: a fifth of ten seconds, and a second for the start of the processes."""
    body = bytes(1 << 20)
    settings = {"mappedFileSizeCommitLog": 256 << 20, "maxMessageSize": 4 << 20}
    with OurBroker(tmp_path, **settings).start() as broker:
        with broker.client() as client:
            for _ in range(2_048):
                assert client.send(TOPIC, 0, body).code == 0
        broker.crash()
        broker.start(wait=False)
        took_s = wait_until(lambda: "boot success" in broker.output(), BOOT_S)
        assert took_s < 2.0 + 1.0
        broker.wait_booted()
        with broker.client() as client:
            assert client.offset(30, TOPIC, 0) == 2_048
    proved(f"a log of 2 GiB is recovered in {took_s:.1f} s")


@pytest.mark.fault(1)
@pytest.mark.parametrize(
    "crashes", [pytest.param(4, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.long)]
)
def test_crashes_while_it_boots(tmp_path: Path, crashes: int) -> None:
    """kill -9 of everything at random moments of the start, recovery included."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker:
        with Senders(broker, ledger):
            ledger.wait_for_more(2_000)
        broker.crash()
        for _ in range(crashes):
            broker.start(wait=False)
            moment = time.monotonic() + chance.uniform(0.2, 0.9)
            wait_until(lambda at=moment: time.monotonic() > at)  # type: ignore[misc]
            broker.crash()
            assert broker.check().is_clean
        broker.start()
        assert_nothing_lost(broker, ledger)
        assert_keys_found(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.fault(6)
def test_supervisor(tmp_path: Path) -> None:
    """The children stop by themselves, the ports and the lock are free, recovery follows."""
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker:
        with Senders(broker, ledger) as senders:
            ledger.wait_for_more(200)
            children = broker.children()
            assert len(children) == len(CHILDREN)
            broker.kill("supervisor")
            wait_until(lambda: not any(map(is_running, children.values())))
            senders.stop()
        assert broker.wait_ended() == -9
        assert broker.has_abort
        wait_until(lambda: not any(map(can_connect, broker.ports.values())))
        assert broker.start().is_alive
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.fault(6)
@pytest.mark.slow
def test_lock_holds_until_the_last_child_is_gone(tmp_path: Path) -> None:
    """`remoting` outlives the supervisor while a send waits for a flush that does not come."""
    settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 2_000}
    with OurBroker(tmp_path, **settings).start() as broker, broker.client() as client:
        assert client.send(TOPIC, 0, b"first").code == 0
        last = broker.child("remoting")
        others = [pid for name, pid in broker.children().items() if name != "remoting"]
        # The kernel ends a stopped process whose parent dies (SIGHUP): nobody flushes any more.
        broker.stop("store")
        opaque = client.post_send(TOPIC, 0, b"second")
        wait_until(lambda: client.offset(30, TOPIC, 0) == 1)
        broker.kill("supervisor")
        wait_until(lambda: not any(map(is_running, others)))
        second = OurBroker(tmp_path)
        second.start(wait=False)
        assert second.wait_ended() != 0
        assert "Lock failed,MQ already started" in second.output()
        assert client.take_send(opaque).code == ResponseCode.FLUSH_DISK_TIMEOUT
        wait_until(lambda: not is_running(last))
        assert_stops_clean(second.start())


DERIVED = ["consumequeue", "index", "checkpoint"]


@pytest.mark.fault(26)
@pytest.mark.slow
@pytest.mark.parametrize(
    "crashed", [False, pytest.param(True, marks=pytest.mark.long)], ids=["stopped", "crashed"]
)
def test_each_derived_file_comes_back(tmp_path: Path, crashed: bool) -> None:
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker:
        with Senders(broker, ledger):
            ledger.wait_for_more(3_000)
        for name in DERIVED:
            end_and_delete(broker, [name], crashed)
            assert_nothing_lost(broker, ledger)
            assert_keys_found(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.fault(26)
@pytest.mark.parametrize(
    "crashed", [True, pytest.param(False, marks=pytest.mark.long)], ids=["crashed", "stopped"]
)
def test_all_derived_files_come_back(tmp_path: Path, crashed: bool) -> None:
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker:
        with Senders(broker, ledger):
            ledger.wait_for_more(500)
        end_and_delete(broker, DERIVED, crashed)
        with Senders(broker, ledger):
            ledger.wait_for_more()
        assert_nothing_lost(broker, ledger)
        assert_keys_found(broker, ledger)
        with broker.client() as client:
            assert client.offset(31, TOPIC, 0) == 0
        assert_stops_clean(broker)


def end_and_delete(broker: OurBroker, names: list[str], crashed: bool) -> None:
    """Stop or crash it, delete derived files, start it again."""
    if crashed:
        broker.crash()
    else:
        assert_stops_clean(broker)
    for name in names:
        path = broker.store_dir / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    broker.start()


@pytest.mark.fault(6)
@pytest.mark.slow
def test_supervisor_dies_and_a_child_cannot_stop(tmp_path: Path) -> None:
    """Nobody is left to kill it: it ends itself, and the lock becomes free."""
    with OurBroker(tmp_path).start() as broker:
        # What keeps its orderly stop from ending here: it cannot write its log any more.
        shutil.rmtree(broker.log_dir)
        children = broker.children()
        broker.kill("supervisor")
        wait_until(lambda: not any(map(is_running, children.values())), 20)
        assert_stops_clean(broker.start())


@pytest.mark.fault(7)
def test_stop_under_load(tmp_path: Path) -> None:
    """What was acknowledged before and during the stop is there; 10 s are enough."""
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker:
        with Senders(broker, ledger, count=3) as senders:
            ledger.wait_for_more(500)
            assert_stops_clean(broker)
            senders.stop()
        broker.start()
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)
