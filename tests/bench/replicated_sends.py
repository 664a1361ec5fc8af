"""Sends to a master with a slave: SYNC_MASTER and async speed, and the slave's lag behind them.

Runs in the process of the benchmark. The async figures are taken on the same pair with messages
that do not wait (property WAIT=false), which a SYNC_MASTER of either side answers as an
ASYNC_MASTER would.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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


def measure_sends(side: str, directory: Path, scale: float) -> Sends:
    """A fresh pair: warm-up, then each shape with messages that wait and messages that do not."""
    with ReplicaPair(side, directory, role="SYNC_MASTER") as pair:
        pair.master.start()
        pair.new_slave().start()
        pair.wait_linked("bench-linked")

        def send(conns: int, inflight: int, count: int, *, waits: bool) -> dict[str, float]:
            word = str(waits).lower()
            total = max(conns * inflight, int(count * scale))
            arguments = (conns, inflight, total, _BODY, _ON_QUEUES, f"wait={word}")
            figures = run_load("send", pair.master, f"bench-{conns}-{word}", *arguments)
            if figures["not_success"]:
                refused, code = figures["not_success"], figures["first_code"]
                raise RuntimeError(f"{side}: {refused:.0f} of {total} sends got code {code:.0f}")
            for broker in (pair.master, pair.slave):
                quiet_cpu_s(broker.process.pid)
            return figures

        for waits in (True, False):
            send(4, 64, 150_000, waits=waits)
        one_sync, one_async = (send(1, 1, 20_000, waits=waits) for waits in (True, False))
        many_sync = send(4, 64, 200_000, waits=True)
        many_async = send(4, 64, 300_000, waits=False)
    return Sends(
        side,
        one_sync["p50_us"],
        one_async["p50_us"],
        many_sync["msg_per_s"],
        many_async["msg_per_s"],
    )


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
