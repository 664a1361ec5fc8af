"""docs/durability.md as data: faults, their rows, and the tests that each row names.

Pure reading; what a page says of a run is tests/durability_page.py's, and that the page is complete
tests/test_durability_table.py's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "durability.md"
CODES: Final = tuple(f"{flush}{level}" for flush in "AS" for level in "1234")
NO_TEST: Final = "**no test**"
SEEDS: Final = "Seeds"
"""The only section that is about no fault."""
TEST: Final = re.compile(r"tests/[\w/]+\.py::\w+(?:\[[^\]\s]+\])?")


@dataclass(frozen=True, slots=True)
class Row:
    """What holds for some settings under one fault."""

    codes: tuple[str, ...]
    lost: str
    how_long: str
    tests: tuple[str, ...]
    """As pytest names them: "path::function", or "path::function[parameters]"."""
    says_no_test: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """One section of the page."""

    title: str
    text: str
    rows: tuple[Row, ...]

    def row(self, code: str) -> Row:
        """The row of a setting. Raises StopIteration if there is none."""
        return next(row for row in self.rows if code in row.codes)


def sections(text: str) -> dict[str, str]:
    """Heading of the second level to what stands below it."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def faults(text: str) -> list[Fault]:
    """In the order of the page."""
    return [
        Fault(title, body, tuple(map(_row, _lines(body))))
        for title, body in sections(text).items()
        if title != SEEDS
    ]


def _lines(body: str) -> list[str]:
    return [line for line in body.splitlines() if re.match(r"\| [AS]\d", line)]


def _row(line: str) -> Row:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) != 4:
        raise ValueError(f"{PAGE}: {len(cells)} cells instead of 4: {line}")
    codes, lost, how_long, tests = cells
    return Row(
        tuple(codes.split(", ")), lost, how_long, tuple(TEST.findall(tests)), NO_TEST in tests
    )
