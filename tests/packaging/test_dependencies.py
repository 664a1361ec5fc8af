"""What setup.cfg installs has lower bounds that hold here, and known vulnerabilities fail a run."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.dependency_audit import ACCEPTED, audit, judge, main, read_accepted, run_with
from tests.support.every_row import every_row
from tools.prepare_venv import PROJECT, read_requirements

TODAY = datetime.date(2026, 11, 23)


def requirements() -> list[Requirement]:
    groups = read_requirements(PROJECT / "setup.cfg", ["spark", "console", "dev"])
    return [Requirement(line) for lines in groups.values() for line in lines if line[0] != "#"]


@every_row("requirement", requirements())
def test_a_lower_bound_that_holds_here(requirement: Requirement) -> None:
    assert {each.operator for each in requirement.specifier} & {">=", "==", "~="}, "no lower bound"
    try:
        installed = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{requirement.name} is not installed")
    assert requirement.specifier.contains(installed, prereleases=True), installed


def package(name: str, *ids: str, fixed: str = "9.9") -> dict[str, Any]:
    vulnerabilities = [{"id": each, "aliases": [], "fix_versions": [fixed]} for each in ids]
    return {"name": name, "version": "1.0", "vulns": vulnerabilities}


def skipped(name: str) -> dict[str, Any]:
    return {"name": name, "skip_reason": f"Dependency not found on PyPI: {name}"}


def test_a_vulnerability_of_ours_fails_and_of_a_tool_is_told() -> None:
    found = [package("PyYAML", "CVE-1"), package("ruff", "CVE-2"), package("rich"), skipped("x")]
    verdict = judge(found, {"pyyaml", "rich"}, set())
    assert verdict.failed
    assert verdict.lines == (
        "VULNERABLE: PyYAML 1.0: CVE-1; fixed in: 9.9",
        "known, does not count: ruff 1.0: CVE-2; fixed in: 9.9",
        "3 packages audited, 1 could not be looked up",
    )
    assert not judge(found[1:], {"pyyaml", "rich"}, set()).failed


def test_an_accepted_one_does_not_count_by_any_of_its_names() -> None:
    found = package("PyYAML", "PYSEC-1")
    found["vulns"][0]["aliases"] = ["CVE-1", "GHSA-1"]
    for name in ("PYSEC-1", "CVE-1", "GHSA-1"):
        assert not judge([found], {"pyyaml"}, {name}).failed
    assert judge([found], {"pyyaml"}, {"CVE-2"}).failed


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit('no route to host')", "not audited: pip-audit has no report: no route"),
        ("print('<html>')", "not audited: pip-audit has no report: no output"),
        ("import time; time.sleep(60)", "not audited: pip-audit did not end within"),
        (
            f"print({json.dumps({'dependencies': [skipped('x')]})!r})",
            "not audited: no package could be looked up: Dependency not found on PyPI: x",
        ),
    ],
)
def test_without_data_one_line_says_so(
    program: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([sys.executable, "-c", program], limit_s=2 if "sleep" in program else 60) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(words)


def test_a_report_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As pip-audit prints it: exit code 1 with findings."""
    accepted = tmp_path / "accepted.txt"
    monkeypatch.setattr("tests.dependency_audit.ACCEPTED", accepted)
    report = json.dumps({"dependencies": [package("msgspec", "CVE-7")], "fixes": []})
    command = [sys.executable, "-c", f"print({report!r}); raise SystemExit(1)"]
    for line, failed in (("", True), ("CVE-7 2999-01-01 not reachable: no input of peers", False)):
        accepted.write_text(line)
        assert audit(command, 60).failed == failed


def test_what_a_broker_runs_with() -> None:
    """What setup.cfg names, what that needs, and no tool of development."""
    found = run_with(["base"])
    assert found >= {"msgspec", "numpy", "cryptography", "cffi", "pygments", "markdown-it-py"}
    assert not found & {"pytest", "ruff", "mypy", "pyspark"}
    assert "py4j" in run_with(["base", "spark"])


def test_the_accepted_ones() -> None:
    read_accepted(ACCEPTED.read_text(encoding="utf-8"), TODAY)
    text = "# why\n\nCVE-1 2026-11-23 a reason\nCVE-2 2026-11-22 it is over\n"
    assert read_accepted(text, TODAY) == {"CVE-1"}
    for wrong in ("CVE-1", "CVE-1 2026-11-23", "CVE-1 soon a reason"):
        with pytest.raises(ValueError, match=r"accepted_vulnerabilities.txt:2: expected ID, the"):
            read_accepted(f"\n{wrong}\n", TODAY)
