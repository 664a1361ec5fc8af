"""kill -9 of processes and of a whole broker while compaction topics are written and compacted.

Compactions run all the time, their renames included. What is held to: the newest acknowledged
message of each key is served at any moment, none that was not sent, none twice, all in order.
Seeded: a failure names its seed.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.support.compaction_client import Ledger, create_topic, read_all, send_keyed
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tools.chaos.free_ports import free_port

TOPIC, QUEUES = "Compacted", 2
SETTINGS = {
    "compactionCqMappedFileSize": 46 * 20,
    "compactionMappedFileSize": 46 * 120,
    "compactionScheduleInternal": 1,
}
KEYS = 25


class Writer(threading.Thread):
    """Sends to one queue until told to end. A send without an answer may be there or not."""

    def __init__(self, broker: OurBroker, queue_id: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._queue_id = queue_id
        self._random = random.Random(seed * 10 + queue_id)
        self.end = threading.Event()
        self.ledger = Ledger()
        self.doubtful: list[tuple[str, bytes]] = []
        self.failure = ""

    def run(self) -> None:
        number = 0
        while not self.end.is_set():
            try:
                with self._broker.client(timeout_s=5) as client:
                    while not self.end.is_set():
                        number += 1
                        key = f"k{self._random.randrange(KEYS)}"
                        body = b"" if self._random.random() < 0.05 else b"%d" % number
                        self.doubtful.append((key, body))
                        answer = send_keyed(client, TOPIC, self._queue_id, key, body)
                        if answer.code == 0:
                            offset = int(answer.ext_fields["queueOffset"])
                            self.ledger.events.append((offset, key, body))
                            self.doubtful.pop()
            except (OSError, TimeoutError):
                self.end.wait(0.05)


def check(broker: OurBroker, writer: Writer, queue_id: int) -> None:
    """What is in doubt counts by what is there: it was appended, or not."""
    with broker.client() as client:
        reached = 1 + max(offset for offset, _, _ in writer.ledger.events)

        def is_served() -> bool:
            return client.pull(TOPIC, queue_id, 0).max_offset >= reached

        wait_until(is_served, 30)
        found = read_all(client, TOPIC, queue_id)
    sent = {offset: (key, body) for offset, key, body in writer.ledger.events}
    newest = writer.ledger.newest
    for message in found:
        if message.queue_offset not in sent:
            key = message.find_property("KEYS") or ""
            assert (key, message.body) in writer.doubtful, message
            sent[message.queue_offset] = key, message.body
            newest[key] = max(newest.get(key, (-1, b"")), (message.queue_offset, message.body))
    offsets = [message.queue_offset for message in found]
    assert offsets == sorted(set(offsets))
    for message in found:
        assert sent[message.queue_offset] == (message.find_property("KEYS"), message.body)
    # A send in doubt may be stored and compacted away since, and a deletion with its key.
    in_doubt = {key for key, _ in writer.doubtful}
    missing = {key for key, (at, body) in newest.items() if body and at not in set(offsets)}
    assert not missing - in_doubt
    assert len(in_doubt) < KEYS // 2, "too little is known"


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(4))
def test_kills(tmp_path: Path, seed: int) -> None:
    chooser = random.Random(seed)
    with OurBroker(tmp_path, listenPort=free_port(-2, 1), **SETTINGS) as broker:
        broker.start()
        with broker.client() as client:
            create_topic(client, TOPIC, QUEUES)
        writers = [Writer(broker, queue_id, seed) for queue_id in range(QUEUES)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(8):
                threading.Event().wait(chooser.uniform(0.3, 1.5))
                victim = chooser.choice(["store", "store", "remoting", "all"])
                if victim == "all":
                    broker.crash()
                    broker.start()
                else:
                    broker.restart_by_kill(victim)
        finally:
            for writer in writers:
                writer.end.set()
            for writer in writers:
                writer.join(30)
        for queue_id, writer in enumerate(writers):
            assert len(writer.ledger.events) > 200, seed
            check(broker, writer, queue_id)
        assert broker.terminate() == 0
        broker.start()
        for queue_id, writer in enumerate(writers):
            check(broker, writer, queue_id)
        assert broker.terminate() == 0
