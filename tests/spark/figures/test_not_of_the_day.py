"""Days that were met and were not: a replica that came behind the window, a log without its end."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from tests.spark.both_ways import Question, core_tables_of, differences, plain_tables
from tests.spark.dump_lines_builder import DATE, T0, Life, Line, replica, sync, write_dump
from tests.spark.plain_samples import Tables, Window
from tests.spark.plain_verdicts import PlainObjective

HOUR_MS = 3_600_000
W0, W1 = T0 + 10 * HOUR_MS, T0 + 11 * HOUR_MS
OF_GROUPS = ("replica_days", "group_days", "windows", "minutes", "hours", "incidents")


def judged(tmp_path: Path, lines: list[Line], rpo_bytes: int | None = None) -> Tables:
    """By the product, which the plain program agrees with."""
    write_dump(tmp_path, lines)
    window = Window(datetime.date.fromisoformat(str(DATE)), W0, W1)
    question = Question([tmp_path], window, [PlainObjective(rpo_bytes=rpo_bytes)])
    found = core_tables_of(question)
    plain = plain_tables(question)
    assert not differences(plain | {name: found[name] for name in OF_GROUPS}, plain)
    return found


def test_a_slave_that_came_behind_the_window_makes_no_green_day(tmp_path: Path) -> None:
    """A SYNC_MASTER waited for its first slave all the time, and every send failed: the row of the
    closing line is of a replica that was none of the window's."""
    life = Life(W0 - HOUR_MS, role="SYNC_MASTER", marks=True)
    lines = [
        life.line(ts, replicas=[], sync=sync(not_available=place))
        for place, ts in enumerate(range(W0 - HOUR_MS + 5_000, W1, 5_000))
    ]
    came = replica(state_ms={"in_sync": 1_000})
    lines.append(life.line(W1 + 2_000, replicas=[came], sync=sync(not_available=len(lines))))
    found = judged(tmp_path, lines)
    assert found["replica_days"] == []
    assert [row["verdict"] for row in found["group_days"]] == ["insufficient data"]
    assert [row["verdict"] for row in found["clusters"] if row["days"] == 1] == [
        "insufficient data"
    ]


def test_what_is_written_where_a_lost_end_of_the_log_was_is_at_risk(tmp_path: Path) -> None:
    """The log ends 50,000 bytes before what the replica acknowledged; 40,000 are written there."""
    life = Life(W0 - HOUR_MS, marks=True)
    row = replica(ack_offset=100_000)
    log = {"max_offset": 100_000, "replicas": [row]}
    lines = life.lines(W0 - HOUR_MS + 5_000, 1_000, **log)
    after = life.restarted(lines[-1]["ts"] + 1_000)
    unknown: dict[str, Any] = {
        "unreplicated_bytes": None,
        "oldest_unreplicated_ms": None,
        "replicas": [row],
    }
    for ts in range(after.start_ms + 1_000, W1 + 10_000, 5_000):
        written = min(40_000, after.seq * 1_000)
        lines.append(after.line(ts, max_offset=50_000 + written, bytes_in=written, **unknown))
        lines[-1]["exposure"] = None
    row = judged(tmp_path, lines, rpo_bytes=1_000)["replica_days"][0]
    assert row["verdict"] == "insufficient data", row["reasons"]


def test_sends_that_failed_during_a_first_copy_are_no_green_day(tmp_path: Path) -> None:
    life = Life(W0 - HOUR_MS, role="SYNC_MASTER", marks=True)
    lines = []
    for place, ts in enumerate(range(W0 - HOUR_MS + 5_000, W1 + 10_000, 5_000)):
        rows = [replica(state="catching_up")] if ts > W0 + 60_000 else []
        lines.append(life.line(ts, replicas=rows, sync=sync(slave_timeout=place)))
    row = judged(tmp_path, lines)["replica_days"][0]
    assert row["excluded_s"] == row["window_s"]
    assert row["verdict"] == "breached", row["reasons"]


def test_a_role_that_was_changed_at_the_end_unmakes_no_promise(tmp_path: Path) -> None:
    """Three sends of four fail all the time; the last minute's lines are of an ASYNC_MASTER."""
    life = Life(W0 - HOUR_MS, role="SYNC_MASTER", marks=True)
    lines = [
        life.line(ts, sync=sync(ok=place, slave_timeout=3 * place))
        for place, ts in enumerate(range(W0 - HOUR_MS + 5_000, W1 - 60_000, 5_000))
    ]
    after = life.restarted(lines[-1]["ts"] + 1_000, role="ASYNC_MASTER")
    lines += [after.line(ts) for ts in range(after.start_ms + 500, W1 + 10_000, 5_000)]
    found = judged(tmp_path, lines)
    assert found["group_days"][0]["role"] == "SYNC_MASTER"
    row = found["replica_days"][0]
    assert row["verdict"] == "breached", row["reasons"]
    assert any("sync ok 25 %" in reason for reason in row["reasons"])
