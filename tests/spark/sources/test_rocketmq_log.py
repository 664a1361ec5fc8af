"""The format `rocketmq_log` in Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark.sources.data_source import Defaults
from spark.sources.errors import OptionError, SourceError
from spark.sources.registration import register
from spark.sources.rocketmq_log import LogPartition, PushingReader, RocketmqLogSource
from spark.sources.rows import SCHEMA
from tests.spark.sources.written_logs import written_log

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
MASTER = GOLDEN / "store-G/master"


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def load(spark: SparkSession, place: Path, **options: str) -> DataFrame:
    return spark.read.format("rocketmq_log").options(**options).load(str(place))


def snapshot(place: Path) -> Iterator[tuple[str, int, int]]:
    for path in sorted(place.rglob("*")):
        yield str(path), path.stat().st_size, path.stat().st_mtime_ns


def test_a_store_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(MASTER, store)
    before = list(snapshot(store))
    table = load(spark, store)
    assert table.schema == SCHEMA
    assert table.count() == 55
    assert list(snapshot(store)) == before


def test_filters_are_handed_over(spark: SparkSession) -> None:
    table = load(spark, MASTER)
    rows = table.collect()
    wanted = [row for row in rows if row["topic"] == "GTopic" and row["physical_offset"] >= 16384]
    assert wanted
    query = table.where("topic = 'GTopic' and physical_offset >= 16384")
    assert query.collect() == wanted
    assert query.rdd.getNumPartitions() == 1
    times = [row["store_timestamp"] for row in rows]
    assert table.where(table.store_timestamp > times[30]).count() == sum(
        time > times[30] for time in times
    )


def test_only_the_columns_of_a_schema(spark: SparkSession) -> None:
    reader = spark.read.format("rocketmq_log").schema("topic string, queue_offset bigint")
    found = reader.load(str(MASTER))
    assert found.columns == ["topic", "queue_offset"]
    assert found.count() == 55
    with pytest.raises(PySparkException, match="the table has no column tpoic"):
        spark.read.format("rocketmq_log").schema("tpoic string").load(str(MASTER)).count()


def test_rot_is_a_row_of_the_second_table(spark: SparkSession, tmp_path: Path) -> None:
    log = written_log(50, sizes=(300,))
    at, end = log.places[20]
    log.data[end - 150] ^= 1
    log.write(tmp_path)
    (tmp_path / "abort").touch()
    assert load(spark, tmp_path).count() == 49
    (row,) = load(spark, tmp_path, table="damage").collect()
    assert (row.kind, row.start_offset, row.end_offset) == ("record", at, end)
    assert (row.queue_offset, row.file) == (20, str(tmp_path / "0".zfill(20)))
    assert load(spark, tmp_path, table="damage", live="true").count() == 1


def test_files_that_are_missing_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    size = len(written_log(5).data)
    for number in (0, 3):
        written_log(5, start=number * size).write(tmp_path)
    rows = load(spark, tmp_path, table="damage").collect()
    assert [(row.kind, row.start_offset, row.end_offset) for row in rows] == [
        ("missing", size, 3 * size)
    ]


def test_a_log_that_is_being_written(spark: SparkSession) -> None:
    running = GOLDEN / "store-G/master-while-running"
    assert load(spark, running, live="true").count() == 55
    assert load(spark, running, live="true", table="damage").count() == 0
    assert load(spark, running, table="damage").count() == 0


def test_a_broker_name_is_that_of_all_rows(spark: SparkSession) -> None:
    rows = load(spark, MASTER, brokerName="broker-g").select("broker_name").distinct().collect()
    assert [row.broker_name for row in rows] == ["broker-g"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tabel": "damage"}, "no option tabel; the nearest is table"),
        ({"table": "rot"}, "neither messages nor damage"),
        ({"live": "maybe"}, "neither true nor false"),
        ({"maxRecordBytes": "5"}, "no number from 8388608"),
    ],
)
def test_wrong_options(spark: SparkSession, options: dict[str, str], text: str) -> None:
    with pytest.raises(PySparkException, match=text):
        load(spark, MASTER, **options).count()


def test_a_table_of_damage_has_its_own_schema() -> None:
    source = RocketmqLogSource({"path": str(MASTER), "table": "damage"})
    with pytest.raises(OptionError, match="its own schema"):
        source.reader(SCHEMA)


def test_filters_are_left_to_spark_where_it_keeps_them(spark: SparkSession) -> None:
    class Keeping(RocketmqLogSource):
        DEFAULTS = Defaults({}, pushes_filters=False)

    assert not isinstance(Keeping({"path": str(MASTER)}).reader(SCHEMA), PushingReader)


def test_a_file_that_is_gone_when_its_task_starts(tmp_path: Path) -> None:
    path = written_log(5).write(tmp_path)
    reader: Any = RocketmqLogSource({"path": str(tmp_path)}).reader(SCHEMA)
    (partition,) = reader.partitions()
    assert isinstance(partition, LogPartition)
    path.unlink()
    with pytest.raises(SourceError, match=r"is not there on .*: it was removed after"):
        list(reader.read(partition))


def test_a_directory_that_vanishes_while_a_file_is_read(tmp_path: Path) -> None:
    log = written_log(60, sizes=(300_000,))
    log.write(tmp_path)
    reader: Any = RocketmqLogSource({"path": str(tmp_path)}).reader(SCHEMA)
    (partition,) = reader.partitions()
    batches = reader.read(partition)
    count = next(batches).num_rows
    shutil.rmtree(tmp_path)
    assert count + sum(batch.num_rows for batch in batches) == 60
