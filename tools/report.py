"""A command's results, as text for people or as JSON for programs.

Runs in the command's main thread; writes to stdout only. A command returns a Report (or yields
several) and never prints. Text from peers loses its control characters here, so that a
message cannot control the operator's terminal, and those that turn the direction of writing: what
stands behind them would be read backwards, and a name for another one.

Tested by tests/tools/test_mqadmin_sending.py.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

_TURNS: Final = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""They turn the direction of writing (Unicode's Bidi_Control)."""
_CONTROL: Final = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_TURNS}]")
_CONTROL_OR_BREAK: Final = re.compile(rf"[\x00-\x1f\x7f-\x9f\u2028\u2029{_TURNS}]")
_NOT_IN_JSON: Final = re.compile(rf"[\x7f-\x9f\u2028\u2029{_TURNS}]")
"""What standard JSON leaves as it is, in strings only."""

NO_DATA: Final = object()
"""The data of a report that only people need: a heading, a note."""


@dataclass(frozen=True, slots=True)
class Report:
    """One result: its text, without the last line break, and its JSON value."""

    text: str
    data: Any = NO_DATA


Reports = Report | Iterator[Report]
"""What a command returns: one report, or one after the other while it works."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: heading as RocketMQ prints it, key in JSON, numbers to the right."""

    heading: str
    key: str
    right: bool = False
    width: int = 0
    """At least this wide; for tables whose rows are printed one at a time."""


class Cell(NamedTuple):
    """A cell that people read otherwise than programs."""

    text: str
    value: Any


def columns(text: str) -> tuple[Column, ...]:
    """Columns in one text: "heading key | heading key >", the arrow where numbers go right."""
    found = []
    for part in text.split(" | "):
        heading, key = part.removesuffix(" >").rsplit(" ", 1)
        found.append(Column(heading, key, right=part.endswith(" >")))
    return tuple(found)


def table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> Report:
    """A table as wide as its cells; its JSON is a list of objects."""
    cells = [[safe_line(_shown(cell)) for cell in row] for row in rows]
    widths = [
        max([column.width, len(column.heading), *(display_width(row[i]) for row in cells)])
        for i, column in enumerate(columns)
    ]
    lines = [format_row(columns, widths, [column.heading for column in columns])]
    lines += [format_row(columns, widths, row) for row in cells]
    keys = [column.key for column in columns]
    data = [dict(zip(keys, map(_value, row), strict=True)) for row in rows]
    return Report("\n".join(lines), data)


def _shown(cell: object) -> str:
    return cell.text if isinstance(cell, Cell) else str(cell)


def _value(cell: object) -> object:
    return cell.value if isinstance(cell, Cell) else cell


def format_row(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    """One line, two spaces between columns."""
    parts = []
    for column, width, cell in zip(columns, widths, cells, strict=True):
        padding = " " * (width - display_width(cell))
        parts.append(padding + cell if column.right else cell + padding)
    return "  ".join(parts).rstrip()


def row_report(columns: Sequence[Column], row: Sequence[object]) -> Report:
    """One row of a table that grows while the command works; widths are the columns' own."""
    widths = [max(column.width, len(column.heading)) for column in columns]
    cells = [safe_line(_shown(cell)) for cell in row]
    data = {column.key: _value(cell) for column, cell in zip(columns, row, strict=True)}
    return Report(format_row(columns, widths, cells), data)


def heading_report(columns: Sequence[Column]) -> Report:
    """The heading line of such a table."""
    widths = [max(column.width, len(column.heading)) for column in columns]
    return Report(format_row(columns, widths, [column.heading for column in columns]))


def display_width(text: str) -> int:
    """Columns of a terminal that a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def safe_line(text: str) -> str:
    """A text for one line: control characters and line breaks as \\xNN or \\uNNNN."""
    return _CONTROL_OR_BREAK.sub(_escape, text)


def safe_text(text: str) -> str:
    """A text of several lines: control characters as \\xNN, tabs and line feeds as they are."""
    return _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def print_reports(reports: Reports, *, as_json: bool) -> None:
    """Write a command's results; JSON is one line with one value, a list when several come.

    Whatever is in a text: a server's answer must not move the terminal's cursor.
    """
    if isinstance(reports, Report):
        print(json_text(reports.data) if as_json else safe_text(reports.text), flush=True)
    elif as_json:
        _print_json_list(reports)
    else:
        for report in reports:
            print(safe_text(report.text), flush=True)


def _print_json_list(reports: Iterable[Report]) -> None:
    """One valid JSON value even if the command fails midway; its exit code shows that."""
    separator = "["
    try:
        for report in reports:
            if report.data is not NO_DATA:
                sys.stdout.write(separator + json_text(report.data))
                separator = ","
    finally:
        print("[]" if separator == "[" else "]", flush=True)


def json_text(data: Any) -> str:
    """Compact standard JSON, for a terminal, too; a report without data is null."""
    text = msgspec.json.encode(None if data is NO_DATA else data).decode()
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
