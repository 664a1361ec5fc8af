"""How fast an empty slave catches up with a backlog in one commit-log file.

Runs in the process of the benchmark. The slave's log file itself is watched (a read of the page
cache each millisecond), so that no side is disturbed by questions while it works; only when the
last byte is there the slave is asked how far its dispatch is. CPU is counted from the first byte
until both brokers are quiet again, flush included.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.measuring import RECORD_OVERHEAD, build, cpu_s, quiet_cpu_s, run_load
from tests.bench.raw_copy import raw_copy
from tests.bench.replica_pair import ReplicaPair, log_end, runtime_info
from tests.support.our_broker import FrameClient

_FIRST_FILE: Final = Path("commitlog") / "0".zfill(20)
_PROBE: Final = 64  # bytes; records have no longer run of zeros
_POLL_S: Final = 0.001
_DISPATCH_POLL_S: Final = 0.01
_LIMIT_S: Final = 120.0
_QUIET_S: Final = 20.0
_QUEUES: Final = 4


@dataclass(slots=True)
class CatchUp:
    """One catch-up. MB and GB are 10^6 and 10^9 bytes; seconds count from the slave's start."""

    side: str
    size: int
    boot_s: float
    first_byte_s: float
    acknowledged_mb_s: float
    dispatched_mb_s: float
    master_cpu_s_gb: float
    slave_cpu_s_gb: float
    raw_mb_s: float  # mean of the loop before and the loop after, as the next one
    raw_cpu_s_gb: float

    @property
    def of_raw(self) -> float:
        """Of the raw loop's speed: what the slave acknowledged."""
        return self.acknowledged_mb_s / self.raw_mb_s

    @property
    def slave_beyond_raw_cpu_s_gb(self) -> float:
        """The slave's CPU without what any receiver of the bytes needs on this machine."""
        return self.slave_cpu_s_gb - self.raw_cpu_s_gb


class Backlog:
    """A master's store with about `size` bytes of log in one file, written by our broker."""

    def __init__(self, directory: Path, body: int, size: int) -> None:
        self._directory = directory
        self.store = directory / "store"
        self.log = self.store / _FIRST_FILE
        self.size = self._write(body, size)

    def _write(self, body: int, size: int) -> int:
        count = size // (body + RECORD_OVERHEAD)
        pair = ReplicaPair(
            "ours", self._directory / "writing", role="ASYNC_MASTER", master_store=self.store
        )
        with pair:
            pair.master.start()
            run_load("send", pair.master, f"bench-{body}", 4, 64, count, body, f"queues={_QUEUES}")
            quiet_cpu_s(pair.master.process.pid, _QUIET_S)
            end = log_end(pair.master)
        os.sync()
        return end


class LogWatch:
    """Sees from outside when bytes arrive in a log file. Owned by its own thread."""

    def __init__(self, path: Path, end: int, on_first: Callable[[], None]) -> None:
        """on_first: called once, by the thread, when the first byte is there."""
        self._path = path
        self._end = end
        self._on_first = on_first
        self._stop = threading.Event()
        self._complete = threading.Event()
        self._thread = threading.Thread(target=self._run, name="LogWatch", daemon=True)
        self.first_s = self.last_s = 0.0  # perf_counter

    def __enter__(self) -> LogWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_complete(self, timeout_s: float) -> None:
        """Until the byte before `end` is there; raises TimeoutError."""
        if not self._complete.wait(timeout_s):
            state = "no byte came" if not self.first_s else f"byte {self._end - 1} did not come"
            raise TimeoutError(f"{self._path}: {state} in {timeout_s:.0f} s")

    def _run(self) -> None:
        if not self._wait(self._path.exists):
            return
        fd = os.open(self._path, os.O_RDONLY)
        try:
            if self._wait(lambda: any(os.pread(fd, _PROBE, 0))):
                self.first_s = time.perf_counter()
                self._on_first()
            if self._wait(lambda: any(os.pread(fd, _PROBE, self._end - _PROBE))):
                self.last_s = time.perf_counter()
                self._complete.set()
        finally:
            os.close(fd)

    def _wait(self, condition: Callable[[], bool]) -> bool:
        while not condition():
            if self._stop.wait(_POLL_S):
                return False
        return True


def measure(side: str, backlog: Backlog, directory: Path) -> CatchUp:
    """One catch-up of an empty slave, with the raw loop before and after it; what each has written
    stays until all are done (see raw_copy)."""
    copies = [backlog.store.parent / f"raw-copy-{number}" for number in (1, 2)]
    pair = ReplicaPair(side, directory, role="ASYNC_MASTER", master_store=backlog.store)
    with pair:
        pair.master.start()
        quiet_cpu_s(pair.master.process.pid)
        raw = [raw_copy(backlog.log, backlog.size, copies[0])]
        begin_cpu: list[float] = []
        slave = pair.new_slave()
        pids = (pair.master, slave)

        def note_cpu() -> None:
            begin_cpu.extend(cpu_s(broker.process.pid) for broker in pids)

        begin = time.perf_counter()
        with LogWatch(slave.store_dir / _FIRST_FILE, backlog.size, note_cpu) as watch:
            slave.start()
            boot_s = time.perf_counter() - begin
            watch.wait_complete(_LIMIT_S)
        dispatched_s = _wait_dispatched(slave.port, backlog.size)
        end_cpu = [quiet_cpu_s(broker.process.pid, _QUIET_S) for broker in pids]
        slave.kill()
        raw.append(raw_copy(backlog.log, backlog.size, copies[1]))
        for path in (*copies, slave.store_dir / _FIRST_FILE):
            path.unlink()
    gb = backlog.size / 1e9
    master_cpu, slave_cpu = (
        (after - before) / gb for before, after in zip(begin_cpu, end_cpu, strict=True)
    )
    return CatchUp(
        side,
        backlog.size,
        boot_s,
        watch.first_s - begin,
        gb * 1000 / (watch.last_s - watch.first_s),
        gb * 1000 / (dispatched_s - watch.first_s),
        master_cpu,
        slave_cpu,
        statistics.mean(one.mb_s for one in raw),
        statistics.mean(one.receiver_cpu_s_gb for one in raw),
    )


def _wait_dispatched(port: int, end: int) -> float:
    """perf_counter when the slave says that everything up to `end` is dispatched."""
    deadline = time.perf_counter() + _LIMIT_S
    with FrameClient(("127.0.0.1", port)) as client:
        while True:
            info = runtime_info(client)
            now = time.perf_counter()
            received, behind = int(info["commitLogMaxOffset"]), int(info["dispatchBehindBytes"])
            if received >= end and behind == 0:
                return now
            if now > deadline:
                raise TimeoutError(f"slave: {received} of {end} received, {behind} not dispatched")
            time.sleep(_DISPATCH_POLL_S)


def measure_delayed(
    side: str, backlog: Backlog, directory: Path, size: int, delay_us: int
) -> float:
    """MB/s of the first `size` bytes over a link with `delay_us` each way."""
    pair = ReplicaPair(side, directory, role="ASYNC_MASTER", master_store=backlog.store)
    with pair:
        pair.master.start()
        quiet_cpu_s(pair.master.process.pid)
        with delay_relay(pair.ha_port, delay_us) as port:
            slave = pair.new_slave(port)
            with LogWatch(slave.store_dir / _FIRST_FILE, size, lambda: None) as watch:
                slave.start()
                watch.wait_complete(_LIMIT_S)
    return size / (watch.last_s - watch.first_s) / 1e6


@contextlib.contextmanager
def delay_relay(target_port: int, delay_us: int) -> Iterator[int]:
    """The port of a running delay_relay before `target_port`."""
    command = [str(build("delay_relay")), str(target_port), str(delay_us)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        try:
            assert relay.stdout is not None
            yield int(relay.stdout.readline().removeprefix("port="))
        finally:
            relay.kill()
