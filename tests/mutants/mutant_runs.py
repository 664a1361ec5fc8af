"""Runs checks on mutants: in a temporary copy of the tree, one change at a time, undone afterwards.

The checkout is only read. A check has noticed a mutant if pytest ends with the code of failed tests
(1): a collection error, a usage error and a run that hangs are none. Before any mutant all checks
have to pass in the copy as it is: what fails there says nothing about a mutant.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.mutant import ROOT, Mutant, MutantError

_LEFT_OUT: Final = (
    *(".git", ".venv*", ".ci", "build", "dist", "target", "lib-*", "*.egg-info"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"),
)
_CHECK_S: Final = 300.0
_CHAOS_S: Final = 3_600.0
OWN: Final = "own"
_FAILED: Final = 1
_SHOWN: Final = 1500


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run. code None: it did not end."""

    code: int | None
    output: str

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return self.code == 0

    @property
    def has_failed(self) -> bool:
        """Whether a test, or a promise, failed, and nothing else went wrong."""
        return self.code == _FAILED and "no tests ran" not in self.output

    @property
    def violations(self) -> str:
        """What bin/mqchaos said of its seeds and their violations."""
        lines = self.output.splitlines()
        return "\n".join(
            line for line in lines if line.startswith(("seed ", "  ")) and line[2] != " "
        )

    @property
    def end(self) -> str:
        """The last lines of what pytest said."""
        return self.output[-_SHOWN:]


class MutantTree:
    """A copy of the tree in which mutants are applied. One thread."""

    def __init__(self, directory: Path, root: Path = ROOT) -> None:
        """directory: is made, and belongs to the caller. Raises OSError."""
        self._root = directory
        shutil.copytree(root, directory, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)

    def run(self, checks: Sequence[str]) -> Outcome:
        """These tests, as the tree is now."""
        arguments = ["-n", "0", "-x", "-q", "--no-header"]
        arguments += ["-p", "no:cacheprovider", "--tb=line", "-rN", *checks]
        return self._run("pytest", arguments, _CHECK_S)

    def judge(self, mutant: Mutant, checks: Sequence[str] = ()) -> Outcome:
        """Run a mutant's checks, or others, with its change. Raises MutantError, OSError."""
        with self._changed(mutant):
            return self.run(checks or mutant.checks)

    def break_it(self, mutant: Mutant, options: Sequence[str]) -> Outcome:
        """Run bin/mqchaos with its change: it has noticed a mutant if it ends with 1, that of a
        broken promise. Raises MutantError, OSError."""
        with self._changed(mutant):
            return self._run("tools.mqchaos", options, _CHAOS_S)

    @contextlib.contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[None]:
        path = self._root / mutant.module
        before, times = path.read_text(), path.stat()
        path.write_text(mutant.changed(self._root))
        try:
            yield
        finally:
            path.write_text(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _run(self, module: str, arguments: Sequence[str], most_s: float) -> Outcome:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._root),
            "PYTHONSAFEPATH": "1",
            # A changed module must never run as it was compiled before. What the checkout has
            # compiled is copied with its times, so that the others do.
            "PYTHONDONTWRITEBYTECODE": "1",
            "ROCKETMQ_COMPILED": "off",
            "TESTS_COMPILE": "",
            # What it leaves goes with the copy.
            "TMPDIR": str(self._root.parent),
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", module, *arguments],
                cwd=self._root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=most_s,
            )
        except subprocess.TimeoutExpired:
            return Outcome(None, f"no end after {most_s:.0f} s")
        return Outcome(done.returncode, done.stdout)


def judge_all(
    tree: MutantTree, mutants: Sequence[Mutant], say: object = None
) -> dict[str, Outcome]:
    """The outcome of each by name. Raises MutantError: the checks do not even pass without one."""
    checks = sorted({check for mutant in mutants for check in mutant.checks})
    unchanged = tree.run(checks)
    if not unchanged.passed:
        raise MutantError(f"the checks fail without a mutant:\n{unchanged.end}")
    outcomes = {}
    for mutant in mutants:
        outcome = outcomes[mutant.name] = tree.judge(mutant)
        if callable(say):
            say(mutant, outcome)
    return outcomes


def break_all(
    tree: MutantTree, mutants: Sequence[Mutant], options: str, say: object = None
) -> dict[str, Outcome]:
    """What bin/mqchaos makes of each by name. options: its own, or "own" for those that the mutant
    names."""
    outcomes = {}
    for mutant in mutants:
        words = shlex.split(mutant.mqchaos if options == OWN else options)
        outcome = outcomes[mutant.name] = tree.break_it(mutant, words)
        if callable(say):
            say(mutant, outcome)
    return outcomes
