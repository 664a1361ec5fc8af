"""The documents: what can be read in them, and whether what they name is there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
MAX_ARCHITECTURE_COLUMNS: Final = 100
MAX_TABLE_COLUMNS: Final = 200
LONG_TABLE_LINES: Final = {
    "docs/access.md": 1,
    "docs/compatibility.md": 4,
    "docs/decisions.md": 5,
    "docs/durability.md": 32,
    "docs/durability_last_run.md": 22,
    "docs/evidence.md": 2,
    "docs/faults.md": 43,
    "docs/mqadmin.md": 3,
    "docs/mutants.md": 46,
    "docs/performance.md": 6,
    "docs/report_files.md": 11,
    "docs/settings.md": 23,
    "docs/sla_report.md": 16,
}
"""How many table lines longer than MAX_TABLE_COLUMNS a document still has: generated ones, and ones
that tests read as tables. Numbers here only go down; a list says the same in lines that a diff can
show."""


def documents() -> list[Path]:
    """All of the project's documents, whoever reads them."""
    top = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_architecture_fits_a_terminal() -> None:
    lines = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > MAX_ARCHITECTURE_COLUMNS] == []


def test_table_lines_can_be_read_in_a_diff() -> None:
    counts = {
        _name(path): sum(
            line.startswith("|") and len(line) > MAX_TABLE_COLUMNS
            for line in path.read_text(encoding="utf-8").splitlines()
        )
        for path in documents()
    }
    assert {name: count for name, count in counts.items() if count} == LONG_TABLE_LINES
