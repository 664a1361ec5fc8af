"""Our broker against Java's 4.9 broker in one run: `bin/bench compare`.

Builds loadgen.c, then starts the two brokers in turn (ours, Java, ours ...; --rounds times each and
for each setup of rows.py), each on a fresh store directory and with the other one down. Every start
is warmed up with 200,000 messages, then runs the rows of its setup once. Printed for each row: the
medians of the rounds (messages a second, latencies, and the CPU microseconds a message of all
processes of the broker together, followed until it is quiet again, so that dispatch and flush
count), the ratio ours/Java, and the row's goals. Beside them, for each start: the rate at which
this machine hands out memory that it touches for the first time (it differs from minute to
minute), and anonymous memory. Boots are measured in the last round only. Rows with a goal of
"of_limit" are also run by stripped_broker.py, which does no more than what nobody can do without.

Which Java release runs is read from its jar and printed: Maven Central's newest broker of the 4.9
line is 4.9.7 (tests/interop/java_peers.py). Never a timed test: figures are read by people.
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
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.bench.client_process import missing_tool
from tests.bench.compare_report import Start, print_report, report
from tests.bench.machine import describe_machine
from tests.bench.measuring import LIMIT, OUT_DIR, SIDES, loadgen_has_openssl
from tests.bench.rows import SETUPS, all_rows
from tests.bench.session import Lengths, Session
from tests.bench.shapes import Boot, ClientSend, LostError, Shape, has_limit
from tests.interop.java_peers import server_version
from tests.interop.processes import PeerError

QUICK = Lengths(counts=0.25, seconds=0.05)


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
        with Session(side, directory, SETUPS[setup], self._lengths) as session:
            start = Start(side, setup, session.first_touch_gb_s, session.rss_anon_idle)
            for shape in shapes:
                begin = time.monotonic()
                try:
                    start.runs[shape.name] = shape.run(session)
                except (LostError, PeerError, RuntimeError, subprocess.SubprocessError) as error:
                    start.failures[shape.name] = str(error)
                    print(f"  {shape.name}: {error}", file=sys.stderr)
                took_s = time.monotonic() - begin
                print(f"  {shape.name}: {took_s:.1f} s", file=sys.stderr)
        return start


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round, a quarter of the messages and of the boots' store, 3 s for a minute",
    )
    parser.add_argument("--only", choices=list(SIDES), help="measure one broker only")
    parser.add_argument("--rounds", type=int, help="starts of each broker for each setup (3)")
    names = ", ".join(shape.name for shape in all_rows(1))
    parser.add_argument("--rows", "--shapes", help=f"comma list of {names}")
    parser.add_argument("--factor", type=float, help="on all counts and seconds, for a trial")
    parser.add_argument("--json", type=Path, default=OUT_DIR / "compare.json")
    parser.add_argument("--dir", type=Path, help="where the stores live while it runs")
    parser.add_argument("--boot-gb", type=float, default=1.0, help="size of the store of boots (1)")
    parser.add_argument("--no-boot", action="store_true", help="skip the boots")
    return parser.parse_args(arguments)


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
        return Lengths(options.factor, options.factor)
    return QUICK if options.quick else Lengths()


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    options = parse(arguments)
    shapes = chosen_rows(options.rows, options.boot_gb)
    if options.no_boot:
        shapes = [shape for shape in shapes if not isinstance(shape, Boot)]
    shapes = possible_rows(shapes)
    rounds = options.rounds or (1 if options.quick else 3)
    sides = [options.only] if options.only else list(SIDES)
    java = server_version("4.9") if "java" in sides else "-"
    # So that SIGTERM ends the brokers and deletes the stores, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("compare: ended by SIGTERM"))
    directory = Path(tempfile.mkdtemp(prefix="compare-", dir=options.dir))
    machine = describe_machine(directory)
    bench = Bench(directory, lengths_of(options))
    starts: list[Start] = []
    try:
        for number in range(rounds):
            for setup, rows in by_setup(shapes).items():
                if setup == "boot" and number < rounds - 1:
                    continue
                for side, of_side in turns(sides, rows).items():
                    print(f"round {number + 1} of {rounds}: {side}, {setup}", file=sys.stderr)
                    starts.append(bench.measure(side, setup, of_side))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if starts:  # what was measured before an error or ^C, too
            run = description(options, rounds, time.monotonic() - began)
            finish(report(starts, shapes, java, machine, run), options.json)
    return 1 if any(start.failures for start in starts) else 0


def turns(sides: Sequence[str], rows: Sequence[Shape]) -> dict[str, Sequence[Shape]]:
    """Who runs which rows of a setup; the limit is measured when both brokers are."""
    found = dict.fromkeys(sides, rows)
    limited = [shape for shape in rows if has_limit(shape)]
    return {**found, LIMIT: limited} if limited and len(sides) == len(SIDES) else found


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
