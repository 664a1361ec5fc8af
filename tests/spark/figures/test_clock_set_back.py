"""A wall clock that was wrong and is set back an hour shows the hour twice: what was bad when it
did so again is not forgotten.

The events are by a true clock, T0 + ms; until 11:00 the wall clock is an hour ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.both_ways import Question, core_tables_of, differences, plain_tables
from tests.spark.dump_lines_builder import DATE, T0, Life, Line, replica, sync, write_dump
from tests.spark.plain_samples import Json, Window
from tests.spark.plain_verdicts import PlainObjective

STEP_MS = 30_000
MINUTE_MS = 60_000
SET_BACK = 660
"""At this minute of the true day."""
FIRST, LAST = 670, 700
"""The trouble: minutes of the true day, in the hour that the wall clock shows twice."""
BEGUN, ENDED = 530, 802
"""The lines: from before the window, which is of the wall clock, to behind it."""
WINDOW = Window(DATE, T0 + 600 * MINUTE_MS, T0 + 800 * MINUTE_MS)
OF_GROUPS = ("replica_days", "group_days", "windows", "minutes", "hours", "incidents")


def wall(minute: float) -> int:
    return T0 + int(minute * MINUTE_MS) + (3_600_000 if minute < SET_BACK else 0)


class Broker:
    """A master that writes a line every half minute of true time."""

    def __init__(self, minute: float, life: Life | None = None, marks: bool = True) -> None:
        self.begun = minute
        start_ms = wall(minute)
        self.life = Life(start_ms, interval_ms=STEP_MS, marks=marks, role="SYNC_MASTER")
        if life is not None:
            self.life = life.restarted(start_ms)
        self.lines: list[Line] = []

    def tell(self, first: float, last: float, *, is_written: bool = True, **fields: Any) -> None:
        """The lines of (first, last], minutes. `grows`: the lag does, from 0 on."""
        grows, rows = fields.pop("grows", False), fields.pop("rows", None)
        for step in range(1, int((last - first) * 2) + 1):
            minute = first + step / 2
            mono = 1_000_000 + int((minute - self.begun) * MINUTE_MS)
            lag_ms = step * STEP_MS if grows else 0
            shown = rows or [replica(lag_ms=lag_ms, lag_bytes=min(1, lag_ms))]
            line = self.life.line(wall(minute), mono=mono, replicas=shown, **fields)
            if is_written:
                self.lines.append(line)


def _late(broker: Broker) -> list[Line]:
    broker.tell(FIRST, LAST, grows=True)
    return broker.lines


def _lost(broker: Broker) -> list[Line]:
    broker.tell(FIRST, LAST, grows=True, is_written=False)
    return broker.lines


def _without_row(broker: Broker) -> list[Line]:
    broker.tell(FIRST, LAST, rows=[replica("b:2")])
    return broker.lines


def _disconnected(broker: Broker) -> list[Line]:
    broker.tell(FIRST, LAST, rows=[replica("b:1", "disconnected")])
    return broker.lines


def _quiet(broker: Broker) -> list[Line]:
    broker.tell(FIRST, LAST)
    return broker.lines


def day(trouble: Callable[[Broker], list[Line]], *, marks: bool = True) -> list[Line]:
    broker = Broker(BEGUN, marks=marks)
    broker.tell(BEGUN, FIRST)
    trouble(broker)
    broker.tell(LAST, ENDED)
    return broker.lines


def crashed(first: float, last: float) -> list[Line]:
    broker = Broker(BEGUN)
    broker.tell(BEGUN, first)
    after = Broker(last, broker.life)
    after.tell(last, ENDED)
    return broker.lines + after.lines


def judged(tmp_path: Path, lines: list[Line], **promised: Any) -> Json:
    """The row of b:1 by the product, which the plain program agrees with."""
    write_dump(tmp_path, lines)
    objective = PlainObjective(availability_percent=99.9, lag_seconds=60, **promised)
    question = Question([tmp_path], WINDOW, [objective])
    found = core_tables_of(question)
    plain = plain_tables(question)
    assert not differences(plain | {name: found[name] for name in OF_GROUPS}, plain)
    return next(row for row in found["replica_days"] if row["replica"] == "b:1")


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("trouble", [_late, _lost, _without_row])
def test_trouble_in_the_hour_that_came_twice_is_unknown(
    trouble: Callable[[Broker], list[Line]], marks: bool, tmp_path: Path
) -> None:
    row = judged(tmp_path, day(trouble, marks=marks), lag_p99_seconds=60)
    assert row["verdict"] == "insufficient data", row["reasons"]
    assert 1_730 <= row["unknown_s"] + row["bad_s"] <= 1_835
    assert row["lag_p99_above_s"] + row["lag_p99_unknown_s"] >= 1_730


def test_time_out_of_sync_is_counted_once(tmp_path: Path) -> None:
    row = judged(tmp_path, day(_disconnected))
    assert (row["verdict"], row["bad_s"], row["unknown_s"]) == ("breached", 1_800, 30)


def test_a_quiet_day_stays_met(tmp_path: Path) -> None:
    row = judged(tmp_path, day(_quiet), lag_p99_seconds=60)
    assert (row["verdict"], row["unknown_s"]) == ("met", 0), row["reasons"]


@pytest.mark.parametrize(("first", "last"), [(670, 700), (660 - 0.5, 690)])
def test_a_crash_in_it_is_unknown(first: float, last: float, tmp_path: Path) -> None:
    """Also where the clock is set right while the broker is down."""
    row = judged(tmp_path, crashed(first, last))
    assert row["verdict"] == "insufficient data", row["reasons"]
    assert row["unknown_s"] >= 1_740


def test_exposure_that_lost_lines_hide_is_not_met(tmp_path: Path) -> None:
    """50 MB were at risk while no line was written; the first line behind it marks nothing."""

    def exposed(broker: Broker) -> list[Line]:
        broker.life.fields = {"max_offset": 50_000_000, "sync": sync()}
        return _lost(broker)

    assert judged(tmp_path, day(exposed), rpo_bytes=1_000)["verdict"] == "insufficient data"
