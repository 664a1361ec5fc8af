"""A store with compaction topics goes between our broker and a Java 5.3.3 broker, both compact it.

Each serves what the other has written and compacted: the newest of each key, by the events that the
test has sent. That one file's bytes are Java's is in tests/store/test_compaction_store.py.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.clients import Client, Cluster
from tests.interop.driver import Driver
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.support.compaction_client import Ledger, create_topic, read_all
from tests.support.our_broker import FrameClient
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(400)]

TOPIC = "CompactionExchange"
CONF = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": str(300 * 20),
    "compactionCqMappedFileSize": str(46 * 50),
    "compactionMappedFileSize": str(46 * 50 * 6),
    "compactionScheduleInternal": "1500",
}
KEYS = 40


def served(
    kind: str, tmp_path: Path, namesrv: str, port: int
) -> AbstractContextManager[FrameClient]:
    home = tmp_path / f"{kind}-{time.monotonic_ns()}"
    broker = harness.broker(
        kind, home, namesrv, name="broker-comp", port=port, store_dir=tmp_path / "s", conf=CONF
    )
    return harness.served(broker)


def send_some(client: FrameClient, ledger: Ledger, chooser: random.Random) -> None:
    for _ in range(200):
        key, body = f"k{chooser.randrange(KEYS)}", b"%d" % len(ledger.events)
        ledger.send(client, TOPIC, 0, key, b"" if chooser.random() < 0.05 else body)


def wait_compacted(client: FrameClient, ledger: Ledger) -> None:
    """At most the keys that live, and what the two last files hold: all that was sent has come."""
    last, _key, _body = ledger.events[-1]

    def is_compacted() -> bool:
        found = read_all(client, TOPIC, 0)
        return bool(found) and found[-1].queue_offset == last and len(found) < KEYS + 100

    wait_until(is_compacted, "a compaction", timeout_s=60)
    ledger.check(read_all(client, TOPIC, 0))


def test_a_store_goes_to_java_and_back(tmp_path: Path, namesrv: harness.NameServer) -> None:
    port, ledger, chooser = free_port(-2, 1), Ledger(), random.Random(5)
    for turn, kind in enumerate(("ours", harness.JAVA_5, "ours", harness.JAVA_5)):
        with served(kind, tmp_path, namesrv.address, port) as client:
            if not turn:
                create_topic(client, TOPIC)
            else:
                ledger.check(read_all(client, TOPIC, 0))
            send_some(client, ledger, chooser)
            wait_compacted(client, ledger)
    with served("ours", tmp_path, namesrv.address, port) as client:
        ledger.check(read_all(client, TOPIC, 0))
        send_some(client, ledger, chooser)
        assert [offset for offset, _, _ in ledger.events] == list(range(1000))


def test_a_java_consumer_reads_what_is_left(
    tmp_path: Path, cluster: Cluster, drivers: Callable[[str], Driver]
) -> None:
    """A push consumer of a new group, from the first offset, over the holes."""
    home = tmp_path / "ours"
    broker = harness.broker("ours", home, cluster.address, name="broker-comp", conf=CONF).start()
    try:
        ledger = Ledger()
        with broker.client() as client:
            create_topic(client, TOPIC)
            send_some(client, ledger, random.Random(6))
            wait_compacted(client, ledger)
            left = read_all(client, TOPIC, 0)
        java = Client(drivers(CLIENT_5), Cluster(cluster.namesrv, broker))
        consumer = java.push(TOPIC, orderly=True)
        received = consumer.wait_for(len(left))
        offsets = [entry.queue_offset for entry in received]
        assert offsets == [message.queue_offset for message in left]
        consumer.stop()
        java.end()
        broker.stop()
    finally:
        broker.kill()
