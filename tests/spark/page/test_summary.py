"""summary.json and the CSV files: shape, order, nothing that is not a number, hostile names."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import random
from typing import Any

import pytest

from spark.figures.report_data import (
    ReportData,
    ReportDataError,
    Row,
    finite,
    plotted_keys,
    worst_first,
)
from spark.page.summary import _cell, incidents_csv, replicas_csv, summary_json
from tests.spark.demo_report import DATE, demo_report, empty_report, one_replica_report

TABLES = ("replica_days", "group_days", "windows", "incidents", "events", "bad_lines")


def read_csv(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def changed(data: ReportData, **columns: Any) -> ReportData:
    """The first replica's day with other values."""
    first, *others = data.replica_days
    return dataclasses.replace(data, replica_days=[{**first, **columns}, *others])


def test_the_summary_says_what_the_data_say() -> None:
    data = demo_report()
    summary = json.loads(summary_json(data))
    assert (summary["version"], summary["date"], summary["verdict"]) == (1, DATE, "breached")
    assert (summary["exit_code"], summary["revision"]) == (1, 1)
    assert summary["rolling"] == {"days": 30, "begun": None, "verdict": "insufficient data"}
    assert (summary["exit_on"], summary["budget_steps"]) == ("day", [])
    of_window = json.loads(summary_json(dataclasses.replace(data, exit_on="window")))
    assert (of_window["exit_on"], of_window["exit_code"]) == ("window", 2)
    assert summary["window"] == {
        "start": "2026-03-14T00:00:00.000+00:00",
        "end": "2026-03-15T00:00:00.000+00:00",
        "seconds": 86_400,
    }
    assert summary["counts"] == {
        "replicas": 3,
        "met": 1,
        "breached": 1,
        "insufficient_data": 1,
        "groups": 2,
        "incidents": 5,
        "events": 3,
        "bad_lines": 1,
    }
    assert [row["replica"] for row in summary["replicas"]] == [
        "broker-a:1",
        "broker-b:1",
        "broker-a:2",
    ]
    worst = summary["replicas"][0]
    assert (worst["bad_s"], worst["reasons"]) == (275, data.replica_days[0]["reasons"])
    assert set(worst["windows"]) == {"7", "30"}
    assert summary["window_days"] == [7, 30]
    assert worst["windows"]["30"]["forecast"] == "2026-05-01"
    assert [item["kind"] for item in worst["metadata"]][:2] == ["topics", "consumer_offsets"]
    assert len(summary["incidents"]) == 5
    starts = [row["start_ms"] for row in summary["incidents"]]
    assert starts == sorted(starts)


def test_equal_data_give_equal_bytes_whatever_their_order() -> None:
    data, rng = demo_report(), random.Random(7)
    shuffled: dict[str, list[Row]] = {name: list(getattr(data, name)) for name in TABLES}
    for rows in shuffled.values():
        rng.shuffle(rows)
    other = dataclasses.replace(data, **shuffled)  # type: ignore[arg-type]
    assert summary_json(other) == summary_json(data)
    assert replicas_csv(other) == replicas_csv(data)
    assert incidents_csv(other) == incidents_csv(data)


def test_what_is_not_finite_is_null() -> None:
    data = changed(demo_report(), availability=math.nan, mtbf_s=math.inf, mttr_s=None)

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} in the summary")

    summary = json.loads(summary_json(data), parse_constant=refuse)
    row = summary["replicas"][0]
    assert (row["availability"], row["mtbf_s"], row["mttr_s"]) == (None, None, None)
    cells = read_csv(replicas_csv(data))[0]
    assert (cells["availability"], cells["mtbf_s"], cells["mttr_s"]) == ("", "", "")


def test_the_table_of_replicas_has_windows_and_metadata_as_columns() -> None:
    rows = read_csv(replicas_csv(demo_report()))
    assert [row["verdict"] for row in rows] == ["breached", "insufficient data", "met"]
    worst = rows[0]
    assert (worst["date"], worst["bad_s"]) == (DATE, "275.0")
    assert worst["metadata_topics_max_age_ms"] == "41800"
    assert rows[1]["metadata_topics_max_age_ms"] == ""
    assert worst["d30_forecast"] == "2026-05-01"
    assert worst["d7_days_with_data"] == "7"
    assert all(None not in row for row in rows), "a row longer than the header"


def test_groups_have_windows_and_clusters_are_told() -> None:
    summary = json.loads(summary_json(demo_report()))
    of_group = summary["groups"][0]["windows"]
    assert set(of_group) == {"7", "30"}
    assert of_group["30"]["sync_flush_slave_timeout"] == 14 * 214
    assert [row["days"] for row in summary["clusters"]] == [1, 7, 30]
    assert summary["clusters"][0]["replicas_breached"] == 1
    assert not any(name.endswith("_hist") for row in summary["clusters"] for name in row)


def test_windows_as_sla_yaml_asks_for_them() -> None:
    data = demo_report()
    rows = [{**row, "days": 14} for row in data.windows if row["days"] == 7]
    other = dataclasses.replace(data, windows=rows, window_days=(14,))
    (header, *_) = replicas_csv(other).decode().splitlines()
    assert {name.partition("_")[0] for name in header.split(",") if name[1:2].isdigit()} == {"d14"}
    assert read_csv(replicas_csv(other))[0]["d14_days_with_data"] == "7"


def test_what_is_left_out_is_counted() -> None:
    data = dataclasses.replace(demo_report(), totals={"incidents": 300_000, "events": 7})
    counts = json.loads(summary_json(data))["counts"]
    assert (counts["incidents"], counts["events"]) == (300_000, 7)


def test_the_table_of_incidents() -> None:
    rows = read_csv(incidents_csv(demo_report()))
    assert [row["cause"] for row in rows].count("master_restart") == 2
    assert rows[0]["start"] == "2026-03-14T02:10:05.000+00:00"
    assert (rows[0]["duration_s"], rows[0]["open"]) == ("200.0", "false")
    assert rows[-1]["max_lag_ms"] == ""


@pytest.mark.parametrize(
    "name",
    [
        'a"b,c\nd',
        "a\rb",
        "a\r\n2026-03-10,c,b,met",
        "\u202eevil",
        "x" * 5000,
        "<script>",
        "Grüße 🐇",
    ],
)
def test_names_come_back_whole(name: str) -> None:
    data = one_replica_report(name)
    assert json.loads(summary_json(data))["replicas"][0]["replica"] == name
    assert read_csv(replicas_csv(data))[0]["replica"] == name


def test_a_spreadsheet_does_not_take_a_name_for_a_formula() -> None:
    data = one_replica_report("=HYPERLINK(1)", "@group")
    row = read_csv(replicas_csv(data))[0]
    assert (row["replica"], row["broker"]) == ("'=HYPERLINK(1)", "'@group")
    assert json.loads(summary_json(data))["replicas"][0]["replica"] == "=HYPERLINK(1)"
    assert read_csv(replicas_csv(demo_report()))[0]["budget_left_s"].startswith("-188.6")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff20"])
def test_each_sign_that_begins_a_formula_has_an_apostrophe_in_front(start: str) -> None:
    name = f"{start}1+1"
    for text in (replicas_csv, incidents_csv):
        data = one_replica_report(name)
        rows = read_csv(text(data))
        assert {row["replica"] for row in rows} <= {f"'{name}"}
    assert rows


def test_no_name_ends_a_row_for_whoever_reads_it() -> None:
    """Many readers, this one too, take a bare carriage return for the end of a row."""
    data = one_replica_report("x\r2026-03-10,c,b,b:9,met\r")
    lines = replicas_csv(data).decode().split("\n")
    assert len(lines) == 3
    assert '"x\r2026-03-10,c,b,b:9,met\r"' in lines[1]
    assert len(list(csv.reader(io.StringIO(replicas_csv(data).decode(), newline="")))) == 2


def test_a_nul_ends_no_text() -> None:
    data = one_replica_report("a\0b")
    assert read_csv(replicas_csv(data))[0]["replica"] == "a\ufffdb"
    assert json.loads(summary_json(data))["replicas"][0]["replica"] == "a\0b"


def test_a_text_that_is_not_unicode_is_written_nevertheless() -> None:
    data = one_replica_report("half \ud800")
    assert json.loads(summary_json(data))["replicas"][0]["replica"] == "half \ud800"
    assert read_csv(replicas_csv(data))[0]["replica"] == "half ?"


def test_an_empty_day() -> None:
    summary = json.loads(summary_json(empty_report()))
    assert (summary["verdict"], summary["exit_code"]) == ("insufficient data", 2)
    assert summary["replicas"] == summary["incidents"] == []
    assert read_csv(replicas_csv(empty_report())) == []
    assert replicas_csv(empty_report()).startswith(b"date,cluster,broker,replica,")


def test_data_that_lack_a_column_are_refused() -> None:
    data = demo_report()
    row = dict(data.replica_days[0])
    del row["bad_s"]
    with pytest.raises(ReportDataError, match="replica_days lacks bad_s"):
        dataclasses.replace(data, replica_days=[row])
    with pytest.raises(ReportDataError, match="'fine' is not one of met"):
        dataclasses.replace(data, verdict="fine")
    with pytest.raises(ReportDataError, match="is empty"):
        dataclasses.replace(data, w1_ms=data.w0_ms)


def test_an_objective_that_is_not_there_is_named() -> None:
    data = dataclasses.replace(demo_report(), objectives=[])
    with pytest.raises(ReportDataError, match="'default'"):
        data.objective_of(data.replica_days[0])


def test_the_worst_are_plotted() -> None:
    rows = demo_report().replica_days
    assert [row["replica"] for row in worst_first(reversed(rows))] == [
        "broker-a:1",
        "broker-b:1",
        "broker-a:2",
    ]
    assert plotted_keys(rows, 1) == [("DefaultCluster", "broker-a", "broker-a:1")]


def test_finite() -> None:
    assert [finite(value) for value in (None, math.nan, -math.inf, 3, "4.5")] == [
        None,
        None,
        None,
        3,
        4.5,
    ]


def test_excluded_time_in_a_cell() -> None:
    excluded = [{"reason": "new disks", "seconds": 3600.0}, {"reason": "weekly", "seconds": 60.5}]
    assert _cell(excluded) == "new disks: 3600.0; weekly: 60.5"
    assert _cell([]) == ""
    assert _cell([{"reason": "=1+1", "seconds": 1.0}]) == "'=1+1: 1.0"
