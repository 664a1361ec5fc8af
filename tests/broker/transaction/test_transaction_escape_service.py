"""broker.transaction.transaction_escape_service: which halves go elsewhere, and the progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.append.role_append_queues import NOT_THE_MASTER
from broker.append.send_properties import find_property
from broker.metrics.waiting_halves import WaitingHalves
from broker.out.escape_bridge import EscapeError
from broker.topic.system_topics import TRANS_HALF_TOPIC
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.transaction_escape_service import TransactionEscapeService
from broker.transaction.transactional_message_bridge import (
    BridgeParts,
    TransactionalMessageBridge,
)
from store.control_slots import DISPATCHED_OFFSET
from tests.broker.broker_fakes import OtherBrokers
from tests.broker.hot_path_world import send_request
from tests.broker.transaction_world import COMMIT, ROLLBACK, TIME_OUT_MS, Half, TransactionWorld


class Slave:
    """The log of a master, as its slave has it, and other brokers."""

    def __init__(self, root: Path) -> None:
        self.world = world = TransactionWorld(root)
        self.is_acting = True
        self.others = OtherBrokers()
        self.service = TransactionEscapeService(
            lambda: self.is_acting,
            self._bridge,
            self.others,  # type: ignore[arg-type]
            world.hot.counters,
            TIME_OUT_MS,
            world.hot.clock,
        )
        self.service.wait_for_running = lambda _ms: True  # type: ignore[method-assign, assignment]

    def _bridge(self, halves: HalfMessageStates) -> TransactionalMessageBridge:
        world = self.world
        return TransactionalMessageBridge(
            BridgeParts(
                commit_log=world.hot.log,
                append=lambda append: append.refused(*NOT_THE_MASTER),
                reader=world.access,
                halves=halves,
                waiting=WaitingHalves(),
                earlier=world.earlier,
                offsets=world.offsets,
                on_loop=lambda function: function(),
                flushed_offset=lambda: 0,
            )
        )

    def prepare(self, body: bytes, key: str = "", group: str = "P") -> Half:
        world, text = self.world, f"TRAN_MSG\x01true\x02PGROUP\x01{group}"
        client = world.hot.client()
        request = send_request(
            body,
            properties=f"{text}\x02UNIQ_KEY\x01{key or body.decode()}",
            born_timestamp=world.hot.clock.now_ms(),
        )
        assert world.hot.send_processor.process_request(client.connection, request) is None
        world.turn()
        (answer,) = client.answers()
        fields = answer.ext_fields
        return Half(int(fields["msgId"][-16:], 16), int(fields["queueOffset"]))

    def act(self, ms: int = TIME_OUT_MS) -> None:
        self.world.hot.clock.advance(ms)
        self.service.step()


@pytest.fixture
def slave(tmp_path: Path) -> Slave:
    return Slave(tmp_path)


def test_undecided_halves_go_elsewhere_as_halves(slave: Slave) -> None:
    for body in (b"a", b"b"):
        slave.prepare(body)
    slave.act()
    assert slave.others.bodies() == [b"a", b"b"]
    (first, _second) = slave.others.taken
    assert (first.topic, first.producer_group, first.sys_flag & 0xC) == ("T", "P", 0x4)
    for name, value in (("TRAN_MSG", "true"), ("PGROUP", "P"), ("UNIQ_KEY", "a")):
        assert find_property(first.properties, name) == value
    assert slave.world.progress()[0] == 2
    slave.act()
    assert slave.others.bodies() == [b"a", b"b"], "once"


def test_ended_ones_do_not(slave: Slave) -> None:
    halves = [slave.prepare(body) for body in (b"a", b"b", b"c")]
    slave.world.end(halves[0], COMMIT, producerGroup="P")
    slave.world.end(halves[2], ROLLBACK, producerGroup="P")
    slave.world.turn()
    slave.act()
    assert slave.others.bodies() == [b"b"]
    assert slave.world.progress() == (3, 2)


def test_young_ones_wait(slave: Slave) -> None:
    slave.prepare(b"a")
    slave.act(TIME_OUT_MS - 1)
    assert slave.others.bodies() == []
    slave.act(1)
    assert slave.others.bodies() == [b"a"]


def test_one_that_nobody_takes_holds_those_behind_it(slave: Slave) -> None:
    for body in (b"a", b"b", b"c"):
        slave.prepare(body)
    slave.others.errors = [None, EscapeError("nobody")]
    slave.act()
    assert (slave.others.bodies(), slave.world.progress()[0]) == ([b"a"], 1)
    slave.act()
    assert (slave.others.bodies(), slave.world.progress()[0]) == ([b"a", b"b", b"c"], 3)


def test_copies_of_a_half_that_was_checked_are_one(slave: Slave) -> None:
    """The slave has a progress from before the check."""
    slave.prepare(b"a")
    world = slave.world
    world.connect("P")
    world.hot.clock.advance(TIME_OUT_MS)
    world.round()
    assert len(world.messages(TRANS_HALF_TOPIC)) == 2
    world.offsets.commit_own_offset("", "CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0, 0)
    slave.act()
    assert slave.others.bodies() == [b"a"]
    assert slave.world.progress()[0] == 2


def test_halves_to_which_a_client_gave_one_key_are_as_many_messages(slave: Slave) -> None:
    slave.prepare(b"a")
    slave.prepare(b"another", "a")
    slave.prepare(b"of another group", "a", "Q")
    slave.act()
    assert slave.others.bodies() == [b"a", b"another", b"of another group"]


def test_only_while_it_acts_and_once_the_log_is_dispatched(slave: Slave) -> None:
    slave.prepare(b"a")
    slave.is_acting = False
    slave.act()
    slave.is_acting = True
    dispatched = slave.world.hot.counters[DISPATCHED_OFFSET]
    slave.world.hot.counters[DISPATCHED_OFFSET] = dispatched - 1
    slave.act()
    assert slave.others.bodies() == []
    slave.world.hot.counters[DISPATCHED_OFFSET] = dispatched
    slave.act()
    assert slave.others.bodies() == [b"a"]


def test_a_half_that_cannot_be_read_here_waits_for_the_master(
    slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    slave.prepare(b"a")
    monkeypatch.setattr(slave.world.hot.source, "record_at", lambda _phy_offset: None)
    slave.act()
    assert (slave.others.bodies(), slave.world.progress()[0]) == ([], None)


def test_a_returning_master_goes_on_behind_what_was_handed_over(slave: Slave) -> None:
    """It reads its progress anew, though it began before it had asked its slave."""
    slave.prepare(b"a")
    slave.prepare(b"b")
    world = slave.world
    connection = world.connect("P")
    world.offsets.raise_to({f"{TRANS_HALF_TOPIC}@CID_RMQ_SYS_TRANS": {0: 1}}, lambda *_queue: 2)
    world.round()
    assert len(connection.sent) == 1
    assert [message.body for message in world.messages(TRANS_HALF_TOPIC)] == [b"a", b"b", b"b"]
