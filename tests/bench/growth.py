"""How the cost of a message grows: `bin/bench growth` (or `python -m tests.bench.growth`).

For each curve (--curves chooses: stored, topics, connections, parked, size, slaves, groups) and
each of its points a broker on a fresh store; the state is built up, then the load runs --rounds
times. Measured are messages a second and microseconds of processor time a message (all processes of
the broker together, followed until it is quiet again). Printed are the medians, and whether the
last point's cost is within 1.3 times the first's. --java: Java's 4.9 broker beside ours, but for
slaves. Everything also goes to --json, from which `python -m tests.bench.growth_page` writes
docs/growth.md; --pictures DIR draws each curve. --keep: curve by curve, in several runs of one day.

The whole run takes about 12 minutes on two free cores, and 22 GB of disk for "stored" with 6 GB for
the rest: --max stored=5 ends that curve at 5 GB. --quick: three smaller points of each, a tenth of
the messages, one round.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.bench.broker_figures import allow_descriptors
from tests.bench.growth_curves import (
    CURVES,
    Curve,
    Point,
    Report,
    Verdict,
    label,
    points_up_to,
    series,
)
from tests.bench.growth_states import MEASURES, PARKED_ON_ONE, Site
from tests.bench.machine import describe_machine
from tests.bench.measuring import OUT_DIR
from tests.interop.java_peers import server_version

MESSAGES: Final = 200_000
ROUNDS: Final = 3
_BROKERS_OWN: Final = 200
"""Descriptors besides the connections."""
_FULLEST: Final = 0.88
"""Of a disk; from 0.9 on a broker refuses sends."""
_BESIDE_GB: Final = 6.0
"""What loads and files that are made ahead take, in any curve."""
_DERIVED: Final = 1.1
"""The log with its consume queues and indexes, of the log."""

Plan = Mapping[str, Sequence[float]]
"""Name of a curve -> the points that are measured."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--curves", help="comma list of " + ", ".join(CURVES))
    parser.add_argument("--java", action="store_true", help="Java's 4.9 broker, too")
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller points, fewer messages"
    )
    parser.add_argument(
        "--max", action="append", default=[], metavar="CURVE=N", help="its last point"
    )
    parser.add_argument("--messages", type=int, help=f"sent in a round ({MESSAGES})")
    parser.add_argument("--rounds", type=int, help=f"of each point ({ROUNDS})")
    parser.add_argument("--json", type=Path, default=OUT_DIR / "growth.json")
    parser.add_argument(
        "--keep", action="store_true", help="the other curves stay in --json, if measured alike"
    )
    parser.add_argument("--pictures", type=Path, help="a directory for growth-CURVE.svg")
    parser.add_argument("--dir", type=Path, help="where the stores live while it runs")
    options = parser.parse_args(arguments)
    if options.messages is None:
        options.messages = MESSAGES // 10 if options.quick else MESSAGES
    if options.rounds is None:
        options.rounds = 1 if options.quick else ROUNDS
    if options.messages < 1 or options.rounds < 1:
        parser.error("--messages and --rounds must be at least 1")
    try:
        options.plan = plan(options.curves, options.max, quick=options.quick)
    except ValueError as error:
        parser.error(str(error))
    return options


def plan(names: str | None, limits: Sequence[str], *, quick: bool) -> Plan:
    """The points of the chosen curves. Raises ValueError in words."""
    chosen = list(CURVES) if names is None else names.split(",")
    most: dict[str, float] = {}
    for limit in limits:
        name, _, number = limit.partition("=")
        try:
            most[name] = float(number)
        except ValueError as error:
            raise ValueError(f"--max {limit}: not CURVE=NUMBER") from error
    unknown = [name for name in (*chosen, *most) if name not in CURVES]
    if unknown:
        raise ValueError(f"no curve {', '.join(unknown)}; known: {', '.join(CURVES)}")
    if absent := most.keys() - chosen:
        raise ValueError(f"--max {', '.join(sorted(absent))}: not among the chosen curves")
    found = {}
    for name in chosen:
        points = CURVES[name].quick if quick else CURVES[name].points
        try:
            found[name] = points_up_to(points, most[name]) if name in most else points
        except ValueError as error:
            raise ValueError(f"--max {name}={most[name]:g}: {error}") from error
    return found


def descriptors(points: Plan) -> int:
    """How many this process or a broker needs at most."""
    parked = max(points.get("parked", (0,))) / PARKED_ON_ONE
    return int(max(*points.get("connections", (0,)), parked)) + _BROKERS_OWN


def check_disk(directory: Path, points: Plan) -> None:
    """Raises SystemExit in words when it would get too full for a broker."""
    found = os.statvfs(directory)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    free_gb = (_FULLEST * (used + found.f_bavail * found.f_frsize) - used) / 1e9
    stored = max(points.get("stored", (0,)))
    needed_gb = _BESIDE_GB + _DERIVED * stored
    if free_gb >= needed_gb:
        return
    fits = int((free_gb - _BESIDE_GB) / _DERIVED)
    way_out = f"name another disk with --dir{f' or end at --max stored={fits}' if fits > 0 else ''}"
    raise SystemExit(
        f"growth: {needed_gb:.0f} GB of disk are needed, {directory.parent} takes "
        f"{max(0.0, free_gb):.0f} GB until it is {_FULLEST:.0%} full: {way_out}"
    )


class Bench:
    """Measures curve after curve; what is done is in the JSON file at once."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self._options = options
        sides = ("ours", "java") if options.java else ("ours",)
        self._java_version = server_version("4.9") if options.java else "-"
        self._sites = [
            Site(directory / side, side, options.messages, options.rounds) for side in sides
        ]
        self._machine = describe_machine(directory)
        self._curves: dict[str, Sequence[Point]] = {}
        if options.keep and options.json.exists():
            self._curves = kept(options.json, self.report())

    def run(self, curve: Curve, points: Sequence[float]) -> None:
        """All points on all sides."""
        began = time.monotonic()
        found: list[Point] = []
        self._curves[curve.name] = found
        for site in self._sites:
            if site.side not in curve.sides:
                continue
            for point in MEASURES[curve.name](site, points):
                found.append(point)
                print(line(curve, point), flush=True)
        for verdict in verdicts(found):
            print(f"{'':12} {verdict}", flush=True)
        print(f"{'':12} took {time.monotonic() - began:.0f} s", flush=True)
        self._options.json.write_text(self.report().to_json())

    def report(self) -> Report:
        """Everything that was measured so far."""
        return Report(
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            java_version=self._java_version,
            machine=self._machine,
            python=platform.python_version(),
            messages=self._options.messages,
            rounds=self._options.rounds,
            curves={name: self._curves[name] for name in CURVES if name in self._curves},
        )


def kept(path: Path, now: Report) -> dict[str, Sequence[Point]]:
    """The curves of an earlier run, which must have been of the same day, machine, rounds and
    messages as `now`. Raises SystemExit in words."""
    try:
        before = Report.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SystemExit(f"growth: --keep: {path}: {error}") from error
    if replace(before, curves={}) != replace(now, curves={}):
        raise SystemExit(
            f"growth: --keep: {path} is of another day, machine, or count of rounds or messages: "
            "name another file with --json, or measure all curves"
        )
    return dict(before.curves)


def line(curve: Curve, point: Point) -> str:
    """One point, for people."""
    refused = f", {point.refused} refused" if point.refused else ""
    return (
        f"{curve.name:12} {label(curve.name, point.at):>8} {point.side:4} {point.kind:4} "
        f"{point.speed:>11,.0f} msg/s {point.cost:>10.2f} us{refused}, {point.stolen:.0%} stolen"
    )


def verdicts(points: Sequence[Point]) -> list[str]:
    """One for each side and kind of load."""
    found = []
    for (side, kind), of_it in series(points).items():
        verdict = Verdict.of([point.cost for point in of_it])
        found.append(f"{side} {kind}: {verdict.word}, last / first {verdict.ratio:.2f}")
    return found


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.pictures:
        # Before an hour is spent: who has no matplotlib learns it now.
        from tests.bench.growth_pictures import draw_all
    allow_descriptors(descriptors(options.plan))
    # So that SIGTERM ends the brokers and deletes the stores, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("growth: ended by SIGTERM"))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="growth-", dir=options.dir))
    try:
        check_disk(directory, options.plan)
        bench = Bench(options, directory)
        for name, points in options.plan.items():
            bench.run(CURVES[name], points)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"written: {options.json}")
    if options.pictures:
        for path in draw_all(bench.report(), options.pictures):
            print(f"written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
