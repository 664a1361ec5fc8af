"""What consumers that drain old messages cost senders: `bin/bench drain`.

A broker with --gb of messages of 1 KiB is stopped, the pages of its files are dropped, and it is
started again: nothing of it is in memory. --rate sends a second then go on for --seconds without
consumers, and again while four queues are drained from their beginnings, in requests of 32 messages
each, once over or as often as the time holds. Latencies count from the moment a send was due.
Printed for ours and, with --java, Java's 4.9: the sends' p50, p99, p99.9 of both times and what is
drained, MB a second, first from disk, then from memory. --disk-mb-s makes the disk slow for the
broker's reads (as root, where there are blkio cgroups): a virtual machine's own is often its host's
memory. With --elsewhere two states more: while the consumers drain another broker, as they would if
pulls had a process of their own, and while that broker and its consumers have the lowest share of a
processor (nice 19), so that the sends get one as if they were alone; no division of the work can be
kinder to senders. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.measuring import RECORD_OVERHEAD, SIDES, quiet_cpu_s, run_load, side_broker
from tests.interop import harness
from tests.interop.processes import process_tree

OLD: Final = "bench-drain-old"
NEW: Final = "bench-drain-new"
BODY: Final = 1024
QUEUES: Final = 4
GOAL: Final = 1.2
"""Most by which p99 of the sends may grow (issue: consumers' load no longer slows senders)."""
_YIELD: Final = (
    '[ ! -e /proc/self/autogroup ] || echo 19 > /proc/self/autogroup; exec nice -19 "$@"'
)
_YIELDING: Final = ("sh", "-c", _YIELD, "sh")
_BLKIO: Final = Path("/sys/fs/cgroup/blkio")
Figures = dict[str, float]


def drop_pages(directory: Path) -> None:
    """What the page cache has of the files, once they are on disk; nobody may have them mapped."""
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


@contextlib.contextmanager
def slow_reads(pid: int, directory: Path, mb_s: float | None) -> Iterator[None]:
    """The processes of a broker read so much a second from the disk of `directory`."""
    if mb_s is None:
        yield
        return
    group, device = _BLKIO / f"bench-drain-{pid}", directory.stat().st_dev
    limit = f"{os.major(device)}:{os.minor(device)} {int(mb_s * 1e6)}"
    try:
        group.mkdir()
        (group / "blkio.throttle.read_bps_device").write_text(limit)
    except OSError as error:
        raise SystemExit(f"--disk-mb-s needs root and blkio cgroups: {error}") from None
    for process in process_tree(pid):
        (group / "cgroup.procs").write_text(str(process.pid))
    yield


class Consumers:
    """Drain the old topic, again and again, until told to end; a group of its own each time."""

    def __init__(self, broker: harness.Broker, *, is_kind: bool) -> None:
        """is_kind: they run when nobody else wants a processor."""
        self._broker = broker
        self._before = _YIELDING if is_kind else ()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="Consumers")
        self.rounds: list[Figures] = []
        self.failure: Exception | None = None

    def __enter__(self) -> Consumers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                group = f"bench-drain-{len(self.rounds)}"
                self.rounds.append(self._drain(group))
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            self.failure = error

    def _drain(self, group: str) -> Figures:
        return run_load("pull", self._broker, OLD, group, QUEUES, 32, before=self._before)


def sends(broker: harness.Broker, options: argparse.Namespace) -> Figures:
    """An open loop over four connections."""
    total = int(options.rate * options.seconds)
    return run_load("send", broker, NEW, 4, 64, total, BODY, f"rate={options.rate}")


@contextlib.contextmanager
def old_broker(side: str, options: argparse.Namespace) -> Iterator[harness.Broker]:
    """A broker with old messages, none of them in memory; deleted afterwards."""
    directory = Path(tempfile.mkdtemp(prefix=f"bench-drain-{side}-", dir=options.dir))
    broker = side_broker(side, directory)
    try:
        broker.start()
        count = int(options.gb * 1e9 / (BODY + RECORD_OVERHEAD))
        run_load("send", broker, OLD, 4, 64, count, BODY)
        quiet_cpu_s(broker.process.pid)
        broker.stop()
        drop_pages(directory)
        broker.start()
        run_load("send", broker, NEW, 4, 64, 20_000, BODY)
        quiet_cpu_s(broker.process.pid)
        with slow_reads(broker.process.pid, directory, options.disk_mb_s):
            yield broker
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)
        for group in _BLKIO.glob("bench-drain-*"):
            with contextlib.suppress(OSError):  # Of a run beside this one.
                group.rmdir()


@dataclass(frozen=True, slots=True)
class State:
    """What goes on beside the sends. drained: the broker whose old messages are; None: none."""

    name: str
    drained: harness.Broker | None = None
    is_kind: bool = False
    """The drained broker and its consumers run when nobody else wants a processor."""


def measure(side: str, options: argparse.Namespace) -> None:
    """One broker, from empty to its end; with --elsewhere a second; prints. The states take turns,
    --rounds times."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(old_broker(side, options))
        states = [State("alone"), State("beside consumers", broker)]
        if options.elsewhere:
            other = stack.enter_context(old_broker(side, options))
            states += [
                State("beside another broker's consumers", other),
                State("beside another's, which yield", other, is_kind=True),
            ]
        p99s: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for state in states:
                figures = _measure_beside(broker, state, options)
                p99s.setdefault(state.name, []).append(figures["p99_us"])
        alone = statistics.median(p99s["alone"])
        for name, found in p99s.items():
            ratio = statistics.median(found) / alone
            verdict = "held" if ratio <= GOAL else "MISSED"
            print(f"{side}, {name}: p99 / alone {ratio:.1f}, goal {GOAL}: {verdict}", flush=True)


def _measure_beside(broker: harness.Broker, state: State, options: argparse.Namespace) -> Figures:
    """Sends to `broker` while the state lasts."""
    if state.drained is None:
        figures = sends(broker, options)
        report(state.name, figures)
        return figures
    yield_to_others(state.drained.process.pid, wanted=state.is_kind)
    with Consumers(state.drained, is_kind=state.is_kind) as consumers:
        figures = sends(broker, options)
    if consumers.failure is not None:
        raise consumers.failure
    report(state.name, figures)
    speeds = ", ".join(f"{each['mb_per_s']:,.0f}" for each in consumers.rounds)
    print(f"  drained, MB/s, the first time from disk: {speeds}", flush=True)
    return figures


def yield_to_others(pid: int, *, wanted: bool) -> None:
    """A broker has the lowest share of a processor, or what all have: its session and its threads,
    since the kernel may divide a core among sessions first. Raises OSError unless root."""
    nice = 19 if wanted else 0
    with contextlib.suppress(FileNotFoundError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    for process in process_tree(pid):
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(task.name), nice)


def report(name: str, figures: Figures) -> None:
    """One line."""
    latencies = ", ".join(f"{figures[each]:,.0f}" for each in ("p50_us", "p99_us", "p999_us"))
    print(f"{name}, us, p50, p99, p99.9: {latencies}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gb", type=float, default=8)
    parser.add_argument("--rate", type=float, default=5_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--disk-mb-s", type=float, help="MB a second of the broker's reads")
    parser.add_argument("--elsewhere", action="store_true", help="another broker's consumers, too")
    parser.add_argument("--java", action="store_true", help="Java's broker, too")
    parser.add_argument("--dir", type=Path, help="where the stores live while it runs")
    options = parser.parse_args()
    for side in SIDES if options.java else ("ours",):
        measure(side, options)


if __name__ == "__main__":
    main()
