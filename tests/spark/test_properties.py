"""What holds for every report, whatever the dumps: of order, files, copies, and of missing data."""

from __future__ import annotations

import datetime
import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.both_ways import Question, core_tables_of
from tests.spark.generate_dumps import Shape, generate
from tests.spark.plain_samples import DAY_MS, HOUR_MS, Json, Tables, Window, midnight
from tests.spark.plain_verdicts import PlainObjective

DATE = datetime.date(2026, 3, 10)
W0 = midnight(DATE)
MORNING = Window(DATE, W0 + 6 * HOUR_MS, W0 + 9 * HOUR_MS)
OBJECTIVES = [PlainObjective(availability_percent=99, lag_seconds=5)]
MARKS = {"revision", "late"}
"""Columns that tell of runs, not of the day."""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of three groups, a line a minute, with troubles of all kinds."""
    out = tmp_path_factory.mktemp("dumps")
    shape = Shape(
        out=out,
        date=DATE - datetime.timedelta(days=1),
        groups=3,
        replicas=2,
        days=2,
        interval_s=60,
        seed=5,
        incidents=12,
        restarts=6,
        missing_hours=0.05,
    )
    assert generate(shape, jobs=1).lines > 7_000
    return out


@pytest.fixture(scope="module")
def straight(dumps: Path) -> Tables:
    """The report of the dumps as they were written."""
    return core_tables_of(Question([dumps], MORNING, OBJECTIVES))


def without(tables: Tables, *columns: str) -> dict[str, list[Json]]:
    """The tables (bad lines left out) without some columns and the marks of runs."""
    left_out = MARKS | set(columns)
    return {
        name: [{k: v for k, v in row.items() if k not in left_out} for row in rows]
        for name, rows in tables.items()
        if name != "bad_lines"
    }


def rewritten(dumps: Path, out: Path, change: Callable[[Path, list[str]], None]) -> Path:
    """A copy of the dumps; `change` writes the lines of a directory into its copy."""
    for directory in dumps.glob("dt=*/cluster=*/broker=*"):
        target = out / directory.relative_to(dumps)
        target.mkdir(parents=True)
        lines: list[str] = []
        for file in sorted(directory.iterdir()):
            lines += gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True)
        change(target, lines)
    return out


def write(path: Path, lines: list[str]) -> None:
    path.write_bytes(gzip.compress("".join(lines).encode(), 1))


def shuffled(directory: Path, lines: list[str]) -> None:
    """Every line at a random place of one of seven files, in no order."""
    chance = random.Random(str(directory)[-20:])
    chance.shuffle(lines)
    for number in range(7):
        write(directory / f"0001-0-part-{number:08d}.jsonl.gz", lines[number::7])


def merged(directory: Path, lines: list[str]) -> None:
    """One file for everything, made of gz files one behind the other (docs/sla_at_scale.md)."""
    parts = [lines[at : at + 60] for at in range(0, len(lines), 60)]
    packed = [gzip.compress("".join(part).encode(), 1) for part in parts]
    (directory / "0000-0-all-00000001.jsonl.gz").write_bytes(b"".join(packed))


def doubled(directory: Path, lines: list[str]) -> None:
    """Every line once more, in a file of its own."""
    write(directory / "0700-0-one-00000001.jsonl.gz", lines)
    write(directory / "0700-0-two-00000001.jsonl.gz", lines[::-1])


@pytest.mark.parametrize("change", [shuffled, merged])
def test_order_and_files_do_not_matter(
    dumps: Path, straight: Tables, tmp_path: Path, change: Callable[..., None]
) -> None:
    moved = rewritten(dumps, tmp_path / "dumps", change)
    again = core_tables_of(Question([moved], MORNING, OBJECTIVES))
    assert_equal(without(again), without(straight))


def test_copies_are_only_counted(dumps: Path, straight: Tables, tmp_path: Path) -> None:
    twice = rewritten(dumps, tmp_path / "dumps", doubled)
    again = core_tables_of(Question([twice], MORNING, OBJECTIVES))
    assert_equal(without(again, "duplicates"), without(straight, "duplicates"))
    for once, more in zip(straight["replica_days"], again["replica_days"], strict=True):
        assert more["duplicates"] == once["received"] + 2 * once["duplicates"]


def test_a_date_that_is_run_again_gives_equal_rows(dumps: Path) -> None:
    """D, then D-1, then D: its own figures do not change; the windows now know D-1."""
    day = Window(DATE, W0, W0 + DAY_MS)
    before = Window(DATE - datetime.timedelta(days=1), W0 - DAY_MS, W0)
    question = Question([dumps], day, OBJECTIVES)
    first = core_tables_of(question)
    earlier = core_tables_of(question.on(before), [first])
    second = core_tables_of(question, [earlier, first])
    assert_equal(second["replica_days"], first["replica_days"], *MARKS, *BURN)
    assert any(first[name] for name in ("incidents", "events"))
    for name in ("group_days", "incidents", "minutes", "hours", "events", "bad_lines"):
        assert_equal(second[name], first[name], *MARKS)
    assert {row["days_with_data"] for row in first["windows"]} == {1}
    assert {row["days_with_data"] for row in second["windows"]} == {2}
    third = core_tables_of(question, [earlier, second])
    assert_equal(third, second)


BURN = ("burn_1h", "burn_6h", "burn_24h", "burn_3d")
"""They reach back into the days before, as the windows do."""


def test_a_missing_hour_is_unknown(dumps: Path, straight: Tables, tmp_path: Path) -> None:
    """Whatever hour is taken away: its time is unknown, and nothing becomes better by it."""
    hour = rewritten(dumps, tmp_path / "dumps", without_an_hour)
    again = core_tables_of(Question([hour], MORNING, OBJECTIVES))
    for whole, less in zip(straight["replica_days"], again["replica_days"], strict=True):
        assert less["good_s"] <= whole["good_s"]
        assert less["bad_s"] <= whole["bad_s"]
        assert less["unknown_s"] >= whole["unknown_s"]
        # The first line after the hole speaks for one interval of it.
        assert less["longest_gap_s"] >= 3_600 - 2 * 60
        assert less["availability"] is None or 0 <= less["availability"] <= 1
        total = less["good_s"] + less["bad_s"] + less["unknown_s"]
        assert round(total, 3) == MORNING.length_ms / 1000


def without_an_hour(directory: Path, lines: list[str]) -> None:
    """All but 07:00 to 08:00 of DATE."""
    first, last = W0 + 7 * HOUR_MS, W0 + 8 * HOUR_MS
    left = [
        line
        for line in lines
        if not first <= int(line.partition('"ts":')[2].partition(",")[0]) < last
    ]
    write(directory / "2200-0-rest-00000001.jsonl.gz", left)


def assert_equal(one: Any, other: Any, *but: str) -> None:
    """Rows or tables of rows, without some columns, to the last bit; says the first that differ."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_equal(one[name], other[name], *but)
        return
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        wrong = {
            name: (mine[name], theirs[name])
            for name in mine
            if name not in but and mine[name] != theirs[name]
        }
        assert wrong == {}
