"""docs/access.md shows the table of access as it is."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from broker.acl.access_table import ACCESS_TABLE, Who
from tests.broker.compatibility_document import ranges

DOCUMENT = Path(__file__).parents[3] / "docs" / "access.md"


def rows() -> list[str]:
    codes: dict[tuple[Who, bool], list[int]] = defaultdict(list)
    for code, row in ACCESS_TABLE.items():
        codes[row.who, row.changes_state].append(int(code))
    return [
        f"| {who.name} | {'yes' if changes else 'no'} | " + ranges(codes[who, changes]) + " |"
        for who in Who
        for changes in (False, True)
        if codes[who, changes]
    ]


def test_the_document_shows_the_table() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    head = lines.index("| who | changes state | request codes |")
    shown = [line for line in lines[head + 2 :] if line.startswith("| ")]
    assert shown == rows()


def test_the_document_stays_short() -> None:
    assert len(DOCUMENT.read_text(encoding="utf-8").splitlines()) <= 165
