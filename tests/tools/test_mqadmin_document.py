"""docs/mqadmin.md against the table of commands."""

from __future__ import annotations

import re
from pathlib import Path

from tools.command_table import COMMANDS, OURS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mqadmin.md"
CELLS = re.compile(r"`(\w+)` \| ([^|]+?) (?=\|)")


def test_every_command_has_its_line_and_no_other() -> None:
    rows = PAGE.read_text(encoding="utf-8").partition("| command | what it does |")[2]
    assert dict(CELLS.findall(rows)) == {
        name: entry.description for name, entry in COMMANDS.items()
    }


def test_the_page_says_how_many_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    ((of_4_9, of_5x),) = re.findall(
        r"all (\d+) of its commands\), and (\d+) that came with 5\.x", text
    )
    assert int(of_4_9) == 56
    assert int(of_5x) == len(COMMANDS.keys() - OURS) - 56
