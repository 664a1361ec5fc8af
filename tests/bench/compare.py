"""Our broker, compiled and as sources, against Java's 4.9 and 5.5 in one run: `bin/bench compare`.

Builds loadgen.c, then starts the brokers in turn, --rounds times each for each setup of rows.py,
and each round begins with another one. Each start is on a fresh store directory, with the others
down, is warmed up with 200,000 messages, also in short runs, and then runs the rows of its setup
once. Printed are for each row what each side did: the medians of the rounds (messages a second,
latencies, and the CPU microseconds a message of all processes of the broker together, followed
until it is quiet again, so that dispatch and flush count), and for each start the rate at which
this machine hands out memory that it touches for the first time (it differs from minute to minute)
and anonymous memory; and then, for each goal, the ratios to both Javas and whether it was held.
Rows that take long are measured in the last round only. Rows with a goal of "of_limit" are also run
by the limits: stripped_broker.py and .c, which do no more than what nobody can do without.

--table measures the rows of the goals alone, a quarter as long, five rounds, in about 40 minutes.
Whether the machine was quiet is looked at first (spin_test.py). Which Java releases run is read
from their jars and printed: Maven Central's newest broker of the 4.9 line is 4.9.7
(tests/interop/java_peers.py). Never a timed test: figures are read by people.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from conf.compiled_modules import find_staleness
from tests.bench.alone import Alone
from tests.bench.client_process import missing_tool
from tests.bench.compare_report import Start, print_report, report
from tests.bench.machine import describe_machine
from tests.bench.measuring import (
    BROKERS,
    COMPILED,
    JAVAS,
    KINDS,
    LIMITS,
    OUT_DIR,
    first_touch_gb_s,
    loadgen_has_openssl,
)
from tests.bench.rows import SETUPS, TABLE, all_rows
from tests.bench.session import Lengths, Session
from tests.bench.shapes import Boot, ClientSend, LostError, Shape, has_limit
from tests.interop.harness import REPO_DIR
from tests.interop.processes import PeerError

QUICK = Lengths(counts=0.25, seconds=0.05)
SIDES = (*KINDS, *JAVAS)
_ROUNDS = 5


class Bench:
    """Starts one broker at a time and runs rows in it. Used by one thread."""

    def __init__(self, directory: Path, lengths: Lengths) -> None:
        self._directory = directory
        self._lengths = lengths
        self._starts = 0

    def measure(self, side: str, setup: str, shapes: Sequence[Shape]) -> Start:
        """One start: each shape, all of `setup`, once. One that fails does not end the others."""
        self._starts += 1
        directory = self._directory / f"{self._starts}-{side}"
        if SETUPS[setup].is_alone:
            return self._measure_alone(side, setup, shapes, directory)
        with Session(side, directory, SETUPS[setup], self._lengths) as session:
            start = Start(side, setup, session.first_touch_gb_s, session.idle)
            for shape in shapes:
                _run(start, shape, lambda one: one.run(session))
        return start

    def _measure_alone(
        self, side: str, setup: str, shapes: Sequence[Shape], directory: Path
    ) -> Start:
        start = Start(side, setup, first_touch_gb_s())
        for shape in shapes:

            def run(one: Shape) -> dict[str, float]:
                assert isinstance(one, Alone)
                return one.measure(side, directory / one.name, self._lengths)

            _run(start, shape, run)
        shutil.rmtree(directory, ignore_errors=True)
        return start


def _run(start: Start, shape: Shape, run: Callable[[Shape], dict[str, float]]) -> None:
    """Keep a shape's figures, or why there are none."""
    begin = time.monotonic()
    try:
        start.runs[shape.name] = run(shape)
    except (LostError, PeerError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        start.failures[shape.name] = str(error)
        print(f"  {shape.name}: {error}", file=sys.stderr)
    print(f"  {shape.name}: {time.monotonic() - begin:.1f} s", file=sys.stderr)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round, a quarter of the messages and of the boots' store, 3 s for a minute",
    )
    parser.add_argument(
        "--table", action="store_true", help="the rows of the goals, as quick ones, five rounds"
    )
    parser.add_argument("--only", type=_sides, help=f"comma list of {', '.join(SIDES)}")
    parser.add_argument("--rounds", type=int, help="starts of each broker for each setup (5)")
    names = ", ".join(shape.name for shape in all_rows(1))
    parser.add_argument("--rows", "--shapes", help=f"comma list of {names}")
    parser.add_argument("--factor", type=float, help="on all counts and seconds, for a trial")
    parser.add_argument("--json", type=Path, default=OUT_DIR / "compare.json")
    parser.add_argument("--dir", type=Path, help="where the stores live while it runs")
    parser.add_argument("--boot-gb", type=float, default=1.0, help="size of the store of boots (1)")
    parser.add_argument("--no-boot", action="store_true", help="skip the boots")
    return parser.parse_args(arguments)


def _sides(names: str) -> list[str]:
    """For --only."""
    chosen = names.split(",")
    if unknown := set(chosen) - set(SIDES):
        raise argparse.ArgumentTypeError(f"no side {', '.join(unknown)}")
    return [side for side in SIDES if side in chosen]


def chosen_rows(names: str | None, boot_gb: float) -> list[Shape]:
    """The rows of a comma list, in the table's order; raises SystemExit on an unknown name."""
    known = {shape.name: shape for shape in all_rows(boot_gb)}
    if names is None:
        return list(known.values())
    chosen = names.split(",")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise SystemExit(f"compare: no row {', '.join(unknown)}; known: {', '.join(known)}")
    return [shape for name, shape in known.items() if name in chosen]


def possible_rows(shapes: Sequence[Shape]) -> list[Shape]:
    """Those that this machine can run; says which it cannot, and why."""
    possible = []
    for shape in shapes:
        missing = missing_for(shape)
        if missing is None:
            possible.append(shape)
        else:
            print(f"{shape.name}: not measured, {missing}")
    return possible


def missing_for(shape: Shape) -> str | None:
    """What this machine lacks for a row, in words, or None."""
    if SETUPS[shape.setup].guard and not loadgen_has_openssl():
        return (
            "loadgen is built without OpenSSL: install its headers (libssl-dev), delete out/loadgen"
        )
    tool = missing_tool(shape.language) if isinstance(shape, ClientSend) else None
    return f"there is no {tool} on the PATH" if tool else None


def by_setup(shapes: Sequence[Shape]) -> dict[str, list[Shape]]:
    """The rows of each setup, which are neighbours."""
    return {setup: list(rows) for setup, rows in groupby(shapes, lambda shape: shape.setup)}


def lengths_of(options: argparse.Namespace) -> Lengths:
    if options.factor is not None:
        return Lengths(options.factor, options.factor, options.factor)
    return QUICK if options.quick or options.table else Lengths()


def rounds_of(options: argparse.Namespace) -> int:
    if options.rounds is not None:
        return int(options.rounds)
    return 1 if options.quick else _ROUNDS


def possible_sides(sides: Sequence[str]) -> list[str]:
    """Those that can be started here: compiled modules are made where they are not of these
    sources; says why where they cannot."""
    if COMPILED not in sides or find_staleness() is None:
        return list(sides)
    print("compiling", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "tools.mqcompile"]
    done = subprocess.run(command, cwd=REPO_DIR, capture_output=True, text=True, check=False)
    why = find_staleness()
    if why is None:
        return list(sides)
    print(f"{COMPILED}: not measured, {why}\n{done.stdout}{done.stderr}", file=sys.stderr)
    return [side for side in sides if side != COMPILED]


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    options = parse(arguments)
    names = ",".join(TABLE) if options.table and options.rows is None else options.rows
    shapes = chosen_rows(names, options.boot_gb)
    if options.no_boot:
        shapes = [shape for shape in shapes if not isinstance(shape, Boot)]
    # So that SIGTERM ends the brokers and deletes the stores, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("compare: ended by SIGTERM"))
    directory = Path(tempfile.mkdtemp(prefix="compare-", dir=options.dir))
    machine = describe_machine(directory)
    shapes = possible_rows(shapes)
    rounds = rounds_of(options)
    wanted = options.only or SIDES
    sides = possible_sides([side for side in wanted if any(side in row.sides for row in shapes)])
    java = {side: BROKERS[side].version for side in sides if side in JAVAS}
    bench = Bench(directory, lengths_of(options))
    starts: list[Start] = []
    try:
        for number in range(rounds):
            due = rows_of_round(shapes, is_last=number == rounds - 1)
            for setup, rows in by_setup(due).items():
                for side, of_side in turns(rotated(sides, number), rows).items():
                    print(f"round {number + 1} of {rounds}: {side}, {setup}", file=sys.stderr)
                    starts.append(bench.measure(side, setup, of_side))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if starts:  # what was measured before an error or ^C, too
            run = description(options, rounds, time.monotonic() - began)
            finish(report(starts, shapes, java, machine, run), options.json)
    return 1 if any(start.failures for start in starts) else 0


def rows_of_round(shapes: Sequence[Shape], *, is_last: bool) -> list[Shape]:
    """Without those that are measured once, but in the last."""
    return [shape for shape in shapes if is_last or not shape.is_once]


def rotated(sides: Sequence[str], number: int) -> list[str]:
    """The sides of a round: whoever is first is not first in the next one."""
    first = number % len(sides)
    return [*sides[first:], *sides[:first]]


def turns(sides: Sequence[str], rows: Sequence[Shape]) -> dict[str, Sequence[Shape]]:
    """Who runs which rows of a setup; the limits are measured when one of ours and one of Java's
    are."""
    found = {side: [row for row in rows if side in row.sides] for side in sides}
    limited = [shape for shape in rows if has_limit(shape)]
    if set(sides) & set(KINDS) and set(sides) & set(JAVAS):
        found |= dict.fromkeys(LIMITS, limited)
    return {side: of_side for side, of_side in found.items() if of_side}


def description(options: argparse.Namespace, rounds: int, took_s: float) -> dict[str, Any]:
    """When it was measured, and how: what the page says above the table."""
    lengths = lengths_of(options)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "rounds": rounds,
        "counts": lengths.counts,
        "seconds": lengths.seconds,
        "took_s": round(took_s),
    }


def finish(data: dict[str, Any], path: Path) -> None:
    """Write and print a report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1))
    print_report(data)
    print(f"written: {path}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
