"""Sends to a master with a slave: SYNC_MASTER and async speed, and the slave's lag behind them.

Runs in the process of the benchmark. The async figures are taken on the same pair with messages
that do not wait (property WAIT=false), which a SYNC_MASTER of either side answers as an
ASYNC_MASTER would.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.measuring import quiet_cpu_s, run_load
from tests.bench.replica_pair import ReplicaPair
from tests.bench.slave_lag import log_end_of, percentile, sample_lags
from tests.interop.processes import wait_until

_BODY: Final = 128
_ON_QUEUES: Final = "queues=4"
_RATE: Final = 20_000
_WARM_UP: Final = 150_000
_ONE_BY_ONE: Final = 20_000
_SETTLED_S: Final = 1.5
_LAG_S: Final = 10
_BURST_BODY: Final = 1024
_BURST: Final = 300_000
"""More than the 256 MiB that AllocateMappedFileService keeps ready."""
_AFTER_BURST_S: Final = 0.2


@dataclass(slots=True)
class Sends:
    """One pair's sends. p50 in microseconds, 1 connection x 1; messages a second, 4 x 64."""

    side: str
    sync_p50_us: float
    async_p50_us: float
    sync_msg_s: float
    async_msg_s: float


@dataclass(slots=True)
class Lag:
    """The slave's lag in milliseconds, and the sends' p99 in microseconds, at 20,000 a second.
    memory: "ready" after a rest; "used" right after a burst that took all that had been ready."""

    memory: str
    p50_ms: float
    p99_ms: float
    max_ms: float
    send_p99_us: float


@contextmanager
def linked_pair(side: str, directory: Path) -> Iterator[ReplicaPair]:
    """A fresh SYNC_MASTER with its slave, which a send has passed through."""
    with ReplicaPair(side, directory, role="SYNC_MASTER") as pair:
        pair.master.start()
        pair.new_slave().start()
        pair.wait_linked("bench-linked")
        yield pair


class PairSends:
    """Loads on a pair."""

    def __init__(self, pair: ReplicaPair) -> None:
        self._pair = pair

    def warm_up(self, count: int, *, waits: bool) -> None:
        """As `send` does; a Java broker in haste may refuse some."""
        self._load(4, 64, count, waits=waits)

    def send(self, conns: int, inflight: int, count: int, *, waits: bool) -> dict[str, float]:
        """About `count` messages that wait for the slave, or do not; waits until all is quiet.
        Raises RuntimeError when one is refused."""
        figures = self._load(conns, inflight, count, waits=waits)
        if figures["not_success"]:
            refused, total, code = (
                figures[name] for name in ("not_success", "total", "first_code")
            )
            raise RuntimeError(f"{refused:.0f} of {total:.0f} sends got code {code:.0f}")
        return figures

    def _load(self, conns: int, inflight: int, count: int, *, waits: bool) -> dict[str, float]:
        word = str(waits).lower()
        total = max(conns * inflight, count)
        arguments = (conns, inflight, total, _BODY, _ON_QUEUES, f"wait={word}")
        figures = run_load("send", self._pair.master, f"bench-{conns}-{word}", *arguments)
        self.quiet_cpu_s()
        return figures

    def quiet_cpu_s(self) -> float:
        """Of both brokers together."""
        both = (self._pair.master, self._pair.slave)
        return sum(quiet_cpu_s(broker.process.pid) for broker in both)


def measure_sends(side: str, directory: Path, scale: float) -> Sends:
    """A fresh pair: warm-up, then each shape with messages that wait and messages that do not.
    scale: on counts, but not of the warm-up, which is for Java."""
    with linked_pair(side, directory) as pair:
        sends = PairSends(pair)
        for waits in (True, False):
            sends.warm_up(_WARM_UP, waits=waits)
        one = int(_ONE_BY_ONE * scale)
        one_sync, one_async = (sends.send(1, 1, one, waits=waits) for waits in (True, False))
        many_sync = sends.send(4, 64, int(200_000 * scale), waits=True)
        many_async = sends.send(4, 64, int(300_000 * scale), waits=False)
    return Sends(
        side,
        one_sync["p50_us"],
        one_async["p50_us"],
        many_sync["msg_per_s"],
        many_async["msg_per_s"],
    )


def measure_sync_one(side: str, directory: Path, counts: float, warm_up: float) -> dict[str, float]:
    """A fresh pair: one send at a time that waits for the slave; factors on counts."""
    with linked_pair(side, directory) as pair:
        sends = PairSends(pair)
        sends.warm_up(int(_WARM_UP * warm_up), waits=True)
        before_s = sends.quiet_cpu_s()
        figures = sends.send(1, 1, int(_ONE_BY_ONE * counts), waits=True)
        return {
            **{name: figures[name] for name in ("msg_per_s", "p50_us", "p99_us", "p999_us")},
            "cpu_us": (sends.quiet_cpu_s() - before_s) * 1e6 / figures["total"],
        }


def measure_lag(directory: Path, memory: str, scale: float) -> Lag:
    """Our slave's lag while an ASYNC_MASTER takes a steady load. memory: as in Lag."""
    seconds = max(1.0, _LAG_S * scale)
    settled_s = _SETTLED_S if memory == "ready" else _AFTER_BURST_S
    with ReplicaPair("ours", directory, role="ASYNC_MASTER") as pair, ThreadPoolExecutor(1) as pool:
        pair.master.start()
        pair.new_slave().start()
        pids = pair.master.process.pid, pair.slave.process.pid
        with log_end_of(pids[0]) as master_end, log_end_of(pids[1]) as slave_end:
            run_load("send", pair.master, "bench-lag", 4, 64, 1000, _BODY, _ON_QUEUES)
            wait_until(lambda: slave_end() == master_end(), "the slave has the first messages")
            # Fresh files are populated then: see AllocateMappedFileService.
            for pid in pids:
                quiet_cpu_s(pid)
            if memory == "used":
                burst = (4, 64, _BURST, _BURST_BODY, _ON_QUEUES)
                run_load("send", pair.master, "bench-burst", *burst)
                wait_until(lambda: slave_end() == master_end(), "the slave has the burst", 120)
            total = int(_RATE * (settled_s + seconds))
            arguments = (4, 64, total, _BODY, _ON_QUEUES, f"rate={_RATE}")
            load = pool.submit(run_load, "send", pair.master, "bench-lag", *arguments)
            lags = sample_lags(master_end, slave_end, until=load.done)
            figures = load.result()
    steady = _without_first(lags, settled_s)
    return Lag(
        memory,
        percentile(steady, 0.5) * 1e3,
        percentile(steady, 0.99) * 1e3,
        percentile(steady, 1.0) * 1e3,
        figures["p99_us"],
    )


def _without_first(lags: list[tuple[float, float]], seconds: float) -> list[tuple[float, float]]:
    passed = 0.0
    for number, (_, duration) in enumerate(lags):
        passed += duration
        if passed >= seconds:
            return lags[number + 1 :]
    return []
