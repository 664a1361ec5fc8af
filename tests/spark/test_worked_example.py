"""The worked example of docs/sla_report.md, computed by the report's own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark.reported_day import Day
from tests.spark.core_tables import Tables, core_tables
from tests.spark.dump_lines_builder import DATE, T0, Line, write_dump
from tests.spark.story import Story

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sla_report.md"


def at(clock: str) -> int:
    """Epoch ms of HH:MM:SS on the day."""
    hours, minutes, seconds = map(int, clock.split(":"))
    return T0 + (hours * 3600 + minutes * 60 + seconds) * 1000


DAY = Day(DATE, at("10:00:00"), at("10:10:00"))
LAGS = {
    at("10:05:05"): 4_000,
    at("10:05:10"): 9_000,
    at("10:05:15"): 14_000,
    at("10:05:20"): 2_000,
}


def first_life() -> Story:
    story = Story(at("09:00:00")).goes("in_sync", at("09:00:00"))
    story.goes("disconnected", at("10:02:01")).goes("catching_up", at("10:02:39"))
    return story.goes("in_sync", at("10:02:46"))


def lines_of(story: Story, *, with_trouble: bool) -> list[Line]:
    """Those of the master until it is killed; five are lost."""
    lines, lost = [], 0
    for ts in range(at("09:59:55"), at("10:08:30") + 1, 5_000):
        if at("10:07:00") < ts < at("10:07:30"):
            lost += 1
            continue
        lag_ms = LAGS.get(ts, 0) if with_trouble else 0
        lines.append(story.line(ts, skip=lost, lag_ms=lag_ms, lag_bytes=10 * lag_ms))
        lost = 0
    return lines


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    first = first_life()
    lines = lines_of(first, with_trouble=True)
    second = Story(at("10:08:41"), first.life.restarted(at("10:08:41")))
    second.goes("disconnected", at("10:08:41")).goes("in_sync", at("10:08:43"))
    lines += second.lines(at("10:08:46"), at("10:10:01"))
    write_dump(tmp_path, lines)
    return core_tables([tmp_path], DAY)


def example() -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text.partition("## A worked example\n")[2].partition("\n## ")[0]


def row_of(figure: str) -> list[str]:
    (line,) = (line for line in example().splitlines() if line.startswith(f"| {figure} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_figures(tables: Tables) -> None:
    (day,) = tables["replica_days"]
    told = {
        "bad": f"{day['bad_s']:g} s",
        "unknown": f"{day['unknown_s']:g} s",
        "good": f"{day['good_s']:g} s",
        "availability": f"{day['availability']:.2%}".replace("%", " %"),
        "coverage": f"{day['coverage']:.2%}".replace("%", " %"),
        "budget": f"{day['budget_s']:g} s",
        "incidents": str(day["incidents"]),
        "lines": f"{day['received']} of {day['expected']}",
        "verdict": day["verdict"],
    }
    assert {figure: row_of(figure)[1] for figure in told} == told
    assert f"{day['mttr_s']:.1f} s" in row_of("incidents")[2]
    assert day["reasons"][0].endswith(row_of("verdict")[2])


def test_the_incidents(tables: Tables) -> None:
    def told(row: dict[str, Any]) -> tuple[int, int, str]:
        return row["start_ms"], row["end_ms"], row["cause"]

    assert [told(row) for row in tables["incidents"]] == [
        (at("10:02:01"), at("10:02:46"), "disconnected"),
        (at("10:05:11"), at("10:05:15"), "stalled"),
        (at("10:08:30"), at("10:08:43"), "master_restart"),
    ]
    assert all(f"`{row['cause']}`" in example() for row in tables["incidents"])


def test_the_unknown_time(tables: Tables) -> None:
    unknown = {row["minute"]: row["unknown_ms"] for row in tables["minutes"] if row["unknown_ms"]}
    assert unknown == {at("10:05:00"): 5_000, at("10:07:00"): 30_000}


def test_lost_lines_alone_are_insufficient_data(tmp_path: Path) -> None:
    story = Story(at("09:00:00")).goes("in_sync", at("09:00:00"))
    lines = lines_of(story, with_trouble=False)
    lines += story.lines(at("10:08:35"), at("10:10:00"))
    write_dump(tmp_path, lines)
    (day,) = core_tables([tmp_path], DAY)["replica_days"]
    assert (day["bad_s"], day["unknown_s"], day["verdict"]) == (0, 30, "insufficient data")
