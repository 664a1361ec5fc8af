"""What a client forgets once it is answered, where the leader dies before any replica has it.

Two members over real files. The link of the one that follows stands still, the leader is lost as by
kill -9, and the follower leads. The truth from outside: the messages that the new leader's log has,
and what Java's consumers do with an answer (DefaultMQPushConsumerImpl.sendMessageBack and
sendMessageBackAsNormalMessage of 4.9.8 and 5.3.3): each code but SUCCESS has them send the message
to the retry topic themselves; of that send whatever raises nothing counts, and of its codes
FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE raise nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ha.control_slots import REPLICA_COUNT, MemberRole
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from store.message import Message
from store.message_codec import decode_record
from tests.broker.member_world import Member
from tests.broker.twin_requests import BACK, SEND, Ask

NO_ERROR: Final = {
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""After which Java's MQClientAPIImpl.processSendResponse returns a SendResult."""
_HALF: Final = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01Z"
_SENT_AGAIN: Final = "RETRY_TOPIC\x01T\x02WAIT\x01false\x02DELAY\x013"
"""Of a message that came from a delay level: the broker's WAIT=false is among its properties."""

ASKS: Final = {
    "sent back": Ask(36, BACK),
    "sent back for the last time": Ask(36, BACK | {"delayLevel": "-1"}),
    "sent to the retry topic": Ask(310, SEND | {"b": "%RETRY%G", "i": _SENT_AGAIN, "j": "1"}),
    "sent there for the last time": Ask(
        310, SEND | {"b": "%RETRY%G", "i": _SENT_AGAIN, "j": "16", "l": "16"}
    ),
    "a half again": Ask(323, {"msgId": "@HALF_ID", "topic": "T"}),
}
SENDS: Final = {name for name, ask in ASKS.items() if ask.code == 310}


def _records(member: Member) -> list[Message]:
    data, found, at = member.log_bytes(), [], 0
    while at < len(data):
        record, size = decode_record(data, at)
        found.append(record)
        at += size
    return found


class Pair:
    """A leader with a message that its follower has, and what requests name."""

    def __init__(self, root: Path, *, all_ack: bool = True, **settings: str) -> None:
        root.mkdir(exist_ok=True)
        self.leader = Member(root / "a", all_ack=all_ack, **settings)
        self.other = Member(root / "b", all_ack=all_ack, **settings)
        self.other.follow()
        self.peer = self.leader.connect()
        self.known: dict[str, str] = {}
        self.leader.lead()
        self.leader.counters[REPLICA_COUNT] = 1
        self._told(Ask(310, SEND, b"failed"))
        half = self._told(Ask(310, SEND | {"i": _HALF, "f": "4"}, b"half"))
        self.known = {"PLACE": "0", "HALF_ID": half.ext_fields["msgId"]}
        self.copied = len(_records(self.leader))

    def _told(self, ask: Ask) -> RemotingCommand:
        answers = self.ask(ask)
        self.replicate()
        (answer,) = answers or self.peer.answers()
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer

    def ask(self, ask: Ask) -> list[RemotingCommand]:
        """A request; nothing is copied meanwhile."""
        self.peer.feed(replace(ask, body=ask.body or b"again").frame(1, self.known, {}))
        self.leader.turn()
        self.leader.dispatch()
        self.leader.turn()
        return self.peer.answers()

    def replicate(self) -> None:
        """The follower gets what there is, and says so."""
        self.other.copy_from(self.leader)
        self.leader.acknowledge()

    def new_leader_has(self) -> list[Message]:
        """The leader is gone: what the next one has beyond the first two messages."""
        self.other.lead(2)
        return _records(self.other)[self.copied :]

    def wait(self) -> list[RemotingCommand]:
        """Until whatever waits is late."""
        self.leader.clock.advance(60_000)
        self.leader.turn()
        return self.peer.answers()

    def close(self) -> None:
        self.leader.close()
        self.other.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    found = Pair(tmp_path)
    yield found
    found.close()


def _is_forgotten(name: str, answer: RemotingCommand) -> bool:
    return answer.code in (NO_ERROR if name in SENDS else {ResponseCode.SUCCESS})


@pytest.mark.parametrize("name", ASKS)
def test_a_leader_that_dies_takes_nothing_with_it_that_a_client_forgot(
    pair: Pair, name: str
) -> None:
    answers = pair.ask(ASKS[name])
    assert len(_records(pair.leader)) > pair.copied, "it is stored at once"
    assert pair.new_leader_has() == []
    assert answers == []


@pytest.mark.parametrize("name", ASKS)
def test_it_is_answered_when_the_set_has_it(pair: Pair, name: str) -> None:
    assert pair.ask(ASKS[name]) == []
    pair.replicate()
    (answer,) = pair.peer.answers()
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    (message,) = pair.new_leader_has()
    assert message.body in (b"failed", b"again", b"half")


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("way", ["late", "fenced", "follows"])
def test_otherwise_the_client_keeps_it(pair: Pair, name: str, way: str) -> None:
    assert pair.ask(ASKS[name]) == []
    if way == "late":
        (answer,) = pair.wait()
    else:
        pair.leader.order(MemberRole.FENCED if way == "fenced" else MemberRole.FOLLOW, 2)
        (answer,) = pair.peer.answers()
    assert not _is_forgotten(name, answer), answer
    assert answer.code == ResponseCode.SYSTEM_ERROR
    if way == "late":
        pair.replicate()
        assert pair.peer.answers() == [], "one answer"


@pytest.mark.parametrize("name", [name for name in ASKS if name not in SENDS])
def test_outside_the_safe_mode_nothing_waits(tmp_path: Path, name: str) -> None:
    """As in RocketMQ, with inSyncReplicas=2, too."""
    pair = Pair(tmp_path, all_ack=False, inSyncReplicas="2")
    (answer,) = pair.ask(ASKS[name])
    assert answer.code == ResponseCode.SUCCESS
    pair.close()


def test_outside_the_safe_mode_a_consumers_own_send_is_answered_as_ever(tmp_path: Path) -> None:
    pair = Pair(tmp_path, all_ack=False, inSyncReplicas="2")
    ask = ASKS["sent to the retry topic"]
    (answer,) = pair.ask(ask)
    assert answer.code == ResponseCode.SUCCESS
    waiting = replace(ask, fields=ask.fields | {"i": "RETRY_TOPIC\x01T"})
    assert pair.ask(waiting) == []
    (answer,) = pair.wait()
    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    pair.close()


def test_the_copys_bytes_are_those_of_other_modes(tmp_path: Path) -> None:
    """WAIT=false stays in its properties, as in RocketMQ."""
    found = []
    for all_ack in (True, False):
        pair = Pair(tmp_path / str(all_ack), all_ack=all_ack)
        pair.ask(ASKS["sent back for the last time"])
        found.append(_records(pair.leader)[-1])
        pair.close()
    safe, plain = found
    assert (safe.topic, safe.properties) == (plain.topic, plain.properties)
    assert b"WAIT\x01false" in safe.properties


@pytest.mark.parametrize("name", [name for name, ask in ASKS.items() if ask.code == 36])
def test_who_wants_no_answer_gets_none(pair: Pair, name: str) -> None:
    assert pair.ask(replace(ASKS[name], flag=2)) == []
    pair.replicate()
    assert pair.peer.answers() == []
