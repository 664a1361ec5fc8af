"""Known vulnerabilities of the installed packages: `python -m tests.dependency_audit`, a step of
`bin/test --slow`.

pip-audit asks the package index for each package. What it finds in a package that a broker or the
report runs with fails the step, unless accepted_vulnerabilities.txt has it with a reason and a
date that is not over; in tools of development it is only told. Without a network, or where the
index does not have this data, one line says so and nothing fails.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement

from tools.prepare_venv import PROJECT, read_requirements

ACCEPTED: Final = Path(__file__).with_name("accepted_vulnerabilities.txt")
COMMAND: Final = (
    *(sys.executable, "-m", "pip_audit", "--local", "--format", "json"),
    *("--progress-spinner", "off", "--timeout", "5"),
)
LIMIT_S: Final = 60
"""It takes 2 s of a processor and waits for the index; beside the tests nobody waits for it."""


@dataclass(frozen=True)
class Verdict:
    """What to print, and whether the step fails."""

    lines: tuple[str, ...]
    failed: bool = False


def main(command: Sequence[str] = COMMAND, limit_s: float = LIMIT_S) -> int:
    """The step; its exit code."""
    verdict = audit(command, limit_s)
    print("\n".join(verdict.lines))
    return int(verdict.failed)


def audit(command: Sequence[str], limit_s: float) -> Verdict:
    """Run pip-audit and judge its report. Raises ValueError for a wrong line in ACCEPTED."""
    accepted = read_accepted(ACCEPTED.read_text(encoding="utf-8"), datetime.date.today())
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return Verdict((f"not audited: pip-audit did not end within {limit_s} s",))
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Verdict((f"not audited: pip-audit has no report: {reason:.300}",))
    return judge(found, run_with(["base", "spark"]), accepted)


def judge(found: Iterable[dict[str, Any]], ours: Iterable[str], accepted: Iterable[str]) -> Verdict:
    """`found`: the dependencies of a report of pip-audit. `ours`: normal names of packages in which
    a vulnerability counts. `accepted`: ids that do not count."""
    audited = [each for each in found if "vulns" in each]
    skipped = [each for each in found if "vulns" not in each]
    if not audited:
        reason = skipped[0].get("skip_reason", "") if skipped else "it lists no package"
        return Verdict((f"not audited: no package could be looked up: {reason:.200}",))
    lines, failed = [], False
    for each in audited:
        for vulnerability in each["vulns"]:
            ids = {vulnerability["id"], *vulnerability.get("aliases", ())}
            counts = normal(each["name"]) in set(ours) and not ids & set(accepted)
            failed |= counts
            fixed = ", ".join(vulnerability.get("fix_versions", ())) or "none yet"
            kind = "VULNERABLE" if counts else "known, does not count"
            name = f"{each['name']} {each['version']}"
            lines.append(f"{kind}: {name}: {', '.join(sorted(ids))}; fixed in: {fixed}")
    lines.append(f"{len(audited)} packages audited, {len(skipped)} could not be looked up")
    return Verdict(tuple(lines), failed)


def read_accepted(text: str, today: datetime.date) -> set[str]:
    """The ids that are accepted today. Raises ValueError that names a wrong line."""
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(maxsplit=2)
        try:
            identifier, until, _reason = parts
            if today <= datetime.date.fromisoformat(until):
                found.add(identifier)
        except ValueError as error:
            raise ValueError(
                f"{ACCEPTED.name}:{number}: expected ID, the last day (2027-01-31) and a reason"
            ) from error
    return found


def run_with(groups: Sequence[str]) -> set[str]:
    """Normal names of what these groups of setup.cfg install, with what that needs."""
    wanted = read_requirements(PROJECT / "setup.cfg", [name for name in groups if name != "base"])
    waiting = [Requirement(line) for name in groups for line in wanted[name] if line[0] != "#"]
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = normal(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += _needs(name)
    return found


def _needs(name: str) -> list[Requirement]:
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(Requirement(line))
        except InvalidRequirement:
            continue
    return found


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
