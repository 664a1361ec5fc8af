"""What an operator asks of connected consumers, and resets, through Java's mqadmin: 222 (220), 223
(221), 307 and 309 with real push consumers at the other end.

A push consumer commits ten seconds after its start at the earliest: the tests commit in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import GetConsumerStatusBody
from remoting.remoting_serializable import loads_lenient
from tests.interop.clients import Client, Cluster, mostly_with
from tests.interop.driver import Consumer, Driver
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

_QUEUES = 4
_COUNT = 40
_RESET_TIMEOUT_S = 60.0
"""A client that is told to reset waits ten seconds before it pulls again."""


def client_id(client: Client, group: str) -> str:
    """Of the one consumer of `group`, as the broker knows it."""
    found: list[str] = []

    def is_known() -> bool:
        with client.cluster.broker.client() as broker:
            answer = broker.call(203, {"consumerGroup": group})
        if answer.code == 0:
            found[:] = [each["clientId"] for each in loads_lenient(answer.body)["connectionSet"]]
        return len(found) == 1

    wait_until(is_known, f"one consumer of {group} known")
    return found[0]


def committed(client: Client, group: str, topic: str) -> list[int]:
    """The group's offset in each queue, -1 where the broker has none."""
    offsets = []
    with client.cluster.broker.client() as broker:
        for queue_id in range(_QUEUES):
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
            answer = broker.call(14, fields)
            offsets.append(int(answer.ext_fields["offset"]) if answer.code == 0 else -1)
    return offsets


def positions(client: Client, consumer: Consumer) -> dict[str, dict[MessageQueue, int]]:
    """{client id: {queue: next offset}}, asked of the members (223)."""
    with client.cluster.broker.client() as broker:
        answer = broker.call(223, {"topic": consumer.topic, "group": consumer.group})
    if answer.code != 0:
        return {}
    return GetConsumerStatusBody.from_json_bytes(answer.body).consumer_table


def commit_ends(client: Client, consumer: Consumer) -> None:
    """As the group commits when it has consumed all."""
    with client.cluster.broker.client() as broker:
        for queue_id in range(_QUEUES):
            queue = {"topic": consumer.topic, "queueId": queue_id}
            end = broker.call(30, queue).ext_fields["offset"]
            fields = {"consumerGroup": consumer.group, **queue, "commitOffset": end}
            assert broker.call(15, fields).code == 0
    assert sum(committed(client, consumer.group, consumer.topic)) == _COUNT


def consumed(client: Client) -> Consumer:
    """A push consumer that has consumed _COUNT messages; that is committed."""
    topic = client.topic(_QUEUES)
    consumer = client.push(topic)
    client.producer().send(topic, "sync", _COUNT)
    consumer.wait_for(_COUNT)

    def is_through() -> bool:
        return [sum(each.values()) for each in positions(client, consumer).values()] == [_COUNT]

    wait_until(is_through, "all consumed")
    commit_ends(client, consumer)
    return consumer


def consumed_and_gone(client: Client) -> Consumer:
    """One that has ended since."""
    consumer = consumed(client)
    consumer.stop()
    with client.cluster.broker.client() as broker:
        group = {"consumerGroup": consumer.group}
        wait_until(lambda: broker.call(203, group).code == 206, "the consumer gone")
    return consumer


@pytest.fixture(scope="module")
def asked_consumers(
    cluster: Cluster, drivers: Callable[[str], Driver]
) -> Iterator[Callable[[str], Consumer]]:
    """The consumer of a version that is asked and otherwise left alone, and its client."""
    found: dict[str, tuple[Client, Consumer]] = {}

    def get(version: str) -> Consumer:
        if version not in found:
            client = Client(drivers(version), cluster)
            found[version] = client, consumed(client)
        return found[version][1]

    yield get
    for client, _ in found.values():
        client.end()


@pytest.fixture
def asked(client: Client, asked_consumers: Callable[[str], Consumer]) -> Consumer:
    """A push consumer that has consumed _COUNT messages; others ask it, too."""
    return asked_consumers(client.driver.version)


def admin(client: Client, command: str, *arguments: str) -> str:
    """What the mqadmin of the client's release prints."""
    return client.driver.mqadmin(command, "-n", client.namesrv, *arguments)


def test_running_info(client: Client, asked: Consumer) -> None:
    who = client_id(client, asked.group)
    text = admin(client, "consumerStatus", "-g", asked.group, "-i", who)
    assert re.search(rf"{asked.topic}\s", text), text
    assert "PROP_CONSUME_TYPE" in text


def test_running_info_of_a_client_that_is_gone(client: Client, asked: Consumer) -> None:
    client_id(client, asked.group)
    arguments = ("consumerStatus", "-g", asked.group, "-i", "10.0.0.9@nobody")
    text = admin(client, *arguments)
    assert "#Consumer MQ Detail#" not in text


def test_where_the_members_are(client: Client, asked: Consumer) -> None:
    """mqadmin has a command for it but does not register it."""
    who = client_id(client, asked.group)
    table = positions(client, asked)
    assert list(table) == [who]
    assert sorted(queue.queue_id for queue in table[who]) == list(range(_QUEUES))
    assert {queue.topic for queue in table[who]} == {asked.topic}
    assert sum(table[who].values()) == _COUNT


def test_a_message_is_consumed_directly(client: Client, asked: Consumer) -> None:
    who = client_id(client, asked.group)
    before = asked.received()
    entry = before[7]
    topic = ("-t", asked.topic) if client.driver.version.startswith("5") else ()
    arguments = ("-i", entry.offset_msg_id, "-g", asked.group, "-d", who, *topic)
    text = admin(client, "queryMsgById", *arguments)
    assert "CR_SUCCESS" in text, text
    received = asked.wait_for(len(before) + 1)
    assert [each.seq for each in received[len(before) :]] == [entry.seq]
    assert sum(committed(client, asked.group, asked.topic)) == _COUNT


@pytest.mark.slow
@mostly_with(CLIENT_5)
def test_a_reset_of_an_online_group(client: Client) -> None:
    """Everything comes a second time, and what is committed afterwards is the end again."""
    consumer = consumed(client)
    client_id(client, consumer.group)
    arguments = ("-g", consumer.group, "-t", consumer.topic, "-s", "0")
    text = admin(client, "resetOffsetByTime", *arguments)
    rows = re.findall(rf"^{client.cluster.broker.name}\s+(\d)\s+(\d+)\s*$", text, re.MULTILINE)
    assert sorted(rows) == [(str(queue_id), "0") for queue_id in range(_QUEUES)], text
    received = consumer.wait_for(2 * _COUNT, _RESET_TIMEOUT_S)
    assert sorted(each.seq for each in received) == sorted(2 * list(range(_COUNT)))
    wait_until(
        lambda: sum(committed(client, consumer.group, consumer.topic)) == _COUNT,
        "all committed again",
    )


def test_a_reset_of_a_group_that_is_not_online(client: Client) -> None:
    """The broker says so (206), and mqadmin commits the offsets itself."""
    consumer = consumed_and_gone(client)
    arguments = ("-g", consumer.group, "-t", consumer.topic, "-s", "0")
    admin(client, "resetOffsetByTime", *arguments)
    assert committed(client, consumer.group, consumer.topic) == [0] * _QUEUES


def test_one_queue_by_mqadmin_of_5_x(client: Client, clients: Callable[[str], Client]) -> None:
    """-b, -q and -o: the other queues stay where they are."""
    consumer = consumed_and_gone(client)
    before = committed(client, consumer.group, consumer.topic)
    where = ("-b", client.cluster.broker.address, "-q", "2", "-o", "3", "-s", "0")
    arguments = ("-g", consumer.group, "-t", consumer.topic, *where)
    text = admin(clients(CLIENT_5), "resetOffsetByTime", *arguments)
    assert "reset consumer offset to 3" in text, text
    after = [*before[:2], 3, *before[3:]]
    assert committed(client, consumer.group, consumer.topic) == after
