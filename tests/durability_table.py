"""docs/durability.md as data: faults, their rows, and the tests that prove each setting.

Pure reading; what a page says of a run is tests/durability_page.py's, and that the page is complete
tests/test_durability_table.py's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
_PROOF: Final = re.compile(
    rf"^- ({TEST.pattern}|{re.escape(NO_TEST)})(?: \(([^)]+)\))?$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Row:
    """What holds for some settings under one fault."""

    codes: tuple[str, ...]
    lost: str
    how_long: str


@dataclass(frozen=True, slots=True)
class Proof:
    """A test, and the settings that it proves."""

    test: str
    """As pytest names it: "path::function", or "path::function[parameters]"; or NO_TEST."""
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One section of the page."""

    title: str
    text: str
    rows: tuple[Row, ...]
    proofs: tuple[Proof, ...]

    def tests(self, code: str) -> list[str]:
        """The tests that prove a setting."""
        return [
            proof.test for proof in self.proofs if code in proof.codes and proof.test != NO_TEST
        ]

    def says_no_test(self, code: str) -> bool:
        return any(proof.test == NO_TEST and code in proof.codes for proof in self.proofs)


def sections(text: str) -> dict[str, str]:
    """Heading of the second level to what stands below it."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def faults(text: str) -> list[Fault]:
    """In the order of the page."""
    return [
        Fault(title, body, tuple(map(_row, _lines(body))), tuple(_proofs(body)))
        for title, body in sections(text).items()
        if title != SEEDS
    ]


def _lines(body: str) -> list[str]:
    return [line for line in body.splitlines() if re.match(r"\| [AS]\d", line)]


def _row(line: str) -> Row:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) != 3:
        raise ValueError(f"{PAGE}: {len(cells)} cells instead of 3: {line}")
    codes, lost, how_long = cells
    return Row(tuple(codes.split(", ")), lost, how_long)


def _proofs(body: str) -> Iterator[Proof]:
    """The list below the table: a test without settings in brackets proves all of them."""
    for test, codes in _PROOF.findall(body):
        yield Proof(test, tuple(codes.split(", ")) if codes else CODES)
