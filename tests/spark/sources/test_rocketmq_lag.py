"""The format rocketmq_lag: what Java brokers answered, our broker, and what goes wrong."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from remoting.body.message_queue import MessageQueue
from remoting.body.stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from spark.sources.cluster import Cluster
from spark.sources.errors import (
    DamagedMessageError,
    NoRightError,
    OptionError,
    UnavailableError,
)
from spark.sources.group_lag import BrokerName, BrokerScan, GroupQueue, Wanted, broker_names
from spark.sources.registration import register
from spark.sources.rocketmq_lag import COLUMNS
from tests.spark.sources.fake_queues import FakeQueues, away
from tests.support.our_broker import OurBroker
from tests.tools.fake_cluster import FakeCluster

BARE = Wanted(ages=False, members=False)
STATS = RequestCode.GET_BROKER_CONSUME_STATS


def scan(client: Cluster, wanted: Wanted = BARE) -> list[GroupQueue]:
    """All rows of the cluster."""
    brokers = broker_names(client, None)
    return [row for broker in brokers for row in BrokerScan(client, broker, wanted).rows()]


def told(rows: list[GroupQueue]) -> list[tuple[str, str, int, int, int]]:
    return [
        (row.group, row.queue.topic, row.queue.queue_id, row.offsets.broker_offset, row.lag)
        for row in rows
    ]


class Groups:
    """What the broker says of groups: (topic, queue id) -> (consumer offset, broker offset)."""

    def __init__(self, server: FakeCluster) -> None:
        self.progress: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
        server.answers |= {
            STATS: self._all,
            RequestCode.GET_CONSUME_STATS: self._one,
        }

    def _stats(self, group: str) -> ConsumeStats:
        return ConsumeStats(
            offset_table={
                MessageQueue(topic=topic, broker_name="broker-g", queue_id=queue_id): OffsetWrapper(
                    broker_offset=end, consumer_offset=offset
                )
                for (topic, queue_id), (offset, end) in self.progress.get(group, {}).items()
            }
        )

    def _all(self, request: RemotingCommand) -> RemotingCommand:
        stats = [{group: [self._stats(group)]} for group in self.progress]
        body = ConsumeStatsList(consume_stats_list=stats).to_json_bytes()
        return request.response(0, None, {}, body)

    def _one(self, request: RemotingCommand) -> RemotingCommand:
        body = self._stats(request.ext_fields["consumerGroup"]).to_json_bytes()
        return request.response(0, None, {}, body)


@pytest.fixture
def groups(server: FakeCluster) -> Groups:
    return Groups(server)


def test_what_a_java_broker_says_of_a_group(server: FakeCluster, client: Cluster) -> None:
    """Its golden answer to 208."""
    rows = scan(client, Wanted(("G_group",), ages=False, members=False))
    found = {(row.queue.topic, row.queue.queue_id): row for row in rows}
    assert found["GTopic", 3].offsets.broker_offset == 6
    assert found["GTopic", 3].lag == 0
    assert found["GTopic", 3].offsets.last_timestamp == 1_795_177_742_683
    assert ("%RETRY%G_group", 0) in found
    asked = {request.code for request in server.requests}
    assert asked == {RequestCode.GET_BROKER_CLUSTER_INFO, 208}, "nothing that nobody wants"


def test_all_groups_by_one_request(server: FakeCluster, client: Cluster, groups: Groups) -> None:
    groups.progress = {"b": {("T", 1): (3, 5), ("T", 0): (4, 4)}, "a": {("U", 0): (0, 9)}, "n": {}}
    assert told(scan(client)) == [
        ("a", "U", 0, 9, 9),
        ("b", "T", 0, 4, 0),
        ("b", "T", 1, 5, 2),
    ]
    assert [request.code for request in server.requests].count(STATS) == 1


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(("a*",)), ["a1", "a22"]),
        (Wanted(("a?", "x")), ["a1", "x"]),
        (Wanted(("x", "a1")), ["a1", "x"]),
        (Wanted(("a.",)), []),
        (Wanted(topics=("T?",)), ["x"]),
        (Wanted(("a*",), ("T?",)), []),
    ],
)
def test_some_groups_and_topics(
    client: Cluster, groups: Groups, wanted: Wanted, found: list[str]
) -> None:
    groups.progress = {name: {("T", 0): (0, 0)} for name in ("a1", "a22")}
    groups.progress["x"] = {("T1", 0): (0, 0)}
    wanted = replace(wanted, ages=False, members=False)
    assert [row.group for row in scan(client, wanted)] == found


def test_the_next_message_and_what_is_gone(
    client: Cluster, groups: Groups, stored: FakeQueues
) -> None:
    """FakeQueues stores a message each 10 s of its own time."""
    stored.plain("T", 5)
    stored.first["T", 0] = 3
    groups.progress = {
        "late": {("T", 0): (3, 5)},
        "lost": {("T", 0): (1, 5)},
        "even": {("T", 0): (5, 5)},
        "gone": {("U", 0): (0, 7)},
    }
    rows = {row.group: row for row in scan(client, Wanted(members=False))}
    assert (rows["late"].unread_ms, rows["late"].problem) == (40_000, None)
    assert (rows["lost"].unread_ms, rows["lost"].problem) == (40_000, None)
    assert (rows["even"].unread_ms, rows["even"].problem) == (0, None)
    assert "topic U does not exist" in (rows["gone"].problem or "")


def test_numbers_that_no_column_holds() -> None:
    """A broker may say anything."""
    offsets = OffsetWrapper(
        broker_offset=2**63 - 1, consumer_offset=-(2**63), last_timestamp=2**63 - 1
    )
    queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
    row = GroupQueue("g", queue, offsets, 1, unread_ms=253_402_300_800_000)
    broker = BrokerName("c", "b", ())
    found = {name: column.value(broker, row) for name, column in COLUMNS.items()}
    assert found["lag"] == 2**63 - 1
    assert found["next_stored_at"] is found["last_consumed_at"] is None


def test_members(server: FakeCluster, client: Cluster, groups: Groups) -> None:
    groups.progress = {"g": {("T", 0): (1, 1), ("T", 1): (1, 1)}}
    server.always(RequestCode.GET_CONSUMER_CONNECTION_LIST, 206, "not online")
    assert [row.members for row in scan(client, Wanted(ages=False))] == [0, 0]
    asked = [request.code for request in server.requests]
    assert asked.count(RequestCode.GET_CONSUMER_CONNECTION_LIST) == 1


def test_name_servers_that_are_away_for_a_while(client: Cluster, groups: Groups) -> None:
    groups.progress = {"g": {("T", 0): (0, 1)}}
    waited = away(client)
    assert told(scan(client)) == [("g", "T", 0, 1, 1)]
    assert waited == [0.1]


def test_what_goes_wrong(server: FakeCluster, client: Cluster) -> None:
    with pytest.raises(OptionError, match="option cluster: cluster nowhere does not exist"):
        broker_names(client, "nowhere")
    server.always(STATS, 1, "AclException: no")
    with pytest.raises(NoRightError, match=r"broker broker-g: .*the cluster refuses unsigned"):
        scan(client)
    server.answers[STATS] = lambda request: request.response(0, None, {}, b"[")
    with pytest.raises(DamagedMessageError, match="broker broker-g: an answer cannot be read"):
        scan(client)
    away = BrokerName("c", "away", ("127.0.0.1:1",))
    with pytest.raises(UnavailableError, match=r"broker away: no answer: .*127\.0\.0\.1:1"):
        list(BrokerScan(client, away, BARE).rows())
    asked = BrokerName("c", "b", ("127.0.0.1:1", server.address))
    Groups(server).progress = {"g": {("T", 0): (0, 1)}}
    assert told(list(BrokerScan(client, asked, BARE).rows())) == [("g", "T", 0, 1, 1)]


# -- in Spark, against our broker --------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a broker where `g` has consumed 4 of the 6 messages of one queue, and
    nothing of the other one's."""
    broker = OurBroker(tmp_path_factory.mktemp("lag"))
    with broker:
        broker.start()
        with broker.client() as client:
            for number in range(9):
                fields = {"a": "P", "b": "T", "c": "TBW102", "d": 2, "e": int(number > 5), "f": 0}
                fields |= {"g": 1, "h": 0, "j": 0, "k": "false", "l": 16, "m": "false", "i": ""}
                assert client.call(310, fields, b"x").code == 0
            for queue_id, offset in ((0, 4), (1, 0)):
                names = {"consumerGroup": "g", "topic": "T", "queueId": queue_id}
                assert client.call(15, names | {"commitOffset": offset}).code == 0
        yield f"127.0.0.1:{broker.ports['namesrv']}"


@pytest.fixture
def lags(spark: SparkSession, address: str) -> DataFrameReader:
    """A read of it."""
    register(spark)
    return spark.read.format("rocketmq_lag").option("nameServers", address)


def test_rows(lags: DataFrameReader) -> None:
    before = datetime.datetime.now(datetime.UTC).timestamp()
    one, other = lags.option("groups", "g").load().orderBy("queue_id").collect()
    assert (one.cluster, one.consumer_group, one.topic) == ("DefaultCluster", "g", "T")
    assert (one.queue_id, one.is_retry, one.members) == (0, False, 0)
    assert (one.broker_offset, one.consumer_offset, one.lag) == (6, 4, 2)
    assert (other.broker_offset, other.consumer_offset, other.lag) == (3, 0, 3)
    for row in (one, other):
        assert row.age_problem is None
        assert abs(row.scanned_at.timestamp() - before) < 60
        age_s = row.scanned_at.timestamp() - row.next_stored_at.timestamp()
        assert row.lag_seconds == pytest.approx(age_s, abs=0.002)
    assert one.last_consumed_at <= one.next_stored_at
    assert other.last_consumed_at is None


def test_all_groups_and_some_columns(lags: DataFrameReader) -> None:
    frame = lags.schema("lag long, consumer_group string").load()
    assert [
        tuple(row) for row in frame.where("consumer_group = 'g'").groupBy().sum("lag").collect()
    ] == [(5,)]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("cluster", "nowhere", "cluster nowhere does not exist"),
        ("group", "g", "has no option group; the nearest is groups"),
    ],
)
def test_wrong_options(lags: DataFrameReader, option: str, value: str, words: str) -> None:
    with pytest.raises(PySparkException, match=words):
        lags.option(option, value).load().collect()


def test_a_wrong_column(lags: DataFrameReader) -> None:
    with pytest.raises(PySparkException, match="the table has no column lags: it has cluster"):
        lags.schema("lags long").load().collect()
