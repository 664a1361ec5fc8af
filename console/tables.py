"""Tables of pages: sorted, filtered and cut to one page by the URL, exported whole.

Pure; any thread. The state of a table is in its URL's query (`sort`, `desc`, `q`, `page`, with the
table's name and a dot before them when a page has several), so that a link shows a colleague the
same rows, and no script is needed. Must not know what a table is about.

Tested by tests/console/test_tables.py.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from tools.report import Cell, Column, safe_line

PAGE_ROWS: Final = 100
MAX_SHOWN: Final = 300
"""Characters of a cell that a page shows; exports have all of them."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would run."""
NO_TIME: Final = "–"
MAX_TIME_MS: Final = 253_402_300_799_000
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell as a template shows it; `badge` names a state, `url` makes it a link, and a value
    that `is_time` (wall clock, ms) is shown in the reader's zone."""

    text: str
    value: Any = None
    url: str | None = None
    badge: str | None = None
    is_time: bool = False


def link(text: object, url: str) -> TableCell:
    """A cell that is a link."""
    return TableCell(str(text), text, url=url)


def badge(state: str, text: str | None = None) -> TableCell:
    """A cell that shows a state, in words and with the state's colour."""
    return TableCell(text or state, state, badge=state)


def moment(ms: int | None) -> TableCell | None:
    """A cell that shows a time (wall clock); the text, which is filtered by, is in UTC."""
    return TableCell(utc_text(ms), ms, is_time=True) if ms else None


@dataclass(frozen=True, slots=True)
class Table:
    """All rows of a table; a cell is a plain value, a tools.report.Cell or a TableCell."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    empty_text: str = "Nothing to show."
    sort: str = ""
    """Key of the column by which it is sorted unless the URL says another; "" as the rows come."""
    descending: bool = False
    page_rows: int = PAGE_ROWS
    by_page: frozenset[str] = frozenset()
    """Keys of columns that are filled for the shown page alone: sorted by one of them, each page is
    sorted by itself."""

    def data(self) -> list[dict[str, Any]]:
        """What the JSON of the page shows: an object a row."""
        keys = [column.key for column in self.columns]
        return [
            {key: _cell(cell).value for key, cell in zip(keys, row, strict=True)}
            for row in self.rows
        ]


@dataclass(frozen=True, slots=True)
class TableState:
    """How the URL wants a table."""

    sort: str = ""
    descending: bool = False
    filter_text: str = ""
    page: int = 1

    @classmethod
    def of(cls, table: Table, query: Mapping[str, str], prefix: str) -> TableState:
        """Of a query. What cannot be used counts as not said: these are no promises to keep."""
        asked = query.get(prefix + "sort", "")
        known = asked in {column.key for column in table.columns}
        number = query.get(prefix + "page", "1")
        return cls(
            sort=asked if known else table.sort,
            descending=query.get(prefix + "desc") == "1" if known else table.descending,
            filter_text=query.get(prefix + "q", "")[:MAX_SHOWN],
            page=int(number) if number.isascii() and number.isdigit() and len(number) < 8 else 1,
        )


class ShownTable:
    """The page of a table that a template shows."""

    def __init__(
        self,
        table: Table,
        path: str,
        query: Mapping[str, str],
        *,
        export_path: str | None = None,
        only: bool = True,
    ) -> None:
        self._path = path
        self._export_path = export_path or path
        self._query = dict(query)
        self._prefix = "" if only else f"{table.name}."
        state = TableState.of(table, query, self._prefix)
        by_page = state.sort in table.by_page
        matching = arranged(table, replace(state, sort="") if by_page else state)
        self.name = table.name
        self.caption = table.caption
        self.columns = tuple(table.columns)
        self.empty_text = table.empty_text
        self.total = len(table.rows)
        self.matched = len(matching)
        self.pages = max(1, -(-self.matched // table.page_rows))
        self.page = min(max(state.page, 1), self.pages)
        self.sort_key = state.sort
        self.descending = state.descending
        self.filter_text = state.filter_text
        first = (self.page - 1) * table.page_rows
        rows = matching[first : first + table.page_rows]
        if by_page:
            rows = _sorted(table, rows, state)
        self.rows = [[_cut(cell) for cell in row] for row in rows]

    @property
    def filter_name(self) -> str:
        """Name of the filter's field."""
        return self._prefix + "q"

    @property
    def kept_query(self) -> list[tuple[str, str]]:
        """The rest of the query, which a filter form carries along as hidden fields."""
        own = (self.filter_name, self._prefix + "page")
        return [(key, value) for key, value in self._query.items() if key not in own]

    def sort_url(self, key: str) -> str:
        """Sort by this column; the other way round if it is sorted by it now."""
        falls = key == self.sort_key and not self.descending
        return self._url({"sort": key, "desc": "1" if falls else "", "page": ""})

    def page_url(self, number: int) -> str:
        """Another page of the rows."""
        return self._url({"page": "" if number == 1 else str(number)})

    def export_url(self, form: str) -> str:
        """The matching rows, all of them, as csv or json."""
        return self._url({"page": ""}, f"{self._export_path}.{form}", {"table": self.name})

    def _url(
        self, changes: Mapping[str, str], path: str = "", more: Mapping[str, str] | None = None
    ) -> str:
        query = self._query | {self._prefix + key: value for key, value in changes.items()}
        query |= more or {}
        text = urlencode({key: value for key, value in query.items() if value})
        return f"{path or self._path}?{text}" if text else path or self._path


def arranged(table: Table, state: TableState) -> list[list[TableCell]]:
    """The rows that match the filter, sorted."""
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    if state.filter_text:
        wanted = state.filter_text.casefold()
        rows = [row for row in rows if any(wanted in cell.text.casefold() for cell in row)]
    return _sorted(table, rows, state)


def _sorted(table: Table, rows: list[list[TableCell]], state: TableState) -> list[list[TableCell]]:
    """What has no value comes last."""
    keys = [column.key for column in table.columns]
    if state.sort not in keys:
        return rows
    at = keys.index(state.sort)
    known = [row for row in rows if row[at].value is not None]
    unknown = [row for row in rows if row[at].value is None]
    known.sort(key=lambda row: _order(row[at].value), reverse=state.descending)
    return known + unknown


def utc_text(ms: float) -> str:
    """To the second, in UTC; a dash for what no calendar has."""
    if not 0 < ms <= MAX_TIME_MS:
        return NO_TIME
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def csv_text(columns: Sequence[Column], rows: Iterable[Sequence[TableCell]]) -> str:
    """The rows as CSV with a heading line. A text that a spreadsheet would take for a formula
    gets an apostrophe before it."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([column.key for column in columns])
    for row in rows:
        writer.writerow([_csv_value(cell.value) for cell in row])
    return out.getvalue()


def _csv_value(value: object) -> object:
    if isinstance(value, str):
        return "'" + value if value.startswith(_FORMULA) else value
    return "" if value is None else value


def _order(value: object) -> tuple[int, float, str]:
    """Numbers before texts, so that a column of both can be sorted."""
    if isinstance(value, bool | int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value).casefold())


def _cell(cell: object) -> TableCell:
    if isinstance(cell, TableCell):
        return cell
    if isinstance(cell, Cell):
        return TableCell(safe_line(str(cell.text)), cell.value)
    return TableCell("–" if cell is None else safe_line(str(cell)), cell)


def _cut(cell: TableCell) -> TableCell:
    text = safe_line(cell.text)
    if len(text) > MAX_SHOWN:
        text = text[: MAX_SHOWN - 1] + "…"
    return TableCell(text, cell.value, cell.url, cell.badge, cell.is_time)
