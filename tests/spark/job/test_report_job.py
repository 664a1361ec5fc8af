"""The job that reads and computes: which files it takes, damage, files that go or cannot be read.

What a file holds is tests/spark/dumps/test_dump_files.py's matter.
"""

from __future__ import annotations

import datetime
import gzip
import shutil
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from pyspark.sql import SparkSession

from spark.config.objectives import Objective, SlaConfig
from spark.dumps.dump_text import DEFAULT_BOUNDS, Bounds
from spark.figures.report_context import Context
from spark.job import report_job
from spark.job.dump_source import DumpFiles, DumpSource
from spark.job.report_job import GroupTables, compute, parts_of
from spark.reported_day import Day, InputError
from tests.spark.dump_lines_builder import (
    DATE,
    T0,
    Life,
    directory_of,
    write_dump,
    write_file,
)

pytestmark = pytest.mark.slow
HOUR_MS = 3_600_000
CONTEXT = Context(
    Day(DATE, T0, T0 + HOUR_MS), SlaConfig((Objective("default"),)), False, result_dates=()
)


def job(spark: SparkSession, *roots: Path, bounds: Bounds = DEFAULT_BOUNDS) -> GroupTables:
    return compute(spark, DumpSource([str(root) for root in roots], bounds), {}, CONTEXT)


def received(tables: GroupTables) -> dict[str, int]:
    rows = {row["broker"]: row["samples"] for row in tables.rows("group_days")}
    tables.release()
    return rows


@pytest.mark.parametrize(
    ("size", "cores", "parts"),
    [(0, 2, 2), (1, 2, 1), (249_999, 64, 1), (250_000, 2, 2), (8_000_001, 1, 2), (10**9, 2, 125)],
)
def test_into_how_many_parts_groups_go(size: int, cores: int, parts: int) -> None:
    assert parts_of(size, cores) == parts


def test_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """All of D and the days beside it, in several directories, under any name; hidden files and
    others are none. Damage is told once and costs no second reading."""
    life, strange = Life(start_ms=T0 - 4 * HOUR_MS), Life(cluster="ü b", broker="a/b %+=#?")
    before = life.lines(T0 - 5_000, 1)
    write_dump(tmp_path / "a", before)
    lines = life.lines(T0 + 5_000, 600)
    [cut] = write_dump(tmp_path / "a", lines[:300])
    cut.write_bytes(cut.read_bytes()[:-200])
    [renamed] = write_dump(tmp_path / "dumps of ä%", lines[300:], compress=False)
    renamed.rename(renamed.with_name("merged y+%.jsonl.1"))
    [odd] = write_dump(tmp_path / "dumps of ä%", strange.lines(T0 + 5_000, 3))
    bad = write_file(odd.with_name("0100-0-x y+%.jsonl"), ["garbage", '{"v":1'])
    write_file(odd.with_name(".0100-0-x.jsonl.gz"), ["half compressed"])
    write_file(odd.with_name("notes.txt"), ["notes"])
    write_dump(tmp_path / "a", life.lines(T0 + 24 * HOUR_MS + 5_000, 2))
    after = directory_of(tmp_path / "a", before[0], str(DATE + datetime.timedelta(days=1)))
    write_file(after / "x.jsonl", ["garbage of tomorrow"])

    tables = job(spark, tmp_path / "a", tmp_path / "dumps of ä%")
    told = {row["reason"]: row for row in tables.bad_lines()}
    broken = "the file breaks off: unexpected end of the gzip stream"
    assert {reason: (row["lines"], row["files"]) for reason, row in told.items()} == {
        broken: (1, 1),
        "not one JSON object": (2, 1),
    }
    assert told[broken]["example_file"] == str(cut)
    assert told["not one JSON object"]["example_file"] == str(bad)
    assert tables.count("bad_lines") == 3
    minutes = tables.long_rows("minutes", [("c", "b")])
    assert len(minutes) == 60
    assert {row["broker"] for row in minutes} == {"b"}
    found = received(tables)
    assert found["a/b %+=#?"] == 3
    assert 300 < found["b"] < 600


def test_many_directories_are_listed_by_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """A broker group has one of its own: Spark alone would make a task for each."""
    for number in range(40):
        life = Life(broker=f"b{number}")
        write_file(directory_of(tmp_path, line := life.line(T0 + 5_000)) / "0.jsonl.gz", [line])
    context = spark.sparkContext
    context.setJobGroup("listing", "")
    try:
        DumpFiles(spark, [f"{tmp_path}/dt={DATE}"], DEFAULT_BOUNDS)
        tracker = context.statusTracker()
        jobs = list(map(tracker.getJobInfo, tracker.getJobIdsForGroup("listing")))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    stages = [tracker.getStageInfo(each) for job in jobs if job for each in job.stageIds]
    assert 0 < sum(stage.numTasks for stage in stages if stage) <= 8


def test_a_file_that_is_replaced_by_its_compressed_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the supervisor does it at any time: the job lists again."""
    life = Life()
    [path] = write_dump(tmp_path, life.lines(T0 + 5_000, 5), compress=False)
    listed = report_job._Dumps.parts

    def parts(dumps: Any) -> int:
        if path.exists():
            write_file(path, Life().lines(T0 + 5_000, 5), compress=True)
            path.unlink()
        return listed(dumps)

    monkeypatch.setattr(report_job._Dumps, "parts", parts)
    assert received(job(spark, tmp_path)) == {"b": 5}


def test_files_that_go_every_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Life().line(T0 + 5_000)
    numbers = iter(range(10))

    def parts(_dumps: Any) -> int:
        for path in tmp_path.rglob("*.jsonl"):
            path.unlink()
        write_file(directory_of(tmp_path, line) / f"{next(numbers)}.jsonl", [line])
        return 1

    write_dump(tmp_path, [line], compress=False)
    monkeypatch.setattr(report_job._Dumps, "parts", parts)
    with pytest.raises(InputError, match=r"/1\.jsonl: cannot be read: .*"):
        job(spark, tmp_path)
    assert next(numbers) == 3


def test_a_file_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """It is there, so it is no damage of a dump: here Hadoop's own checksum beside it is another
    (root may read whatever the owner forbade)."""
    [path] = write_dump(tmp_path / "with space", Life().lines(T0 + 5_000, 5))
    checksum = crc32(b"other bytes").to_bytes(4)
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4) + checksum * 9)
    with pytest.raises(InputError, match=f"^{path}: cannot be read: .*[Cc]hecksum"):
        job(spark, tmp_path / "with space")


def test_paths_that_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would read `a` instead of `[a]`."""
    for name in ("a", "[a]"):
        write_dump(tmp_path / name, [Life().line(T0 + 5_000)])
    with pytest.raises(InputError, match=r"/\[a\]: Spark reads a name with one of .* as a patt"):
        job(spark, tmp_path / "[a]")
    with pytest.raises(InputError, match=r"nowhere: there is no such directory; --dumps"):
        job(spark, tmp_path / "a", tmp_path / "nowhere")


def test_dates_without_dumps(spark: SparkSession, tmp_path: Path) -> None:
    line = Life().line(T0 + 5_000)
    write_dump(tmp_path, [line])
    shutil.move(directory_of(tmp_path, line), directory_of(tmp_path, line, "2026-01-01"))
    (tmp_path / f"dt={DATE}").mkdir(exist_ok=True)
    tables = job(spark, tmp_path)
    assert tables.rows("replica_days") == []
    assert tables.bad_lines() == []
    assert received(tables) == {}


def test_trouble_that_is_none_of_reading(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a full disk: Spark's own words, for who runs the command."""

    def full(*_item: object, **_context: object) -> Any:
        raise OSError(28, "No space left on device")

    write_dump(tmp_path, Life().lines(T0 + 5_000, 5))
    monkeypatch.setattr(report_job, "rows_of_part", full)
    with pytest.raises(Exception, match="No space left on device"):
        job(spark, tmp_path)


def test_a_file_that_is_too_large_is_told_and_the_others_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One that unpacks to too much, and one that Java would not hold: of the date and of those
    beside it."""
    write_dump(tmp_path, Life().lines(T0 + 5_000, 10))
    bomb = tmp_path / f"dt={DATE}" / "bomb.jsonl.gz"
    bomb.write_bytes(gzip.compress(b"\0" * 40_000_000))
    large = tmp_path / f"dt={DATE + datetime.timedelta(days=1)}" / "a b%.jsonl"
    large.parent.mkdir()
    with large.open("wb") as file:
        file.truncate(3_000_000_000)  # Spark refuses a file of more than 2 GB
    tables = job(spark, tmp_path)
    found = {row["example_file"]: row["reason"] for row in tables.bad_lines()}
    assert found[str(bomb)].startswith("the file is left out: has a line of more than 16 MB")
    assert found[str(large)] == (
        "the file is left out: has 3,000 MB, and at most 128 are read; --max-dump-file-mb 12000"
        " reads it"
    )
    assert received(tables) == {"b": 10}
