"""What lines of version 2 add to a day: all sends by answer, and why a connection ended to whom.

Both programs read the same lines; what they have to say was counted by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark.reported_day import Day
from tests.spark.core_tables import core_tables
from tests.spark.dump_lines_builder import DATE, T0, Life, Line, write_dump
from tests.spark.plain_report import plain_report
from tests.spark.plain_samples import Tables, Window
from tests.spark.plain_verdicts import PlainObjective, PlainQuestion
from tests.spark.story import Story

MINUTES = 60_000
ANSWERS = ("ok", "flush_disk_timeout", "flush_slave_timeout", "slave_not_available", "refused")
FIRST, LAST = T0 + 60 * MINUTES, T0 + 70 * MINUTES
NAMES = [f"sends_{name}" for name in ANSWERS]


def version_2(line: Line, ok: int = 0, refused: int = 0, **others: int) -> Line:
    """The same line as a broker of today writes it."""
    latency = {"le": [0.1], "counts": [ok, refused], "sum": 0.0}
    counts = dict.fromkeys(ANSWERS, 0) | {"ok": ok, "refused": refused} | others
    for row in line["replicas"]:
        row |= {"lag_ms_max": 0, "lag_time": [0, 0], "remote": row.get("remote")}
    added: dict[str, Any] = {"v": 2, "since": line["mono"], "host": "192.0.2.2:10911"}
    return line | added | {"sends": {**counts, "latency": latency}, "lag_le": [10_000]}


@pytest.fixture(params=["core", "plain"])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    def tables(lines: list[Line]) -> Tables:
        write_dump(tmp_path, lines)
        if request.param == "core":
            return core_tables([tmp_path], Day(DATE, FIRST, LAST))
        window = Window(DATE, FIRST, LAST)
        return plain_report(PlainQuestion([tmp_path], window, [PlainObjective("default")]))

    return tables


def lines_of(story: Story) -> list[Line]:
    return story.lines(FIRST - 5_000, LAST)


def test_all_sends_are_counted_by_answer(told: Any) -> None:
    story = Story(FIRST - 60_000, Life(start_ms=FIRST - 60_000, seq=11)).goes("in_sync", 0)
    lines = [
        version_2(line, 1_000 + 10 * i, 3 * (i // 60)) for i, line in enumerate(lines_of(story))
    ]
    (group,) = told(lines)["group_days"]
    # From the line before the window (1,000, 0) to the last one in it (the 120th behind it).
    assert [group[name] for name in NAMES] == [1_200, 0, 0, 0, 6]


def test_a_line_of_version_1_leaves_them_unknown(told: Any) -> None:
    story = Story(FIRST - 60_000).goes("in_sync", 0)
    lines = [version_2(line, 5) if i else line for i, line in enumerate(lines_of(story)[1:])]
    tables = told(lines)
    assert [row[name] for row in tables["group_days"] for name in NAMES] == [None] * 5
    assert {row[name] for row in tables["group_windows"] for name in NAMES} == {None}


def test_why_a_connection_ended_and_to_whom(told: Any) -> None:
    gone, back = FIRST + 61_000, FIRST + 100_000
    story = (
        Story(FIRST - 60_000).goes("in_sync", 0).goes("disconnected", gone).goes("in_sync", back)
    )
    lines = [version_2(line) for line in lines_of(story)]
    for line in lines:
        (row,) = line["replicas"]
        row["remote"] = "192.0.2.3:58200" if line["ts"] < back else "192.0.2.3:58944"
        ended = {"reason": "Connection reset by peer", "ts": gone - 400}
        row["last_error"] = ended if line["ts"] >= gone else None
    (incident,) = told(lines)["incidents"]
    assert (incident["cause"], incident["peer"]) == ("disconnected", "192.0.2.3:58200")
    assert incident["disconnect_reason"] == "Connection reset by peer"
    assert incident["disconnect_ms"] == gone - 400


def test_an_end_of_long_ago_is_not_this_incidents(told: Any) -> None:
    gone, back = FIRST + 61_000, FIRST + 100_000
    story = Story(FIRST - 60_000).goes("in_sync", 0).goes("catching_up", gone).goes("in_sync", back)
    lines = [version_2(line) for line in lines_of(story)]
    for line in lines:
        line["replicas"][0]["last_error"] = {"reason": "closed", "ts": gone - 3_000}
    (incident,) = told(lines)["incidents"]
    names = ("peer", "disconnect_reason", "disconnect_ms")
    assert [incident[name] for name in names] == [None] * 3
