"""The results file of a run, and the page that is made of it: missing is never green."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import durability_page
from tests.durability_page import document
from tests.durability_table import CODES, PAGE, ROOT, TEST, faults
from tests.support.run_results import ResultsError, Verdict, read_results

TABLE = """\
# Durability

## Floods

| settings | may be lost | how long |
|---|---|---|
| A1, A2, A3, A4, S1, S2, S3 | nothing | at once |
| S4 | all | never |

- tests/a.py::test_each (A1, A2, A3, A4)
- tests/a.py::test_whole (A1, A2, A3, A4)
- tests/a.py::test_sizes[small] (S1, S2, S3)
- **no test** (S4)

## Seeds

| command | seeds |
"""
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def results_file(path: Path, tests: dict[str, str], **head: Any) -> Path:
    """As a run writes it; tests: node id to outcome."""
    standard = {
        "commit": "c" * 40,
        "changed": False,
        "began": "2026-11-23T10:00:00+00:00",
        "machine": "Linux, 2 cores",
        "python": "3.11.2",
        "arguments": ["-m", "not long"],
    }
    found = {
        node: {"outcome": outcome, "seconds": 1.5, "proved": [f"{node} saw it"]}
        for node, outcome in tests.items()
    }
    path.write_text(json.dumps({**standard, **head, "tests": found}))
    return path


def verdicts(page: str) -> dict[str, str]:
    """Code to what the first table of verdicts says of it."""
    (line,) = [line for line in page.splitlines() if line.startswith("| Floods |")]
    return dict(zip(CODES, [cell.strip() for cell in line.split("|")[2:-1]], strict=True))


EACH = {f"tests/a.py::test_each[{code}]": PASSED for code in CODES}
WHOLE = {"tests/a.py::test_whole[1-x]": PASSED, "tests/a.py::test_sizes[small]": PASSED}


def test_all_that_ran_is_green_and_what_has_no_test_is_not(tmp_path: Path) -> None:
    page = document(TABLE, read_results([results_file(tmp_path / "r.json", EACH | WHOLE)]))
    assert verdicts(page) == dict.fromkeys(CODES, "green") | {"S4": "*not run*"}
    assert "cccccccccccc" in page
    assert "with changes" not in page
    assert (
        "| 2026-11-23T10:00:00+00:00 | cccccccccccc | 10 | 0 | 0 | 3.11.2 | Linux, 2 cores |"
        in page
    )
    assert "\n- 2026-11-23T10:00:00+00:00: `-m not long`\n" in page
    assert "| A1, A2, A3, A4 | tests/a.py::test_each | green | 6.0 |" in page
    assert "\nWhat `test_each` reports:\n\n- tests/a.py::test_each[A1] saw it\n" in page
    assert page.endswith("## Seeds\n\n| command | seeds |\n")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tests/a.py::test_each[A3]": FAILED}, {"A3": "**RED**"}),
        ({"tests/a.py::test_each[A3]": SKIPPED}, {"A3": "*not run*"}),
        ({"tests/a.py::test_each[A3]": None}, {"A3": "*not run*"}),
        ({"tests/a.py::test_whole[2-x]": FAILED}, dict.fromkeys(CODES[:4], "**RED**")),
        ({"tests/a.py::test_whole[1-x]": None}, dict.fromkeys(CODES[:4], "*not run*")),
        ({"tests/a.py::test_whole_else": FAILED}, {}),
        ({"tests/a.py::test_sizes[large]": FAILED}, {}),
        ({"tests/a.py::test_sizes[small]": None}, dict.fromkeys(CODES[4:7], "*not run*")),
        (
            {"tests/a.py::test_each[A3]": None, "tests/a.py::test_whole[1-x]": FAILED},
            dict.fromkeys(CODES[:4], "**RED**"),
        ),
    ],
)
def test_what_did_not_pass_is_not_green(
    tmp_path: Path, changes: dict[str, str | None], expected: dict[str, str]
) -> None:
    ran = {node: end for node, end in (EACH | WHOLE | changes).items() if end is not None}
    page = document(TABLE, read_results([results_file(tmp_path / "r.json", ran)]))
    wanted = dict.fromkeys(CODES, "green") | {"S4": "*not run*"} | expected
    assert verdicts(page) == wanted


def test_files_of_one_commit_are_joined_and_a_failure_stays(tmp_path: Path) -> None:
    """The later file's commit counts; what another commit showed is left out."""
    old = results_file(
        tmp_path / "old.json", EACH | WHOLE, commit="a" * 40, began="2026-11-22T10:00:00+00:00"
    )
    slow = results_file(tmp_path / "slow.json", {"tests/a.py::test_each[A1]": FAILED} | WHOLE)
    again = results_file(
        tmp_path / "long.json", {"tests/a.py::test_each[A1]": PASSED}, began="2026-11-23T12:00:00"
    )
    results = read_results([again, old, slow])
    assert [run.commit[0] for run in results.runs] == ["c", "c"]
    assert results.left_out == 1
    assert results.verdict("tests/a.py::test_each", "A1") is Verdict.RED
    assert results.verdict("tests/a.py::test_each", "A2") is Verdict.NOT_RUN
    assert "Results of other commits that are not counted: 1." in document(TABLE, results)


def test_changes_that_are_not_committed_are_said(tmp_path: Path) -> None:
    clean = results_file(tmp_path / "clean.json", EACH, began="2026-11-23T09:00:00+00:00")
    results = read_results([results_file(tmp_path / "r.json", WHOLE, changed=True), clean])
    assert results.left_out == 1
    assert "| cccccccccccc with changes |" in document(TABLE, results)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tests": {"x": 1}}'])
def test_a_file_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"broken\.json: no results of a run"):
        read_results([path])


def test_without_results_there_is_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(durability_page, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["page", "--output", str(tmp_path / "page.md")])
    assert durability_page.main() == 1
    assert "there are no results: run bin/test --slow" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


def test_every_named_test_of_the_real_page_is_asked_for(tmp_path: Path) -> None:
    """With each named test passed, for each code, everything that has a test is green."""
    text = PAGE.read_text()
    ran = dict.fromkeys(TEST.findall(text), PASSED)
    page = document(text, read_results([results_file(tmp_path / "r.json", ran)]))
    for fault in faults(text):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {fault.title} |")]
        cells = dict(zip(CODES, [cell.strip() for cell in line.split("|")[2:-1]], strict=True))
        for code in CODES:
            expected = "*not run*" if fault.says_no_test(code) else "green"
            assert cells[code] == expected, fault.title


# -- written by a run ----------------------------------------------------------------------------

EXAMPLE = """\
import pytest

@pytest.fixture
def broken_at_its_end():
    yield
    raise OSError

@pytest.mark.parametrize("n", [1, 2])
def test_good(n, proved):
    proved(f"saw {n}")

def test_bad():
    assert 0

def test_ends_badly(broken_at_its_end):
    pass

def test_left():
    pytest.skip("no compiler")

@pytest.mark.long
def test_long():
    pass
"""


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_a_run_writes_how_each_test_ended(tmp_path: Path, workers: str) -> None:
    """With and without workers; what was left out is not there."""
    place = tmp_path / "example"
    place.mkdir()
    hooks = "from tests.conftest import proved, pytest_addoption, pytest_configure\n"
    (place / "conftest.py").write_text(hooks)
    (place / "test_example.py").write_text(EXAMPLE)
    path = tmp_path / "build" / "results.json"
    arguments = [str(place), "-n", workers, "-m", "not long", f"--results={path}"]
    options = ["-c", str(ROOT / "setup.cfg"), f"--rootdir={tmp_path}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=250)
    found = json.loads(path.read_text())
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found["commit"] == (commit.stdout.strip() or "unknown")
    assert found["arguments"][-4:] == arguments[-4:]
    ended = {node.rpartition("::")[2]: test["outcome"] for node, test in found["tests"].items()}
    assert ended == {
        "test_good[1]": PASSED,
        "test_good[2]": PASSED,
        "test_bad": FAILED,
        "test_ends_badly": FAILED,
        "test_left": SKIPPED,
    }
    good = found["tests"]["example/test_example.py::test_good[2]"]
    assert good["proved"] == ["saw 2"]
    assert good["seconds"] >= 0
    (run,) = read_results([path]).runs
    assert run.counts == {PASSED: 2, FAILED: 2, SKIPPED: 1}
