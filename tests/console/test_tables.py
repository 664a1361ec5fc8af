"""Tables of pages: order, filter, paging, exports, and texts of strangers."""

from __future__ import annotations

import csv
import io

import pytest

from console.tables import (
    MAX_SHOWN,
    PAGE_ROWS,
    ShownTable,
    Table,
    TableState,
    arranged,
    badge,
    csv_text,
    link,
)
from tools.report import Cell, columns

COLUMNS = columns("Name name | Lag lag >")


def table(rows: list[list[object]], **options: object) -> Table:
    return Table("rows", "Rows", COLUMNS, rows, **options)  # type: ignore[arg-type]


def shown(rows: list[list[object]], query: dict[str, str], *, only: bool = True) -> ShownTable:
    return ShownTable(table(rows), "/rows", query, only=only)


def names(found: ShownTable) -> list[str]:
    return [row[0].text for row in found.rows]


def test_rows_come_as_given_unless_the_url_says_otherwise() -> None:
    rows: list[list[object]] = [["b", 2], ["a", 10], ["c", None]]
    assert names(shown(rows, {})) == ["b", "a", "c"]
    assert names(shown(rows, {"sort": "lag"})) == ["b", "a", "c"]
    assert names(shown(rows, {"sort": "lag", "desc": "1"})) == ["a", "b", "c"]
    assert names(shown(rows, {"sort": "name"})) == ["a", "b", "c"]


def test_what_is_not_known_comes_last_both_ways() -> None:
    rows: list[list[object]] = [["none", None], ["one", 1], ["text", "x"]]
    assert names(shown(rows, {"sort": "lag"})) == ["one", "text", "none"]
    assert names(shown(rows, {"sort": "lag", "desc": "1"})) == ["text", "one", "none"]


def test_a_column_that_does_not_exist_changes_nothing() -> None:
    found = shown([["b", 1], ["a", 2]], {"sort": "nobody", "desc": "1"})
    assert names(found) == ["b", "a"]
    assert found.sort_key == ""


@pytest.mark.parametrize(
    ("asked", "page"), [("2", 2), ("99", 3), ("0", 1), ("-1", 1), ("x", 1), ("9" * 30, 1), ("²", 1)]
)
def test_pages(asked: str, page: int) -> None:
    rows: list[list[object]] = [[f"row {i}", i] for i in range(2 * PAGE_ROWS + 1)]
    found = shown(rows, {"page": asked})
    assert (found.page, found.pages, found.total) == (page, 3, len(rows))
    assert names(found)[0] == f"row {(page - 1) * PAGE_ROWS}"


def test_the_filter_looks_into_every_cell_without_case() -> None:
    rows: list[list[object]] = [["Straße", 1], ["other", Cell("STRASSE", 5)], ["no", 2]]
    found = shown(rows, {"q": "strasse"})
    assert names(found) == ["Straße", "other"]
    assert (found.matched, found.total) == (2, 3)


def test_links_keep_the_rest_of_the_url() -> None:
    found = shown([["a", 1]], {"sort": "lag", "q": "a b", "page": "1", "minutes": "5"})
    assert found.sort_url("lag") == "/rows?sort=lag&q=a+b&minutes=5&desc=1"
    assert found.sort_url("name") == "/rows?sort=name&q=a+b&minutes=5"
    assert found.page_url(2) == "/rows?sort=lag&q=a+b&page=2&minutes=5"
    assert found.export_url("csv") == "/rows.csv?sort=lag&q=a+b&minutes=5&table=rows"
    assert found.kept_query == [("sort", "lag"), ("minutes", "5")]


def test_two_tables_of_a_page_have_states_of_their_own() -> None:
    found = shown([["b", 1], ["a", 2]], {"sort": "lag", "rows.sort": "name"}, only=False)
    assert names(found) == ["a", "b"]
    assert found.page_url(2) == "/rows?sort=lag&rows.sort=name&rows.page=2"
    assert found.filter_name == "rows.q"


def test_control_characters_and_length_of_a_strangers_text() -> None:
    found = shown([["a\x1b[2J\n" + "x" * 10_000, 1]], {})
    text = names(found)[0]
    assert text.startswith("a\\x1b[2J\\x0ax")
    assert len(text) == MAX_SHOWN


def test_exports_have_every_matching_row_and_the_plain_values() -> None:
    rows: list[list[object]] = [[link(f"t{i}", "/x"), Cell(f"{i} B", i)] for i in range(250)]
    made = table([*rows, [badge("in_sync"), None]])
    kept = arranged(made, TableState(sort="lag", descending=True))
    lines = list(csv.reader(io.StringIO(csv_text(COLUMNS, kept))))
    assert lines[0] == ["name", "lag"]
    assert lines[1] == ["t249", "249"]
    assert lines[-1] == ["in_sync", ""]
    assert len(lines) == 252
    assert made.data()[0] == {"name": "t0", "lag": 0}


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@x", "\tx"])
def test_a_spreadsheet_runs_no_strangers_formula(text: str) -> None:
    kept = arranged(table([[text, -5]]), TableState())
    lines = list(csv.reader(io.StringIO(csv_text(COLUMNS, kept))))
    assert lines[1] == ["'" + text, "-5"]
