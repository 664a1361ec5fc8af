"""A child that hangs, that cannot live, or whose disk fails; what its neighbours answer then."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from broker.supervisor.boot_info import EXIT_FLUSH_FAILED
from remoting.response_code import ResponseCode
from tests.faults.ledger import TOPIC, Ledger, Senders, assert_nothing_lost, assert_stops_clean
from tests.faults.shim import compile_shim
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker, is_running

HANG_MS = 2_500
SHIM = Path(__file__).parent / "failing_fdatasync.c"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("remoting", marks=pytest.mark.slow),
        pytest.param("ha", marks=pytest.mark.long),
        pytest.param("namesrv", marks=pytest.mark.long),
    ],
)
def test_hung_child_is_replaced(tmp_path: Path, name: str) -> None:
    hangs_and_is_replaced(tmp_path, name)


def test_hung_store_is_replaced(tmp_path: Path) -> None:
    hangs_and_is_replaced(tmp_path, "store")


def hangs_and_is_replaced(directory: Path, name: str) -> None:
    """SIGSTOP under load: dumped by faulthandler, ended, started again; nothing is lost."""
    ledger = Ledger()
    settings = {"processHangTimeoutMillis": HANG_MS}
    with OurBroker(directory, **settings).start() as broker:
        with Senders(broker, ledger):
            ledger.wait_for_more()
            pid = broker.stop(name)
            broker.child(name, other_than=pid, timeout_s=15)
            ledger.wait_for_more(timeout_s=30)
        # A busy machine's supervisor may not have heard its first beat yet.
        silent = f"{name}: (no beat|no progress in its start) for"
        assert re.search(silent, broker.output()), broker.output()
        assert "Fatal Python error: Aborted" in broker.output()
        assert "most recent call first" in broker.output()
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.slow
def test_frozen_machine_kills_nobody(tmp_path: Path) -> None:
    """All processes stand still longer than the limit, then go on: no child was hung."""
    with OurBroker(tmp_path, processHangTimeoutMillis=4_000).start() as broker:
        children = broker.children()
        for pid in (broker.pid, *children.values()):
            os.kill(pid, signal.SIGSTOP)
        frozen = time.monotonic()
        wait_until(lambda: time.monotonic() - frozen > 4.5)
        os.kill(broker.pid, signal.SIGCONT)
        wait_until(lambda: "was not scheduled" in broker.output())
        for pid in children.values():
            os.kill(pid, signal.SIGCONT)
        with broker.client() as client:
            assert client.send(TOPIC, 0, b"after").code == 0
        assert broker.children() == children
        assert_stops_clean(broker)


def test_sync_flush_while_the_store_stands_still(tmp_path: Path) -> None:
    """FLUSH_DISK_TIMEOUT, never a false OK; sends go on; long polls wait for the store."""
    settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 300}
    with OurBroker(tmp_path, **settings).start() as broker, broker.client() as client:
        assert client.send(TOPIC, 0, b"first").code == 0
        assert client.send(TOPIC, 1, b"other").code == 0
        with broker.client() as consumer:
            wait_until(lambda: client.offset(30, TOPIC, 0) == 1)
            poll = consumer.post_pull(TOPIC, 0, 1, suspend_ms=20_000)
            pid = broker.stop("store")
            late = [client.send(TOPIC, 0, b"late%d" % n) for n in range(3)]
            assert {sent.code for sent in late} == {ResponseCode.FLUSH_DISK_TIMEOUT}
            assert [sent.queue_offset for sent in late] == [1, 2, 3]
            with pytest.raises(TimeoutError):
                consumer.take_pull(poll, timeout_s=0.2)
            os.kill(pid, signal.SIGCONT)
            pulled = consumer.take_pull(poll)
        assert pulled.code == 0
        assert pulled.messages[0].body == b"late0"
        assert client.send(TOPIC, 0, b"last").code == 0
        assert_stops_clean(broker)


@pytest.mark.slow
def test_sync_flush_while_the_store_is_killed(tmp_path: Path) -> None:
    """An OK means that the bytes were flushed: by whichever store."""
    settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 5_000}
    ledger = Ledger()
    with OurBroker(tmp_path, **settings).start() as broker:
        with Senders(broker, ledger):
            for _ in range(3):
                ledger.wait_for_more()
                broker.restart_by_kill("store")
            ledger.wait_for_more()
        assert set(ledger.codes) <= {0, ResponseCode.FLUSH_DISK_TIMEOUT}
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


def test_sync_master_without_ha(tmp_path: Path) -> None:
    with OurBroker(tmp_path, brokerRole="SYNC_MASTER").start() as broker:
        with broker.client() as client:
            for number in range(20):
                if number == 5:
                    broker.kill("ha")
                sent = client.send(TOPIC, 0, b"%d" % number)
                assert sent.code == ResponseCode.SLAVE_NOT_AVAILABLE
                assert sent.queue_offset == number
        assert_stops_clean(broker)


# -- children that cannot live ------------------------------------------------------------------


@pytest.mark.slow
def test_child_that_dies_again_and_again(tmp_path: Path) -> None:
    """Back-off, then the whole broker stops with a clear last line."""
    with OurBroker(tmp_path).start() as broker:
        deaths: list[float] = []
        last = 0
        while broker.is_alive:
            pid = broker.children().get("ha", 0)
            if pid not in (0, last):
                last = broker.kill("ha")
                deaths.append(time.monotonic())
            wait_until(lambda p=last: not broker.is_alive or broker.children().get("ha") != p)  # type: ignore[misc]
        assert broker.wait_ended() == 1
        pauses = [after - before for before, after in itertools.pairwise(deaths)]
        assert len(deaths) == 6
        # Never sooner; how much later is the machine's matter.
        for pause_s, back_off_s in zip(pauses, (0, 0.25, 1, 2, 4), strict=True):
            assert pause_s > 0.9 * back_off_s
        last_line = broker.output().splitlines()[-1]
        assert "process ha ended 6 times within 60 s" in last_line
        assert "the broker stops" in last_line
        assert not broker.has_abort
        assert broker.check().is_clean


def test_store_that_cannot_be_opened(tmp_path: Path) -> None:
    """Starting it again would not help: one line says why, the exit code is not 0."""
    with OurBroker(tmp_path).start() as broker:
        with broker.client() as client:
            assert client.send(TOPIC, 0, b"x").code == 0
        assert_stops_clean(broker)
        broker.settings["mappedFileSizeCommitLog"] = 1 << 19
        broker.start(wait=False)
        assert broker.wait_ended() == 255
        assert broker.log("broker").count("store: started, pid") == 2, "once in each life"
        assert "mqbroker: the store cannot be opened" in broker.output()
        assert "process store cannot start" in broker.output()
        broker.settings["mappedFileSizeCommitLog"] = 1 << 20
        assert_stops_clean(broker.start())


# -- the disk -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes fdatasync fail once a file is there."""
    return compile_shim(SHIM, tmp_path_factory.mktemp("shim"))


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    "flush", ["SYNC_FLUSH", pytest.param("ASYNC_FLUSH", marks=pytest.mark.slow)]
)
def test_failed_fdatasync_stops_the_broker(tmp_path: Path, shim: Path, flush: str) -> None:
    """No OK after the failure, an exit code of its own, recovery at the next start."""
    switch = tmp_path / "the disk is broken"
    ledger = Ledger()
    broker = OurBroker(tmp_path, flushDiskType=flush, syncFlushTimeout=500)
    broker.env = {"LD_PRELOAD": str(shim), "FAILING_FDATASYNC": str(switch)}
    with broker.start():
        children = list(broker.children().values())
        with Senders(broker, ledger) as senders:
            ledger.wait_for_more(200)
            switch.touch()
            if flush == "SYNC_FLUSH":
                known = len(ledger)
            assert broker.wait_ended() == EXIT_FLUSH_FAILED
            senders.stop()
        if flush == "SYNC_FLUSH":
            # Answers of the flush that was under way when the disk broke.
            assert ledger.codes[0] <= known + 200
        assert not any(map(is_running, children))
        assert "fdatasync" in broker.output().splitlines()[-1]
        assert broker.has_abort
        switch.unlink()
        broker.start()
        assert "recovery: scanned" in broker.log("store")
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.fault(29)
@pytest.mark.slow
def test_failed_fdatasync_in_an_orderly_stop(tmp_path: Path, shim: Path) -> None:
    """The stop says that it failed, and the next start recovers."""
    switch = tmp_path / "the disk is broken"
    broker = OurBroker(tmp_path, flushIntervalCommitLog=60_000)
    broker.env = {"LD_PRELOAD": str(shim), "FAILING_FDATASYNC": str(switch)}
    with broker.start():
        with broker.client() as client:
            assert client.send(TOPIC, 0, b"x").code == 0
        switch.touch()
        assert broker.terminate() == EXIT_FLUSH_FAILED
        assert "fdatasync" in broker.output().splitlines()[-1]
        assert broker.has_abort
        switch.unlink()
        assert_stops_clean(broker.start())


@pytest.mark.slow
def test_stop_with_a_hung_child(tmp_path: Path) -> None:
    """It is continued, stops, and the store is whole."""
    with OurBroker(tmp_path).start() as broker:
        for name in ("remoting", "store", "ha", "namesrv"):
            broker.stop(name)
        assert_stops_clean(broker)


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of 24 MB; needs the right to mount."""
    directory = tmp_path / "small"
    directory.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", directory],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.decode()}")
    return directory


def test_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """Sends are refused with 14 and the cause, pulls go on, space brings the sends back."""
    ledger = Ledger()
    settings = {"storePathRootDir": small_disk / "store", "cleanResourceInterval": 200}
    broker = OurBroker(tmp_path, **settings)
    broker.store_dir = small_disk / "store"
    try:
        with broker.start():
            with Senders(broker, ledger):
                ledger.wait_for_more(100)
            ballast = small_disk / "ballast"
            with ballast.open("wb") as file:
                free = os.statvfs(small_disk)
                os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - 65_536)
            refusals = fill_until_refused(broker)
            assert refusals == {ResponseCode.SERVICE_NOT_AVAILABLE}
            before = broker.children()
            assert_nothing_lost(broker, ledger)
            ballast.unlink()
            with broker.client() as client:
                wait_until(lambda: client.send(TOPIC, 0, b"0:99999999:").code == 0)
            assert broker.children() == before
            assert "ended with code" not in broker.output()
            assert_stops_clean(broker)
    finally:
        subprocess.run(["umount", "-l", small_disk], check=True)


def fill_until_refused(broker: OurBroker) -> set[int]:
    """Send to another topic until sends are refused ten times on end; the codes of these."""
    codes: list[int] = []
    with broker.client() as client:

        def is_full() -> bool:
            sent = client.send("Filler", 0, bytes(50_000))
            codes.append(sent.code)
            if sent.code:
                assert "disk" in sent.remark, sent.remark
            return len(codes) > 10 and all(codes[-10:])

        wait_until(is_full, 20)
    return {code for code in codes if code}
