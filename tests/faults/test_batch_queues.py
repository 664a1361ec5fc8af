"""Batch consume queues of two brokers: a slave builds its master's bytes, also through kills."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.broker.send.test_send_message_processor import batch_body
from tests.support.broker_group import ASYNC_MASTER, SLAVE, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(240)]

TOPIC = "Batches"


def create(client: FrameClient) -> None:
    fields = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "attributes": "+queue.type=BatchCQ",
    }
    assert client.call(17, fields).code == 0


def send(client: FrameClient, number: int) -> None:
    """One message, then a batch of three."""
    now_ms = time.time_ns() // 1_000_000
    header = {"a": "P", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": now_ms, "h": 0}
    header["j"] = 0
    plain = {**header, "i": f"KEYS\x01k{number}", "m": "false"}
    assert client.call(310, plain, b"plain").code == 0
    batch = {**header, "i": f"UNIQ_KEY\x01id{number}", "m": "true"}
    body = batch_body(*((0, b"one of three", b"") for _ in range(3)))
    assert client.call(320, batch, body).code == 0


def files(broker: OurBroker) -> dict[str, bytes]:
    root = broker.store_dir / "batchconsumequeue"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def wait_for(broker: OurBroker, high: int) -> None:
    def is_there() -> bool:
        with broker.client() as client:
            return client.offset(30, TOPIC, 0) == high

    wait_until(is_there, 60)


def test_a_slave_builds_the_same(tmp_path: Path) -> None:
    """It has the first records before it knows what their topic is."""
    with Group(tmp_path).running() as group:
        master = group.start(group.first, ASYNC_MASTER)
        slave = group.start(group.second, SLAVE)
        with master.client() as client:
            create(client)
            for number in range(20):
                send(client, number)
        wait_for(slave, 80)
        wait_until(lambda: _knows(slave), 60)
        slave.crash()
        with master.client() as client:
            for number in range(20, 40):
                send(client, number)
        slave = group.start(group.second, SLAVE)
        wait_for(slave, 160)
        master.crash()
        with slave.client() as client:
            pulled = client.pull(TOPIC, 0, 2)
            assert pulled.code == 0
            assert [message.queue_offset for message in pulled.messages][:4] == [1, 4, 5, 8]
        assert "goes on at" not in slave.log("ha")
        assert slave.terminate(60) == 0
        master = group.start(group.first, ASYNC_MASTER)
        wait_for(master, 160)
        assert master.terminate(60) == 0
        assert files(slave) == files(master)
        assert not (slave.store_dir / "consumequeue" / TOPIC).exists()
        for broker in (master, slave):
            assert broker.check().errors == []


def _knows(broker: OurBroker) -> bool:
    """A slave has its master's topics."""
    path = broker.store_dir / "config" / "topics.json"
    table = json.loads(path.read_text())["topicConfigTable"] if path.exists() else {}
    return TOPIC in table
