"""Java brokers register with our name server, our broker with Java's, and clients find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo

from tests.interop import harness
from tests.interop.clients import Client, Cluster, registered, wait_registered
from tests.interop.driver import Consumer, Driver, Entry
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.interop.spark_rows import read_entries, read_lags, read_log_entries, write_rows
from tests.interop.test_batch_queues import create
from tests.interop.test_transactions import COMMIT, ROLLBACK, TransactionProducer
from tests.support.our_broker import FrameClient

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(180)]

_PAIRS = [
    ("java-4.9", "under-test", "4.9.8"),
    (harness.JAVA_5, "under-test", CLIENT_5),
    ("under-test", "java-4.9", "4.9.8"),
    ("under-test", harness.JAVA_5, CLIENT_5),
]


@pytest.fixture(params=_PAIRS, ids=lambda pair: f"{pair[1]}-broker-with-{pair[0]}-name-server")
def pair(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    broker_kind: str,
    namesrv_kind: str,
    drivers: Callable[[str], Driver],
) -> Iterator[Client]:
    """A client of a broker and a name server of different worlds."""
    namesrv_asked, broker_asked, version = request.param
    namesrv = harness.name_server(
        namesrv_kind if namesrv_asked == "under-test" else namesrv_asked, tmp_path / "namesrv"
    ).start()
    broker = harness.broker(
        broker_kind if broker_asked == "under-test" else broker_asked,
        tmp_path / "broker",
        namesrv.address,
        name="broker-pair",
    )
    cluster = Cluster(namesrv, broker.start())
    client = Client(drivers(version), cluster)
    yield client
    client.end()
    broker.stop()
    namesrv.stop()


def test_registers_serves_and_leaves(pair: Client) -> None:
    wait_registered(pair.driver, pair.namesrv, pair.cluster.broker)
    assert list(registered(pair.driver, pair.namesrv)) == ["broker-pair"]
    topic = pair.topic()
    consumer = pair.push(topic)
    sent = pair.producer().send(topic, "sync", 200)
    received = consumer.wait_for(200)
    assert sorted((e.seq, e.digest) for e in received) == sorted((e.seq, e.digest) for e in sent)
    _read_by_spark(pair)
    _write_by_spark(pair)
    _lag_by_spark(pair, topic, consumer)
    pair.cluster.broker.stop()
    gone = "the stopped broker is gone from the name server"
    wait_until(lambda: registered(pair.driver, pair.namesrv) == {}, gone)


def _read_by_spark(pair: Client) -> None:
    """Messages of every kind, each once and equal to what a Java consumer got, from brokers and
    name servers of every release that is here (docs/spark_sources.md)."""
    topic = pair.topic()
    count = _send_every_kind(pair, topic)
    received = pair.push(topic).wait_for(count)
    assert len(received) == count
    rows = read_entries(pair.namesrv, topic, maxMessagesPerPartition="70", batchBytes="10000")
    assert sorted(rows, key=_place) == sorted(received, key=_place)
    assert sorted(_read_log(pair, topic), key=_place) == sorted(rows, key=_place)
    tagged = read_entries(pair.namesrv, topic, [EqualTo(("tags",), "TagA")])
    assert sorted(tagged, key=_place) == [e for e in sorted(rows, key=_place) if e.note == "TagA"]
    if pair.cluster.broker.kind == "java-5.5":
        _read_inner_batches(pair)


def _read_log(pair: Client, topic: str) -> list[Entry]:
    """From the files of the running broker (rocketmq_log)."""
    return read_log_entries(pair.cluster.broker.store_dir, "broker-pair", topic)


def _write_by_spark(pair: Client) -> None:
    """What a task of df.write sends a Java consumer gets, once, and a shard in its order."""
    topic = pair.topic()
    write_rows(pair.namesrv, topic, 300)
    received = pair.push(topic).wait_for(300)
    assert sorted(entry.seq for entry in received) == list(range(300))
    rows = read_entries(pair.namesrv, topic)
    assert sorted(rows, key=_place) == sorted(received, key=_place)
    for customer in range(7):
        found = [e for e in sorted(rows, key=_place) if e.seq % 7 == customer and e.seq % 50 != 49]
        assert len({entry.queue_id for entry in found}) == 1
        assert [entry.seq for entry in found] == sorted(entry.seq for entry in found)


def _lag_by_spark(pair: Client, topic: str, consumer: Consumer) -> None:
    """Asked one by one (208) and all at once (317): first the group has consumed everything, then,
    with nobody online, it has not."""
    group = consumer.group

    def lags(of: str) -> list[dict[str, Any]]:
        rows = read_lags(pair.namesrv, of, topics=topic)
        return [row for row in rows if row["consumer_group"] == group]

    def total(of: str) -> tuple[int, int]:
        rows = lags(of)
        return sum(row["broker_offset"] for row in rows), sum(row["lag"] for row in rows)

    wait_until(lambda: total(group) == (200, 0), "its progress is committed")
    assert total("") == (200, 0)
    assert {row["members"] for row in lags(group)} == {1}
    assert all(row["last_consumed_at"] for row in lags(group) if row["broker_offset"])
    pair.driver.call("push.stop", name=consumer.name)
    pair.producer().send(topic, "sync", 40, first=1000)
    wait_until(lambda: total(group) == (240, 40), "what was sent is in the queues")
    for of in (group, ""):
        assert total(of) == (240, 40)
        behind = [row for row in lags(of) if row["lag"]]
        assert {row["members"] for row in behind} == {0}
        assert {row["age_problem"] for row in behind} == {None}
        assert all(0 <= row["lag_seconds"] < 600 for row in behind)


def _place(entry: Entry) -> tuple[int, int]:
    return entry.queue_id, entry.queue_offset


def _send_every_kind(pair: Client, topic: str) -> int:
    """How many messages a consumer gets of it."""
    producer = pair.producer(compress_over=300)
    kinds = {"sync": 60, "async": 60, "batch": 60, "selector": 60, "oneway": 60}
    begun = [
        producer.begin_send(topic, kind, count, first=1000 * number)
        for number, (kind, count) in enumerate(kinds.items())
    ]
    for each in begun:
        producer.sent(each)
    producer.send(topic, "sync", 10, first=10_000, delay_level=1)
    halves = TransactionProducer(pair, pair.group(), COMMIT)
    halves.send(topic, 20, COMMIT, ROLLBACK, first=20_000)
    return sum(kinds.values()) + 10 + 10


def _read_inner_batches(pair: Client) -> None:
    """In a topic with batch consume queues one record holds a batch."""
    topic = pair.group()
    with pair.cluster.broker.client() as client:
        create(client, topic, queues=2)
    wait_until(lambda: pair._has_route(topic), f"route of {topic}")
    sent = pair.producer().send(topic, "batch", 90)
    received = pair.push(topic).wait_for(90)
    rows = read_entries(pair.namesrv, topic, maxMessagesPerPartition="7")
    assert sorted((e.seq, e.digest) for e in rows) == sorted((e.seq, e.digest) for e in sent)
    assert sorted(_read_log(pair, topic), key=_place) == sorted(rows, key=_place)
    # Java's consumer leaves out whose record they are of.
    unnamed = [replace(entry, offset_msg_id="null") for entry in rows]
    assert sorted(unnamed, key=_place) == sorted(received, key=_place)
    tagged = read_entries(pair.namesrv, topic, [EqualTo(("tags",), "TagA")])
    assert {entry.note for entry in tagged} == {"TagA"}
    assert len(tagged) == sum(entry.note == "TagA" for entry in rows)


def test_one_broker_registers_with_name_servers_of_both_worlds(
    tmp_path: Path, broker_kind: str, namesrv_kind: str, drivers: Callable[[str], Driver]
) -> None:
    kinds = (namesrv_kind, "java-4.9")
    servers = [harness.name_server(k, tmp_path / f"ns-{i}").start() for i, k in enumerate(kinds)]
    addresses = ";".join(server.address for server in servers)
    broker = harness.broker(broker_kind, tmp_path / "broker", addresses).start()
    for server in servers:
        wait_registered(drivers("4.9.8"), server.address, broker)
    broker.stop()
    for server in servers:
        server.stop()


def test_new_topics_have_routes_everywhere_when_their_sends_are_answered(
    tmp_path: Path, broker_kind: str, namesrv_kind: str, drivers: Callable[[str], Driver]
) -> None:
    """RocketMQ 4.9 registers without waiting, so that now and then a route is missing there."""
    if broker_kind != "ours":
        pytest.skip("about our broker")
    kinds = (namesrv_kind, "java-4.9", harness.JAVA_5)
    servers = [harness.name_server(k, tmp_path / f"ns-{i}").start() for i, k in enumerate(kinds)]
    addresses = ";".join(server.address for server in servers)
    broker = harness.broker(broker_kind, tmp_path / "broker", addresses).start()
    for server in servers:
        wait_registered(drivers("4.9.8"), server.address, broker)
    with ExitStack() as stack:
        sender = stack.enter_context(broker.client())
        hosts = [server.address.rpartition(":") for server in servers]
        routes = [stack.enter_context(FrameClient((host, int(port)))) for host, _, port in hosts]
        for number in range(50):
            topic = f"new-topic-{number}"
            assert sender.send(topic, 0, b"x").code == 0
            assert [each.call(105, {"topic": topic}).code for each in routes] == [0, 0, 0]
    broker.stop()
    for server in servers:
        server.stop()
