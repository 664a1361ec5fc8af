"""Static topics of 5.x: Java's mqadmin 5.3.3 creates and remaps them, its clients send and consume.

Over two of our brokers, and over one of ours and one of Java 5.3.3 (in either order; there our own
mqadmin remaps once more). What was acknowledged is received, whoever keeps it by then, and the
offsets of each logic queue grow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from remoting.body.topic_queue_mapping import TopicQueueMappingSerializeWrapper
from remoting.remoting_serializable import loads_lenient
from tests.interop import harness
from tests.interop.clients import wait_registered
from tests.interop.driver import Consumer, Driver, Entry, Producer, read_ledger
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "StaticTopic"
QUEUES = 4
POLL_MS = 500
"""How often a client asks for routes: so long does it not know that a queue was remapped."""
BLOCK = 10_000


@dataclass
class World:
    """A name server, brokers "broker-a" and "broker-b", and clients of 5.3.3."""

    driver: Driver
    namesrv: harness.NameServer
    brokers: dict[str, harness.Broker]
    directory: Path
    clients: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_mixed(self) -> bool:
        return any(broker.kind != "ours" for broker in self.brokers.values())

    def admin(self, *arguments: str) -> str:
        """What mqadmin prints; it must not fail."""
        out, err = self.driver.mqadmin_texts(*arguments, "-n", self.namesrv.address)
        assert "Exception" not in out + err, out + err
        for written in re.findall(r"data is written to file (\S+)", out):
            Path(written).unlink()
        return out

    def producer(self) -> Producer:
        where = self.namesrv.address
        producer = Producer(
            self.driver, where, f"static-{where.rpartition(':')[2]}", poll_ms=POLL_MS
        )
        self.clients.append(("producer.stop", producer.name))
        return producer

    def push(self, group: str) -> Consumer:
        where = self.namesrv.address
        consumer = Consumer(self.driver, "push", where, group, TOPIC, poll_ms=POLL_MS)
        self.clients.append(("push.stop", consumer.name))
        return consumer

    def stop_clients(self) -> None:
        """Nobody waits for it."""
        for operation, name in self.clients:
            self.driver.submit(operation, name=name)

    def mapping(self, broker: str) -> TopicQueueMappingSerializeWrapper:
        """What a broker has written; in Java's form, whichever broker it is."""
        path = self.brokers[broker].store_dir / "config" / "topicQueueMapping.json"
        text = path.read_bytes()
        found = TopicQueueMappingSerializeWrapper.from_json(loads_lenient(text))
        assert found.to_pretty_json_bytes() == text
        return found

    def leaders(self) -> dict[int, str]:
        """Broker by global id, as the brokers have it."""
        return {
            global_id: broker
            for broker in self.brokers
            for global_id, items in self.mapping(broker)
            .topic_queue_mapping_info_map[TOPIC]
            .hosted_queues.items()
            if items[-1].bname == broker
        }


@pytest.fixture(
    params=[
        ("ours", "ours"),
        pytest.param(("ours", harness.JAVA_5), marks=pytest.mark.long),
        pytest.param((harness.JAVA_5, "ours"), marks=pytest.mark.long),
    ],
    ids="-".join,
)
def world(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    drivers: Callable[[str], Driver],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("static")
    monkeypatch.setenv("TMPDIR", str(directory))
    namesrv = harness.name_server("ours", directory / "namesrv").start()
    brokers = {
        name: harness.broker(kind, directory / name, namesrv.address, name=name)
        for name, kind in zip(("broker-a", "broker-b"), request.param, strict=True)
    }
    world = World(drivers(CLIENT_5), namesrv, brokers, directory)
    try:
        for broker in brokers.values():
            broker.start()
        for broker in brokers.values():
            wait_registered(world.driver, namesrv.address, broker)
        yield world
    finally:
        world.stop_clients()
        for broker in brokers.values():
            broker.end()
        namesrv.stop()


def numbers(entries: list[Entry]) -> set[tuple[int, str]]:
    return {(entry.seq, entry.digest) for entry in entries}


def check_growing(entries: list[Entry]) -> None:
    """In order of their offsets, the messages of a logic queue are in the order of their sends."""
    for queue in range(QUEUES):
        of_queue = [entry for entry in entries if entry.queue_id == queue]
        placed = sorted((e.queue_offset, e.seq) for e in of_queue if e.queue_offset >= 0)
        assert placed, queue
        assert len({offset for offset, _ in placed}) == len(placed), queue
        assert [seq for _, seq in placed] == sorted(seq for _, seq in placed), queue


def wait_for_all(consumer: Consumer, sent: list[Entry]) -> None:
    wanted = numbers(sent)
    wait_until(lambda: wanted <= numbers(consumer.received()), "all that was sent", 90, poll_s=0.5)


def remapped_during_sends(
    world: World, producer: Producer, first: int, targets: str, *, is_ours: bool = False
) -> list[Entry]:
    """What was acknowledged. With an old route a client is refused (501): that was not sent."""
    sending, path = producer.begin_send(TOPIC, "sync", 100_000, first=first, rate=60.0)
    wait_until(
        lambda: world.driver.call("send.count", ledger=path) > 20, "sends under way", poll_s=0.1
    )
    command = ("remappingStaticTopic", "-b", targets, "-t", TOPIC)
    if is_ours:
        harness.our_admin(world.directory, *command, "-n", world.namesrv.address)
    else:
        world.admin(*command)
    count = world.driver.call("send.count", ledger=path)
    wait_until(
        lambda: world.driver.call("send.count", ledger=path) > count + 40,
        "sends with a new route",
        poll_s=0.1,
    )
    world.driver.call("send.stop", ledger=path)
    errors = sending.result(120)["errors"]
    assert [error for error in errors if "CODE: 501" not in error] == []
    during = read_ledger(path)
    after = producer.send(TOPIC, "sync", 40, first=first + 50_000)
    assert min(entry.queue_offset for entry in after) >= 0, "all leaders know where they begin"
    return during + after


def test_created_and_remapped_while_clients_are_at_work(world: World) -> None:
    world.admin("updateStaticTopic", "-b", "broker-a", "-t", TOPIC, "-qn", str(QUEUES))
    assert world.leaders() == dict.fromkeys(range(QUEUES), "broker-a")
    producer, consumer = world.producer(), world.push("first")
    sent = producer.send(TOPIC, "sync", 100)
    assert {entry.queue_id for entry in sent} == set(range(QUEUES))
    consumer.wait_for(100, 60)

    if world.is_mixed:
        targets = "broker-a,broker-b"
        sent += remapped_during_sends(world, producer, 100_000, targets, is_ours=True)
        wait_for_all(consumer, sent)
    sent += remapped_during_sends(world, producer, 200_000, "broker-b")
    wait_for_all(consumer, sent)
    assert world.leaders() == dict.fromkeys(range(QUEUES), "broker-b")

    assert "__syslo__global__" in world.admin("topicStatus", "-t", TOPIC)
    check_growing(sent)
    check_growing(consumer.received())
    assert max(entry.queue_offset for entry in consumer.received()) >= BLOCK
    again = world.push("later")
    wait_for_all(again, sent)
    check_growing(again.received())
    assert numbers(again.received()) == numbers(consumer.received())

    if not world.is_mixed:
        return
    consumer.stop()
    more = producer.send(TOPIC, "sync", 40, first=300_000)
    resumed = world.push("first")
    wait_for_all(resumed, more)
    old = numbers(resumed.received()) - numbers(more)
    assert len(old) <= len(sent) // 10, "it begins where it stopped, not at the beginning"
