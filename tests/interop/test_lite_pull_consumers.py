"""DefaultLitePullConsumer: assigned and subscribed queues, seek, time, committed offsets."""

from __future__ import annotations

import time

import pytest

from tests.interop.clients import Client
from tests.interop.driver import Entry, by_queue
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def content(entries: list[Entry]) -> list[tuple[int, str]]:
    return sorted((entry.seq, entry.digest) for entry in entries)


def wait_for_next_ms() -> None:
    until_s = time.time() + 0.005
    wait_until(lambda: time.time() > until_s, "a few milliseconds")


@pytest.mark.parametrize("assign", [True, False], ids=["assign", "subscribe"])
def test_reads_every_queue_in_order(client: Client, assign: bool) -> None:
    topic = client.topic()
    sent = client.producer().send(topic, "ordered", 400)
    received = client.lite(topic, assign=assign).wait_for(400)
    assert content(received) == content(sent)
    for entries in by_queue(received).values():
        assert [e.queue_offset for e in entries] == list(range(len(entries)))


def test_subscribed_consumer_gets_what_comes_later(client: Client) -> None:
    topic = client.topic()
    consumer = client.lite(topic)
    sent = client.producer().send(topic, "sync", 100)
    assert content(consumer.wait_for(100)) == content(sent)


def test_tag_filter(client: Client) -> None:
    topic = client.topic()
    sent = client.producer().send(topic, "sync", 100)
    received = client.lite(topic, expression="标签").wait_for(25)
    assert content(received) == content([entry for entry in sent if entry.seq % 4 == 3])


def test_seek_reads_again(client: Client) -> None:
    topic = client.topic(queues=1)
    client.producer().send(topic, "ordered", 80)
    consumer = client.lite(topic, assign=True)
    consumer.wait_for(80)
    client.driver.call("lite.seek", name=consumer.name, topic=topic, queue=0, offset=60)
    again = consumer.wait_for(100)[80:]
    assert [entry.queue_offset for entry in again] == list(range(60, 80))


def test_offset_for_timestamp(client: Client) -> None:
    """Message 30 is alone in its millisecond."""
    topic = client.topic(queues=1)
    producer = client.producer()
    producer.send(topic, "ordered", 30)
    wait_for_next_ms()
    (alone,) = producer.send(topic, "ordered", 1, first=30)
    wait_for_next_ms()
    producer.send(topic, "ordered", 29, first=31)
    asked = {"producer": producer.name, "topic": topic, "msg_id": alone.offset_msg_id}
    time_ms = client.driver.call("query.id", **asked)["store_timestamp"]
    name = client.lite(topic, assign=True).name
    where = {"name": name, "topic": topic, "queue": 0, "time_ms": time_ms}
    assert client.driver.call("lite.offset_for_time", **where) == 30


def test_committed_offsets_are_where_the_group_goes_on(client: Client) -> None:
    topic, group = client.topic(), client.group()
    producer = client.producer()
    producer.send(topic, "ordered", 100)
    first = client.lite(topic, group)
    first.wait_for(100)
    first.stop()
    later = producer.send(topic, "ordered", 40, first=1000)
    second = client.lite(topic, group)
    assert content(second.wait_for(40)) == content(later)
    asked = {"name": second.name, "topic": topic}

    def all_committed() -> bool:
        offsets: dict[str, int] = client.driver.call("lite.committed", **asked)
        return sum(offsets.values()) == 140

    wait_until(all_committed, "offsets committed")
