"""Every request at a member that may not write: fenced, following, or leading without a lease; and
in the turn in which it ceases to lead.

The truth from outside: the bytes of the log, the tables as a slave of RocketMQ would copy them
(21, 43, 45, 201, 402), the answers, and which queue offset the next leader gives. Every code that
is served is asked, so that what a new one changes shows up here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from broker.acl.access_table import ACCESS_TABLE
from ha.control_slots import ORDER_TAKEN, PUTS_UNTIL_MS, MemberRole, role_of
from remoting.body.topic_config import TopicConfig
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from remoting.response_code import ResponseCode
from store.control_slots import CONFIRM_OFFSET, MAX_PHY_OFFSET
from tests.broker.member_world import Member
from tests.broker.twin_requests import (
    ACK,
    BACK,
    END,
    POP,
    PULL,
    SEND,
    Ask,
    batch_body,
    heartbeat_body,
    named,
)
from tests.fuzz.broker_rows import ANY_FIELDS

SETTINGS = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "recallMessageEnable": "true",
    "timerWheelEnable": "true",
}
COPIED: Final = (21, 43, 45, 201, 402)
"""Topics, consumer offsets, delay offsets, groups, request modes."""
_HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01Z"
_REPLY = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01c\x02CORRELATION_ID\x011\x02CLUSTER\x01C"
_TOPIC = {
    "topic": "Made",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
_ACKS = {
    "c": "G", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 60_000, "b": "AQ==",
}  # fmt: skip


def _body(**value: object) -> bytes:
    return json.dumps(value).encode()


def _send(**fields: str) -> Ask:
    return Ask(310, SEND | fields, b"attack")


PUTS: Final = {
    "a send": _send(),
    "a send of the old form": Ask(10, named(10, SEND), b"attack"),
    "a delayed one": _send(i="DELAY\x013"),
    "a timer": _send(i="TIMER_DELAY_MS\x0160000"),
    "a half": _send(i=_HALF, f="4"),
    "to a new topic": _send(b="Brandnew"),
    "to light queues": _send(i="INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b"),
    "to a retry topic": _send(b="%RETRY%G"),
    "a batch": Ask(320, SEND | {"m": "true"}, batch_body([(0, b"b1", b""), (0, b"b2", b"")])),
    "a commit": Ask(37, END),
    "a rollback": Ask(37, END | {"commitOrRollback": "12"}),
    "a message back": Ask(36, BACK),
    "a reply": Ask(325, SEND | {"b": "C_REPLY_TOPIC", "i": _REPLY}),
    "a recall": Ask(370, {"topic": "T", "recallHandle": "@RECALL", "producerGroup": "P"}),
    "a half again": Ask(323, {"msgId": "@HALF_ID", "topic": "T"}),
}
"""Whatever wants a record of its own in the log."""
NO_PROMISE: Final = {"a commit", "a rollback"}
"""As in RocketMQ their answers say that the leader stored it, not that a replica has it: the half
is asked about again by the next leader."""
POPS: Final = {
    "a pop": Ask(200050, POP),
    "an ack": Ask(200051, ACK),
    "another invisible time": Ask(200053, ACK | {"invisibleTime": "1000"}),
    "acks": Ask(200151, {}, _body(brokerName="broker-a", acks=[_ACKS])),
}
_COMMIT = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "2"}
_RESET = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true", "queueId": "0"}
_CLONE = {"srcGroup": "G", "destGroup": "H", "topic": "T", "offline": "false"}
_MODE = {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 2}
_MAPPING = {"topic": "Made3", "totalQueues": 1, "bname": "broker-a", "epoch": 1, "dirty": False}
ADMIN: Final = {
    "a topic": Ask(17, _TOPIC),
    "topics": Ask(18, {}, _body(topicConfigList=[{"topicName": "Made2", "perm": 6}])),
    "a static topic": Ask(
        513,
        _TOPIC | {"topic": "Made3", "force": "true"},
        _body(**_MAPPING, hostedQueues={}),
    ),
    "a group": Ask(200, {}, _body(groupName="MadeG")),
    "groups": Ask(225, {}, _body(groupConfigList=[{"groupName": "MadeG2"}])),
    "a group's right": Ask(353, {"group": "G", "topic": "T", "readable": "false"}),
    "a reset": Ask(222, _RESET | {"offset": "1"}),
    "a clone": Ask(314, _CLONE),
    "a request mode": Ask(401, {}, _body(**_MODE)),
    "a group's end": Ask(207, {"groupName": "G", "cleanOffset": "true"}),
    "a topic's end": Ask(215, {"topic": "Old"}),
}
OWN: Final = {
    "an offset": Ask(15, _COMMIT),
    "an offset with a pull": Ask(11, PULL | {"sysFlag": "5", "commitOffset": "3"}),
    "a heartbeat": Ask(34, {}, heartbeat_body()),
}
"""What a slave of RocketMQ takes, too, until it copies its master's tables again."""
ATTACKS: Final = PUTS | POPS | ADMIN | OWN
OTHERS: Final = {
    f"any {int(code)}": Ask(int(code), ANY_FIELDS)
    for code in sorted(ACCESS_TABLE)
    if code not in {ask.code for ask in ATTACKS.values()}
}

OF_A_SLAVE: Final = {
    "an offset": {43},
    "a heartbeat": {21},
    "a reply": {21},
    "any 352": {201},
}
"""Which tables change. %RETRY% of a heartbeat's group, the reply topic of the cluster and a group
that somebody asks for are made on a slave of RocketMQ, too, and go with the next copy."""
WITHOUT_LEASE: Final = {
    **OF_A_SLAVE,
    "to a new topic": {21},
    "to a retry topic": {21},
    "an offset": {43, 201},
    "an offset with a pull": {43},
    "a topic": {21},
    "topics": {21},
    "a static topic": {21},
    "a group": {201},
    "groups": {201},
    "a group's right": {201},
    "a reset": {43},
    "a clone": {43},
    "a request mode": {402},
    "a group's end": {43, 201},
    "a topic's end": {21},
}
"""The lease closes the log. Tables are its broker's until it learns of another leader, and may be
lost with any leader."""


class Closed:
    """A member that led, and what its requests name."""

    def __init__(self, root: Path, *, all_ack: bool = False) -> None:
        self.member = Member(root, all_ack=all_ack, **SETTINGS)
        self.member.controller._tables.topics.update(TopicConfig(topic_name="Old"))
        self.peer, self._watcher = self.member.connect(), self.member.connect()
        self.member.lead()
        for number in range(4):
            self._told(_send(e="0", i=f"KEYS\x01{number}"))
        half = self._told(_send(i=_HALF.replace("\x01Z", "\x01U"), f="4"))
        self._told(_send(i="DELAY\x013"))
        timer = self._told(_send(i="TIMER_DELAY_MS\x0160000\x02UNIQ_KEY\x01V"))
        self.member.counters[CONFIRM_OFFSET] = self.member.counters[MAX_PHY_OFFSET]
        self.member.dispatch()
        (popped,) = self.ask(Ask(200050, POP), {})
        fields = popped.ext_fields
        self.known = {
            "PLACE": "0",
            "HALF_ID": half.ext_fields["msgId"],
            "HALF_PLACE": str(int(half.ext_fields["msgId"][16:], 16)),
            "HALF_OFFSET": half.ext_fields["queueOffset"],
            "RECALL": timer.ext_fields["recallHandle"],
            "HANDLE": f"0 {fields['popTime']} 60000 {fields['reviveQid']} 0 broker-a 0 0",
            "POPPED": "0",
        }
        (answer,) = self.ask(Ask(15, _COMMIT | {"commitOffset": "1"}), {})
        assert answer.code == ResponseCode.SUCCESS

    def _told(self, ask: Ask) -> RemotingCommand:
        answers = self.ask(replace(ask, body=b"kept"), {})
        self.member.acknowledge()
        (answer,) = answers + self.peer.answers()
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer

    def ask(self, ask: Ask, known: dict[str, str] | None = None) -> list[RemotingCommand]:
        """One request in a turn of its own."""
        self.peer.feed(ask.frame(1, self.known if known is None else known, {}))
        self.member.turn()
        self.member.dispatch()
        self.member.turn()
        return self.peer.answers()

    def log(self) -> tuple[int, bytes]:
        return self.member.counters[MAX_PHY_OFFSET], self.member.log_bytes()

    def tables(self) -> dict[int, bytes]:
        found = {}
        for code in COPIED:
            self._watcher.feed(Ask(code, {}).frame(code, {}, {}))
            self.member.turn()
            (answer,) = self._watcher.answers()
            found[code] = answer.body
        return found


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Closed]:
    found = Closed(tmp_path / "a")
    yield found
    found.member.close()


def _attack(closed: Closed, asks: dict[str, Ask]) -> tuple[dict[str, set[int]], set[str]]:
    """The tables that each changed, and what was answered SUCCESS. The log stays as it is."""
    changed, taken = {}, set()
    for name, ask in asks.items():
        log, tables = closed.log(), closed.tables()
        answers = closed.ask(ask)
        assert closed.log() == log, name
        now = closed.tables()
        if different := {code for code in COPIED if now[code] != tables[code]}:
            changed[name] = different
        if any(answer.code == ResponseCode.SUCCESS for answer in answers):
            taken.add(name)
    return changed, taken


@pytest.mark.parametrize("role", [MemberRole.FENCED, MemberRole.FOLLOW])
def test_who_does_not_lead_stores_nothing_and_says_so(closed: Closed, role: MemberRole) -> None:
    closed.member.order(role, 2)
    changed, taken = _attack(closed, ATTACKS | OTHERS)
    assert changed == OF_A_SLAVE
    assert taken & ATTACKS.keys() == OWN.keys()


def test_a_leader_without_a_lease_stores_nothing(closed: Closed) -> None:
    closed.member.counters[PUTS_UNTIL_MS] = closed.member.clock.monotonic_ms()
    changed, taken = _attack(closed, ATTACKS | OTHERS)
    assert {name: WITHOUT_LEASE.get(name) for name in changed} == changed
    assert taken & PUTS.keys() == set()


def test_every_code_that_is_served_is_asked() -> None:
    """One that is new shows up here with what it changes."""
    asked = {ask.code for ask in (ATTACKS | OTHERS).values()}
    assert asked == {int(code) for code in ACCESS_TABLE}
    assert Code.NOTIFY_BROKER_ROLE_CHANGED in asked


@pytest.mark.parametrize("name", PUTS)
@pytest.mark.parametrize("role", [MemberRole.FENCED, MemberRole.FOLLOW])
def test_in_the_turn_in_which_it_ceases_nothing_is_promised(
    tmp_path: Path, role: MemberRole, name: str
) -> None:
    """Before the order, between order and turn, and behind it, in one burst; no replica has it."""
    closed = Closed(tmp_path / "a", all_ack=True)
    member, frame = closed.member, PUTS[name].frame(1, closed.known, {})
    closed.peer.feed(frame)
    member.give(role, 2)
    closed.peer.feed(frame)
    member.turn()
    assert role_of(member.counters[ORDER_TAKEN]) is role
    log = closed.log()
    closed.peer.feed(frame)
    member.clock.advance(60_000)
    member.turn()
    assert closed.log() == log
    codes = [answer.code for answer in closed.peer.answers()]
    assert len(codes) == 3
    assert codes[-1] != ResponseCode.SUCCESS
    assert name in NO_PROMISE or ResponseCode.SUCCESS not in codes
    member.close()


def test_the_next_leader_goes_on_where_the_closed_one_stands(tmp_path: Path) -> None:
    closed, other = Closed(tmp_path / "a"), Member(tmp_path / "b", **SETTINGS)
    member = closed.member
    other.follow()
    other.copy_from(member)
    member.order(MemberRole.FENCED, 2)
    _attack(closed, ATTACKS)
    other.lead(2)
    peer = other.connect()
    answer = other.send(peer, b"next")
    assert answer is not None
    assert (answer.code, answer.ext_fields["queueOffset"]) == (ResponseCode.SUCCESS, "4")
    member.follow(2)
    member.copy_from(other)
    assert member.log_bytes() == other.log_bytes()
    member.counters[CONFIRM_OFFSET] = member.counters[MAX_PHY_OFFSET]
    member.dispatch()
    assert b"next" in member.pull(member.connect(), 4).body
    assert b"attack" not in member.log_bytes()
    other.close()
    member.close()
