"""A slave's tables never rest on records that its log lacks.

The HA link is cut while the remoting port of the master still answers, so that the slave goes on
copying tables while its log stands still. Then the master is lost and the slave promoted. A client
knows what it was promised: messages that were answered SEND_OK and are in the slave's log.
"""

from __future__ import annotations

from typing import Final

import pytest

from broker.json_config_manager import parse_object
from broker.schedule.schedule_offset_manager import parse_delay_offset_table
from store.control_slots import MAX_PHY_OFFSET
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group, counters_of, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, drain
from tests.support.pop_client import PopClient
from tools.chaos.relay import Relay
from tools.chaos.schedule import FaultKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.fault(11)]

POPPED, DELAYED, GROUP, NAME = "PopAhead", "DelayAhead", "GAhead", "broker-a"
SETTINGS: Final[dict[str, object]] = {
    "popCkStayBufferTime": 1_000,
    "flushIntervalCommitLog": 100,
    "flushCommitLogLeastPages": 0,
}


@pytest.fixture
def pair(group: Group, relay: Relay) -> tuple[OurBroker, OurBroker]:
    """A master, and its slave behind the relay, with the first copy of the tables."""
    for broker in (group.first, group.second):
        broker.settings.update(SETTINGS)
    master = group.start(group.first, ASYNC_MASTER)
    slave = group.start(group.second, SLAVE, haMasterAddress=f"127.0.0.1:{relay.port}")
    with master.client() as client:
        assert client.send(TOPIC, 0, b"first").code == 0
    wait_until(lambda: log_of(slave) == log_of(master), 30)
    await_rounds(master, slave, "Young")
    return master, slave


def await_rounds(master: OurBroker, slave: OurBroker, name: str) -> None:
    """Until a whole round of the slave has begun and ended: topics are its first table, so the
    second new topic is copied in a later round than the first."""
    for topic in (f"{name}1", f"{name}2"):
        with master.client() as client:
            assert client.send(topic, 0, b"x").code == 0
        table = slave.store_dir / "config" / "topics.json"
        wait_until(lambda at=table, want=topic: at.exists() and want in at.read_text(), 30)


def promote(group: Group) -> OurBroker:
    """The master is lost for good. What it did not replicate is lost with it, and accepted."""
    group.first.crash()
    assert group.second.terminate() == 0
    return group.start(group.second, ASYNC_MASTER, haPromoteUnclean="true")


def cut(relay: Relay, slave: OurBroker, master: OurBroker) -> None:
    """The slave has all, and gets no more."""
    wait_until(lambda: log_of(slave) == log_of(master), 30)
    relay.set_mode(FaultKind.PARTITION)


def committed(client: FrameClient) -> int:
    """The group's offset on the master; -1: none."""
    answer = client.call(14, {"consumerGroup": GROUP, "topic": POPPED, "queueId": 0})
    return int(answer.ext_fields["offset"]) if answer.code == 0 else -1


def send_delayed(client: FrameClient, body: bytes, *, level: int) -> None:
    fields = {"a": "P", "b": DELAYED, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0}
    more = {"i": f"DELAY\x01{level}\x02", "j": 0, "k": "false", "l": 16, "m": "false"}
    answer = client.call(310, {**fields, **more}, body)
    assert answer.code == 0, answer.remark


def delivered(client: FrameClient, *, level: int) -> int | None:
    """How far the master has come in a level (45)."""
    return parse_delay_offset_table(parse_object(client.call(45, {}).body)).get(level)


def test_a_popped_message_whose_check_point_was_not_replicated_comes_again(
    group: Group, relay: Relay, pair: tuple[OurBroker, OurBroker]
) -> None:
    """The master's offset moves behind it once its check point is stored, in the master's log."""
    master, slave = pair
    with master.client() as client:
        assert client.send(POPPED, 0, b"popped").code == 0
        cut(relay, slave, master)
        popped = PopClient(client, GROUP, NAME).pop(POPPED, invisibleTime=5_000)
        assert [each.message.body for each in popped.messages] == [b"popped"]
        wait_until(lambda: committed(client) == 1, 30)
    await_rounds(master, slave, "Mark")
    promoted = promote(group)
    with promoted.client() as client:
        pops = PopClient(client, GROUP, NAME)
        bodies: list[bytes] = []

        def came() -> bool:
            bodies.extend(each.message.body for each in pops.pop(POPPED).messages)
            return bool(bodies)

        wait_until(came, 30)
        assert bodies == [b"popped"]


def test_a_delayed_message_whose_delivery_was_not_replicated_is_delivered(
    group: Group, relay: Relay, pair: tuple[OurBroker, OurBroker]
) -> None:
    """The level's progress moves behind it once the master has delivered it, in its own log."""
    master, slave = pair
    with master.client() as client:
        send_delayed(client, b"due", level=3)
        cut(relay, slave, master)
        assert drain(client, DELAYED, 0) == []
        wait_until(lambda: [each.body for each in drain(client, DELAYED, 0)] == [b"due"], 60)
        wait_until(lambda: delivered(client, level=3) == 1, 30)
    await_rounds(master, slave, "Mark")
    promoted = promote(group)
    with promoted.client() as client:
        wait_until(lambda: [each.body for each in drain(client, DELAYED, 0)] == [b"due"], 60)


def test_what_waited_counts_once_the_log_has_come(
    group: Group, relay: Relay, pair: tuple[OurBroker, OurBroker]
) -> None:
    """A commit of a consumer reaches the slave soon after the link is whole again."""
    master, slave = pair
    cut(relay, slave, master)
    with master.client() as client, counters_of(slave) as counters:
        stored = client.send(TOPIC, 0, b"behind the cut")
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
        assert client.call(15, fields).code == 0
        await_rounds(master, slave, "Mark")
        table = slave.store_dir / "config" / "consumerOffset.json"

        def is_copied() -> bool:
            return table.exists() and f"{TOPIC}@{GROUP}" in table.read_text()

        assert not is_copied()
        assert counters[MAX_PHY_OFFSET] <= stored.phy_offset
        relay.set_mode(None)
        wait_until(is_copied, 30)
        assert counters[MAX_PHY_OFFSET] > stored.phy_offset
