"""docs/durability.md: every fault has a row for every setting, and every named test exists."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from tests.durability_table import CODES, PAGE, ROOT, SEEDS, TEST, Fault, faults, sections

FAULTS = faults(PAGE.read_text())
BY_TITLE = pytest.mark.parametrize("fault", FAULTS, ids=[fault.title for fault in FAULTS])


@functools.cache
def functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }


@BY_TITLE
def test_every_setting_has_one_row(fault: Fault) -> None:
    assert sorted(code for row in fault.rows for code in row.codes) == sorted(CODES)


@BY_TITLE
def test_every_setting_names_a_test_or_says_that_there_is_none(fault: Fault) -> None:
    for code in CODES:
        assert bool(fault.tests(code)) is not fault.says_no_test(code), code


@BY_TITLE
def test_only_settings_that_there_are_have_tests(fault: Fault) -> None:
    assert {code for proof in fault.proofs for code in proof.codes} <= set(CODES)


@BY_TITLE
def test_tests_are_named_in_the_list_once(fault: Fault) -> None:
    """The page of the last run says nothing of a test that stands in the text."""
    listed = [proof.test for proof in fault.proofs if TEST.fullmatch(proof.test)]
    assert TEST.findall(fault.text) == listed
    assert len(set(listed)) == len(listed)


def test_there_is_room_for_the_seeds() -> None:
    assert "mqchaos" in sections(PAGE.read_text())[SEEDS]


def test_named_tests_exist() -> None:
    named = TEST.findall(PAGE.read_text())
    assert len(named) > 30
    missing = [
        test
        for test in named
        for path, _, name in [test.partition("[")[0].partition("::")]
        if not (ROOT / path).is_file() or name not in functions(ROOT / path)
    ]
    assert missing == []
