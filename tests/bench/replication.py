"""Replication, ours against Java's 4.9 broker in one run: `python -m tests.bench.replication`.

Each side is a master and one slave on fresh stores, the other side down; the sides take turns, who
begins alternates, and the figures printed are the medians of --rounds rounds:

catch-up-1024, catch-up-128
    An empty slave and a backlog of 1.75 GB in one 2 GB file (a Java slave asks for the newest file
    only), bodies of 1 KiB and 128 B: slave's start to first byte, MB/s until the last byte is
    there, MB/s until all of it is dispatched, CPU seconds a GB of each broker. Beside it the raw
    sendfile -> recv_into loop of the same minute (raw_copy.py).
sends
    SYNC_MASTER: p50 of 1 connection x 1 in flight, messages a second of 4 x 64; and the same of
    messages that do not wait, on the same pair.
lag, lag-used
    How long our slave is behind at a steady 20,000 messages a second: with memory ready, as after a
    rest, and right after a burst that has used it up.
delayed
    Catch-up through delay_relay.c, a link with a round trip of 2 ms.

Beside a figure stands its goal, and whether it was held (goals.py). Which Java release runs is
printed (tests/interop/java_peers.py). Never a timed test: figures are read by people.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench.catch_up import Backlog, CatchUp, measure, measure_delayed
from tests.bench.goals import Goal, Verdict
from tests.bench.machine import describe_machine
from tests.bench.measuring import OUT_DIR, SIDES
from tests.bench.replicated_sends import Lag, Sends, measure_lag, measure_sends
from tests.interop.java_peers import server_version

_BACKLOG: Final = 1_750_000_000
_DELAY_US: Final = 1000
_ROWS: Final = ("catch-up-1024", "catch-up-128", "sends", "lag", "lag-used", "delayed")
_LAGS: Final = {"lag": "ready", "lag-used": "used"}
_CATCH_UP_GOALS: Final = {
    "catch-up-1024": (Goal("of_raw", 0.8, of_ratio=False), Goal("dispatched_mb_s", 1.0)),
    "catch-up-128": (Goal("of_raw", 0.6, of_ratio=False), Goal("dispatched_mb_s", 2.0)),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: a figure of both sides, None where a side was not measured."""

    name: str
    ours: float | None
    java: float | None
    goal: Goal | None = None

    @property
    def ratio(self) -> float | None:
        """ours / Java."""
        return self.ours / self.java if self.ours is not None and self.java else None

    @property
    def verdict(self) -> Verdict | None:
        """What came of the goal."""
        if self.goal is None:
            return None
        ours, java = (
            None if figure is None else {self.goal.figure: figure}
            for figure in (self.ours, self.java)
        )
        return self.goal.verdict(ours, java)


@dataclass(slots=True)
class Runs:
    """What was measured, in the order in which it was."""

    catch_ups: dict[str, list[CatchUp]] = field(default_factory=dict)
    sends: list[Sends] = field(default_factory=list)
    lags: list[Lag] = field(default_factory=list)
    delayed: list[tuple[str, float]] = field(default_factory=list)  # side, MB/s


class Bench:
    """Runs the rows one after the other; stores live under one directory."""

    def __init__(self, directory: Path, sides: list[str], rounds: int, scale: float) -> None:
        self._directory = directory
        self._sides = sides
        self._rounds = rounds
        self._scale = scale
        self._started = 0
        self._backlogs: dict[int, Backlog] = {}
        self.runs = Runs()

    def run(self, row: str) -> None:
        """One row, all its rounds."""
        if row == "sends":
            for side in self._turns(row):
                self.runs.sends.append(measure_sends(side, self._fresh(side), self._scale))
        elif row in _LAGS:
            for side in self._turns(row):
                if side == "ours":
                    done = measure_lag(self._fresh(side), _LAGS[row], self._scale)
                    self.runs.lags.append(done)
        elif row == "delayed":
            self._delayed(self._backlog(1024))
        else:
            self._catch_up(row, self._backlog(int(row.rpartition("-")[2])))

    def _catch_up(self, row: str, backlog: Backlog) -> None:
        for side in self._turns(row):
            done = measure(side, backlog, self._fresh(side))
            self.runs.catch_ups.setdefault(row, []).append(done)

    def _delayed(self, backlog: Backlog) -> None:
        for side in self._turns("delayed"):
            speed = measure_delayed(side, backlog, self._fresh(side), backlog.size, _DELAY_US)
            self.runs.delayed.append((side, speed))

    def _backlog(self, body: int) -> Backlog:
        """Written at its first use; every round starts its masters on it."""
        if body not in self._backlogs:
            print(f"writing a backlog, bodies of {body} bytes", file=sys.stderr)
            directory = self._directory / f"backlog-{body}"
            self._backlogs[body] = Backlog(directory, body, int(_BACKLOG * self._scale))
        return self._backlogs[body]

    def _turns(self, row: str) -> Iterable[str]:
        """The sides in turn, each `rounds` times."""
        for number in range(self._rounds):
            for side in self._sides if number % 2 == 0 else reversed(self._sides):
                print(f"{row}, round {number + 1} of {self._rounds}: {side}", file=sys.stderr)
                yield side

    def _fresh(self, side: str) -> Path:
        self._started += 1
        return self._directory / f"{self._started}-{side}"


def median(runs: Iterable[Any], side: str, name: str) -> float | None:
    """The median of a figure over the runs of a side; None without runs."""
    values = [getattr(run, name) for run in runs if run.side == side]
    return statistics.median(values) if values else None


def catch_up_lines(row: str, runs: list[CatchUp]) -> list[Line]:
    """The lines of one backlog."""
    of_raw, dispatched = _CATCH_UP_GOALS[row]

    def line(name: str, figure: str, goal: Goal | None = None) -> Line:
        return Line(name, median(runs, "ours", figure), median(runs, "java", figure), goal)

    return [
        line(
            f"{row}: start to first byte, s",
            "first_byte_s",
            Goal("first_byte_s", 1, of_ratio=False),
        ),
        line(f"{row}: acknowledged, MB/s", "acknowledged_mb_s"),
        line(f"{row}: of the raw loop", "of_raw", of_raw),
        line(f"{row}: dispatched, MB/s", "dispatched_mb_s", dispatched),
        line(f"{row}: master, CPU s/GB", "master_cpu_s_gb", Goal("cpu_s_gb", 0.5)),
        line(f"{row}: slave, CPU s/GB", "slave_cpu_s_gb", Goal("cpu_s_gb", 0.5)),
        line(
            f"{row}: beyond the raw loop's receiver",
            "slave_beyond_raw_cpu_s_gb",
            Goal("cpu_s_gb", 0.5),
        ),
        line(f"{row}: raw loop, MB/s", "raw_mb_s"),
        line(f"{row}: its receiver, CPU s/GB", "raw_cpu_s_gb"),
    ]


def sends_lines(runs: list[Sends]) -> list[Line]:
    """The lines of sends that wait for the slave, and of those that do not."""

    def both(name: str) -> tuple[float | None, float | None]:
        return median(runs, "ours", name), median(runs, "java", name)

    many_sync, many_async = both("sync_msg_s"), both("async_msg_s")
    ours, java = (
        sync / other if sync and other else None
        for sync, other in zip(many_sync, many_async, strict=True)
    )
    goal = Goal("of_not_waiting", 0.6, of_ratio=False)
    return [
        Line("SYNC_MASTER 1 x 1: p50, us", *both("sync_p50_us"), Goal("p50_us", 0.7)),
        Line("1 x 1, not waiting: p50, us", *both("async_p50_us")),
        Line("SYNC_MASTER 4 x 64: msg/s", *many_sync, Goal("msg_per_s", 1.8)),
        Line("4 x 64, not waiting: msg/s", *many_async),
        Line("4 x 64: waiting / not waiting", ours, java, goal),
    ]


def lag_lines(memory: str, runs: list[Lag]) -> list[Line]:
    """The lines of one state of the memory."""

    def line(name: str, figure: str, goal: Goal | None = None) -> Line:
        return Line(name, statistics.median(getattr(lag, figure) for lag in runs), None, goal)

    goal = Goal("p99_ms", 5.0, of_ratio=False) if memory == "used" else None
    return [
        line(f"lag, 20,000 msg/s, memory {memory}: p50, ms", "p50_ms"),
        line(f"lag, 20,000 msg/s, memory {memory}: p99, ms", "p99_ms", goal),
        line(f"sends then, memory {memory}: p99, us", "send_p99_us"),
    ]


def lines_of(runs: Runs) -> list[Line]:
    """The whole table."""
    lines = [line for row, done in runs.catch_ups.items() for line in catch_up_lines(row, done)]
    if runs.sends:
        lines += sends_lines(runs.sends)
    for memory in _LAGS.values():
        if lags := [lag for lag in runs.lags if lag.memory == memory]:
            lines += lag_lines(memory, lags)
    if runs.delayed:
        ours, java = (
            statistics.median(found) if found else None
            for found in ([speed for of, speed in runs.delayed if of == side] for side in SIDES)
        )
        goal = Goal("mb_s", 240, of_ratio=False)
        lines.append(Line("round trip of 2 ms: catch-up, MB/s", ours, java, goal))
    return lines


def print_table(lines: list[Line], java: str) -> None:
    """One line for each figure."""
    print(f"\nours against Java {java} (2 GB heaps), medians")
    print(f"{'':44}{'ours':>10}{'Java':>10}{'ratio':>8}")
    for line in lines:
        figures = f"{_text(line.ours):>10}{_text(line.java):>10}"
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        goal = f"   {line.verdict.text}" if line.verdict else ""
        print(f"{line.name:44}{figures}{ratio:>8}{goal}".rstrip())


def _text(figure: float | None) -> str:
    if figure is None:
        return "-"
    return (
        f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"
    )


def report(
    runs: Runs, lines: list[Line], java: str, machine: dict[str, Any], run: dict[str, Any]
) -> dict[str, Any]:
    """Everything that was measured, as JSON data. run: how much was."""
    return {
        "run": {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), **run},
        "java_version": java,
        "machine": machine,
        "rows": [row_of(line) for line in lines],
        "runs": asdict(runs),
    }


def row_of(line: Line) -> dict[str, Any]:
    """A line as JSON data."""
    verdict = None if line.verdict is None else asdict(line.verdict)
    figures = {"ours": line.ours, "java": line.java, "ratio": line.ratio}
    return {"name": line.name, **figures, "goal": verdict}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each row and side (3)")
    parser.add_argument("--rows", help="comma list of " + ", ".join(_ROWS))
    parser.add_argument("--only", choices=list(SIDES), help="measure one side only")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round")
    parser.add_argument("--json", type=Path, default=OUT_DIR / "replication.json")
    parser.add_argument("--dir", type=Path, help="where the stores live while it runs (12 GB)")
    return parser.parse_args(arguments)


def chosen_rows(names: str | None) -> list[str]:
    """The rows of a comma list; raises SystemExit on an unknown name."""
    chosen = list(_ROWS) if names is None else names.split(",")
    unknown = [name for name in chosen if name not in _ROWS]
    if unknown:
        known = ", ".join(_ROWS)
        raise SystemExit(f"replication: no row {', '.join(unknown)}; known: {known}")
    return chosen


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    rows = chosen_rows(options.rows)
    sides = [options.only] if options.only else list(SIDES)
    java = server_version("4.9") if "java" in sides else "-"
    rounds, scale = (1, 0.1) if options.quick else (options.rounds, 1.0)
    # So that SIGTERM ends the brokers and deletes the stores, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("replication: ended by SIGTERM"))
    directory = Path(tempfile.mkdtemp(prefix="replication-", dir=options.dir))
    machine = describe_machine(directory)
    bench = Bench(directory, sides, rounds, scale)
    try:
        for row in rows:
            bench.run(row)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    lines = lines_of(bench.runs)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    data = report(bench.runs, lines, java, machine, {"rounds": rounds, "counts": scale})
    options.json.write_text(json.dumps(data, indent=1))
    print_table(lines, java)
    print(f"written: {options.json}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
