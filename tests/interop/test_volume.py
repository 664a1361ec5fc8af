"""Many messages, some large, with unicode everywhere, come back equal, in queue order."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.broker.send.test_send_message_processor import batch_body
from tests.interop.clients import Client
from tests.interop.driver import by_queue
from tests.interop.java_peers import CLIENT_5
from tests.interop.spark_rows import read_entries
from tests.interop.test_batch_queues import send

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

_QUEUES = 8
_BATCH = 500


@pytest.mark.parametrize(
    ("sender", "reader", "family"),
    [("4.9.8", CLIENT_5, "push"), (CLIENT_5, "4.9.8", "lite")],
    ids=["from-4.9.8-to-5.3.3-push", "from-5.3.3-to-4.9.8-lite"],
)
@pytest.mark.parametrize("count", [15_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_messages(
    clients: Callable[[str], Client],
    sender: str,
    reader: str,
    family: str,
    count: int,
    proved: Callable[[str], None],
) -> None:
    """Bodies over 4 KiB go compressed from the first sender and as they are from the second."""
    topic = clients(sender).topic(_QUEUES)
    settings = {} if sender == "4.9.8" else {"compress_over": 2**31 - 1}
    producer = clients(sender).producer(**settings)
    begun = producer.begin_send(topic, "ordered", count, profile="volume", seed=7)
    sent = producer.sent(begun, timeout_s=200)
    assert len({entry.digest for entry in sent}) == count
    reading = clients(reader)
    if family == "push":
        consumer = reading.push(topic, orderly=True)
    else:
        consumer = reading.lite(topic, assign=True)
    received = by_queue(consumer.wait_for(count, timeout_s=120))
    expected = by_queue(sent)
    assert received.keys() == expected.keys()
    for queue, entries in expected.items():
        assert [e.queue_offset for e in entries] == list(range(len(entries)))
        in_sending_order = [(e.seq, e.digest, e.queue_offset) for e in entries]
        got = [(e.seq, e.digest, e.queue_offset) for e in received[queue]]
        assert got == in_sending_order
    if sender == "4.9.8":
        assert by_queue(read_entries(reading.namesrv, topic)) == received
    proved(f"{count:,} messages from {sender} to {reader} ({family}): equal, in queue order")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_million_messages_for_spark(
    clients: Callable[[str], Client], proved: Callable[[str], None]
) -> None:
    """The format `rocketmq` reads what Java's consumer gets (docs/spark_sources.md)."""
    count = int(os.environ.get("SPARK_MESSAGES", "1000000"))
    reading = clients(CLIENT_5)
    topic = reading.topic(_QUEUES)
    batches = range(0, count, _BATCH)
    with reading.cluster.broker.client() as connection:
        for number, first in enumerate(batches):
            items = [
                (0, b"body %d" % seq * (1 + seq % 50), f"u_seq\x01{seq}\x02KEYS\x01k{seq}".encode())
                for seq in range(first, min(first + _BATCH, count))
            ]
            queue_id = number % _QUEUES
            assert send(connection, 320, batch_body(*items), b=topic, e=queue_id)[0] == 0
    received = reading.push(topic, orderly=True).wait_for(count, timeout_s=900)
    rows = read_entries(reading.namesrv, topic, maxMessagesPerPartition="70000")
    assert len(rows) == count
    ours = {(e.seq, e.digest, e.queue_id, e.queue_offset, e.offset_msg_id) for e in rows}
    assert len(ours) == count
    assert ours == {
        (e.seq, e.digest, e.queue_id, e.queue_offset, e.offset_msg_id) for e in received
    }
    proved(f"{count:,} messages: Spark's rows are what a Java consumer got")
