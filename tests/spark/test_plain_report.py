"""The plain program by itself, without Spark: days whose figures a person can check by hand.

Every story is one master `b` with one slave `b:1`. Its lines come every 5 s (or as said); in each
the counters say what the slave did since the line before: `story.line(seconds, disconnected=3_000)`
is a line after so many seconds of which 3 were disconnected and the rest in sync.
"""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.dump_lines_builder import (
    DATE,
    T0,
    Life,
    Line,
    replica,
    sync,
    write_dump,
    write_file,
)
from tests.spark.plain_report import plain_report
from tests.spark.plain_samples import DAY_MS, HOUR_MS, Json, Tables, Window, whole_day
from tests.spark.plain_verdicts import PlainObjective, PlainQuestion

MINUTE_MS = 60_000
DAY = whole_day(str(DATE))
NEXT_DAY = whole_day(str(DATE + datetime.timedelta(days=1)))
TEN = T0 + 10 * HOUR_MS
TEN_MINUTES = Window(DATE, TEN, TEN + 10 * MINUTE_MS)


class Story:
    """One life of the master; `now` is the ts of its last line."""

    def __init__(self, life: Life) -> None:
        self.life, self.now = life, life.start_ms
        self.state_ms = dict.fromkeys(("in_sync", "catching_up", "disconnected"), 0)
        self.lines: list[Line] = []

    def line(
        self,
        seconds: float = 5,
        state: str = "in_sync",
        *,
        catching_up: int = 0,
        disconnected: int = 0,
        without_row: bool = False,
        skip: int = 0,
        clock_ms: int = 0,
        row: Json | None = None,
        **fields: Any,
    ) -> Story:
        """A line after so many seconds; `clock_ms`: by how much the wall clock is wrong."""
        passed = int(seconds * 1000)
        self.now += passed
        self.state_ms["catching_up"] += catching_up
        self.state_ms["disconnected"] += disconnected
        self.state_ms["in_sync"] += max(0, passed - catching_up - disconnected)
        told = replica("b:1", state, state_ms=dict(self.state_ms), **(row or {}))
        fields.setdefault("mono", self.now - (self.life.machine_ms or 0))
        rows = [] if without_row else [told]
        line = self.life.line(self.now + clock_ms, skip=skip, **({"replicas": rows} | fields))
        self.lines.append(line)
        return self

    def until(self, end_ms: int, **fields: Any) -> Story:
        """Lines of nothing but sync, one each interval, the last one at `end_ms`."""
        while self.now < end_ms:
            self.line(self.life.interval_ms / 1000, **fields)
        return self

    def killed(self, back_ms: int, *, proved: bool, **life: Any) -> Story:
        """The next life begins at `back_ms`; its first line comes at once."""
        after = Story(self.life.restarted(back_ms, proved=proved, **life))
        after.lines = self.lines
        return after


def story(start_ms: int = TEN - 5_000, *, without_row: bool = False, **life: Any) -> Story:
    """A master that ran before (no first line of a boot) and writes its first line at once."""
    # Of version 1 lines of a minute prove no lag of 10 s.
    marks = life.get("interval_ms", 5_000) > 10_000
    told = Story(Life(start_ms=start_ms, **({"seq": 100, "marks": marks} | life)))
    return told.line(0, without_row=without_row)


Report = Callable[..., Tables]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """Tables of the ten minutes, or of another window."""

    def tables(
        told: Story, window: Window = TEN_MINUTES, history: Any = None, **question: Any
    ) -> Tables:
        write_dump(tmp_path, told.lines)
        return plain_report(PlainQuestion([tmp_path], window, **question), history)

    return tables


def only(tables: Tables, table: str = "replica_days") -> Json:
    (row,) = tables[table]
    return row


def times(row: Json) -> tuple[float, float, float]:
    """Good, bad and unknown seconds."""
    return row["good_s"], row["bad_s"], row["unknown_s"]


# -- the six ways in which a breached day was met ----------------------------------------------


def test_outages_between_samples_are_counted(report: Report) -> None:
    told = story()
    for number in range(121):
        told.line(disconnected=3_000 if 1 <= number < 12 else 0)
    tables = report(told)
    day = only(tables)
    assert times(day) == (567, 33, 0)
    assert day["state_disconnected_s"] == 33
    assert day["verdict"] == "breached"
    assert day["incidents"] == 11
    assert only(tables, "group_days")["closed"] is True


def test_counters_tell_of_lost_lines(report: Report) -> None:
    """860 s without a line, of which 855 were disconnected; the last 5 s are covered by the line
    behind the gap, and were in sync."""
    window = Window(DATE, TEN, TEN + 30 * MINUTE_MS)
    told = story().until(TEN + 300_000).line(860, disconnected=855_000, skip=171)
    told.until(window.w1)
    day = only(report(told, window))
    assert times(day) == (1_800 - 855, 855, 0)
    assert day["state_disconnected_s"] == 855
    assert day["longest_gap_s"] == 0


def test_what_the_counters_leave_of_a_gap_is_unknown(report: Report) -> None:
    """Of 860 s 300 were disconnected, the others in sync: nobody saw with which lag."""
    window = Window(DATE, TEN, TEN + 30 * MINUTE_MS)
    told = story().until(TEN + 300_000).line(860, disconnected=300_000, skip=171)
    told.until(window.w1)
    day = only(report(told, window))
    assert times(day) == (1_800 - 860, 300, 560)
    assert day["state_in_sync_s"] == 1_500
    assert day["state_unknown_s"] == 0
    assert day["longest_gap_s"] == 560


def test_disconnected_four_seconds_of_five(report: Report) -> None:
    told = story()
    for _ in range(121):
        told.line(disconnected=4_000)
    day = only(report(told))
    assert times(day) == (120, 480, 0)
    assert day["availability"] == 0.2


def test_thirty_outages_in_the_middle_of_a_long_interval(report: Report) -> None:
    window = Window(DATE, TEN, TEN + 30 * MINUTE_MS)
    told = story(TEN - 60_000, interval_ms=60_000).line(60)
    for _ in range(31):
        told.line(60, disconnected=50_000)
    day = only(report(told, window))
    assert times(day) == (300, 1_500, 0)
    assert day["verdict"] == "breached"


def test_more_bad_time_than_the_counters_say_is_not_told(report: Report) -> None:
    """Two samples see the slave away, for 2 s each: 4 s, not 10."""
    told = story().until(TEN + 60_000)
    told.line(state="disconnected", disconnected=2_000).line(disconnected=2_000)
    day = only(report(told.until(TEN_MINUTES.w1)))
    assert times(day) == (596, 4, 0)
    assert day["incident_s"] == 4


def test_a_master_that_dies_at_the_end_of_the_day(report: Report) -> None:
    """840 s unknown are more than the budget of 86.4 s, though 99.03 % are known."""
    told = story(T0 - 60_000, interval_ms=60_000).until(T0 + DAY_MS - 840_000)
    tables = report(told, DAY)
    day = only(tables)
    assert times(day) == (86_400 - 840, 0, 840)
    assert day["coverage"] > 0.99
    assert day["verdict"] == "insufficient data"
    assert only(tables, "group_days")["closed"] is False


@pytest.mark.parametrize("hours", [1, 4, 23])
def test_the_first_line_of_the_next_day_proves_down_time(report: Report, hours: int) -> None:
    told = story(T0 - 60_000, interval_ms=60_000).until(T0 + DAY_MS - 840_000)
    told = told.killed(T0 + DAY_MS + hours * HOUR_MS, proved=True).line(0)
    tables = report(told, DAY)
    day = only(tables)
    assert times(day) == (86_400 - 840, 840, 0)
    assert day["state_down_s"] == 840
    assert day["verdict"] == "breached"
    assert only(tables, "incidents")["cause"] == "master_restart"
    assert only(tables, "group_days")["closed"] is True
    known = report(told, NEXT_DAY, [tables])
    assert only(known)["state_down_s"] == hours * 3_600


def test_a_replacement_with_empty_dumps(report: Report) -> None:
    """A new disk after 14 minutes proves nothing of them."""
    told = story(T0 - 60_000, interval_ms=60_000).until(T0 + 12 * HOUR_MS)
    told = told.killed(T0 + 12 * HOUR_MS + 840_000, proved=False).line(0).until(T0 + DAY_MS)
    day = only(report(told, DAY))
    assert times(day) == (86_400 - 840, 0, 840)
    assert day["verdict"] == "insufficient data"


# -- samples -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["0000-merged.jsonl", "everything", "2359-0-x-00000001.jsonl"])
@pytest.mark.parametrize("compress", [False, True])
def test_files_may_have_any_name_and_place(tmp_path: Path, name: str, compress: bool) -> None:
    """The lines of the day before are needed for the first minute, those of the next for the
    last."""
    told = story(T0 - 60_000, interval_ms=60_000).until(T0 + DAY_MS)
    for date in (DATE - datetime.timedelta(days=1), DATE, NEXT_DAY.date):
        first = T0 + (date - DATE).days * DAY_MS
        some = [line for line in told.lines if first <= line["ts"] < first + DAY_MS]
        text = "".join(json.dumps(line) + "\n" for line in some).encode()
        path = tmp_path / f"dt={date}" / "cluster=all" / "broker=all" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(text) if compress else text)
    day = only(plain_report(PlainQuestion([tmp_path], DAY)))
    assert times(day) == (86_400, 0, 0)
    assert day["expected"] == day["received"] == 1_440


def test_a_damaged_file_counts_up_to_the_damage(tmp_path: Path) -> None:
    told = story().until(TEN_MINUTES.w1)
    *_, path = write_dump(tmp_path, told.lines)
    packed = bytearray(path.read_bytes())
    for at in range(len(packed) // 2, len(packed) // 2 + 64):
        packed[at] ^= 0xFF
    path.write_bytes(packed)
    tables = plain_report(PlainQuestion([tmp_path], TEN_MINUTES))
    assert "" in {row["text"] for row in tables["bad_lines"]}
    assert 0 < only(tables)["received"] < 120


@pytest.mark.parametrize(
    ("field", "value"),
    [("seq", 0), ("interval_ms", 0), ("msgs_in", -1), ("unreplicated_bytes", -5), ("v", 3)],
)
def test_bad_lines(tmp_path: Path, field: str, value: int) -> None:
    told = story().until(TEN_MINUTES.w1)
    write_dump(tmp_path, told.lines)
    spoiled = told.lines[5] | {"boot": "f" * 16, field: value}
    write_file(tmp_path / f"dt={DATE}" / "cluster=c" / "broker=b" / "x.jsonl", [spoiled])
    tables = plain_report(PlainQuestion([tmp_path], TEN_MINUTES))
    assert len(tables["bad_lines"]) == 1
    assert only(tables)["received"] == 120


@pytest.mark.parametrize("offset", ["min_offset", "max_offset", "replicated_offset"])
def test_offsets_of_the_log_may_be_negative(report: Report, offset: str) -> None:
    told = story().until(TEN_MINUTES.w1, **{offset: -1})
    assert report(told)["bad_lines"] == []


def test_a_negative_lag_is_bad_input(report: Report) -> None:
    told = story().until(TEN).line(row={"lag_ms": -1}).until(TEN_MINUTES.w1)
    tables = report(told)
    assert len(tables["bad_lines"]) == 1
    assert times(only(tables)) == (595, 0, 5)


def test_without_a_closing_sample_the_end_is_unknown(report: Report) -> None:
    day = only(report(story().until(TEN_MINUTES.w1 - 5_000)))
    assert times(day) == (595, 0, 5)
    assert day["verdict"] == "insufficient data"


def test_time_that_the_wall_clock_has_no_room_for(report: Report) -> None:
    """The clock goes back by 60 s: 5 s of disconnected at a moment that has been told of."""
    told = story().until(TEN + 120_000)
    for _ in range(96):
        told.line(disconnected=5_000 if told.now == TEN + 120_000 else 0, clock_ms=-60_000)
    told.until(TEN_MINUTES.w1 + 60_000, clock_ms=-60_000)
    day = only(report(told))
    # The line after the step is at 10:01:05, as one before it: its interval is empty.
    assert day["bad_s"] == day["state_disconnected_s"] == 5
    assert times(day) == (595, 5, 0)
    assert day["incidents"] == 0
    minute = day["cluster"], TEN + MINUTE_MS
    bad = {(row["cluster"], row["minute"]): row["bad_ms"] for row in report(told)["minutes"]}
    assert {key for key, ms in bad.items() if ms} == {minute}


# -- lag ---------------------------------------------------------------------------------------


def test_lag_is_bad_from_when_it_passed_the_limit(report: Report) -> None:
    """12 s of lag: 2 s above; before that the predecessor's 7 s could not have passed 10. When in
    the next 5 s it came down nobody saw."""
    told = story().until(TEN + 60_000).line(row={"lag_ms": 7_000}).line(row={"lag_ms": 12_000})
    tables = report(told.until(TEN_MINUTES.w1))
    assert times(only(tables)) == (593, 2, 5)
    assert only(tables, "incidents")["cause"] == "slow"


def test_lag_that_may_have_passed_the_limit_and_come_down(report: Report) -> None:
    """8 s at one sample, 1 s at the next: it may have been above 10 s from 2 s on."""
    told = story().until(TEN + 60_000).line(row={"lag_ms": 8_000}).line(row={"lag_ms": 1_000})
    assert times(only(report(told.until(TEN_MINUTES.w1)))) == (597, 0, 3)


def test_time_in_sync_before_a_loss_is_good_as_far_as_the_lag_can_tell(report: Report) -> None:
    """In sync for 2 s, then away for 3: the lag was at most 2 s."""
    told = story().until(TEN + 60_000).line(state="disconnected", disconnected=3_000)
    told.line(state="disconnected", disconnected=5_000).line(disconnected=1_000)
    assert times(only(report(told.until(TEN_MINUTES.w1)))) == (591, 9, 0)


def test_an_inexact_lag_is_unknown(report: Report) -> None:
    row = {"lag_ms": 5, "lag_exact": False, "lag_bytes": 9}
    told = story().until(TEN + 60_000).line(row=row).until(TEN_MINUTES.w1)
    # Nor does it say how large the lag was when the next interval began.
    assert times(only(report(told))) == (590, 0, 10)


def test_without_a_row_a_known_replica_is_away(report: Report) -> None:
    told = story().until(TEN + 60_000).line(without_row=True).until(TEN_MINUTES.w1)
    day = only(report(told))
    # The line after it counts from 0: what exceeds the 5 s that it can tell of is not its.
    assert times(day) == (595, 5, 0)
    assert day["state_disconnected_s"] == 5


# -- which replicas, since when ------------------------------------------------------------------


def test_a_group_that_died_before_the_day_is_in_its_report(report: Report) -> None:
    """Dead since 23:30 of the day before; the first report ever."""
    told = story(T0 - HOUR_MS, interval_ms=60_000).until(T0 - 30 * MINUTE_MS)
    day = only(report(told, DAY))
    assert times(day) == (0, 0, 86_400)
    assert day["verdict"] == "insufficient data"


def test_a_replica_did_not_exist_before_its_first_row(report: Report) -> None:
    told = story(without_row=True)
    told.until(TEN + 300_000, without_row=True)
    told.state_ms = dict.fromkeys(told.state_ms, 0)
    day = only(report(told.until(TEN_MINUTES.w1)))
    assert times(day) == (300, 0, 0)
    assert day["exclusions"] == [{"reason": "did not exist yet", "seconds": 300}]
    assert day["verdict"] == "met"


@pytest.mark.parametrize(("hours", "bad_s"), [(24, 5), (0, 70), (1 / 60, 10)])
def test_a_first_copy(report: Report, hours: float, bad_s: float) -> None:
    """A minute of catching up and 5 s away, then in sync. The first row comes with the first 5 s
    of the copy; with a grace of a minute (from that row on) 5 s of it are late."""
    told = story(without_row=True).until(TEN + 60_000, without_row=True)
    told.state_ms = dict.fromkeys(told.state_ms, 0)
    for _ in range(6):
        told.line(state="catching_up", catching_up=5_000)
    told.line(state="disconnected", disconnected=5_000)
    for _ in range(7):
        told.line(state="catching_up", catching_up=5_000)
    told.until(TEN_MINUTES.w1)
    day = only(report(told, objectives=[PlainObjective(first_copy_hours=hours)]))
    assert day["bad_s"] == bad_s
    assert day["excluded_s"] == 60 + 70 - bad_s
    assert day["unknown_s"] == 0
    copy = [{"reason": "first copy", "seconds": 70 - bad_s}] if hours else []
    assert day["exclusions"] == [{"reason": "did not exist yet", "seconds": 60}, *copy]
    assert day["first_copy_since_ms"] is None


def test_a_first_copy_goes_on_the_day_after(report: Report) -> None:
    told = story(T0 + DAY_MS - 3_600_000, interval_ms=60_000, seq=0)
    told.lines[0]["replicas"] = []
    told.state_ms = dict.fromkeys(told.state_ms, 0)
    while told.now < T0 + DAY_MS + 3_600_000:
        told.line(60, "catching_up", catching_up=60_000)
    told.until(T0 + 2 * DAY_MS)
    first = report(told, DAY)
    assert only(first)["first_copy_since_ms"] == T0 + DAY_MS - 3_540_000
    assert only(first)["excluded_s"] == 3_600
    second = only(report(told, NEXT_DAY, [first]))
    assert times(second) == (86_400 - 3_600, 0, 0)
    assert second["excluded_s"] == 3_600
    assert second["verdict"] == "met"


def test_maintenance_is_taken_out(report: Report) -> None:
    told = story().until(TEN + 60_000)
    for _ in range(12):
        told.line(state="disconnected", disconnected=5_000)
    patterns = ("c", "b*", "*")
    hour = (patterns, TEN + 60_000, TEN + 110_000, "new disks")
    day = only(report(told.until(TEN_MINUTES.w1), exclusions=[hour]))
    assert times(day) == (540, 10, 0)
    assert day["excluded_s"] == 50
    assert day["exclusions"] == [{"reason": "new disks", "seconds": 50}]
    assert day["coverage"] == 1
    assert day["state_disconnected_s"] == 10
    assert day["budget_s"] == 0.55


def test_a_window_that_is_excluded_is_met(report: Report) -> None:
    told = story().until(TEN_MINUTES.w1, state="disconnected")
    hour = (("*", "*", "*"), TEN, TEN + HOUR_MS, "moved")
    day = only(report(told, exclusions=[hour]))
    assert day["verdict"] == "met"
    assert day["coverage"] is None


# -- incidents, service level ---------------------------------------------------------------------


@pytest.mark.parametrize("is_same", [True, False])
def test_a_failover_is_no_restart(report: Report, is_same: bool) -> None:
    """Without a replica for a minute, from the first line of the new master on, which knows the
    life before it (but not its last line) or another one."""
    told = story().until(TEN + 60_000)
    boot, cause = told.life.boot, "master_restart" if is_same else "failover"
    told = told.killed(TEN + 61_000, proved=False)
    told.life.prev_boot, told.life.prev_seq = (boot if is_same else "ab" * 8), 1
    told = told.line(1, without_row=True)
    told.until(TEN + 121_000, without_row=True).until(TEN_MINUTES.w1)
    assert only(report(told, expect=[("c", "b", "b:1")]), "incidents")["cause"] == cause


@pytest.mark.parametrize(
    ("role", "objective", "verdict"),
    [
        ("SYNC_MASTER", PlainObjective(), "breached"),
        ("SYNC_MASTER", PlainObjective(sync_ok_given=True), "met"),
        ("SYNC_MASTER", PlainObjective(sync_ok_percent=90), "met"),
        ("ASYNC_MASTER", PlainObjective(), "met"),
    ],
)
def test_sync_sends_of_a_sync_master(
    report: Report, role: str, objective: PlainObjective, verdict: str
) -> None:
    """995 of 1,000 succeeded."""
    told = story(role=role).until(TEN_MINUTES.w1 - 5_000)
    told.line(sync=sync()).line(sync=sync(995, 5))
    told.lines[-3]["sync"] = sync(995, 5)
    assert only(report(told, objectives=[objective]))["verdict"] == verdict


@pytest.mark.parametrize(("acknowledged", "verdict"), [(990, "met"), (989, "insufficient data")])
def test_data_at_risk_that_no_line_tells_is_bounded_by_the_log(
    report: Report, acknowledged: int, verdict: str
) -> None:
    """Its end is 1,000 all the time, and so far the replica has it; the limit is 10 bytes."""
    row = {"ack_offset": acknowledged}
    told = story()
    told.lines[0]["replicas"][0] |= row
    told.until(TEN + 300_000, unreplicated_bytes=None, row=row)
    told.until(TEN_MINUTES.w1, row=row)
    tables = report(told, objectives=[PlainObjective(rpo_bytes=10)])
    assert only(tables, "group_days")["exposure_covered_s"] == 300
    assert times(only(tables)) == (600, 0, 0)
    assert only(tables)["verdict"] == verdict


def test_no_forecast_from_less_than_a_day(report: Report) -> None:
    """An hour of the day is known, a second of it bad; and all of it."""
    lengths = (1,)
    told = story(T0 - 60_000, interval_ms=60_000).until(T0 + HOUR_MS)
    told.line(60, disconnected=1_000)
    assert {row["forecast"] for row in report(told, DAY, lengths=lengths)["windows"]} == {None}
    told.until(T0 + DAY_MS)
    (day,) = report(told, DAY, lengths=lengths)["windows"]
    # 86.4 s of budget, 1 s used, 1 s a day: 85 days.
    assert day["forecast"] == str(DATE + datetime.timedelta(days=85))
    assert day["verdict"] == "met"
