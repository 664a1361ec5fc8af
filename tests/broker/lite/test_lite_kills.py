"""Lite topics when brokers are killed, as real processes: a client gets what it was told that it
sent, after kills at every step and at a slave that becomes the master, and nothing for ever."""

from __future__ import annotations

import json
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
