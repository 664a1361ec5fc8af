"""Writes of the format `rocketmq` in Spark, to a broker of ours, and read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from spark.sources.errors import NoNameServerError, NoTopicError, OptionError, SourceError
from spark.sources.outgoing import ROW_ID, RowError
from spark.sources.registration import register
from spark.sources.rocketmq import RocketmqSource
from spark.sources.write import Stored
from tests.support.our_broker import OurBroker


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


def test_a_stream_that_fails_repeats_its_batch_with_the_same_ids(
    spark: SparkSession, broker: OurBroker, topic: str, tmp_path: Path
) -> None:
    """The first time a broker refuses the last rows of a file, when others are sent already."""
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

        is_last = text.endswith("49") and pathlib.Path(place).exists()
        return "x" * 5_000_000 if is_last else text

    def start() -> Any:
        frame = spark.readStream.text(str(source)).select(checked("value").alias("body"))
        writer = frame.writeStream.format("rocketmq").option("nameServers", address(broker))
        writer = writer.option("topic", topic).option("sendBytes", "300")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(PySparkException, match=r"row 49 .*MESSAGE_ILLEGAL"):
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


# -- without Spark -----------------------------------------------------------------------------

BODIES = StructType([StructField("body", StringType()), StructField("keys", StringType())])


def writer(servers: str, *, stream: bool = False, **options: str) -> Any:
    source = RocketmqSource({"nameServers": servers, "retryMs": "300", **options})
    return source.streamWriter(BODIES, False) if stream else source.writer(BODIES, False)


def batches(*bodies: str) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(bodies), 3):
        rows = enumerate(bodies[first : first + 3], first)
        yield pa.RecordBatch.from_pylist([{"body": body, "keys": str(n)} for n, body in rows])


def test_the_row_at_fault_is_named(broker: OurBroker, topic: str) -> None:
    with pytest.raises(RowError, match=r"task 0: row 7 .*keys 7.*; 7 rows of this try are stored"):
        writer(address(broker), topic=topic).write(batches(*"0123456", "x" * 5_000_000, "8"))


def test_a_topic_that_is_not_there(broker: OurBroker) -> None:
    with pytest.raises(NoTopicError, match=r"NoSuchTopic .*: mqadmin updateTopic does; 0 rows"):
        writer(address(broker), topic="NoSuchTopic").write(batches("x"))


def test_no_name_server() -> None:
    said = r"task 0: topic T: .*127\.0\.0\.1:1.*asked for 300 ms.*; 0 rows of this try are stored"
    with pytest.raises(NoNameServerError, match=said):
        writer("127.0.0.1:1", topic="T").write(batches("x"))


def test_a_task_without_rows_asks_nobody() -> None:
    assert writer("127.0.0.1:1", topic="T").write(iter(())) == Stored(0, 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"transaction": "true", "topic": "T"}, "transactions are not offered"),
        ({"topics": "a,b"}, "no option topics; the nearest is topic"),
        ({"topic": "T", "shardColumn": "none"}, "there is no column none"),
        ({}, "no topic: give the option topic"),
    ],
)
def test_what_is_not_offered(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        writer("127.0.0.1:1", **options)


def test_a_topic_is_not_overwritten() -> None:
    source = RocketmqSource({"nameServers": "127.0.0.1:1", "topic": "T"})
    with pytest.raises(OptionError, match="cannot be overwritten"):
        source.writer(BODIES, True)
    with pytest.raises(OptionError, match="cannot be overwritten"):
        source.streamWriter(BODIES, True)


def test_a_task_of_no_micro_batch() -> None:
    with pytest.raises(SourceError, match="of no micro-batch"):
        writer("127.0.0.1:1", topic="T", stream=True).write(batches("x"))


def test_each_write_has_an_id_of_its_own() -> None:
    ids = {writer("127.0.0.1:1", topic="T").plan.write_id for _ in range(3)}
    assert len(ids) == 3
    assert "" not in ids
    assert writer("127.0.0.1:1", topic="T", writeId="mine").plan.write_id == "mine"
    for wrong in ("a\x02UNIQ_KEY\x01b", "x" * 201):
        with pytest.raises(OptionError, match="option writeId"):
            writer("127.0.0.1:1", topic="T", writeId=wrong)


def test_an_aborted_write_says_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    made = writer("127.0.0.1:1", topic="T")
    made.abort([Stored(5, 0), None])
    assert "5 messages of 1 of 2 tasks are stored and stay" in caplog.text
    made.commit([Stored(5, 2)])
    assert "2 messages were stored by a master alone" in caplog.text
