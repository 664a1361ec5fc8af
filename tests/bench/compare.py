"""Our broker against Java's 4.9 broker in one run: `python -m tests.bench.compare`.

Builds loadgen.c, then starts the two brokers in turn (ours, Java, ours ...; --rounds times each),
each on a fresh store directory and with the other one down. Every start is warmed up with 200,000
messages, then runs each shape once. Printed for each shape: the median messages a second of the
rounds with the median p50 and p99, the CPU microseconds a message (all processes of the broker
together, followed until it is quiet again, so that dispatch and flush count), and the ratio
ours/Java. Beside them: the rate at which this machine hands out memory that it touches for the
first time (read before each start, it differs from minute to minute), anonymous memory, and the
time of a boot on a 1 GB store after a clean stop.

Which Java release runs is read from its jar and printed: Maven Central's newest broker of the 4.9
line is 4.9.7 (tests/interop/java_peers.py). Never a timed test: figures are read by people.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.measuring import (
    JAVA_JVM,
    MIB,
    OUT_DIR,
    RECORD_OVERHEAD,
    SIDES,
    MemoryWatch,
    first_touch_gb_s,
    quiet_cpu_s,
    rss_anon,
    run_load,
)
from tests.interop import harness
from tests.interop.java_peers import server_version
from tests.interop.processes import free_port

IDLE_LIMIT, LOAD_LIMIT, BOOT_LIMIT_S = 250 * MIB, 400 * MIB, 2.0


@dataclass(frozen=True, slots=True)
class Shape:
    """One load. `pull_from` names the send shape whose messages a pull shape drains."""

    name: str
    conns: int
    inflight: int
    body: int
    total: int
    pull_from: str = ""

    @property
    def topic(self) -> str:
        return f"bench-{self.pull_from or self.name}"


SHAPES = (
    Shape("send-1x1-128", 1, 1, 128, 20_000),
    Shape("send-16x1-128", 16, 1, 128, 100_000),
    Shape("send-4x64-128", 4, 64, 128, 400_000),
    Shape("send-4x64-1024", 4, 64, 1024, 300_000),
    Shape("pull-32-128", 4, 32, 128, 0, "send-4x64-128"),
    Shape("pull-32-1024", 4, 32, 1024, 0, "send-4x64-1024"),
)


@dataclass(slots=True)
class Result:
    """One run of one shape; latencies are None for pulls."""

    shape: str
    messages: int
    msg_per_s: float
    p50_us: float | None
    p99_us: float | None
    cpu_us: float
    rss_anon_max: int
    refused: int  # sends that got no SUCCESS (a Java broker in haste answers "busy")


@dataclass(slots=True)
class Start:
    """One start of one broker: what was measured while it lived. Memory in bytes."""

    side: str
    first_touch_gb_s: float
    rss_anon_idle: int = 0
    rss_anon_max: int = 0
    store_bytes: int = 0
    boot_s: float | None = None
    results: list[Result] = field(default_factory=list)


class Bench:
    """Drives one broker at a time with the load generator."""

    def __init__(self, directory: Path, scale: float) -> None:
        self._directory = directory
        self._scale = scale
        self._starts = 0

    @contextlib.contextmanager
    def broker(self, side: str) -> Iterator[harness.Broker]:
        """A running broker on a fresh store, which is deleted afterwards."""
        self._starts += 1
        directory = self._directory / f"{self._starts}-{side}"
        jvm = JAVA_JVM if side == "java" else ()
        port = free_port(-2, 1)
        broker = harness.broker(SIDES[side], directory, None, port=port, jvm=jvm)
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()
            shutil.rmtree(directory, ignore_errors=True)

    def measure(self, side: str, shapes: list[Shape], *, boot: bool) -> Start:
        """One start: idle memory, warm-up, each shape once; `boot` measures a restart as well."""
        start = Start(side, first_touch_gb_s())
        with self.broker(side) as broker:
            quiet_cpu_s(broker.process.pid)
            start.rss_anon_idle = rss_anon(broker.process.pid)
            self._warm_up(broker, start)
            for shape in shapes:
                result = self._run(broker, shape, start)
                start.results.append(result)
                start.rss_anon_max = max(start.rss_anon_max, result.rss_anon_max)
            if boot:
                self._boot(broker, start)
        return start

    def _warm_up(self, broker: harness.Broker, start: Start) -> None:
        count = int(200_000 * self._scale)
        self._send(broker, "bench-warm-up", Shape("warm-up", 4, 64, 128, count), start)
        run_load("pull", broker, "bench-warm-up", "bench-warm", "4", "32")

    def _run(self, broker: harness.Broker, shape: Shape, start: Start) -> Result:
        if shape.pull_from and not self._has(start, shape.pull_from):
            sending = next(one for one in SHAPES if one.name == shape.pull_from)
            self._send(broker, shape.topic, sending, start)
        if not shape.pull_from:
            run_load("send", broker, shape.topic, "1", "1", "4", str(shape.body))
        pid = broker.process.pid
        before = quiet_cpu_s(pid)
        with MemoryWatch(pid) as memory:
            if shape.pull_from:
                arguments = ("bench-pull", str(shape.conns), str(shape.inflight))
                figures = run_load("pull", broker, shape.topic, *arguments)
            else:
                figures = self._send(broker, shape.topic, shape, start)
            used_s = quiet_cpu_s(pid) - before
        asked = int(figures.get("total") or figures["msgs"])
        refused = int(figures.get("not_success", 0))
        messages = asked - refused
        return Result(
            shape.name,
            messages,
            figures["msg_per_s"] * messages / asked,
            figures.get("p50_us"),
            figures.get("p99_us"),
            used_s * 1e6 / messages,
            memory.highest,
            refused,
        )

    def _has(self, start: Start, shape_name: str) -> bool:
        return any(result.shape == shape_name for result in start.results)

    def _send(
        self, broker: harness.Broker, topic: str, shape: Shape, start: Start
    ) -> dict[str, float]:
        total = max(shape.inflight * shape.conns, int(shape.total * self._scale))
        start.store_bytes += total * (shape.body + RECORD_OVERHEAD)
        arguments = (shape.conns, shape.inflight, total, shape.body)
        return run_load("send", broker, topic, *map(str, arguments))

    def _boot(self, broker: harness.Broker, start: Start) -> None:
        """Fill the store up to 1 GB, stop cleanly, time the next start."""
        missing = max(0, 1_000_000_000 - start.store_bytes)
        count = int(missing / (1024 + RECORD_OVERHEAD) / self._scale)
        if count > 256:
            self._send(broker, "bench-fill", Shape("fill", 4, 64, 1024, count), start)
        quiet_cpu_s(broker.process.pid)
        broker.stop()
        begin = time.perf_counter()
        broker.start()
        start.boot_s = time.perf_counter() - begin


def summary(starts: list[Start], side: str, shape: str) -> dict[str, Any] | None:
    """The median run of a shape by speed, with the medians of its other figures."""
    runs = [r for s in starts if s.side == side for r in s.results if r.shape == shape]
    if not runs:
        return None

    def median(name: str) -> float | None:
        values = [getattr(run, name) for run in runs]
        return None if values[0] is None else float(statistics.median(values))

    figures: dict[str, Any] = {
        name: median(name) for name in ("msg_per_s", "p50_us", "p99_us", "cpu_us")
    }
    figures["refused"] = sum(run.refused for run in runs)
    figures["runs_msg_per_s"] = [round(run.msg_per_s) for run in runs]
    return figures


def report(starts: list[Start], shapes: list[Shape], java: str) -> dict[str, Any]:
    """Everything that was measured, as JSON data."""
    rows = []
    for shape in shapes:
        ours, theirs = (summary(starts, side, shape.name) for side in SIDES)
        ratio = ours["msg_per_s"] / theirs["msg_per_s"] if ours and theirs else None
        rows.append({"shape": shape.name, "ours": ours, "java": theirs, "ratio": ratio})
    return {
        "java_version": java,
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release()},
        "python": platform.python_version(),
        "rows": rows,
        "starts": [asdict(start) for start in starts],
    }


def print_report(data: dict[str, Any]) -> None:
    """The table and the limits."""
    print(f"\nours against Java {data['java_version']} (2 GB heap), medians")
    head = f"{'shape':16}{'':6}{'msg/s':>11}{'p50 us':>9}{'p99 us':>9}{'CPU us':>8}{'ratio':>8}"
    print(f"{head}   runs")
    for row in data["rows"]:
        for side in SIDES:
            if row[side]:
                print(_line(row, side))
    for start in data["starts"]:
        print_start(start)


def _line(row: dict[str, Any], side: str) -> str:
    figures = row[side]
    latencies = "".join(
        f"{'-' if figures[name] is None else round(figures[name]):>9}"
        for name in ("p50_us", "p99_us")
    )
    ratio = f"{row['ratio']:.2f}" if row["ratio"] and side == "ours" else ""
    speed = f"{row['shape']:16}{side:6}{figures['msg_per_s']:>11,.0f}"
    runs = " ".join(f"{run:,}" for run in figures["runs_msg_per_s"])
    refused = f"   {figures['refused']} refused" if figures["refused"] else ""
    return f"{speed}{latencies}{figures['cpu_us']:>8.1f}{ratio:>8}   {runs}{refused}"


def print_start(start: dict[str, Any]) -> None:
    """Memory, boot and first-touch rate of one start; ours with what is asked of it."""
    ours = start["side"] == "ours"
    idle, most = start["rss_anon_idle"], start["rss_anon_max"]
    text = f"{start['side']:5} first touch {start['first_touch_gb_s']:.2f} GB/s"
    text += f", anonymous memory idle {idle / MIB:.0f} MiB{_verdict(ours, idle <= IDLE_LIMIT)}"
    text += f", under load at most {most / MIB:.0f} MiB{_verdict(ours, most <= LOAD_LIMIT)}"
    if start["boot_s"] is not None:
        ok = _verdict(ours, start["boot_s"] <= BOOT_LIMIT_S)
        text += f", boot on {start['store_bytes'] / 1e9:.2f} GB {start['boot_s']:.2f} s{ok}"
    print(text)


def _verdict(ours: bool, met: bool) -> str:
    return "" if not ours else " (ok)" if met else " (OVER THE LIMIT)"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the messages, one round")
    parser.add_argument("--only", choices=list(SIDES), help="measure one broker only")
    parser.add_argument("--rounds", type=int, help="starts of each broker (3)")
    parser.add_argument("--shapes", help="comma list of " + ", ".join(s.name for s in SHAPES))
    parser.add_argument("--json", type=Path, default=OUT_DIR / "compare.json")
    parser.add_argument("--dir", type=Path, help="where the stores live while it runs")
    parser.add_argument("--no-boot", action="store_true", help="skip the boot on a 1 GB store")
    return parser.parse_args(arguments)


def chosen_shapes(names: str | None) -> list[Shape]:
    """The shapes of a comma list; raises SystemExit on an unknown name."""
    if names is None:
        return list(SHAPES)
    known = {shape.name: shape for shape in SHAPES}
    unknown = [name for name in names.split(",") if name not in known]
    if unknown:
        raise SystemExit(f"compare: no shape {', '.join(unknown)}; known: {', '.join(known)}")
    return [known[name] for name in names.split(",")]


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    shapes = chosen_shapes(options.shapes)
    rounds = options.rounds or (1 if options.quick else 3)
    sides = [options.only] if options.only else list(SIDES)
    java = server_version("4.9") if "java" in sides else "-"
    OUT_DIR.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="compare-", dir=options.dir))
    bench = Bench(directory, 0.25 if options.quick else 1.0)
    starts: list[Start] = []
    try:
        for number in range(rounds):
            boot = number == rounds - 1 and not options.no_boot
            for side in sides:
                print(f"round {number + 1} of {rounds}: {side}", file=sys.stderr)
                starts.append(bench.measure(side, shapes, boot=boot))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    data = report(starts, shapes, java)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(data, indent=1))
    print_report(data)
    print(f"written: {options.json}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
