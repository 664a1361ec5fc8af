"""Roles at run time: what clients are answered, and what stands in the logs, while orders come."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.timer.unpublished_deliveries import (
    OPEN_SLOT,
    Unpublished,
    UnpublishedDeliveries,
)
from ha.control_slots import (
    MEMBER_ORDER,
    ORDER_TAKEN,
    PUTS_REFUSED,
    PUTS_UNTIL_MS,
    MemberRole,
    order_after,
    role_of,
)
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from store.control_slots import ALLOCATED_END, CONFIRM_OFFSET, MAX_PHY_OFFSET
from tests.broker.hot_path_world import send_request
from tests.broker.member_world import TOPIC, Member, bodies

REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    members = Member(tmp_path / "a"), Member(tmp_path / "b")
    yield members
    for member in members:
        member.close()


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    found = Member(tmp_path / "a")
    yield found
    found.close()


def code_of(answer: RemotingCommand | None) -> int:
    assert answer is not None
    return answer.code


def test_a_member_takes_messages_only_while_it_leads(member: Member) -> None:
    peer = member.connect()
    assert code_of(member.send(peer, b"fenced")) == REFUSED
    member.lead()
    assert code_of(member.send(peer, b"one")) == ResponseCode.SUCCESS
    assert code_of(member.send(peer, b"two")) == ResponseCode.SUCCESS, "the fast path"
    member.follow()
    before = member.log_bytes()
    assert code_of(member.send(peer, b"three")) == REFUSED, "the fast path knew the topic"
    assert member.log_bytes() == before
    assert bodies(member.pull(peer, 0)) == [(0, b"one"), (1, b"two")], "the same connection"


def test_queue_offsets_go_on_behind_what_another_leader_wrote(
    pair: tuple[Member, Member],
) -> None:
    """The truth is the list of the bodies that were answered SUCCESS, in their order."""
    peers = [member.connect() for member in pair]
    sent: list[bytes] = []
    for epoch in range(1, 7):
        leader, follower = pair[epoch % 2], pair[1 - epoch % 2]
        follower.follow(epoch)
        leader.lead(epoch)
        for number in range(epoch):
            body = f"{epoch}-{number}".encode()
            assert code_of(leader.send(peers[epoch % 2], body)) == ResponseCode.SUCCESS
            sent.append(body)
        follower.copy_from(leader)
        expected = list(enumerate(sent))
        assert [bodies(one.pull(peer, 0)) for one, peer in zip(pair, peers, strict=True)] == [
            expected,
            expected,
        ]
    assert pair[0].log_bytes() == pair[1].log_bytes()


def test_slaves_see_in_each_table_in_which_epoch_its_master_leads(member: Member) -> None:
    """As the answers to a slave have it: the newer of two masters' tables is told by it."""
    peer = member.connect()
    for epoch in (7, 8):
        member.lead(epoch)
        told = {}
        for code, names in (
            (RequestCode.GET_ALL_TOPIC_CONFIG, ("dataVersion", "mappingDataVersion")),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ("dataVersion",)),
        ):
            (answer,) = member.call(peer, RemotingCommand.request(code, {}))
            body = json.loads(answer.body)
            told |= {(code, name): body[name]["stateVersion"] for name in names}
        assert set(told.values()) == {epoch}, told


@pytest.mark.parametrize("delivers", ["true", "false"])
def test_timers_of_a_turn_that_a_kill_ended_are_judged_by_the_end_that_the_log_is_opened_at(
    tmp_path: Path, delivers: str
) -> None:
    """What lies beyond it never came to be, however far the log grows before timers begin: at once,
    or in another life."""
    member = Member(tmp_path / "a", timerWheelEnable=delivers)
    path = member.root / "timerunpublished"
    noted = UnpublishedDeliveries(path, 1000)
    noted.open(0)
    noted.note(Unpublished(1000, OPEN_SLOT, 7, member.counters[MAX_PHY_OFFSET] + 1))
    member.lead()
    assert code_of(member.send(member.connect(), b"grows")) == ResponseCode.SUCCESS
    assert UnpublishedDeliveries(path, 1000).open(member.counters[MAX_PHY_OFFSET]) == []
    member.close()


def test_a_follower_believes_no_timer_of_a_turn_that_a_kill_ended(member: Member) -> None:
    """Others continue the log: what it has at that place may be theirs."""
    path = member.root / "timerunpublished"
    noted = UnpublishedDeliveries(path, 1000)
    noted.open(0)
    noted.note(Unpublished(1000, OPEN_SLOT, 7, 0))
    member.follow()
    assert UnpublishedDeliveries(path, 1000).open(member.counters[MAX_PHY_OFFSET]) == []


def test_a_refused_send_makes_no_topic(member: Member) -> None:
    """A follower's table is its master's."""
    peer = member.connect()
    member.follow()
    assert code_of(member.send(peer, b"x", topic="new")) == REFUSED
    assert member.controller._tables.topics.find("new") is None
    member.lead(2)
    assert code_of(member.send(peer, b"x", topic="new")) == ResponseCode.SUCCESS


@pytest.mark.parametrize("hot", [True, False])
def test_nothing_is_put_after_another_role_was_taken(tmp_path: Path, hot: bool) -> None:
    """A stream of sends, of all paths, while orders come at any moment of a turn. The truth: the
    log's bytes when an order is taken, and the answers that the client has got."""
    chance = random.Random(7)
    member = Member(tmp_path / "a", hot=hot)
    peer = member.connect()
    answered: dict[bytes, int] = {}
    asked: dict[int, bytes] = {}
    end_without_lead: int | None = None
    for number in range(400):
        if chance.random() < 0.3:
            member.give(chance.choice(list(MemberRole)), number)
        for _ in range(chance.randrange(4)):
            request = _odd_send(chance, f"{number}-{len(asked)}".encode())
            asked[request.opaque] = request.body
            peer.feed(encode_command(request))
        for answer in peer.answers() + member.call(peer):
            answered[asked[answer.opaque]] = answer.code
        taken = role_of(member.counters[ORDER_TAKEN])
        end = member.counters[MAX_PHY_OFFSET]
        if taken is not MemberRole.LEAD:
            assert end_without_lead in (None, end), "put without the lead"
            end_without_lead = end
        else:
            end_without_lead = None
    stored = member.log_bytes()
    assert len(answered) == len(asked)
    assert set(answered.values()) == {ResponseCode.SUCCESS, REFUSED}
    for body, code in answered.items():
        assert (body in stored) is (code == ResponseCode.SUCCESS), body
    member.close()


def _odd_send(chance: random.Random, mark: bytes) -> RemotingCommand:
    """A send that takes one of the paths into the log, with a body that no other has."""
    kind = chance.randrange(4)
    body = b"<" + mark + b">"
    if kind == 0:
        return send_request(body, properties="DELAY\x013")
    if kind == 1:
        return send_request(body, code=RequestCode.SEND_MESSAGE_V2, properties="TRAN_MSG\x01true")
    if kind == 2:
        return send_request(body, topic=f"topic-{chance.randrange(3)}")
    return send_request(body)


# -- what waits --------------------------------------------------------------------------------


def test_sends_wait_for_the_in_sync_set_and_are_given_up_with_the_lead(tmp_path: Path) -> None:
    member = Member(tmp_path / "a", all_ack=True)
    peer = member.connect()
    member.lead()
    assert member.send(peer, b"one") is None, "it waits, though no replica is linked"
    member.acknowledge()
    assert [answer.code for answer in peer.answers()] == [ResponseCode.SUCCESS]
    assert member.send(peer, b"two") is None
    member.order(MemberRole.FENCED)
    assert [answer.code for answer in peer.answers()] == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
    member.acknowledge()
    member.clock.advance(60_000)
    member.turn()
    assert peer.answers() == [], "answered once"
    member.close()


def test_a_send_that_waits_for_a_file_is_refused_with_the_lead(member: Member) -> None:
    member.lead()
    peer = member.connect()
    allocated, member.counters[ALLOCATED_END] = member.counters[ALLOCATED_END], 0
    store, member._store = member._store, None  # type: ignore[assignment]
    log = member.controller._store.log
    log._file_end = log.position
    peer.feed(encode_command(send_request(b"held")))
    assert len(member.controller._messages.append_queue.held) == 1
    member.counters[ALLOCATED_END], member._store = allocated, store
    member.give(MemberRole.FENCED)
    member.hooks.after_sleep()
    member._server.flush()
    assert [answer.code for answer in peer.answers()] == [REFUSED]
    assert b"held" not in member.log_bytes()


def test_a_leader_refuses_puts_when_its_process_ha_says_so(member: Member) -> None:
    peer = member.connect()
    member.lead()
    assert code_of(member.send(peer, b"one")) == ResponseCode.SUCCESS
    member.counters[PUTS_REFUSED] = ResponseCode.SYSTEM_ERROR
    before = member.log_bytes()
    answer = member.send(peer, b"two")
    assert (code_of(answer), "in-sync" in (answer.remark or "")) == (1, True)  # type: ignore[union-attr]
    member.counters[PUTS_REFUSED] = 0
    member.counters[PUTS_UNTIL_MS] = member.clock.monotonic_ms() + 10
    assert code_of(member.send(peer, b"three")) == ResponseCode.SUCCESS
    member.clock.advance(9)
    assert code_of(member.send(peer, b"four")) == ResponseCode.SUCCESS
    between = member.log_bytes()
    member.clock.advance(1)
    assert code_of(member.send(peer, b"five")) == REFUSED, "the lease is over"
    assert member.log_bytes() == between
    assert b"two" not in between.removeprefix(before)


def test_a_read_by_position_shows_only_what_is_confirmed(member: Member) -> None:
    peer = member.connect()
    member.lead()
    member.send(peer, b"one")
    end = member.counters[MAX_PHY_OFFSET]
    view = RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
    for confirm, code in ((0, 1), (end - 1, 1), (end, 0)):
        member.counters[CONFIRM_OFFSET] = confirm
        assert [answer.code for answer in member.call(peer, view)] == [code], confirm


# -- the page ----------------------------------------------------------------------------------


def test_a_successor_begins_without_a_role_and_takes_the_order_that_stands_there(
    member: Member,
) -> None:
    """Process `remoting` was killed: the page says that its predecessor led."""
    member.counters[MEMBER_ORDER] = lead = order_after(8, MemberRole.LEAD)
    member.counters[ORDER_TAKEN] = 0
    assert member.controller._role.is_slave
    member.hooks.before_sleep()
    assert member.counters[ORDER_TAKEN] == 0, "nothing is claimed before it is carried out"
    assert member.hooks.before_sleep() == 0.0, "it does not sleep over an order"
    member.hooks.after_sleep()
    assert member.counters[ORDER_TAKEN] == lead
    assert member.controller._role.broker_id == 0


def test_a_broker_that_stops_leads_no_more_but_lets_go(member: Member) -> None:
    peer = member.connect()
    member.lead()
    member.controller._orders.stop()  # type: ignore[union-attr]
    assert code_of(member.send(peer, b"one")) == ResponseCode.SUCCESS
    member.order(MemberRole.FENCED)
    member.give(MemberRole.LEAD)
    member.turn()
    assert member.counters[ORDER_TAKEN] != member.counters[MEMBER_ORDER]
    assert code_of(member.send(peer, b"two")) == REFUSED
    assert member.hooks.before_sleep() is None, "nor does it turn for that"


def test_the_settings_that_are_shown_have_the_role_of_now(member: Member) -> None:
    peer = member.connect()
    request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)

    def shown() -> list[str]:
        (answer,) = member.call(peer, request)
        lines = answer.body.decode().splitlines()
        return [line for line in lines if line.startswith(("brokerRole=", "brokerId="))]

    assert sorted(shown()) == ["brokerId=-1", "brokerRole=SLAVE"]
    member.lead()
    assert sorted(shown()) == ["brokerId=0", "brokerRole=SYNC_MASTER"]


def test_a_topic_that_was_deleted_under_another_leader_begins_anew(member: Member) -> None:
    peer = member.connect()
    member.lead(1)
    for number in range(3):
        member.send(peer, b"%d" % number)
    member.follow(2)
    member.controller._store.store_commands.delete_topic_queues(TOPIC)
    member.lead(3)
    answer = member.send(peer, b"again")
    assert answer is not None
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
