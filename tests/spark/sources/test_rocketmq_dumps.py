"""The format `rocketmq_dumps`: the lines that the nightly report reads, typed."""

from __future__ import annotations

import datetime
import gzip
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import StructType

from spark.dumps.dump_files import split_by_group
from spark.dumps.dump_line import Line, decode_groups, decode_line
from spark.dumps.dump_text import DEFAULT_MOST_MB, Bounds
from spark.reported_day import Day, midnight_ms
from spark.sources import rocketmq_dumps
from spark.sources.data_source import Defaults
from spark.sources.dump_schema import BAD_LINES_SCHEMA, LINES_SCHEMA
from spark.sources.errors import OptionError, SourceError
from spark.sources.registration import register
from spark.sources.rocketmq_dumps import RocketmqDumpsSource, find_dumps, read_dump
from tests.spark.dump_lines_builder import DATE, T0, Life, every, replica, write_dump, write_file

GROUPS: dict[str, Any] = {
    "age_le": [1000],
    "messages_le": [10],
    "left_out": 2,
    "rows": [
        {
            "group": "g",
            "topic": "t",
            "looked_ms": 5,
            "messages": 7,
            "age_ms": 9,
            "age_within": [1],
            "age_beyond": [2],
            "messages_within": [3],
            "messages_beyond": [4],
        }
    ],
}
DAY = Day.whole(DATE)
MEMBER = {"leads": True, "epoch": 3, "since": 5, "master": 1}


class Pushing(RocketmqDumpsSource):
    DEFAULTS = Defaults({}, pushes_filters=True)


def rows(place: Path, table: str = "lines", *filters: Any, **options: str) -> list[dict[str, Any]]:
    source = Pushing({"path": str(place), "table": table, **options})
    reader: Any = source.reader(source.schema())
    reader.pushFilters(list(filters))
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def lines_of(life: Life) -> list[Any]:
    return [life.line(ts, replicas=[replica(lag_ms=20)]) for ts in every(T0, T0 + 60_000)]


def test_all_fields_of_all_lines(tmp_path: Path) -> None:
    later = Life(start_ms=T0, marks=True).line(T0 + 9_000, member=MEMBER, groups=GROUPS)
    lines = [*lines_of(Life(start_ms=T0)), later]
    write_dump(tmp_path, lines)
    found = rows(tmp_path)
    expected = []
    for line in lines:
        decoded = decode_line(msgspec.json.encode(line), midnight_ms(DATE))
        expected.append({name: getattr(decoded, name) for name in Line.__struct_fields__})
        expected[-1]["groups"] = decode_groups(decoded)
    expected = [msgspec.to_builtins(each) for each in expected]
    assert expected[-1]["groups"] == GROUPS
    assert len(found) == len(expected) > 10
    for row in found:
        assert row.pop("dt") == DATE
        assert row.pop("file").startswith(str(tmp_path))
        assert row in expected


def test_columns_are_the_fields_of_a_line() -> None:
    assert LINES_SCHEMA.fieldNames() == ["dt", "file", *Line.__struct_fields__]
    replicas: Any = LINES_SCHEMA["replicas"].dataType
    assert replicas.elementType["state_ms"].dataType.fieldNames() == [
        *("in_sync", "catching_up", "disconnected")
    ]


def test_bad_lines_are_those_of_the_report(tmp_path: Path) -> None:
    good = Life(start_ms=T0).line(T0)
    place = tmp_path / f"dt={DATE}" / "cluster=c" / "broker=b"
    place.mkdir(parents=True)
    path = write_file(place / "a.jsonl", [good, "{", '{"v": 7}', good | {"ts": -1}])
    torn = place / "b.jsonl.gz"
    torn.write_bytes(gzip.compress(msgspec.json.encode(good) + b"\n")[:-9])
    found = rows(tmp_path, "bad_lines")
    expected = [
        tuple(bad)
        for file in (path, torn)
        for bad in split_by_group(str(file), DATE, file.read_bytes(), DAY)[1]
    ]
    assert len(expected) == 3
    bad = [(row["file"], row["reason"], row["text"]) for row in found]
    # The report says of a line that names its group when it reads the group's.
    (of_group,) = (each for each in bad if each not in expected)
    assert of_group[:2] == (str(path), "ts: negative")
    assert len(bad) == 4
    assert {row["file"] for row in rows(tmp_path)} == {str(path), str(torn)}


def test_a_file_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    write_dump(tmp_path, lines_of(Life(start_ms=T0)))
    (path,) = tmp_path.rglob("*.gz")
    path.write_bytes(os.urandom(300_000))
    (bad,) = rows(tmp_path, "bad_lines", maxDumpFileMb="1")
    assert bad["reason"].startswith("the file is left out: has 1 MB")
    assert not rows(tmp_path, maxDumpFileMb="1")


def test_of_a_file_that_turns_out_to_be_left_out_no_line_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(tmp_path, lines_of(Life(start_ms=T0)))
    monkeypatch.setattr(Bounds, "check_text", _never)
    assert not rows(tmp_path)
    (bad,) = rows(tmp_path, "bad_lines")
    assert bad["reason"] == "the file is left out: too much"


def _never(*_: object) -> None:
    raise rocketmq_dumps.LeftOutError("too much")


def test_files_of_other_dates_are_not_read(tmp_path: Path) -> None:
    for day in range(4):
        start = T0 + day * 86_400_000
        write_dump(tmp_path, [Life(start_ms=start).line(start)])
    second = DATE + datetime.timedelta(days=1)

    def dates(*filters: Any) -> list[int]:
        return [(row["dt"] - DATE).days for row in rows(tmp_path, "lines", *filters)]

    assert dates() == [0, 1, 2, 3]
    assert dates(EqualTo(("dt",), second)) == [1]
    assert dates(GreaterThanOrEqual(("dt",), second), LessThan(("dt",), DATE.replace(day=12))) == [
        1
    ]
    assert dates(In(("dt",), (DATE, second))) == [0, 1]
    assert dates(EqualTo(("seq",), 9), EqualTo(("dt",), "x")) == [0, 1, 2, 3]


def test_hidden_files_and_others_are_none(tmp_path: Path) -> None:
    write_dump(tmp_path, [Life(start_ms=T0).line(T0)])
    (path,) = tmp_path.rglob("*.gz")
    for name in (".x.jsonl.gz.tmp", ".y.jsonl", "_z.jsonl", "notes.txt"):
        (path.parent / name).write_text("x")
    (path.parent / "device.jsonl").symlink_to("/dev/zero")
    os.mkfifo(path.parent / "fifo.jsonl")
    with pytest.raises(SourceError, match="no regular file"):
        list(read_dump(str(path.parent / "fifo.jsonl"), Bounds(DEFAULT_MOST_MB)))
    (tmp_path / "dt=soon").mkdir()
    (tmp_path / "dt=soon" / "a.jsonl").write_text("x")
    assert [file for file, _ in find_dumps(str(tmp_path))] == [str(path)]


def test_small_files_are_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        place = tmp_path / f"dt={DATE}" / str(number)
        place.mkdir(parents=True)
        write_file(place / "a.jsonl", [Life(start_ms=T0).line(T0)])
    source = RocketmqDumpsSource({"path": str(tmp_path)})
    reader: Any = source.reader(source.schema())
    assert [len(part.files) for part in reader.partitions()] == [6]
    monkeypatch.setattr(rocketmq_dumps, "_FILES_OF_A_PART", 4)
    assert [len(part.files) for part in reader.partitions()] == [4, 2]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    write_dump(tmp_path, [Life(start_ms=T0).line(T0)])
    source = RocketmqDumpsSource({"path": str(tmp_path)})
    reader: Any = source.reader(source.schema())
    (part,) = reader.partitions()
    Path(part.files[0]).unlink()
    with pytest.raises(SourceError, match="gone since the query was planned"):
        list(reader.read(part))


def planned(source: RocketmqDumpsSource) -> Any:
    reader: Any = source.reader(source.schema())
    return reader.partitions()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "no dumps are named"),
        ({"path": "/nowhere"}, "/nowhere: no directory"),
        ({"path": "s3a://x"}, "s3a:// are not"),
        ({"path": "x", "table": "good"}, "neither lines nor bad_lines"),
        ({"path": "x", "day": "1"}, "no option day: it has maxDumpFileMb, path, paths, table"),
    ],
)
def test_wrong_options(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        planned(RocketmqDumpsSource(options))


def test_a_schema_of_ones_own() -> None:
    source = RocketmqDumpsSource({"path": "x"})
    source.reader(StructType([LINES_SCHEMA["seq"]]))
    with pytest.raises(OptionError, match="has no column reason: it has "):
        source.reader(StructType([BAD_LINES_SCHEMA["reason"]]))


def test_what_is_only_read(spark: SparkSession, tmp_path: Path) -> None:
    """PySpark said "writer is not implemented"."""
    register(spark)
    for name in ("rocketmq_dumps", "rocketmq_log", "rocketmq_lag"):
        frame = spark.range(1).write.format(name).mode("append")
        with pytest.raises(PySparkException, match=f"format {name} is only read: format rocketmq"):
            frame.save(str(tmp_path))
    with pytest.raises(OptionError, match="rocketmq_dumps has no streams"):
        RocketmqDumpsSource({"path": "x"}).streamReader(LINES_SCHEMA).initialOffset()
    with pytest.raises(OptionError, match="rocketmq_dumps is only read"):
        RocketmqDumpsSource({"path": "x"}).streamWriter(LINES_SCHEMA, False)


def test_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    lines = lines_of(Life(start_ms=T0))
    write_dump(tmp_path, lines)
    register(spark)
    table = spark.read.format("rocketmq_dumps").load(str(tmp_path))
    assert table.schema == LINES_SCHEMA
    (row,) = (
        table.where(table.dt == DATE)
        .selectExpr("inline(replicas)")
        .selectExpr("count(*) as rows", "max(lag_ms) as lag_ms", "max(state_ms.in_sync) as ms")
        .collect()
    )
    assert (row.rows, row.lag_ms) == (len(lines), 20)
