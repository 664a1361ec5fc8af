"""docs/report_files.md has every column of every table with its type, and the summary's fields."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from spark.figures.result_tables import TABLES
from spark.page.summary import summary_json
from tests.spark.demo_report import demo_report

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "report_files.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    (found,) = re.findall(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", TEXT, re.M | re.S)
    lines = [line for line in found.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_of_every_table(table: str) -> None:
    told = [(name, kind) for names, kind, _ in rows(table) for name in re.findall("`(.+?)`", names)]
    columns = {name: kind for name, kind in told if "." not in name}
    fields: dict[str, list[str]] = {}
    for name, kind in told:
        column, dot, field = name.partition(".")
        if dot:
            fields.setdefault(column, []).append(f"{field}:{kind}")
    for column, kinds in fields.items():
        assert columns[column] == "array<struct>"
        columns[column] = f"array<struct<{','.join(kinds)}>>"
    assert columns == TABLES[table]
    assert len(told) == len(TABLES[table]) + sum(map(len, fields.values()))


def test_no_other_tables() -> None:
    told = re.findall(r"^### (.+)$", TEXT.partition("\n## The tables\n")[2], re.M)
    assert sorted(told) == sorted(TABLES)


def test_every_field_of_the_summary() -> None:
    found = json.loads(summary_json(demo_report()))
    told = {names.strip("`"): meaning for names, meaning in rows("summary.json, version 1")}
    assert told.keys() == found.keys()
    assert set(re.findall(r'"(\w+)"', told["counts"])) == found["counts"].keys()
