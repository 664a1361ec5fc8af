"""docs/durability.md: every fault has a row for every setting, and every named test exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "durability.md"
CODES = {f"{flush}{level}" for flush in "AS" for level in "1234"}
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
NO_TEST = "**no test**"


def sections() -> dict[str, str]:
    """Heading of each fault to its text."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The cells of the rows that begin with codes of settings."""
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if re.match(r"\| [AS]\d", line)
    ]
    assert all(len(row) == 4 for row in found)
    return found


def functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("fault", sections())
def test_every_setting_has_one_row(fault: str) -> None:
    codes = [code for row in rows(sections()[fault]) for code in row[0].split(", ")]
    assert sorted(codes) == sorted(CODES)


@pytest.mark.parametrize("fault", sections())
def test_every_row_names_a_test_or_says_that_there_is_none(fault: str) -> None:
    for row in rows(sections()[fault]):
        assert TEST.search(row[3]) or NO_TEST in row[3], row


def test_named_tests_exist() -> None:
    named = TEST.findall(PAGE.read_text())
    assert len(named) > 30
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or name not in functions(ROOT / path)
    ]
    assert missing == []
