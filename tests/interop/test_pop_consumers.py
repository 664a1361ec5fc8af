"""Push consumers of 5.3.3 that let the broker balance the load: popping, pulling, orderly.

Codes 400 and 401 (by mqadmin setConsumeMode), 200050, 200051 and 200053, as Java's remoting client
uses them. That client pops for concurrent listeners only: an orderly one balances by itself and
pulls, whatever the broker says. It makes no dead letters of what it popped: after the last attempt
it goes on with longer and longer invisible times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.interop import harness
from tests.interop.clients import AnotherBroker, Client, Cluster
from tests.interop.driver import Consumer, Driver, by_queue
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

QUEUES = 4
INVISIBLE_MS = 8_000
"""Less than the 10 s for which the client gives back what was refused first."""
ANY_QUEUE = -1
HALVES = (([0, 1], [2, 3]), ([2, 3], [0, 1]))


@pytest.fixture(scope="module")
def broker(another_broker: AnotherBroker) -> harness.Broker:
    """Java's pops, too, need timers."""
    return another_broker("pops", {"timerWheelEnable": "true"})


@pytest.fixture
def client(cluster: Cluster, drivers: Callable[[str], Driver]) -> Iterator[Client]:
    made = Client(drivers(CLIENT_5), cluster)
    yield made
    made.end()


def set_mode(
    client: Client, broker: harness.Broker, topic: str, group: str, mode: str, share: int = 0
) -> None:
    told = client.driver.mqadmin(
        "setConsumeMode", "-b", broker.address, "-t", topic, "-g", group, "-m", mode,
        "-q", str(share), "-n", client.namesrv,
    )  # fmt: skip
    assert f"set consume mode to {broker.address} success" in told


def member(client: Client, topic: str, group: str, **settings: object) -> Consumer:
    return client.push(topic, group, broker_rebalance=True, **settings)


def numbers(*consumers: Consumer) -> Counter[int]:
    """How often each message was consumed, by all of them."""
    return Counter(entry.seq for consumer in consumers for entry in consumer.received())


def wait_consumed(count: int, *consumers: Consumer) -> None:
    wait_until(lambda: len(numbers(*consumers)) == count, f"{count} messages consumed", 60)


def is_settled(broker: harness.Broker, topic: str, group: str) -> bool:
    """Whether the group is at the end of all queues: all is acknowledged, or was handed out again
    by the retry topic, which is at its end as well."""
    retry = f"%RETRY%{group}_{topic}"
    with broker.client() as frames:
        places = [(topic, queue_id) for queue_id in range(QUEUES)]
        if frames.call(30, {"topic": retry, "queueId": 0}).ext_fields["offset"] != "0":
            places.append((retry, 0))
        for name, queue_id in places:
            fields = {"consumerGroup": group, "topic": name, "queueId": queue_id}
            answer = frames.call(14, fields)
            if answer.code != 0:
                return False
            if int(answer.ext_fields["offset"]) != frames.offset(30, name, queue_id):
                return False
    return True


def test_two_members_pop(client: Client, broker: harness.Broker) -> None:
    """Some messages are refused once, one is kept longer than it stays invisible: each comes again
    by the retry topic. A member that joins gets its part."""
    topic, group = client.topic(QUEUES, broker), client.group()
    set_mode(client, broker, topic, group, "POP")
    producer = client.producer()
    sent = producer.send(topic, "sync", 40)
    trouble = {"refuse": [7, 17], "slow": [29], "slow_ms": INVISIBLE_MS + 1_000}
    first = member(client, topic, group, pop_invisible_ms=INVISIBLE_MS, **trouble)
    wait_until(lambda: first.pop_queues() == [ANY_QUEUE], "the first member pops", 60)
    wait_consumed(37, first)
    second = member(client, topic, group)
    wait_until(lambda: second.pop_queues() == [ANY_QUEUE], "the second member pops", 60)
    sent += producer.send(topic, "sync", 400, first=40)
    wait_consumed(440, first, second)
    assert len(numbers(second)) > 0
    wait_until(lambda: is_settled(broker, topic, group), "all acknowledged", 60)
    received = first.received() + second.received()
    assert {(e.seq, e.digest) for e in received} == {(e.seq, e.digest) for e in sent}
    again = {entry.seq for entry in received if entry.note.endswith("#1")}
    assert again == {7, 17, 29}
    twice = {seq for seq, times in numbers(first, second).items() if times > 1}
    assert twice <= {29}, "consumed twice"


@pytest.mark.long
def test_pulls_by_assignment_shares_of_pops_and_order(
    client: Client, broker: harness.Broker
) -> None:
    """Two members pull what the broker says; three pop with shares, then pull again; an orderly one
    pulls in order."""
    topic, group = client.topic(QUEUES, broker), client.group()
    producer = client.producer()
    first = member(client, topic, group)
    wait_until(lambda: first.queues() == list(range(QUEUES)), "all queues at the first", 60)
    second = member(client, topic, group)
    wait_until(lambda: (first.queues(), second.queues()) in HALVES, "two queues for each", 60)
    producer.send(topic, "sync", 200)
    wait_consumed(200, first, second)
    third = member(client, topic, group)
    set_mode(client, broker, topic, group, "POP", share=1)
    members = (first, second, third)
    wait_until(
        lambda: sorted(len(one.pop_queues()) for one in members) == [2, 3, 3],
        "its own queues and those of the next for each",
        60,
    )
    assert {*Counter(queue for one in members for queue in one.pop_queues()).values()} == {2}
    producer.send(topic, "sync", 200, first=1_000)
    wait_consumed(400, *members)
    wait_until(lambda: is_settled(broker, topic, group), "all acknowledged", 60)
    set_mode(client, broker, topic, group, "PULL")
    wait_until(
        lambda: sorted(queue for one in members for queue in one.queues()) == list(range(QUEUES)),
        "each queue pulled by one",
        60,
    )
    assert not any(one.pop_queues() for one in members)
    producer.send(topic, "sync", 60, first=2_000)
    wait_consumed(460, *members)
    assert {*numbers(*members).values()} == {1}
    orderly = client.group()
    set_mode(client, broker, topic, orderly, "POP")
    alone = member(client, topic, orderly, orderly=True)
    in_order = alone.wait_for(460)
    assert alone.pop_queues() == []
    for entries in by_queue(in_order).values():
        assert [entry.queue_offset for entry in entries] == list(range(len(entries)))
