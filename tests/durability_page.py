"""Writes docs/durability_last_run.md: what the last runs showed of each cell of docs/durability.md.

`.venv/bin/python -m tests.durability_page` reads the results in build/test-results/, which whole
runs of `bin/test --slow` and `--long` leave there (tests/support/run_results.py); other files can
be named. A cell is green only if every test that it names has passed; what did not run is "not
run".
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.durability_table import CODES, NO_TEST, PAGE, ROOT, SEEDS, Fault, Proof, faults, sections
from tests.support.run_results import Outcome, Results, ResultsError, Run, Verdict, read_results

DOCUMENT: Final = ROOT / "docs" / "durability_last_run.md"
RESULTS: Final = ROOT / "build" / "test-results"
COMMAND: Final = ".venv/bin/python -m tests.durability_page"
_BOLD: Final = {Verdict.GREEN: "green", Verdict.RED: "**RED**", Verdict.NOT_RUN: "*not run*"}


def document(table: str, results: Results) -> str:
    """The whole text. table: docs/durability.md's."""
    found = faults(table)
    parts = (
        f"# Durability: the last run\n\n<!-- Generated: {COMMAND} -->",
        "What the tests that [durability.md](durability.md) names have shown. Green: every one of"
        " them ran at this\ncommit and passed; red: one failed; not run: one did not run.",
        _runs(results),
        "## Verdicts",
        _verdicts(found, results),
        *(part for fault in found for part in _fault(fault, results)),
        f"## {SEEDS}",
        sections(table).get(SEEDS, "").strip(),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def cell(fault: Fault, code: str, results: Results) -> Verdict:
    """Of one setting under one fault."""
    if fault.says_no_test(code):
        return Verdict.NOT_RUN
    return Verdict.of_all(results.verdict(test, code) for test in fault.tests(code))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines of a table; a bar within a cell is escaped."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def runs_table(results: Results) -> str:
    """Which runs the verdicts come from, and pytest's arguments in each."""
    head = ("began", "commit", "passed", "failed", "skipped", "Python", "machine")
    arguments = [f"- {run.began}: `{' '.join(run.arguments)}`" for run in results.runs]
    table = markdown_table(head, map(_run_cells, results.runs))
    return "\n".join((table, "", "With these arguments of pytest:", "", *arguments))


def _run_cells(run: Run) -> tuple[str, ...]:
    commit = run.commit[:12] + (" with changes" if run.changed else "")
    counts = (str(run.counts[name]) for name in ("passed", "failed", "skipped"))
    return (run.began, commit, *counts, run.python, run.machine)


def _runs(results: Results) -> str:
    text = runs_table(results)
    if results.left_out:
        text += f"\n\nResults of other commits that are not counted: {results.left_out}."
    return text


def _verdicts(found: Iterable[Fault], results: Results) -> str:
    rows = [
        [fault.title, *(_BOLD[cell(fault, code, results)] for code in CODES)] for fault in found
    ]
    return markdown_table(("fault", *CODES), rows)


def _fault(fault: Fault, results: Results) -> Iterator[str]:
    """Each test of the fault, how it ended, and what it says to have proved."""
    yield f"## {fault.title}"
    proofs = [proof for proof in fault.proofs if proof.test != NO_TEST]
    rows = [
        (_named_codes(proof.codes), proof.test, *_test_cells(proof, results)) for proof in proofs
    ]
    yield markdown_table(("settings", "test", "", "seconds"), rows)
    for proof in proofs:
        if lines := _proved(proof, results):
            name = proof.test.rpartition("::")[2]
            yield "\n".join((f"What `{name}` reports:", "", *(f"- {line}" for line in lines)))


def _named_codes(codes: Sequence[str]) -> str:
    return "all" if len(codes) == len(CODES) else ", ".join(codes)


def _ended(proof: Proof, results: Results) -> list[Outcome]:
    """How the test ended for each of its settings; a test that names none ended once."""
    by_node = {
        node: end for code in proof.codes for node, end in results.of(proof.test, code).items()
    }
    return list(by_node.values())


def _proved(proof: Proof, results: Results) -> list[str]:
    lines = {line for end in _ended(proof, results) for line in end.proved}
    return sorted(line.replace("\n", " ") for line in lines)


def _test_cells(proof: Proof, results: Results) -> tuple[str, str]:
    codes = proof.codes
    by_code = {code: results.verdict(proof.test, code) for code in codes}
    verdict = ", ".join(
        _BOLD[each] + _named([code for code in codes if by_code[code] is each], len(codes))
        for each in Verdict
        if each in by_code.values()
    )
    ended = _ended(proof, results)
    seconds = f"{sum(end.seconds for end in ended):.1f}" if ended else ""
    return verdict, seconds


def _named(codes: Sequence[str], of: int) -> str:
    return "" if len(codes) == of else f" ({', '.join(codes)})"


def main() -> int:
    """Writes the page; 1 if no results can be read."""
    parser = argparse.ArgumentParser(prog="tests.durability_page", description=__doc__)
    parser.add_argument("results", nargs="*", type=Path, help=f"default: {RESULTS}/*.json")
    parser.add_argument("--output", type=Path, default=DOCUMENT)
    arguments = parser.parse_args()
    try:
        results = read_results(arguments.results or sorted(RESULTS.glob("*.json")))
    except ResultsError as error:
        print(f"tests.durability_page: {error}", file=sys.stderr)
        return 1
    arguments.output.write_text(document(PAGE.read_text(encoding="utf-8"), results))
    print(f"written: {os.path.relpath(arguments.output)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
