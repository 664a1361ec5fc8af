"""DefaultMQPushConsumer: clustering, broadcasting, orderly, tags, starting points, refusals."""

from __future__ import annotations

import time

import pytest

from tests.interop import harness
from tests.interop.clients import AnotherBroker, Client, Cluster, mostly_with
from tests.interop.driver import Entry, by_queue
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def content(entries: list[Entry]) -> list[tuple[int, str]]:
    return sorted((entry.seq, entry.digest) for entry in entries)


def test_clustering_sees_every_message_once(client: Client) -> None:
    topic = client.topic()
    consumer = client.push(topic)
    sent = client.producer().send(topic, "async", 500)
    consumer.wait_for(500)
    assert content(consumer.stop()) == content(sent)


def test_broadcasting_gives_every_message_to_everyone(client: Client) -> None:
    topic, group = client.topic(), client.group()
    consumers = [client.push(topic, group, model="BROADCASTING") for _ in range(2)]
    sent = client.producer().send(topic, "sync", 200)
    for consumer in consumers:
        assert content(consumer.wait_for(200)) == content(sent)


def test_orderly_keeps_the_queue_order(client: Client) -> None:
    topic = client.topic()
    consumer = client.push(topic, orderly=True)
    sent = client.producer().send(topic, "ordered", 400)
    received = consumer.wait_for(400)
    assert content(received) == content(sent)
    for entries in by_queue(received).values():
        assert [e.queue_offset for e in entries] == list(range(len(entries)))
        assert [e.seq for e in entries] == sorted(e.seq for e in entries)


@pytest.mark.parametrize("expression", ["TagA || 标签", "TagC"])
def test_tag_filter(client: Client, expression: str) -> None:
    topic = client.topic()
    sent = client.producer().send(topic, "sync", 200)
    consumer = client.push(topic, expression=expression)
    wanted = [
        number for number, tag in enumerate(["TagA", "TagB", "TagC", "标签"]) if tag in expression
    ]
    expected = content([entry for entry in sent if entry.seq % 4 in wanted])
    assert content(consumer.wait_for(len(expected))) == expected


@pytest.mark.parametrize("start", ["FIRST_OFFSET", "LAST_OFFSET"])
def test_a_young_queue_is_read_from_its_start(client: Client, start: str) -> None:
    """Brokers answer 0 to a new group while offset 0 is still in memory, whatever it asks for."""
    topic = client.topic()
    sent = client.producer().send(topic, "sync", 100)
    assert content(client.push(topic, **{"from": start}).wait_for(100)) == content(sent)


@pytest.fixture(scope="module")
def cold_broker(cluster: Cluster, another_broker: AnotherBroker) -> harness.Broker:
    """A second broker, which takes every message but the newest to be out of memory."""
    if cluster.broker.kind in harness.KINDS_5:
        pytest.skip("a 5.3.3 broker has another way to tell what is in memory")
    return another_broker("cold", {"accessMessageInMemoryMaxRatio": "0"})


def test_from_first_offset_reads_the_past(client: Client, cold_broker: harness.Broker) -> None:
    topic = client.topic(broker=cold_broker)
    sent = client.producer().send(topic, "sync", 100)
    assert content(client.push(topic).wait_for(100)) == content(sent)


def test_from_last_offset_reads_only_what_comes(
    client: Client, cold_broker: harness.Broker
) -> None:
    topic = client.topic(broker=cold_broker)
    producer = client.producer()
    producer.send(topic, "sync", 100)
    consumer = client.push(topic, **{"from": "LAST_OFFSET"})
    wait_until(lambda: len(consumer.queues()) == 4, "all four queues held, their starts known")
    later = producer.send(topic, "sync", 40, first=1000)
    assert content(consumer.wait_for(40)) == content(later)


def test_from_timestamp_reads_what_is_younger(client: Client, cold_broker: harness.Broker) -> None:
    """The search gives the nearest message: the second part is sent right at the second asked for,
    the first part most of a second before it."""
    topic = client.topic(broker=cold_broker)
    producer = client.producer()
    wait_until(lambda: time.time() % 1 < 0.1, "the begin of a second")
    producer.send(topic, "sync", 40)
    split = int(time.time()) + 1
    wait_until(lambda: time.time() > split, "the next second")
    later = producer.send(topic, "sync", 40, first=1000)
    stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(split))
    consumer = client.push(topic, **{"from": "TIMESTAMP"}, timestamp=stamp)
    assert content(consumer.wait_for(40)) == content(later)


@pytest.mark.slow
@mostly_with(CLIENT_5)
def test_a_refused_message_comes_again(client: Client) -> None:
    """Either by the retry topic after 10 s, or, where the broker refuses to take it back, from the
    client itself after 5 s."""
    topic = client.topic()
    sent = client.producer().send(topic, "sync", 50)
    consumer = client.push(topic, refuse=[17])
    received = consumer.wait_for(50, timeout_s=60)
    assert sorted({entry.seq for entry in received}) == list(range(50))
    assert {(e.seq, e.digest) for e in received} == {(e.seq, e.digest) for e in sent}


def test_a_group_goes_on_where_it_stopped(client: Client) -> None:
    topic, group = client.topic(), client.group()
    producer = client.producer()
    producer.send(topic, "sync", 100)
    first = client.push(topic, group)
    first.wait_for(100)
    first.stop()
    later = producer.send(topic, "sync", 60, first=1000)
    assert content(client.push(topic, group).wait_for(60)) == content(later)
