"""Fuzz one target, or all: python -m tests.fuzz TARGET|--all [--seconds N] [--seed S] [--keep].

    python -m tests.fuzz --list
    python -m tests.fuzz requests --seconds 3600 --keep
    python -m tests.fuzz complexity --seconds 3600
    python -m tests.fuzz requests --repeat tests/fuzz/crashes/requests/0123456789abcdef

Exit code 0: nothing was found; 1: something was, saved below tests/fuzz/crashes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz import complexity
from tests.fuzz.campaign import Outcome, has_coverage, run_guided, run_plain
from tests.fuzz.corpus import keep
from tests.fuzz.execution import Execution
from tests.fuzz.table import MODULES, find_target
from tests.fuzz.target import Target


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", nargs="?", choices=[*MODULES, "complexity", []], metavar="TARGET")
    parser.add_argument("--all", action="store_true", help="every target, one after the other")
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each target [10]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="add what reached more to the corpus")
    parser.add_argument("--no-coverage", action="store_true", help="even where atheris is there")
    parser.add_argument("--repeat", type=Path, metavar="INPUT", help="run this input only")
    given = parser.parse_args()
    if given.list:
        for name in MODULES:
            print(f"{name:<16} {find_target(name).what}")
        print(f"{'complexity':<16} what every place of a request costs as it grows")
        return 0
    if not given.all and not given.target:
        parser.error("a target, --all or --list is needed")
    if given.target == "complexity":
        return _complexity(given.seconds, given.seed)
    if given.repeat:
        return _repeat(find_target(given.target), given.repeat)
    guided = has_coverage() and not given.no_coverage
    if not guided:
        print("without coverage: seeded changes only (pip install '.[fuzz]' installs atheris)")
    crashes = 0
    for name in MODULES if given.all else [given.target]:
        target = find_target(name)
        outcome = (run_guided if guided else run_plain)(target, given.seconds, given.seed)
        kept = keep(target, outcome.found) if given.keep else 0
        _print(target, outcome, kept)
        crashes += len(outcome.crashes)
    return 1 if crashes else 0


def _complexity(seconds: float, seed: int) -> int:
    """The exit code."""
    found = 0
    for kind, share in complexity.SHARES.items():
        outcome = complexity.run(kind, share * seconds, seed)
        print(
            f"complexity of {kind}: {outcome.trials} places grown, {outcome.left} left, "
            f"{len(outcome.findings)} findings",
            flush=True,
        )
        for name, words in sorted(outcome.findings.items()):
            print(f"  {name}\n    {words}", flush=True)
        for longest_s, name in sorted(outcome.longest)[:-6:-1]:
            print(f"  no finding: {1000 * longest_s:.1f} ms  {name}", flush=True)
        found += len(outcome.findings)
    return 1 if found else 0


def _print(target: Target, outcome: Outcome, kept: int) -> None:
    rate = outcome.executions / max(outcome.seconds, 0.001)
    edges = "" if outcome.edges is None else f", {outcome.edges} edges"
    found = "" if outcome.edges is None else f", {len(outcome.found)} new inputs ({kept} kept)"
    print(
        f"{target.name}: {outcome.executions} executions, {rate:.0f}/s{edges}{found}, "
        f"{len(outcome.crashes)} findings",
        flush=True,
    )
    for key, path in outcome.crashes.items():
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        print(f"  {key}\n    python -m tests.fuzz {target.name} --repeat {shown}", flush=True)


def _repeat(target: Target, path: Path) -> int:
    with Execution(target) as execution:
        finding = execution.run(path.read_bytes())
    print("nothing happens" if finding is None else f"{finding.key}\n\n{finding.text}")
    return 0 if finding is None else 1


if __name__ == "__main__":
    sys.exit(main())
