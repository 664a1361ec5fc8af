"""Writes of the format `rocketmq` in Spark, to a broker of ours, and read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from spark.sources.outgoing import ROW_ID
from spark.sources.registration import register
from tests.support.our_broker import OurBroker

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[OurBroker]:
    with OurBroker(tmp_path_factory.mktemp("broker")) as running:
        running.start()
        register(spark)
        yield running


def address(broker: OurBroker) -> str:
    return f"127.0.0.1:{broker.ports['namesrv']}"


@pytest.fixture
def topic(broker: OurBroker, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, of 4 queues."""
    name = "T_" + "".join(each if each.isalnum() else "_" for each in request.node.name)[:60]
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    with broker.client() as client:
        assert client.call(17, fields).code == 0
    return name


def write(frame: DataFrame, broker: OurBroker, topic: str, **options: str) -> None:
    writer = frame.write.format("rocketmq").mode("append").option("nameServers", address(broker))
    writer.option("topic", topic).options(**options).save()


def read(spark: SparkSession, broker: OurBroker, topic: str) -> list[Any]:
    reader = spark.read.format("rocketmq").option("nameServers", address(broker))
    rows = reader.option("topic", topic).load().collect()
    return sorted(rows, key=lambda row: (row.queue_id, row.queue_offset))


def test_columns_are_messages(spark: SparkSession, broker: OurBroker, topic: str) -> None:
    frame = spark.range(0, 500, numPartitions=2).select(
        sql.concat(sql.lit("body "), "id").alias("body"),
        sql.array(sql.concat(sql.lit("k"), "id"), sql.lit("all")).alias("keys"),
        sql.lit("Tag").alias("tags"),
        sql.create_map(sql.lit("number"), sql.col("id").cast("string")).alias("properties"),
        sql.col("id").cast("int").alias("flag"),
    )
    write(frame, broker, topic, writeId="first")
    rows = read(spark, broker, topic)
    assert sorted(row.flag for row in rows) == list(range(500))
    for row in rows:
        assert row.body == b"body %d" % row.flag
        assert (row.keys, row.tags) == (f"k{row.flag} all", "Tag")
        assert row.properties["number"] == str(row.flag)
        assert row.properties[ROW_ID].startswith("first-")
    write(frame, broker, topic, writeId="first")
    again = read(spark, broker, topic)
    assert len(again) == 1000
    assert len({row.properties[ROW_ID] for row in again}) == 500


def test_a_shard_keeps_its_order(spark: SparkSession, broker: OurBroker, topic: str) -> None:
    frame = spark.range(0, 400).select(
        sql.col("id").cast("int").alias("flag"),
        sql.lit("x").alias("body"),
        (sql.col("id") % 7).alias("customer"),
    )
    frame = frame.repartition(2, "customer").sortWithinPartitions("flag")
    write(frame, broker, topic, shardColumn="customer", sendBytes="2000")
    rows = read(spark, broker, topic)
    assert len(rows) == 400
    for customer in range(7):
        found = [(row.queue_id, row.flag) for row in rows if row.flag % 7 == customer]
        assert len({queue_id for queue_id, _ in found}) == 1
        assert [flag for _, flag in found] == list(range(customer, 400, 7))


def test_the_row_at_fault_is_named(spark: SparkSession, broker: OurBroker, topic: str) -> None:
    long = sql.when(sql.col("id") == 7, sql.lit("x" * 100)).otherwise("x")
    frame = spark.range(0, 20, numPartitions=1).select(
        sql.repeat(long, 50_000).alias("body"), sql.col("id").cast("string").alias("keys")
    )
    with pytest.raises(PySparkException, match=r"task 0: row 7 .*keys 7\).*stored, and stay"):
        write(frame, broker, topic)
    assert {row.keys for row in read(spark, broker, topic)} <= {str(each) for each in range(7)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"transaction": "true"}, "transactions are not offered"),
        ({"topics": "a,b"}, "no option topics; the nearest is topic"),
        ({"shardColumn": "none"}, "there is no column none"),
    ],
)
def test_what_is_not_offered(
    spark: SparkSession, broker: OurBroker, options: dict[str, str], text: str
) -> None:
    frame = spark.range(1).select(sql.lit("x").alias("body"))
    with pytest.raises(PySparkException, match=text):
        write(frame, broker, "T", **options)


def test_a_topic_is_not_overwritten(spark: SparkSession, broker: OurBroker) -> None:
    writer = spark.range(1).select(sql.lit("x").alias("body")).write.format("rocketmq")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.mode("overwrite").option("nameServers", address(broker)).save("T")


def test_a_topic_that_is_not_there(spark: SparkSession, broker: OurBroker) -> None:
    frame = spark.range(1).select(sql.lit("x").alias("body"))
    with pytest.raises(PySparkException, match="NoSuchTopic"):
        write(frame, broker, "NoSuchTopic")


def test_a_stream_that_fails_repeats_its_batch_with_the_same_ids(
    spark: SparkSession, broker: OurBroker, topic: str, tmp_path: Path
) -> None:
    """The second partition fails the first time, when the first is sent already."""
    source = tmp_path / "in"
    source.mkdir()
    for number in range(2):
        (source / f"{number}.txt").write_text("".join(f"{number} line {n}\n" for n in range(50)))
    fails = tmp_path / "fails"
    fails.touch()
    place = str(fails)

    @sql.udf("string")
    def checked(text: str) -> str:
        import pathlib

        if text == "1 line 49" and pathlib.Path(place).exists():
            raise ValueError("not yet")
        return text

    def start() -> Any:
        frame = spark.readStream.text(str(source)).select(checked("value").alias("body"))
        writer = frame.writeStream.format("rocketmq").option("nameServers", address(broker))
        writer = writer.option("topic", topic).option("sendBytes", "300")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(PySparkException, match="not yet"):
        start().awaitTermination(60)
    assert read(spark, broker, topic)
    fails.unlink()
    assert start().awaitTermination(60)
    rows = read(spark, broker, topic)
    by_id = {row.properties[ROW_ID]: row.body for row in rows}
    assert sorted(by_id.values()) == sorted(
        f"{number} line {n}".encode() for number in range(2) for n in range(50)
    )
    assert len(rows) > len(by_id) == 100


def test_an_aborted_write_says_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    from spark.sources.write import BatchWriter, Stored

    writer = object.__new__(BatchWriter)
    writer.told_abort([Stored(5, 0), None], "write x")
    assert "5 messages of 1 of 2 tasks are stored and stay" in caplog.text
    writer.told_commit([Stored(5, 2)], "write x")
    assert "2 messages were stored by a master alone" in caplog.text
