"""Many messages, some large, with unicode everywhere, come back equal, in queue order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.clients import Client
from tests.interop.driver import by_queue
from tests.interop.java_peers import CLIENT_5

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

_QUEUES = 8


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
    proved(f"{count:,} messages from {sender} to {reader} ({family}): equal, in queue order")
