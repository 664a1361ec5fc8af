"""Lite topics when brokers are killed, as real processes: a client gets what it was told that it
sent, after kills at every step and at a slave that becomes the master, and nothing for ever."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.lite_names import to_lmq_name
from tests.broker.lite.lite_client import PARENT, LiteClient, LiteMessage, send_lite
from tests.support.broker_group import ASYNC_MASTER, SLAVE, SYNC_MASTER, Group
from tests.support.deadline import wait_until
from tests.support.lite_parent import make_group, make_parent
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(180)]

LITES = [f"s{number}" for number in range(5)]
LIGHT = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "flushConsumerOffsetInterval": 200,
    "liteTtlCheckInterval": 500,
}
KILLS = 3
INVISIBLE_MS = 2_000
MANY = [f"m{number}" for number in range(300)]
UNIT = struct.Struct(">QIQ")
"""Of a consume queue: place in the log, size, tags code."""
KEPT_OFFSET = re.compile(r'"%LMQ%\$TLite\$(m\d+)@GLite":\{0:(\d+)')


class Truth:
    """A client that counts: what it was told that it sent, and how often it got what."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.got: Counter[bytes] = Counter()

    def send(self, frames: FrameClient, part: str) -> None:
        for lite in LITES:
            for number in range(3):
                body = f"{part}-{lite}-{number}".encode()
                if send_lite(frames, lite, body).code == 0:
                    self.sent.add(body)

    def pop(self, client: LiteClient, poll_ms: int = 500) -> list[LiteMessage]:
        found = client.pop(pollTime=poll_ms, invisibleTime=INVISIBLE_MS)
        self.got.update(each.body for each in found)
        return found

    def pop_some(self, client: LiteClient) -> list[LiteMessage]:
        found: list[LiteMessage] = []

        def has_some() -> bool:
            found.extend(self.pop(client))
            return bool(found)

        wait_until(has_some)
        return found

    def drain(self, client: LiteClient) -> None:
        def has_all() -> bool:
            for each in self.pop(client):
                assert client.ack(each).code == 0
            return self.got.keys() >= self.sent

        wait_until(has_all, 30)


def subscribed(frames: FrameClient) -> LiteClient:
    """Who repeats what it has, as clients do each 30 s."""
    client = LiteClient(frames, "GLite", "c", "broker-a")
    assert client.change("COMPLETE_ADD", *LITES).code == 0
    return client


def lag(frames: FrameClient) -> int:
    answer = frames.call(200078, {"group": "GLite", "topK": 1})
    assert answer.code == 0, answer.remark
    return int(json.loads(answer.body)["totalLagCount"])


def offsets(broker: OurBroker) -> list[str | None]:
    with broker.client() as frames:
        answers = [
            frames.call(
                14, {"consumerGroup": "GLite", "topic": to_lmq_name(PARENT, lite), "queueId": 0}
            )
            for lite in LITES
        ]
    return [answer.ext_fields.get("offset") for answer in answers]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """The slave has the name server, and is the next master."""
    group = Group(tmp_path)
    for broker in (group.first, group.second):
        broker.settings.update(LIGHT)
    with group.running():
        group.start(group.first, SLAVE)
        group.start(group.second, SYNC_MASTER)
        yield group


def look_at_the_slave(slave: OurBroker, lite_topics: int) -> None:
    """It has what the master has, agrees to subscriptions, and hands nothing out."""
    with slave.client() as frames:
        client = subscribed(frames)
        assert frames.take(client.post_pop()).code == 16
        wait_until(lambda: lag(frames) == 0)
        found = json.loads(frames.call(200074, {}).body)
        assert (found["liteSubscriptionCount"], found["eventMapSize"]) == (0, 0)
        parent = {"topic": PARENT}
        wait_until(
            lambda: json.loads(frames.call(200075, parent).body)["liteTopicCount"] == lite_topics
        )


def test_no_acknowledged_message_is_lost_and_none_comes_for_ever(group: Group) -> None:
    slave, master, truth = group.first, group.second, Truth()
    with master.client() as frames:
        make_parent(frames, PARENT, lite__topic__expiration="30")
        make_group(frames, "GLite", PARENT)
        client = subscribed(frames)
        truth.send(frames, "begun")
        truth.drain(client)
        wait_until(lambda: lag(frames) == 0)
    wait_until(lambda: offsets(slave) == offsets(master) == ["3"] * len(LITES))
    look_at_the_slave(slave, len(LITES))

    # Sent and not handed out.
    with master.client() as frames:
        subscribed(frames)
        truth.send(frames, "sent")
    master.crash()
    group.start(master, SYNC_MASTER)

    # Handed out and not acknowledged, and what was acknowledged in part.
    with master.client() as frames:
        client = subscribed(frames)
        truth.send(frames, "out")
        popped = truth.pop_some(client)
        assert client.ack(popped[0]).code == 0
    master.crash()
    group.start(master, SYNC_MASTER)

    # The slave takes over, with what it has copied of the offsets.
    with master.client() as frames:
        client = subscribed(frames)
        truth.drain(client)
        truth.send(frames, "last")
        for each in truth.pop_some(client)[:3]:
            assert client.ack(each).code == 0
    master.crash()
    slave.crash()
    group.start(slave, ASYNC_MASTER)
    with slave.client() as frames:
        client = subscribed(frames)
        truth.send(frames, "after")
        truth.drain(client)
        wait_until(lambda: lag(frames) == 0)
        assert truth.pop(client, 2 * INVISIBLE_MS) == []
    assert len(truth.sent) >= 4 * 3 * len(LITES)
    assert max(truth.got.values()) <= 1 + KILLS


# -- many lite topics whose units wait ---------------------------------------------------------


class Sender:
    """What one client was told that it sent, by lite topic and in order, and what it got."""

    def __init__(self) -> None:
        self.sent: dict[str, list[bytes]] = {lite: [] for lite in MANY}
        self.got: dict[str, list[bytes]] = {lite: [] for lite in MANY}

    def send(self, broker: OurBroker, part: str) -> None:
        """1 to 3 messages to each lite topic, after so many to one that they do not all wait."""
        with broker.client() as frames:
            self._send(frames, MANY[7], 40, f"{part} before")
            for number, lite in enumerate(MANY):
                self._send(frames, lite, 1 + number % 3, part)
            wait_until(lambda: all(self.is_there(frames, lite) for lite in MANY))

    def _send(self, frames: FrameClient, lite: str, count: int, part: str) -> None:
        for number in range(count):
            body = f"{part}-{lite}-{number}".encode()
            answer = send_lite(frames, lite, body, "KEYS\x01key\x02")
            assert answer.code == 0, answer.remark
            self.sent[lite].append(body)
        if count > 3:
            wait_until(lambda: self.is_there(frames, lite))

    def is_there(self, frames: FrameClient, lite: str) -> bool:
        answer = frames.call(30, {"topic": to_lmq_name(PARENT, lite), "queueId": 0})
        return answer.ext_fields.get("offset") == str(len(self.sent[lite]))

    def take(self, broker: OurBroker) -> None:
        """Get and acknowledge until there is no more."""
        with broker.client() as frames:
            client = LiteClient(frames, "GLite", "c", "broker-a")
            assert client.change("COMPLETE_ADD", *MANY).code == 0
            wanted = sum(map(len, self.sent.values()))

            def has_all() -> bool:
                for each in client.pop(pollTime=100):
                    self.got[each.lite].append(each.body)
                    assert client.ack(each).code == 0
                return sum(map(len, self.got.values())) >= wanted

            wait_until(has_all, 30)
            assert client.pop(pollTime=100) == []
        assert self.got == self.sent
        wait_until(lambda: self.kept_offsets(broker) == {k: len(v) for k, v in self.got.items()})

    def kept_offsets(self, broker: OurBroker) -> dict[str, int]:
        """How far the group is by what the broker has on disk: a kill loses later acks."""
        path = broker.store_dir / "config" / "lmqConsumerOffset.json"
        text = path.read_text() if path.exists() else ""
        return {lite: int(offset) for lite, offset in KEPT_OFFSET.findall(text)}


def units_in_files(broker: OurBroker, lite: str) -> int:
    """How many records of a lite topic have a unit in the files of its light queue."""
    directory = broker.store_dir / "consumequeue" / to_lmq_name(PARENT, lite) / "0"
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*")))
    return sum(size > 0 for _place, size, _tags in UNIT.iter_unpack(data))


def crash_while_units_wait(broker: OurBroker, sender: Sender) -> None:
    """All processes at once. What was sent and not yet taken has no unit in a file; of the lite
    topic with many messages some have."""
    broker.crash()
    for lite in MANY:
        taken, sent = len(sender.got[lite]), len(sender.sent[lite])
        in_files = units_in_files(broker, lite)
        if lite == MANY[7]:
            assert taken + 8 <= in_files < sent
        else:
            assert in_files == taken < sent


def test_what_waits_for_its_files_when_all_are_killed_is_read_once(tmp_path: Path) -> None:
    # After a kill, what is there a second later would be written.
    settings = {**LIGHT, "brokerName": "broker-a", "flushIntervalConsumeQueue": 600_000}
    broker, sender = OurBroker(tmp_path, **settings), Sender()
    with broker.start():
        with broker.client() as frames:
            make_parent(frames, PARENT)
            make_group(frames, "GLite", PARENT)
        sender.send(broker, "first")
        crash_while_units_wait(broker, sender)
        sender.take(broker.start())

        # Light queues are off for one life, which is stopped in order.
        sender.send(broker, "second")
        crash_while_units_wait(broker, sender)
        switches = {"enableLmq": "false", "enableMultiDispatch": "false"}
        on, broker.settings = broker.settings, broker.settings | switches
        broker.start()
        assert broker.terminate() == 0
        broker.settings = on
        sender.take(broker.start())
        assert broker.terminate() == 0
    assert broker.check().errors == []
