"""Two and three consumers of a group join and leave while messages flow: none is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.clients import Client, mostly_with
from tests.interop.driver import Consumer, Entry
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

_QUEUES = 6
_RATE = 400.0
_COUNT = 4000


def wait_shared(consumers: list[Consumer]) -> None:
    """Every queue is held by exactly one consumer, and all hold the same number."""
    share = _QUEUES // len(consumers)

    def is_shared() -> bool:
        held = [consumer.queues() for consumer in consumers]
        everything = sorted(queue for queues in held for queue in queues)
        return everything == list(range(_QUEUES)) and all(len(queues) == share for queues in held)

    wait_until(is_shared, f"{_QUEUES} queues shared by {len(consumers)}", timeout_s=40)


def check_all_seen(sent: list[Entry], received: list[Entry]) -> None:
    """Repeats are allowed when queues move, losses are not."""
    seen = {(entry.seq, entry.digest) for entry in received}
    assert {(entry.seq, entry.digest) for entry in sent} == seen
    assert len(received) < 1.5 * len(sent)


@mostly_with(CLIENT_5)
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_joining_and_leaving(client: Client, orderly: bool) -> None:
    topic, group = client.topic(_QUEUES), client.group()
    producer = client.producer()
    consumers = [client.push(topic, group, orderly=orderly)]
    wait_shared(consumers)
    begun = producer.begin_send(topic, "sync", _COUNT, rate=_RATE)
    received: list[Entry] = []
    for _ in range(2):
        consumers.append(client.push(topic, group, orderly=orderly))
        wait_shared(consumers)
    received += consumers.pop(0).stop()
    wait_shared(consumers)
    received += consumers.pop(0).stop()
    wait_shared(consumers)
    sent = producer.sent(begun)
    left = consumers[0]

    def all_seen() -> bool:
        return len({e.seq for e in received} | {e.seq for e in left.received()}) == _COUNT

    wait_until(all_seen, f"{_COUNT} messages seen", timeout_s=60)
    check_all_seen(sent, received + left.received())


def test_clients_of_both_versions_share_a_group(clients: Callable[[str], Client]) -> None:
    old, new = clients("4.9.8"), clients(CLIENT_5)
    topic, group = old.topic(_QUEUES), old.group()
    consumers = [old.push(topic, group), new.push(topic, group)]
    wait_shared(consumers)
    sent = old.producer().send(topic, "sync", 300) + new.producer().send(
        topic, "sync", 300, first=1000
    )
    wait_until(lambda: sum(c.count() for c in consumers) >= 600, "600 messages at both")
    check_all_seen(sent, [entry for consumer in consumers for entry in consumer.received()])
    assert all(consumer.received() for consumer in consumers)
