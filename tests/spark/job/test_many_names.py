"""Lines that name more replicas than a group can have: careless or hostile, they cost an executor
no more than so many replicas do, and nothing is met because some were not looked at."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from typing import Any, Final

import pytest

from spark.config.objectives import GroupAvailability, Objective, ReplicaName, SlaConfig
from spark.dumps.dump_line import FileLines
from spark.figures.replica_names import MOST_REPLICAS
from spark.figures.replica_time import Asked, replica_time
from spark.figures.report_context import Context
from spark.figures.report_data import is_any_left_out
from spark.figures.result_tables import TABLES
from spark.figures.sample_stream import read_samples
from spark.job.report_tasks import (
    Rows,
    items_of_file,
    items_of_rows,
    rows_of_part,
)
from spark.reported_day import Day
from spark.vocabulary import MINUTE_MS
from tests.spark.dump_lines_builder import DATE, T0, Life, Line, replica

DAY: Final = Day(DATE, T0, T0 + 600_000)
FILE: Final = f"file:/dt={DATE}/cluster=c/broker=b/x.jsonl.gz"
ALWAYS: Final = ("b:1", "b:2")
"""They are in every line."""


def lines_with(names: Iterable[str], every: int = 120) -> list[Line]:
    """A line every 5 s; each of `names` in the line of its turn, as that of a slave which comes
    back under another name each time."""
    life = Life(start_ms=T0 - 5_000)
    turns: list[list[str]] = [[] for _ in range(every)]
    for number, name in enumerate(names):
        turns[number % every].append(name)
    return [
        life.line(T0 + 5_000 * number, replicas=[replica(name) for name in (*ALWAYS, *some)])
        for number, some in enumerate(turns)
    ]


def reported(
    lines: list[Line],
    objective: Objective | None = None,
    expect: Iterable[str] = (),
    stored: Any = (),
) -> list[Rows]:
    content = gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode(), mtime=0)
    sla = SlaConfig(
        (objective or Objective("default"),),
        expect=tuple(ReplicaName("c", "b", name) for name in expect),
    )
    context = Context(DAY, sla, is_reported=False, result_dates=("2026-03-09",))
    return list(rows_of_part([*stored, *items_of_file(FILE, content, DAY)], context))


def table(found: Iterable[Rows], name: str) -> list[dict[str, Any]]:
    return [
        dict(zip(TABLES[name], row, strict=True))
        for rows in found
        if rows.table == name
        for row in rows.unpacked()
    ]


def names(count: int) -> list[str]:
    return [f"b:{number}" for number in range(1_000, 1_000 + count)]


def late_lines(count: int) -> list[Line]:
    """Of a window without trouble; each of so many names is in sync from its first row on, which
    is one of the last."""
    life = Life(start_ms=T0 - 60_000)
    rows = [replica(name) for name in ALWAYS]
    lines = life.lines(T0, 115, replicas=rows)
    rows += [replica(name) for name in names(count)]
    return lines + life.lines(T0 + 575_000, 6, replicas=rows)


def test_no_more_replicas_are_reported_than_a_group_may_have() -> None:
    """Those that are in most lines stay, and what is expected; that others are not looked at is
    said, and makes the date no met one."""
    found = reported(lines_with(names(2 * MOST_REPLICAS)), expect=["b:9999"])
    kept = [row["replica"] for row in table(found, "replica_days")]
    assert len(kept) == MOST_REPLICAS
    assert {*ALWAYS, "b:9999"} <= set(kept)
    (bad,) = table(found, "bad_lines")
    assert is_any_left_out([bad])
    assert bad["file"] == "c/b"
    count = 2 * MOST_REPLICAS + 3
    assert bad["text"].startswith(f"{count:,} replicas, of which {MOST_REPLICAS:,} are reported")


@pytest.mark.parametrize(
    ("count", "verdict"), [(0, "met"), (2 * MOST_REPLICAS, "insufficient data")]
)
def test_a_group_of_which_some_were_not_looked_at_is_not_met(count: int, verdict: str) -> None:
    found = reported(late_lines(count))
    assert {row["verdict"] for row in table(found, "replica_days")} == {"met"}
    (row,) = table(found, "group_days")
    assert row["verdict"] == verdict


def test_so_many_as_a_group_may_have_are_all_reported() -> None:
    found = reported(lines_with(names(MOST_REPLICAS - len(ALWAYS))))
    assert len(table(found, "replica_days")) == MOST_REPLICAS
    assert not table(found, "bad_lines")


def test_a_replica_of_earlier_results_is_not_crowded_out() -> None:
    """Lines that no longer name it name as many others as they like."""
    row = dict.fromkeys(TABLES["replica_days"]) | {
        "cluster": "c",
        "broker": "b",
        "replica": "b:7",
        "dt": "2026-03-09",
        "window_s": 600.0,
        "good_s": 600.0,
        "bad_s": 0.0,
        "unknown_s": 0.0,
        "excluded_s": 0.0,
    }
    found = reported(
        lines_with(names(2 * MOST_REPLICAS)), stored=items_of_rows("replica_days", [row])
    )
    (of_it,) = [row for row in table(found, "replica_days") if row["replica"] == "b:7"]
    assert of_it["verdict"] == "breached"


@pytest.mark.parametrize("count", [0, 2 * MOST_REPLICAS])
def test_replicas_that_are_not_looked_at_may_have_been_good_for_the_group(count: int) -> None:
    """Two slaves are one too few for four copies; one that was not looked at may be the third."""
    objective = Objective("default", group_availability=GroupAvailability(in_sync_replicas=4))
    found = reported(late_lines(count), objective)
    (row,) = table(found, "group_availability")
    assert row["verdict"] == ("insufficient data" if count else "breached")
    assert (row["bad_s"] == 0) == bool(count)


def test_a_replica_that_went_costs_no_memory_for_each_line() -> None:
    """A piece of time for each of a day's 17,280 lines took a megabyte for each such name."""
    lines = lines_with(["b:9"])
    samples = read_samples(
        [FileLines("f", DATE, [json.dumps(line).encode() for line in lines])], DAY
    )
    pieces = replica_time(samples.masters, Asked("b:9", 20_000, T0), DAY).pieces
    lengths = [(piece.quality, piece.length_ms) for piece in pieces]
    assert sum(ms for _, ms in lengths) == DAY.window_ms
    assert sum(ms for quality, ms in lengths if quality == "bad") == 595_000
    assert len(lengths) <= 3


def test_minutes_leave_one_replica_after_the_other() -> None:
    """Of all replicas at once they were a third of a megabyte each."""
    found = [rows for rows in reported(lines_with(names(20))) if rows.table == "minutes"]
    assert [rows.length for rows in found] == [10] * 22


def test_stored_minutes_of_a_replica_travel_as_one() -> None:
    """4,320 rows of a replica that was bad for three days would be 2 MB in an executor."""
    rows = [
        {"cluster": "c", "broker": "b", "replica": name, "minute": T0 - MINUTE_MS * n, "bad_ms": n}
        for n in range(1, 4_320)
        for name in ALWAYS
    ]
    items = list(items_of_rows("minutes", rows))
    assert len(items) == len(ALWAYS)
    assert sum(sys.getsizeof(one) for _, (_, thing) in items for one in thing) < 200_000
    found = reported(lines_with([]), stored=items)
    for row in table(found, "replica_days"):
        assert row["burn_1h"] == pytest.approx(sum(range(1, 60)) / 3_600)
        assert row["burn_3d"] == pytest.approx(sum(range(1, 4_320)) / 259_200)
