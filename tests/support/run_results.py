"""The results of a run as a file, for pages that say which promise was seen to hold, and when.

`pytest --results FILE` writes it (tests/conftest.py), with or without workers; it runs in the
process that collects the reports. One JSON object:

    commit, changed    what was checked out, and whether the working tree differed from it
    began              UTC, ISO 8601
    machine, python    for the reader
    arguments          of pytest
    tests              node id to {outcome, seconds, proved}; outcome: passed, failed, skipped

A test that did not run is not there. `read_results` joins files of the same commit.
"""

from __future__ import annotations

import enum
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_WORST_FIRST: Final = ("failed", "skipped", "passed")
_CODE: Final = re.compile(r"(?<![\w])[AS][1-4](?![\w])")
PROVED_KEY: Final = "proved"
"""User property of a test: a sentence of the fixture `proved`."""


# -- writing ------------------------------------------------------------------------------------


class ResultsFile:
    """A pytest plugin: collects the reports, writes the file when the session ends."""

    def __init__(self, path: Path, arguments: Sequence[str]) -> None:
        self._path = path
        self._head = {**_checkout(), **_machine(), "arguments": list(arguments)}
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of setup, call and teardown: the worst of them counts, and the time of all."""
        test = self._tests.setdefault(
            report.nodeid, {"outcome": report.outcome, "seconds": 0.0, "proved": []}
        )
        test["outcome"] = min(test["outcome"], report.outcome, key=_WORST_FIRST.index)
        test["seconds"] = round(test["seconds"] + report.duration, 3)
        if report.when == "call":
            test["proved"] = [text for key, text in report.user_properties if key == PROVED_KEY]

    def pytest_sessionfinish(self) -> None:
        """Replaces the file whole."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**self._head, "tests": self._tests}, indent=0)
        part = self._path.with_suffix(".part")
        part.write_text(text + "\n")
        part.replace(self._path)


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _checkout() -> dict[str, Any]:
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _machine() -> dict[str, Any]:
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return {
        "machine": f"{system}, {os.cpu_count()} cores, {memory_gib:.0f} GiB",
        "python": platform.python_version(),
    }


# -- reading ------------------------------------------------------------------------------------


class ResultsError(Exception):
    """A results file that cannot be used; the text names it and what to do."""


class Verdict(enum.Enum):
    """Of one test, or of all that a promise rests on. What was skipped was not run."""

    GREEN = "green"
    RED = "red"
    NOT_RUN = "not run"

    @classmethod
    def of_all(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Red if one is, green only if all are; NOT_RUN without any."""
        found = set(verdicts)
        if cls.RED in found:
            return cls.RED
        return cls.GREEN if found == {cls.GREEN} else cls.NOT_RUN


@dataclass(frozen=True, slots=True)
class Run:
    """The head of one file."""

    commit: str
    changed: bool
    began: str
    machine: str
    python: str
    arguments: tuple[str, ...]
    counts: Mapping[str, int]
    """Outcome to how many tests."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one node id, over all runs of the commit: the worst of them."""

    outcome: str
    seconds: float
    proved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """Runs of one commit, the oldest first, and how every test ended in them."""

    runs: tuple[Run, ...]
    outcomes: Mapping[str, Outcome]
    left_out: int = 0
    """Files of other commits."""

    def of(self, test: str, code: str | None = None) -> dict[str, Outcome]:
        """Node ids of `test` ("path::function", or with "[parameters]" one of them) and how they
        ended. Of a test that has cases for the codes of settings, only those of `code`."""
        found = {
            node: outcome
            for node, outcome in self.outcomes.items()
            if node == test or node.startswith(f"{test}[")
        }
        if code is None or "[" in test:
            return found
        codes = {node: _CODE.findall(node.partition("[")[2]) for node in found}
        if not any(codes.values()):
            return found
        return {node: outcome for node, outcome in found.items() if code in codes[node]}

    def verdict(self, test: str, code: str | None = None) -> Verdict:
        """Red if a case failed; green if cases passed and none failed."""
        ended = {outcome.outcome for outcome in self.of(test, code).values()}
        if "failed" in ended:
            return Verdict.RED
        return Verdict.GREEN if "passed" in ended else Verdict.NOT_RUN


def read_results(paths: Iterable[Path]) -> Results:
    """Joins the files that are of the same commit as the newest of them. Raises ResultsError."""
    files = sorted((_read(path) for path in paths), key=lambda found: str(found["began"]))
    if not files:
        raise ResultsError("there are no results: run bin/test --slow, or pytest --results FILE")
    newest = files[-1]
    same = [
        f for f in files if (f["commit"], f["changed"]) == (newest["commit"], newest["changed"])
    ]
    outcomes: dict[str, Outcome] = {}
    for found in same:
        for node, test in found["tests"].items():
            new = Outcome(test["outcome"], test["seconds"], tuple(test["proved"]))
            old = outcomes.get(node, new)
            outcomes[node] = min(new, old, key=lambda each: _WORST_FIRST.index(each.outcome))
    return Results(tuple(map(_run, same)), outcomes, len(files) - len(same))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        _run(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsError(f"{path}: no results of a run ({error!r}): delete it") from error
    return dict(found)


def _run(found: Mapping[str, Any]) -> Run:
    ended = [test["outcome"] for test in found["tests"].values()]
    return Run(
        commit=found["commit"],
        changed=found["changed"],
        began=found["began"],
        machine=found["machine"],
        python=found["python"],
        arguments=tuple(found["arguments"]),
        counts={outcome: ended.count(outcome) for outcome in ("passed", "failed", "skipped")},
    )
