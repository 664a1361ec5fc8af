"""The format in a real Spark against our broker: rows, filters, errors, a stream that restarts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from spark.sources.errors import OptionError
from spark.sources.registration import register
from spark.sources.rocketmq import BatchReader, RocketmqSource
from spark.sources.rows import SCHEMA
from tests.support.our_broker import FrameClient, OurBroker

SECRET = "open sesame"
TOPIC = "Orders"
QUEUES = 4
TAGS = ("Aa", "BB", "C d", "")
"""The first two have the same hash code."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    """With 400 messages in four queues."""
    with OurBroker(tmp_path_factory.mktemp("source")) as running:
        running.start()
        with running.client() as client:
            send(client, range(400))
        yield running


def send(client: FrameClient, numbers: range, topic: str = TOPIC) -> None:
    for number in numbers:
        tag = TAGS[number // QUEUES % len(TAGS)]
        properties = f"KEYS\x01key-{number}\x02UNIQ_KEY\x01id-{number}"
        fields = {
            "a": "P",
            "b": topic,
            "c": "TBW102",
            "d": QUEUES,
            "e": number % QUEUES,
            "f": 0,
            "g": 1_000 + number,
            "h": number,
            "j": 0,
            "k": "false",
            "l": 16,
            "m": "false",
            "i": properties + (f"\x02TAGS\x01{tag}" if tag else ""),
        }
        assert client.call(310, fields, b"body %d" % number).code == 0


@pytest.fixture
def table(spark: SparkSession, broker: OurBroker) -> DataFrameReader:
    """A read of the topic."""
    register(spark)
    named = {"nameServers": f"127.0.0.1:{broker.ports['namesrv']}", "topic": TOPIC}
    return spark.read.format("rocketmq").options(**named)


def numbers(frame: DataFrame) -> list[int]:
    """The messages of a frame, by their flag."""
    return sorted(row.flag for row in frame.select("flag").collect())


def test_rows(table: DataFrameReader) -> None:
    rows = table.load().orderBy("flag").collect()
    assert [row.flag for row in rows] == list(range(400))
    assert [(row.queue_id, row.queue_offset) for row in rows] == [
        (number % QUEUES, number // QUEUES) for number in range(400)
    ]
    row = rows[4]
    assert row.topic == TOPIC
    assert (row.message_id, row.keys, row.tags) == ("id-4", "key-4", "BB")
    assert row.body == b"body 4"
    assert row.properties == {
        "KEYS": "key-4",
        "UNIQ_KEY": "id-4",
        "TAGS": "BB",
        "CLUSTER": "DefaultCluster",
    }
    assert row.born_timestamp.timestamp() == 1.004
    assert row.body_problem is None


@pytest.mark.parametrize(
    "where",
    [
        "queue_id = 1",
        "queue_id in (1, 3) and queue_offset >= 90",
        "queue_offset between 10 and 12 and queue_id != 2",
        "queue_offset in (3, 50)",
        "tags = 'Aa'",
        "tags in ('BB', 'C d') and queue_id = 0",
        "tags is null and queue_offset < 9",
        "keys = 'key-77'",
        "keys like 'key-39_' and tags <=> null",
        "store_timestamp > timestamp '2020-01-01 00:00:00' and queue_offset > 97",
        "store_timestamp < timestamp '2020-01-01 00:00:00'",
        "broker_name = 'nobody' or flag = 7",
        "broker_name = 'nobody'",
        "topic = 'Orders' and queue_offset < 1",
    ],
)
def test_filters(table: DataFrameReader, whole: DataFrame, where: str) -> None:
    """What is pushed down finds the same as Spark does in rows that it holds."""
    assert numbers(table.load().where(where)) == numbers(whole.where(where))


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, broker: OurBroker, tmp_path_factory: pytest.TempPathFactory
) -> DataFrame:
    """The topic in a file."""
    register(spark)
    path = str(tmp_path_factory.mktemp("whole") / "table")
    reader = spark.read.format("rocketmq").option("topic", TOPIC)
    named = f"127.0.0.1:{broker.ports['namesrv']}"
    reader.option("nameServers", named).load().write.parquet(path)
    return spark.read.parquet(path)


def test_ranges(table: DataFrameReader) -> None:
    name = table.load().first()
    assert name is not None
    start = json.dumps({TOPIC: {name.broker_name: {"0": 90, "1": 100, "2": -1, "3": 98}}})
    frame = table.options(start=start, maxMessagesPerPartition="3", batchBytes="1").load()
    assert frame.rdd.getNumPartitions() == 5
    assert numbers(frame) == sorted([*range(360, 400, 4), 395, 399])


def test_a_schema_of_ones_own(table: DataFrameReader) -> None:
    frame = table.schema("flag int, body binary").load()
    assert frame.columns == ["flag", "body"]
    assert numbers(frame) == list(range(400))


def test_secrets_are_in_no_plan(
    spark: SparkSession, table: DataFrameReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"spark.rocketmq.accessKey": "me", "spark.rocketmq.secretKey": SECRET}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        register(spark)
        frame = table.load().where("queue_id = 1")
        plan: Any = frame._jdf
        text = plan.queryExecution().toString() + str(plan.queryExecution().logical().toJSON())
        assert SECRET not in text
        assert "rocketmq" in text
        assert len(numbers(frame)) == 100
    finally:
        for name in settings:
            spark.conf.unset(name)
        register(spark)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "Order"}, "topic Order does not exist; the nearest is Orders"),
        ({"nameServers": "127.0.0.1:1", "retryMs": "0"}, "no name server reachable: 127.0.0.1:1"),
        ({"nameServers": ""}, "no name server: give the option nameServers"),
        ({"path": "T"}, "options topic and path: give one of them"),
        ({"topik": "T"}, "format rocketmq has no option topik; the nearest is topic"),
        ({"start": "early"}, "option start: 'early' is none of"),
        ({"start": "group:none"}, "group none has no progress in Orders"),
        ({"commitGroup": "G"}, "option commitGroup: of streams alone"),
        ({"secretKey": SECRET}, "from a file"),
    ],
)
def test_errors(table: DataFrameReader, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException) as caught:
        table.options(**options).load().collect()
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_argument_of_load_is_the_topic() -> None:
    """Spark hands it over as the option path, as save's."""
    reader = RocketmqSource({"nameServers": "n:1", "path": TOPIC}).reader(SCHEMA)
    assert isinstance(reader, BatchReader)
    assert reader.plan.topics == (TOPIC,)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxMessagesPerTrigger": "0"}, "option maxMessagesPerTrigger: '0' is no number from 1"),
        ({"start": "early"}, "option start: 'early' is none of"),
        ({"end": "late"}, "option end: 'late' is none of"),
    ],
)
def test_load_checks_the_options_of_streams(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        RocketmqSource({"nameServers": "n:1", "topic": TOPIC, **options}).schema()


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.getDefaultReadLimit(),
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.initialOffset(),
        lambda reader: reader.latestOffset({}, None),
        lambda reader: reader.read(None),
    ],
)
def test_a_refused_stream_says_why_when_it_is_asked(ask: Callable[[Any], object]) -> None:
    """What streamReader raised was hidden: "cannot access local variable 'reader'"."""
    options = {"nameServers": "n:1", "topic": TOPIC, "end": "latest"}
    refused = RocketmqSource(options).streamReader(SCHEMA)
    with pytest.raises(OptionError, match=r"option end: .*AvailableNow stops by itself"):
        ask(refused)


class TestStream:
    """A query that stops and goes on from its checkpoint."""

    def test_restarts(self, spark: SparkSession, broker: OurBroker, tmp_path: Path) -> None:
        register(spark)
        stream = spark.readStream.format("rocketmq").options(
            nameServers=f"127.0.0.1:{broker.ports['namesrv']}",
            topic="Stream",
            start="earliest",
            maxMessagesPerTrigger="40",
            commitGroup="Readers",
        )
        with broker.client() as client:
            send(client, range(100), "Stream")
            first = run(stream, tmp_path)
            assert [step["numInputRows"] for step in first.recentProgress] == [40, 40, 20]
            send(client, range(100, 130), "Stream")
            run(stream, tmp_path)
            rows = spark.read.parquet(str(tmp_path / "out"))
            assert numbers(rows) == list(range(130))
            # What the last batch brought is written when the next one is planned.
            fields = {"consumerGroup": "Readers", "topic": "Stream", "queueId": 0}
            assert int(client.call(14, fields).ext_fields["offset"]) >= 25
        kept = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))[-1]
        found = json.loads(kept.read_text().splitlines()[-1])
        assert found["version"] == 1
        (queues,) = found["offsets"]["Stream"].values()
        assert queues == {"0": 33, "1": 33, "2": 32, "3": 32}


def run(stream: DataStreamReader, directory: Path) -> StreamingQuery:
    """All that is there, to files."""
    query = (
        stream.load()
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return query
