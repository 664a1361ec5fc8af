"""Compaction topics of a real broker: what is sent, what pulls find, over compactions and kills."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.remoting_command import RemotingCommand
from tests.support.broker_group import ASYNC_MASTER, SLAVE, Group
from tests.support.compaction_client import (
    Ledger,
    create_topic,
    post_keyed,
    read_all,
    send_keyed,
)
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, pull_fields

TOPIC = "Compacted"
SMALL = {"compactionCqMappedFileSize": 46 * 20, "compactionMappedFileSize": 46 * 120}
NOW = {"compactionScheduleInternal": 20}


def position_of(broker: OurBroker) -> str:
    path = broker.store_dir / "compaction" / "position-checkpoint"
    return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    with OurBroker(tmp_path_factory.mktemp("compaction"), **SMALL, **NOW) as broker:
        yield broker.start()


@pytest.fixture
def client(broker: OurBroker) -> Iterator[FrameClient]:
    with broker.client() as client:
        yield client


def pull(client: FrameClient, topic: str, offset: int, **fields: object) -> RemotingCommand:
    return client.call(11, {**pull_fields(topic, 0, offset), **fields})


def wait_served(client: FrameClient, topic: str, end: int) -> None:
    """The last of `end` messages can be pulled."""
    wait_until(lambda: pull(client, topic, end - 1).code == 0, 30)


def test_messages_need_a_key(client: FrameClient) -> None:
    create_topic(client, "NeedsKeys")
    create_topic(client, "Plain", policy="DELETE")
    for batch in (False, True):
        for key in (None, " "):
            answer = send_keyed(client, "NeedsKeys", 0, key, b"body", batch=batch)
            assert (answer.code, answer.remark) == (13, "Required message key is missing")
        assert send_keyed(client, "NeedsKeys", 0, "key", b"body", batch=batch).code == 0
        assert send_keyed(client, "Plain", 0, None, b"body", batch=batch).code == 0
    # Also once the topic is known to the fast path.
    assert send_keyed(client, "NeedsKeys", 0, None, b"body").code == 13
    wait_until(lambda: len(read_all(client, "NeedsKeys", 0)) == 2)


def test_consumers_go_on_while_files_are_replaced(broker: OurBroker, client: FrameClient) -> None:
    """Each of them sees the newest of each key, whenever it began."""
    create_topic(client, TOPIC)
    chooser, ledger = random.Random(7), Ledger()
    for _ in range(12):
        opaques = []
        for _ in range(50):
            key, body = f"k{chooser.randrange(30)}", chooser.randbytes(chooser.randrange(120))
            body = b"" if chooser.random() < 0.1 else body
            ledger.events.append((len(ledger.events), key, body))
            opaques.append(post_keyed(client, TOPIC, 0, key, body))
        assert all(client.take(opaque).code == 0 for opaque in opaques)
        wait_served(client, TOPIC, len(ledger.events))
        ledger.check(read_all(client, TOPIC, 0))
    wait_until(lambda: len(read_all(client, TOPIC, 0)) < 120)
    found = read_all(client, TOPIC, 0)
    ledger.check(found)
    assert '"Compacted_0"' in position_of(broker)
    # 30 and 31 tell of the queue, a pull of what is kept.
    assert (client.offset(31, TOPIC, 0), client.offset(30, TOPIC, 0)) == (0, 600)
    answer = pull(client, TOPIC, 0, maxMsgNums=2)
    assert answer.ext_fields["minOffset"] == str(found[0].queue_offset)
    assert answer.ext_fields["maxOffset"] == "600"
    assert answer.ext_fields["nextBeginOffset"] == str(found[1].queue_offset + 1)


def test_a_pull_waits_for_the_next_message(broker: OurBroker, client: FrameClient) -> None:
    create_topic(client, "Waits")
    for number in range(3):
        opaque = client.post_pull("Waits", 0, number, suspend_ms=30_000)
        with broker.client() as producer:
            assert send_keyed(producer, "Waits", 0, "key", b"%d" % number).code == 0
        pulled = client.take_pull(opaque)
        assert [message.body for message in pulled.messages] == [b"%d" % number]


def test_offsets_that_are_not_there(client: FrameClient) -> None:
    """As RocketMQ 5.3.3 answers."""
    create_topic(client, "Offsets")
    empty = [
        (pull(client, "Offsets", at).code, pull(client, "Offsets", at).remark) for at in (0, 5)
    ]
    assert empty == [(19, "NO_MESSAGE_IN_QUEUE"), (21, "NO_MESSAGE_IN_QUEUE")]
    for _ in range(3):
        assert send_keyed(client, "Offsets", 0, "key", b"body").code == 0
    wait_until(lambda: pull(client, "Offsets", 2).code == 0)
    answers = {at: pull(client, "Offsets", at) for at in (3, 4, 1000)}
    assert {at: (each.code, each.remark) for at, each in answers.items()} == {
        3: (19, "OFFSET_OVERFLOW_ONE"),
        4: (21, "OFFSET_OVERFLOW_BADLY"),
        1000: (21, "OFFSET_OVERFLOW_BADLY"),
    }
    assert [answers[at].ext_fields["nextBeginOffset"] for at in answers] == ["3", "0", "0"]


def test_subscriptions_are_applied(broker: OurBroker, client: FrameClient) -> None:
    create_topic(client, "Tags")
    for number in range(12):
        assert (
            send_keyed(client, "Tags", 0, f"k{number}", b"%d" % number, "AB"[number % 2]).code == 0
        )
    wait_until(lambda: pull(client, "Tags", 11).code == 0)

    def bodies(**fields: object) -> list[bytes]:
        opaque = client.post(11, {**pull_fields("Tags", 0, 0), **fields})
        return [message.body for message in client.take_pull(opaque).messages]

    assert bodies(subscription="B") == [b"%d" % number for number in range(1, 12, 2)]
    assert len(bodies(subscription="A || B")) == 12
    answer = pull(client, "Tags", 0, subscription="C")
    assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
    assert answer.ext_fields["nextBeginOffset"] == "12"
    # What comes meanwhile does not concern a pull that waits for another tag.
    fields = pull_fields("Tags", 0, 12, suspend_ms=30_000)
    opaque = client.post(11, {**fields, "subscription": "A"})
    with broker.client() as producer:
        for tag in ("B", "A"):
            assert send_keyed(producer, "Tags", 0, "new", tag.encode(), tag).code == 0
    messages = client.take_pull(opaque).messages
    assert [message.body for message in messages] == [b"A"]


def test_a_topic_of_compaction_keeps_its_policy(client: FrameClient) -> None:
    create_topic(client, "Fixed")
    fields = {
        "topic": "Fixed",
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        "attributes": "+cleanup.policy=DELETE",
    }
    answer = client.call(17, fields)
    assert answer.code == 1
    assert "attempt to update an unchangeable attribute" in (answer.remark or "")


def test_kills_and_restarts(tmp_path: Path) -> None:
    """A killed process `store`, then a killed broker: the newest of each key is there."""
    ledger, chooser = Ledger(), random.Random(3)
    with OurBroker(tmp_path, **SMALL, **NOW) as broker:
        for turn in range(3):
            if not turn or not broker.is_alive:
                broker.start()
            with broker.client() as client:
                if not turn:
                    create_topic(client, TOPIC)
                for _ in range(120):
                    body = chooser.randbytes(30) if chooser.random() < 0.9 else b""
                    ledger.send(client, TOPIC, 0, f"k{chooser.randrange(25)}", body)
                if turn == 0:
                    broker.restart_by_kill("store")
                wait_served(client, TOPIC, len(ledger.events))
                ledger.check(read_all(client, TOPIC, 0))
            if turn == 1:
                broker.crash()
        assert broker.terminate() == 0


@pytest.mark.slow
def test_a_slave_makes_its_own(tmp_path: Path) -> None:
    """It has the topics' attributes from its master, and serves what it has compacted itself."""
    ledger, chooser = Ledger(), random.Random(3)
    group = Group(tmp_path)
    with group.running():
        master = group.start(group.first, ASYNC_MASTER, **SMALL, **NOW)
        slave = group.start(group.second, SLAVE, slaveSyncInterval=200, **SMALL, **NOW)
        with master.client() as client:
            create_topic(client, TOPIC)
            for _ in range(200):
                ledger.send(client, TOPIC, 0, f"k{chooser.randrange(25)}", chooser.randbytes(30))
        with slave.client() as client:
            wait_until(lambda: pull(client, TOPIC, 199).code == 0, 30)
            wait_until(lambda: len(read_all(client, TOPIC, 0)) < 60, 30)
            ledger.check(read_all(client, TOPIC, 0))
