"""docs/fixes_of_55.md: each row names a test that exists, or says why the fault cannot be here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "fixes_of_55.md").read_text(encoding="utf-8")
ROWS = [tuple(map(str.strip, row)) for row in re.findall(r"^\| (\d+) \|(.*)\|(.*)\|$", TEXT, re.M)]
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_there_are_36_fixes_and_8_of_rights() -> None:
    assert [int(row[0]) for row in ROWS] == [*range(1, 37), *range(1, 9)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1][:30]}")
def test_each_row_names_a_test_or_a_reason(row: tuple[str, str, str]) -> None:
    _number, fault, here = row
    assert fault
    assert here
    for name, test in NAMED.findall(here):
        path = ROOT / name if name.startswith("tests/") else ROOT / "tests" / "broker" / name
        text = path.read_text(encoding="utf-8")
        assert re.search(rf"^ *def {test}\(", text, re.M), (name, test)
    if "test_" in here:
        assert NAMED.search(here), "as `path.py::test_name`"
