"""Random dumps through the program and the plain one: every column of every table equal.

Windows go through the report's core, without a JVM; days, one after the other, through Spark. One
seed for each window, and more of them in a long run. A failure tells all that differs; the same
seed makes the same files again.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.both_ways import (
    Question,
    core_tables_of,
    differences,
    plain_tables,
    spark_tables,
)
from tests.spark.plain_samples import DAY_MS, HOUR_MS, Tables, Window, midnight, whole_day
from tests.spark.plain_verdicts import Exclusion, PlainObjective
from tests.spark.random_dumps import random_lines, write_randomly

pytestmark = pytest.mark.timeout(600)

DATE = datetime.date(2026, 3, 10)
W0 = midnight(DATE)
MORE_SEEDS = 60
"""For each window of a long run."""
OBJECTIVES = [
    PlainObjective(
        "strict", broker="b?", availability_percent=99.95, lag_seconds=0.5, first_copy_hours=0.1
    ),
    PlainObjective(
        "all",
        broker="b1*",
        availability_percent=20,
        lag_seconds=1,
        min_coverage_percent=60,
        lag_p99_seconds=500,
        sync_ok_percent=90,
        rpo_bytes=4_999,
        metadata_age_seconds=59,
    ),
    PlainObjective(
        "metadata",
        replica="*:1",
        availability_percent=10,
        min_coverage_percent=1,
        metadata_age_seconds=60,
        metadata_required=True,
        sync_ok_given=True,
    ),
    PlainObjective("rest", availability_percent=50, lag_seconds=5, min_coverage_percent=50),
]
EXPECTED = [
    *(("c", "b0", "b0:1"), ("c", "never", "seen"), ("c", "b3", "b3:9")),
    *(("c", f"b{number}", f"b{number}:9") for number in range(4, 8)),
]


def excluded(window: Window) -> list[Exclusion]:
    """Two minutes of some groups, three others of some replicas, and all that one group has."""
    middle = window.w1 - 500_000
    return [
        (("*", "b?", "*"), middle, middle + 120_000, "new disks"),
        (("*", "*", "*:2"), middle + 60_001, middle + 240_003, "a new kernel"),
        (("c", "b2", "*"), window.w0 - 1, window.w1 + 1, "new disks"),
    ]


WINDOWS = {
    "ten minutes": Window(DATE, W0 + 10 * HOUR_MS, W0 + 10 * HOUR_MS + 600_000),
    "over an hour": Window(DATE, W0 + 11 * HOUR_MS - 900_000, W0 + 11 * HOUR_MS + 900_000),
    "begin of a day": Window(DATE, W0, W0 + 1_200_000),
    "end of a day": Window(DATE, W0 + DAY_MS - 1_200_000, W0 + DAY_MS),
}


def write_dumps(chance: random.Random, root: Path, begin_ms: int, end_ms: int, groups: int) -> None:
    """Random groups b0, b1, ... that live for a while around [begin, end)."""
    for number in range(groups):
        start = begin_ms - chance.choice((-60_000, 0, 4_000, 500_000, 900_000))
        end = end_ms + chance.choice((-300_000, -3_000, 0, 3_000, 60_000, 300_000))
        lines = random_lines(chance, f"b{number}", start, max(end, start + 60_000))
        write_randomly(chance, root, lines)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=list(WINDOWS))
def test_one_window(tmp_path: Path, window: Window) -> None:
    compare(tmp_path, window, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 1 + MORE_SEEDS))
@pytest.mark.parametrize("window", WINDOWS.values(), ids=list(WINDOWS))
def test_more_windows(
    tmp_path: Path, window: Window, seed: int, proved: Callable[[str], None]
) -> None:
    compare(tmp_path, window, seed)
    proved("a random window: the report and the plain program agree on every column")


def compare(tmp_path: Path, window: Window, seed: int) -> None:
    """Both programs' tables of a window of random dumps."""
    chance = random.Random(f"{window.w0} {seed}")
    write_dumps(chance, tmp_path / "dumps", window.w0, window.w1, groups=16)
    question = Question(
        [tmp_path / "dumps"],
        window,
        OBJECTIVES,
        EXPECTED,
        [("*", "b3", "*")],
        exclusions=excluded(window),
    )
    found = differences(core_tables_of(question), plain_tables(question))
    assert not found, "\n".join(found[:80])


@pytest.mark.long
def test_days_one_after_the_other(spark: SparkSession, tmp_path: Path) -> None:
    """Three whole days: budgets, burn rates and windows reach back into the days before."""
    chance = random.Random(3)
    days = [whole_day(str(DATE + datetime.timedelta(days=n))) for n in range(3)]
    for day in days:
        root = tmp_path / "dumps" / str(day.date)
        write_dumps(chance, root, day.w1 - 1_000_000, day.w1 + 1_000_000, groups=5)
    roots = sorted((tmp_path / "dumps").iterdir())
    # Of three days the last two do not know how what they begin with began.
    question = Question(roots, days[0], OBJECTIVES[1:], EXPECTED[1:2], lengths=(2, 30))
    history: list[Tables] = []
    for day in days:
        asked = dataclasses.replace(question, window=day, exclusions=excluded(day))
        plain = plain_tables(asked, history)
        found = differences(spark_tables(spark, asked, tmp_path / "out"), plain)
        assert not found, "\n".join([str(day.date), *found[:80]])
        history.append(plain)
