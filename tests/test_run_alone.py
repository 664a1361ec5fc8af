"""The second run of what failed beside other tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.run_alone import MOST_TESTS, failed_tests, main

# Its file's mark tells the second run from the first.
_FAILS_ONCE = """\
from pathlib import Path

def test_once():
    mark = Path(__file__).with_suffix(".mark")
    again = mark.exists()
    mark.touch()
    assert again

def test_always():
    assert 0
"""


def results_file(tmp_path: Path, outcomes: dict[str, str]) -> Path:
    path = tmp_path / "results.json"
    tests = {name: {"outcome": outcome} for name, outcome in outcomes.items()}
    path.write_text(json.dumps({"tests": tests}))
    return path


def test_only_what_failed_runs_again(tmp_path: Path) -> None:
    outcomes = {"a::b": "failed", "c::d": "passed", "e::f": "skipped", "g::h[1]": "failed"}
    assert failed_tests(results_file(tmp_path, outcomes)) == ["a::b", "g::h[1]"]


@pytest.mark.parametrize("count", [0, MOST_TESTS + 1])
def test_none_or_too_many(tmp_path: Path, count: int, capfd: pytest.CaptureFixture[str]) -> None:
    outcomes = {f"no_such_file.py::test_{number}": "failed" for number in range(count)}
    assert main(results_file(tmp_path, {"a::b": "passed", **outcomes})) == 1
    assert f"{count} tests failed: none is run again" in capfd.readouterr().out


def test_a_defect_is_named_and_a_failure_stays_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    example = tmp_path / "test_example.py"
    example.write_text(_FAILS_ONCE)
    once, always = f"{example}::test_once", f"{example}::test_always"
    results = results_file(tmp_path, {once: "failed"})
    assert main(results) == 1
    assert "DEFECT" not in capfd.readouterr().out
    assert main(results) == 0
    assert f"DEFECT: failed beside other tests, passed alone: {once}" in capfd.readouterr().out
    assert main(results_file(tmp_path, {once: "failed", always: "failed"})) == 1
    assert "DEFECT" not in capfd.readouterr().out
