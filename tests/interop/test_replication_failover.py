"""A master dies under load: consumers go on at its slave, producers at the other group."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.clients import Client, Cluster, registered, wait_registered
from tests.interop.driver import Consumer, Driver, Entry
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.interop.replication import (
    PAIRS,
    SEND_OK,
    Group,
    Load,
    acknowledged,
    assert_holds,
    at_once,
    kinds_id,
    pair_sets,
    start_all,
    tables,
    wait_caught_up,
    wait_group_registered,
    wait_status,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

_POLL = {"poll_ms": 1000}
_PART = 500


class Failover:
    """A SYNC_MASTER and its slave, a topic, and readers of both client versions."""

    def __init__(
        self,
        directory: Path,
        namesrv: harness.NameServer,
        drivers: Callable[[str], Driver],
        kinds: tuple[str, ...],
    ) -> None:
        name = f"failover-{kinds_id(kinds)}"
        self.group = Group(
            directory / name,
            namesrv.address,
            kinds,
            role="SYNC_MASTER",
            name=name,
            conf={"slaveTimeout": "1000"},
        )
        self._namesrv = namesrv.address
        cluster = Cluster(namesrv, self.group.master)
        self.client = Client(drivers("4.9.8"), cluster)
        self._newer_client = Client(drivers(CLIENT_5), cluster)

    def start(self) -> None:
        """Both brokers run, and know the topic."""
        self.group.master.start()
        wait_registered(self.client.driver, self._namesrv, self.group.master)
        self.topic = self.client.topic()
        if self.group.slave.kind in harness.KINDS_5:
            self._teach_topics()
        self.group.slave.start()
        self.wait_registered()
        what = "the topic at the slave"
        wait_until(lambda: self.topic in tables(self.group.slave).topics, what)

    def wait_registered(self) -> None:
        """Until the name server knows both brokers."""
        wait_group_registered(self.client.driver, self._namesrv, self.group)

    def readers(self) -> list[Consumer]:
        """A consumer of each version, each in a group of its own."""
        clients = (self.client, self._newer_client)
        return [client.push(self.topic, **_POLL) for client in clients]

    def _teach_topics(self) -> None:
        """It would ask for them a minute after its start; it begins with its master's file."""
        config = self.group.slave.store_dir / "config"
        config.mkdir(parents=True)
        saved = self.group.master.store_dir / "config" / "topics.json"
        wait_until(lambda: saved.exists() and self.topic in saved.read_text(), f"{saved} saved")
        shutil.copy(saved, config)

    def end(self) -> None:
        self.client.end()
        self._newer_client.end()
        self.group.end()


def wait_for_all(consumer: Consumer, sent: list[Entry], timeout_s: float = 60.0) -> None:
    """Until every one of them has come."""
    wanted = {entry.seq for entry in sent}
    what = f"{len(wanted)} messages at {consumer.name}"
    wait_until(lambda: wanted <= {entry.seq for entry in consumer.received()}, what, timeout_s)


def committed(broker: harness.Broker, consumer: Consumer) -> dict[str, int]:
    """What the broker knows of the consumer's progress, by queue."""
    key = f"{consumer.topic}@{consumer.group}"
    offsets = tables(broker).offsets.items()
    return {str(queue): offset for (name, queue), offset in offsets if name == key}


@pytest.mark.parametrize("groups", pair_sets(long=PAIRS))
def test_consumers_drain_from_the_slave_and_go_back(
    tmp_path: Path,
    namesrv: harness.NameServer,
    drivers: Callable[[str], Driver],
    groups: list[tuple[str, ...]],
) -> None:
    def play(kinds: tuple[str, ...]) -> None:
        failover = Failover(tmp_path, namesrv, drivers, kinds)
        try:
            failover.start()
            drain_and_go_back(failover)
        finally:
            failover.end()

    at_once(play, groups)


def drain_and_go_back(failover: Failover) -> None:
    """The master dies under load and comes back; only then the slave dies."""
    group, topic, client = failover.group, failover.topic, failover.client
    producer = client.producer(**_POLL, timeout_ms=3000)
    wait_status(producer, topic, SEND_OK)
    older, newer = failover.readers()
    first = producer.send(topic, "sync", _PART)
    for reader in (older, newer):
        wait_for_all(reader, first)
        reader.suspend(True)

    load = Load(producer, topic, first=_PART)
    load.wait_for_acknowledged(_PART)
    group.master.kill()
    safe = acknowledged(load.stop())
    assert len(safe) >= _PART
    assert_holds(group.slave, topic, safe)
    for reader in (older, newer):
        reader.suspend(False)
        wait_for_all(reader, safe)
    # The consumer's periodic save, not the one of its shutdown: those are one-way
    # requests on a connection that is closed at once, and the last may be lost.
    everything = _PART + len(safe)
    wait_until(
        lambda: sum(committed(group.slave, older).values()) >= everything, "progress at the slave"
    )
    older.stop()
    progress = committed(group.slave, older)
    assert sum(progress.values()) >= everything

    group.master.start()
    failover.wait_registered()
    if group.master.kind == "ours":
        wait_until(
            lambda: at_least(committed(group.master, older), progress), "the slave's offsets taken"
        )
        again = client.push(topic, older.group, **_POLL)
    wait_status(producer, topic, SEND_OK)
    later = producer.send(topic, "sync", _PART, first=1_000_000)
    wait_for_all(newer, later)
    if group.master.kind == "ours":
        wait_for_all(again, later)
        old = {entry.seq for entry in again.received()} & {entry.seq for entry in first + safe}
        assert not old, f"{len(old)} came again"
    wait_caught_up(group)
    group.slave.kill()
    last = producer.send(topic, "async", _PART, first=2_000_000)
    wait_for_all(newer, last)


def at_least(found: dict[str, int], expected: dict[str, int]) -> bool:
    """Whether no queue's offset is smaller than expected."""
    return all(found.get(queue, -1) >= offset for queue, offset in expected.items())


# -- 2m-2s-sync ------------------------------------------------------------------------------------


@pytest.fixture
def own_namesrv(tmp_path: Path) -> Iterator[harness.NameServer]:
    """conf/ calls its brokers broker-a and broker-b, as other tests' brokers are called."""
    server = harness.name_server("ours", tmp_path / "namesrv").start()
    yield server
    server.stop()


@pytest.fixture
def two_groups(
    tmp_path: Path, own_namesrv: harness.NameServer
) -> Iterator[dict[str, harness.Broker]]:
    """The four brokers of conf/2m-2s-sync by the name of their file."""
    brokers = {}
    for path in sorted((harness.REPO_DIR / "conf" / "2m-2s-sync").glob("*.properties")):
        lines = [line for line in path.read_text().splitlines() if "=" in line]
        shipped = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        brokers[path.stem] = harness.broker(
            "ours",
            tmp_path / path.stem,
            own_namesrv.address,
            name=shipped["brokerName"],
            conf=shipped,
        )
    start_all(brokers.values())
    yield brokers
    for broker in brokers.values():
        broker.kill()


def test_two_masters_with_a_slave_each(
    two_groups: dict[str, harness.Broker],
    own_namesrv: harness.NameServer,
    drivers: Callable[[str], Driver],
) -> None:
    """One master after the other dies; sends go on, and nothing acknowledged is lost.

    Only the send that the master has read and not answered may fail: a 4.9.8 client waits for its
    answer until the time for all tries is over.
    """
    driver = drivers("4.9.8")
    masters = {name: two_groups[name] for name in ("broker-a", "broker-b")}
    expected = {
        name: {"0": master.address, "1": two_groups[f"{name}-s"].address}
        for name, master in masters.items()
    }

    def is_complete() -> bool:
        table = registered(driver, own_namesrv.address)
        return all(table.get(name) == members for name, members in expected.items())

    wait_until(is_complete, "two groups of two")
    client = Client(driver, Cluster(own_namesrv, masters["broker-a"]))
    topic = client.topic()
    where = {"namesrv": own_namesrv.address, "broker": masters["broker-b"].address}
    driver.call("topic.create", topic=topic, queues=4, **where)
    producer = client.producer(**_POLL)
    everything: list[Entry] = []
    for name, master in masters.items():
        wait_until(is_complete, "two groups of two again")
        load = Load(producer, topic, first=len(everything) * 10)
        wait_all_in_sync(load)
        master.kill()
        load.wait_for_more(_PART)
        sent = load.stop()
        assert len(load.errors) <= 1, load.errors[:3]
        everything += sent
        mine = [entry for entry in acknowledged(sent) if entry.broker == name]
        assert mine
        assert_holds(two_groups[f"{name}-s"], topic, mine)
        master.start()
    reader = client.push(topic, **_POLL)
    wait_for_all(reader, everything)
    client.end()


def wait_all_in_sync(load: Load) -> None:
    """Until the last 100 answers were SEND_OK, from both groups."""

    def is_in_sync() -> bool:
        load.wait_for_more(100)
        last = load.answered()[-100:]
        return {entry.note for entry in last} == {SEND_OK} and len({e.broker for e in last}) == 2

    wait_until(is_in_sync, "both groups in sync")
