"""A store directory goes from a Java broker to ours and back, and the other way round.

The files are small, so that records cross the ends of commit log and consume queue files. The
broker under test and a broker of Java's 4.9, or 5.5, take turns on one store, one port and one
broker name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.clients import Client, Cluster
from tests.interop.driver import Driver, DriverError, Entry, by_queue
from tests.interop.processes import wait_until
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

_SMALL_FILES = {
    "mappedFileSizeCommitLog": str(8 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(300 * 20),
}
_FIRST = 3000
_SECOND = 600


class Exchange:
    """One store, opened by brokers of different kinds in turn."""

    def __init__(
        self, directory: Path, cluster: Cluster, driver: Driver, conf: dict[str, str] | None = None
    ) -> None:
        """conf: more settings of every broker."""
        self._conf = _SMALL_FILES | (conf or {})
        self._directory = directory
        self._cluster = cluster
        self._driver = driver
        self._port = free_port(-2, 1)
        self._turns = 0
        self.broker: harness.Broker | None = None

    def open(self, kind: str, **conf: str) -> Client:
        """Start a broker of `kind` on the store; gives a client of it. conf: more settings of this
        one."""
        self._turns += 1
        self.broker = harness.broker(
            kind,
            self._directory / f"turn-{self._turns}-{kind}",
            self._cluster.address,
            name="broker-exchange",
            port=self._port,
            store_dir=self._directory / "store",
            conf={**self._conf, **conf},
        ).start()
        return Client(self._driver, Cluster(self._cluster.namesrv, self.broker))

    def end_turn(self, clean: bool) -> None:
        if self.broker is not None:
            if clean:
                self.broker.stop()
            else:
                self.broker.kill()
        self.broker = None


@pytest.fixture
def exchange(
    tmp_path: Path, cluster: Cluster, drivers: Callable[[str], Driver]
) -> Iterator[Exchange]:
    made = Exchange(tmp_path, cluster, drivers("4.9.8"))
    yield made
    made.end_turn(clean=False)


def check_serves(client: Client, topic: str, sent: list[Entry]) -> None:
    """A new group reads all that was sent, in queue order; keys and ids are found."""
    check_queues(client, topic, sent)
    producer = client.producer()
    for entry in (sent[0], sent[len(sent) // 2], sent[-1]):
        check_found(client, producer.name, topic, entry)
    producer.stop()


def check_queues(client: Client, topic: str, sent: list[Entry]) -> None:
    """A new group reads all that was sent, in queue order."""
    consumer = client.push(topic, orderly=True)
    received = by_queue(consumer.wait_for(len(sent)))
    for queue, entries in by_queue(sent).items():
        got = [(e.seq, e.digest, e.queue_offset, e.msg_id) for e in received[queue]]
        assert got == [(e.seq, e.digest, e.queue_offset, e.msg_id) for e in entries]
    consumer.stop()


def check_found(client: Client, producer: str, topic: str, entry: Entry) -> None:
    """By offset id, unique id and key; the index may still be catching up.

    A Java broker that recovers indexes the last message of a kept index file once more, so the same
    message may be found twice.
    """
    for msg_id in (entry.offset_msg_id, entry.msg_id):
        found = client.driver.call("query.id", producer=producer, topic=topic, msg_id=msg_id)
        assert (found["seq"], found["digest"]) == (entry.seq, entry.digest)
    key = {"producer": producer, "topic": topic, "key": f"ключ-{entry.seq}", "max": 8}

    def is_found() -> bool:
        try:
            return {one["digest"] for one in client.driver.call("query.key", **key)} == {
                entry.digest
            }
        except DriverError:
            return False

    wait_until(is_found, f"{key} found")


def send(
    client: Client, topic: str, first: int, count: int, profile: str = "volume"
) -> list[Entry]:
    producer = client.producer()
    sent = producer.send(topic, "ordered", count, first=first, profile=profile)
    producer.stop()
    return sent


@pytest.mark.parametrize(
    ("java_first", "clean"),
    [
        (False, True),
        pytest.param(True, False, marks=pytest.mark.long),
        pytest.param(True, True, marks=pytest.mark.long),
        pytest.param(False, False, marks=pytest.mark.long),
    ],
    ids=["java-opens-stopped", "java-writes-killed", "java-writes-stopped", "java-opens-killed"],
)
def test_a_store_changes_hands(
    exchange: Exchange, broker_kind: str, java_first: bool, clean: bool
) -> None:
    kinds = ("java-4.9", broker_kind) if java_first else (broker_kind, "java-4.9")
    first = exchange.open(kinds[0])
    topic, group = first.topic(), first.group()
    sent = send(first, topic, 0, _FIRST)
    reading = first.push(topic, group)
    reading.wait_for(_FIRST)
    reading.stop()
    exchange.end_turn(clean)

    second = exchange.open(kinds[1])
    check_serves(second, topic, sent)
    later = send(second, topic, _FIRST, _SECOND)
    if clean:
        going_on = second.push(topic, group)
        received = going_on.wait_for(_SECOND)
        going_on.stop()
        assert sorted(e.seq for e in received) == sorted(e.seq for e in later)
    exchange.end_turn(clean)

    check_serves(exchange.open(kinds[0]), topic, sent + later)


# -- 5.5 ------------------------------------------------------------------------------------------

_JAVA_55 = {
    "enableAcceleratedRecovery": "true",
    "flushConsumeQueueThoroughInterval": "500",
    # It gives up sends that wait for 200 ms, as they do on a busy machine.
    "waitTimeMillsInSendQueue": "30000",
}


def test_after_a_crash_5_5_rebuilds_its_queues_from_where_ours_says(
    exchange: Exchange, broker_kind: str, tmp_path: Path
) -> None:
    """It believes bytes 40 to 47 of the checkpoint, with this setting to the byte: with its own old
    word, which is in the middle of a record here, it would end the log there."""
    store = tmp_path / "store"
    first = exchange.open("java-5.5", **_JAVA_55)
    topic = first.topic()
    sent = send(first, topic, 0, _SECOND, "small")
    places = sorted(map(phy_offset, sent))
    cut, last = places[400], places[-1]
    wait_until(lambda: logics_physical_offset(store) == last, "all units are on disk")
    exchange.end_turn(clean=True)
    lose_end(store / "commitlog", cut)

    ours = exchange.open(broker_kind)
    kept = [entry for entry in sent if phy_offset(entry) < cut]
    kept += send(ours, topic, _FIRST, _SECOND, "small")
    check_serves(ours, topic, kept)
    # At 0, which it is until the first flush of the queues after this start, it refuses to start.
    wait_until(lambda: logics_physical_offset(store) not in (0, last), "ours says where")
    exchange.end_turn(clean=False)

    # After a crash it has deleted the index, and rebuilds it only from there, too.
    java = exchange.open("java-5.5", **_JAVA_55)
    check_queues(java, topic, kept)
    kept += send(java, topic, 2 * _FIRST, 10, "small")
    exchange.end_turn(clean=False)
    check_queues(exchange.open(broker_kind), topic, kept)


def logics_physical_offset(store: Path) -> int:
    return int.from_bytes((store / "checkpoint").read_bytes()[40:48], "big")


def phy_offset(entry: Entry) -> int:
    return int(entry.offset_msg_id[-16:], 16)


def lose_end(log: Path, phy_offset: int) -> None:
    """From there on the log's one file never came to the disk: zeros, as a crash of the machine
    leaves them."""
    (path,) = [path for path in log.iterdir() if any(path.read_bytes())]
    raw = path.read_bytes()
    path.write_bytes(raw[:phy_offset] + bytes(len(raw) - phy_offset))
