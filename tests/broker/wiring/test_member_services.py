"""What runs by itself on a leader: begun, stopped and begun again with the role.

Nothing is doubled and nothing is lost. The truth is what consumers get: bodies that were sent, each
once. The loop's timers are stepped by hand (`Member.tick`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.pop.pop_buffer_merge_service import PopBufferMergeService
from broker.pop.pop_revive_service import PopReviveService
from broker.schedule.schedule_message_service import ScheduleMessageService
from broker.timer.timer_dequeue_service import TimerDequeueService
from broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from ha.control_slots import MemberRole
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.broker.member_world import Member, bodies
from tests.fuzz.served_connection import ServedConnection

HALF = "TRAN_MSG\x01true\x02PGROUP\x01P"
COMMIT = 8


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    found = Member(tmp_path / "a")
    yield found
    found.close()


def stored(member: Member) -> list[bytes]:
    """The bodies in the topic, in order."""
    return [body for _, body in bodies(member.pull(member.connect(), 0))]


# -- nothing is doubled ------------------------------------------------------------------------


def test_everything_runs_once_after_any_number_of_roles(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: Counter[str] = Counter()

    def counted(owner: type, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def run(*args: Any, **named: Any) -> Any:
            runs[owner.__name__] += 1
            return function(*args, **named)

        monkeypatch.setattr(owner, name, run)

    counted(ScheduleMessageService, "deliver_due")
    counted(TimerDequeueService, "deliver_due")
    counted(PopReviveService, "run_pass")
    counted(PopBufferMergeService, "scan")

    def runs_of_a_tick() -> dict[str, int]:
        for _ in range(3):
            member.tick()  # What a role before has left ends.
        runs.clear()
        member.tick()
        return dict(runs)

    member.lead(1)
    as_started = runs_of_a_tick()
    assert as_started.keys() >= {"ScheduleMessageService", "PopReviveService"}
    assert set(as_started.values()) == {1}
    member.follow(2)
    assert runs_of_a_tick() == {}
    for epoch in range(3, 8):
        member.order(MemberRole.FENCED, epoch)
        member.lead(epoch)
        if epoch % 2:
            member.follow(epoch)
            member.lead(epoch)
    assert runs_of_a_tick() == as_started
    timers = len(member.controller.loop._timers)
    for epoch in range(8, 12):
        member.lead(epoch)
        runs_of_a_tick()
    assert len(member.controller.loop._timers) == timers


# -- delayed messages --------------------------------------------------------------------------


def test_a_delayed_message_comes_once_though_the_role_changes(member: Member) -> None:
    member.lead(1)
    peer = member.connect()
    for number in range(4):
        member.send(peer, b"%d" % number, properties=f"DELAY\x01{1 + number % 2}")
    member.clock.advance(1_000)
    for _ in range(3):
        member.tick()
    assert stored(member) == [b"0", b"2"]
    member.flush()
    member.tick()
    member.lead(2)
    for _ in range(3):
        member.tick()
    assert stored(member) == [b"0", b"2"], "what is on disk is not delivered again"
    member.follow(3)
    member.clock.advance(10_000)
    for _ in range(3):
        member.tick()
    assert stored(member) == [b"0", b"2"], "a follower delivers nothing"
    member.lead(4)
    for _ in range(3):
        member.tick()
    assert stored(member) == [b"0", b"2", b"1", b"3"]


def test_delays_go_on_where_the_table_of_the_master_before_stands(member: Member) -> None:
    """The follower's delayOffset.json is a copy (45)."""
    member.lead(1)
    peer = member.connect()
    for number in range(3):
        member.send(peer, b"%d" % number, properties="DELAY\x011")
    member.follow(2)
    member.controller._tables.schedule_offsets.replace_all({1: 2})
    member.clock.advance(10_000)
    member.lead(3)
    for _ in range(3):
        member.tick()
    assert stored(member) == [b"2"]


# -- pops --------------------------------------------------------------------------------------


def pop(member: Member, peer: ServedConnection, invisible_ms: int = 60_000) -> Any:
    fields = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "0",
        "maxMsgNums": "32",
        "invisibleTime": str(invisible_ms),
        "pollTime": "0",
        "bornTime": "0",
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    (answer,) = member.call(peer, RemotingCommand.request(RequestCode.POP_MESSAGE, fields))
    return answer


def ack(member: Member, peer: ServedConnection, popped: RemotingCommand, offset: int) -> int:
    fields = popped.ext_fields
    _, queue_id, start = fields["startOffsetInfo"].split(" ")
    times = [fields[name] for name in ("popTime", "invisibleTime", "reviveQid")]
    handle = " ".join([start, *times, "0", "broker-a", queue_id, str(offset)])
    asked = {"consumerGroup": "G", "topic": "T", "queueId": "0", "extraInfo": handle}
    asked["offset"] = str(offset)
    (answer,) = member.call(peer, RemotingCommand.request(RequestCode.ACK_MESSAGE, asked))
    return answer.code


def test_what_was_popped_stays_popped_while_nobody_else_leads(member: Member) -> None:
    member.lead(1)
    peer = member.connect()
    for body in (b"one", b"two"):
        member.send(peer, body)
    popped = pop(member, peer)
    assert bodies(popped) == [(0, b"one"), (1, b"two")]
    member.order(MemberRole.FENCED, 1)
    assert pop(member, peer).code == ResponseCode.NO_PERMISSION
    assert ack(member, peer, popped, 0) != 0, "its check point could not be found"
    member.lead(2)
    member.tick()
    assert pop(member, peer).body == b"", "handed out twice"
    assert [ack(member, peer, popped, offset) for offset in (0, 1)] == [0, 0]
    member.tick()
    member.flush()
    for _ in range(3):
        member.tick()
    assert member.controller._tables.offsets.query_offset("G", "T", 0) == 2


def test_what_another_leader_knows_better_is_forgotten(member: Member) -> None:
    """It has gone on from the group's stored offset, and so does a leader after it."""
    member.lead(1)
    peer = member.connect()
    member.send(peer, b"one")
    assert bodies(pop(member, peer)) == [(0, b"one")]
    member.follow(2)
    assert not member.journal_path.exists()
    member.lead(3)
    assert bodies(pop(member, peer)) == [(0, b"one")]


def test_revivals_put_a_group_back_that_no_copied_table_has(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group was made after the last copy, and its master was lost: what it had popped never
    came again (mqchaos, seed 5065). One that an operator deleted here stays so."""
    revivals: list[PopReviveService] = []
    run_pass = PopReviveService.run_pass

    def seen(service: PopReviveService) -> int:
        revivals.append(service)
        return run_pass(service)

    monkeypatch.setattr(PopReviveService, "run_pass", seen)
    member.lead(1)
    member.tick()
    find_group = revivals[0]._parts.find_group
    assert find_group("G") == SubscriptionGroupConfig(group_name="G")
    assert member.controller._tables.groups.find("G") is not None
    member.controller._tables.groups.delete("G")
    assert find_group("G") is None


def test_pops_that_wait_are_refused_with_the_lead(member: Member) -> None:
    member.lead(1)
    peer = member.connect()
    member.send(peer, b"one")
    pop(member, peer)
    fields = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "0",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": "20000",
        "initMode": "0",
        "order": "false",
        "expType": "TAG",
        "exp": "*",
        "bornTime": str(member.clock.now_ms()),
    }
    assert member.call(peer, RemotingCommand.request(RequestCode.POP_MESSAGE, fields)) == []
    member.give(MemberRole.FENCED)
    assert [answer.code for answer in member.call(peer)] == [ResponseCode.NO_PERMISSION]


# -- transactions ------------------------------------------------------------------------------


def end(member: Member, peer: ServedConnection, half: RemotingCommand) -> int:
    fields = {
        "producerGroup": "P",
        "commitLogOffset": str(int(half.ext_fields["msgId"][-16:], 16)),
        "tranStateTableOffset": half.ext_fields["queueOffset"],
        "commitOrRollback": str(COMMIT),
        "fromTransactionCheck": "false",
        "msgId": "U",
    }
    (answer,) = member.call(peer, RemotingCommand.request(RequestCode.END_TRANSACTION, fields))
    return answer.code


def half_of(member: Member, peer: ServedConnection, body: bytes) -> RemotingCommand:
    answer = member.send(peer, body, properties=HALF)
    assert answer is not None
    assert answer.code == 0
    return answer


def test_halves_of_an_earlier_lead_end_once(member: Member) -> None:
    member.lead(1)
    member.wait_for_ends()
    peer = member.connect()
    first, second, third = (half_of(member, peer, body) for body in (b"one", b"two", b"three"))
    assert end(member, peer, first) == 0
    assert stored(member) == [b"one"]
    member.follow(2)
    assert end(member, peer, second) != 0
    assert not member.controller._messages.end_transaction._halves.known.is_set()
    member.lead(3)
    member.wait_for_ends()
    assert end(member, peer, second) == 0
    assert end(member, peer, first) != 0 or stored(member) == [b"one", b"two"]
    member.lead(4)
    member.wait_for_ends()
    assert end(member, peer, third) == 0
    for half in (first, second, third):
        end(member, peer, half)
    assert stored(member) == [b"one", b"two", b"three"]


def test_a_check_that_outlives_its_lead_lets_nothing_be_believed(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the ops while this broker leads no more and leads again."""
    began, goes_on = threading.Event(), threading.Event()
    read_ops = TransactionalMessageBridge.read_ops
    lives: list[TransactionalMessageBridge] = []

    def slow(bridge: TransactionalMessageBridge) -> bool:
        if not lives or bridge is lives[0]:
            lives.append(bridge)
            began.set()
            assert goes_on.wait(10)
        return read_ops(bridge)

    monkeypatch.setattr(TransactionalMessageBridge, "read_ops", slow)
    halves = member.controller._messages.end_transaction._halves
    halves.known.clear()
    member.lead(1)
    assert began.wait(10)
    member.follow(2)
    member.lead(3)
    first = member.controller._messages._transactions._checks
    goes_on.set()
    assert first is not None
    member.wait_for_ends()
    assert len(lives) == 1, "the first one knew, and the second read anew"
    assert lives[0]._known is not halves.known


def test_one_thread_checks_transactions(member: Member) -> None:
    member.lead(1)
    member.wait_for_ends()
    checks = [member.controller._messages._transactions._checks]
    for epoch in range(2, 6):
        member.follow(epoch)
        member.lead(epoch)
        member.wait_for_ends()
        checks.append(member.controller._messages._transactions._checks)
    assert [check is not None and check.is_alive for check in checks] == [False] * 4 + [True]
