"""EndTransactionProcessor: ends of transactions on a real log, and against what Java stored."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.topic.system_topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from broker.transaction import end_transaction_processor
from ipc import queue_table
from remoting.errors import HeaderError, RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from remoting.response_code import ResponseCode
from store.control_slots import (
    ALLOCATED_END,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    RUNNING_FLAGS,
    SYNC_FLUSH_WANTED,
)
from store.message import Message
from store.message_codec import decode_record, encode_host, encode_message_id, encode_record
from store.record import Record
from tests.broker.broker_fakes import FakeConnection, request_of
from tests.broker.hot_path_world import properties_of, send_request
from tests.broker.transaction_world import (
    COMMIT,
    ROLLBACK,
    STORE_HOST,
    UNKNOWN,
    Half,
    TransactionWorld,
    asked,
    end_request,
)
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

RECORD_BODY_AT = 88
"""Of a record with IPv4 hosts: total size 4, magic 4, … body size 4."""


@pytest.fixture
def world(tmp_path: Path) -> TransactionWorld:
    return TransactionWorld(tmp_path)


def answer_of(answer: RemotingCommand | None) -> tuple[int, str | None]:
    assert answer is not None
    assert answer.is_response
    return answer.code, answer.remark


def refusal(world: TransactionWorld, request: RemotingCommand) -> tuple[ResponseCode, str]:
    records, sent = world.hot.raw_records(), world.connection.sent.copy()
    with pytest.raises(RequestError) as caught:
        world.processor.process_request(world.connection, request)
    world.turn()
    assert world.hot.raw_records() == records
    assert world.connection.sent == sent
    return caught.value.code, caught.value.remark


# -- commit and rollback -------------------------------------------------------------------------


def test_a_commit_stores_the_message_and_the_op_right_behind_it(world: TransactionWorld) -> None:
    world.prepare(b"first")
    half = world.prepare(
        b"two", queue_id=3, flag=7, reconsume_times=2, sys_flag=1, properties="\x02TAGS\x01A"
    )
    assert half.queue_offset == 1
    assert answer_of(world.end(half, COMMIT)) == (0, None)
    stored, commit, op = world.hot.records()[1:]
    assert (stored.topic, commit.topic, op.topic) == (TRANS_HALF_TOPIC, "T", TRANS_OP_HALF_TOPIC)
    assert commit == dataclasses.replace(
        stored,
        topic="T",
        queue_id=3,
        queue_offset=0,
        phy_offset=commit.phy_offset,
        sys_flag=1 | 8,
        prepared_transaction_offset=half.phy_offset,
    )
    assert (stored.flag, stored.reconsume_times) == (7, 2)
    assert properties_of(commit.properties)["REAL_QID"] == "3"
    assert op == Message(
        topic=TRANS_OP_HALF_TOPIC,
        queue_id=0,
        phy_offset=op.phy_offset,
        born_timestamp=world.hot.clock.now,
        born_host=STORE_HOST,
        store_timestamp=world.hot.clock.now,
        store_host=STORE_HOST,
        body=b"1",
        properties=b"WAIT\x01true\x02TAGS\x01d",
    )
    size = op.phy_offset - commit.phy_offset
    assert world.hot.stats.puts["T"] == (1, size)
    assert "transaction" in world.hot.stats.types
    assert world.hot.stats.answers[37, 0] == 1
    assert (world.halves.is_ended(0), world.halves.is_ended(1)) == (False, True)


def test_a_half_in_the_body_of_a_message_ends_none(world: TransactionWorld) -> None:
    """Its sender knows where his message will be stored, and writes a record there that claims
    somebody else's place in the half queue."""
    victim = world.prepare(b"paid")
    world.hot.topic("Evil")
    client = world.hot.client()
    assert client.call(send_request(bytes(300), topic="Evil")).code == 0
    world.turn()
    body_at = world.hot.log.position + RECORD_BODY_AT
    forged = encode_record(
        Message(
            topic=TRANS_HALF_TOPIC,
            queue_id=0,
            queue_offset=victim.queue_offset,
            phy_offset=body_at,
            properties=b"PGROUP\x01Q\x02REAL_TOPIC\x01Evil\x02REAL_QID\x010",
        )
    )
    assert client.call(send_request(forged, topic="Evil")).code == 0
    world.turn()
    assert world.access.record_at(body_at) == forged
    evil = Half(body_at, victim.queue_offset)
    code, remark = refusal(world, end_request(evil, ROLLBACK, producerGroup="Q"))
    assert (code, remark) == (1, "Find prepared transaction message failed")
    assert answer_of(world.end(victim, COMMIT)) == (0, None)
    assert world.delivered() == [b"paid"]


def test_a_half_that_the_store_has_not_entered_yet(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some ms behind the log: waited for; a place that is in no log is refused at once."""
    half = world.prepare(b"one")
    offsets, looks = world.access.offsets, []

    def late(topic: str, queue_id: int) -> tuple[int, int]:
        looks.append(topic)
        return offsets(topic, queue_id) if len(looks) > 3 else (0, 0)

    monkeypatch.setattr(world.access, "offsets", late)
    assert answer_of(world.end(half, COMMIT)) == (0, None)
    assert looks[:4] == [TRANS_HALF_TOPIC] * 4
    half = world.prepare(b"two")
    monkeypatch.setattr(end_transaction_processor, "_QUEUED_WAIT_MS", 10)
    monkeypatch.setattr(world.access, "offsets", lambda *_place: (0, 0))
    code, remark = refusal(world, end_request(half, COMMIT))
    assert code == ResponseCode.SYSTEM_BUSY
    assert remark.endswith("is not in its queue yet; try again")


def test_a_commit_to_a_topic_that_was_deleted_is_refused_and_its_half_stays(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    half = world.prepare()
    world.hot.topics.delete("T")
    remark = "topic[T] not exist: create it again and repeat the commit, or roll back"
    assert answer_of(world.end(half, COMMIT)) == (17, remark)
    assert f"half 0: could not store its end, keeping the half: {remark}" in caplog.messages
    assert (world.delivered(), world.ops()) == ([], [])
    assert not world.halves.is_ended(0)
    world.hot.topic()
    assert answer_of(world.end(half, COMMIT)) == (0, None)
    assert (world.delivered(), world.ops()) == ([b"half"], [0])


def test_the_half_of_a_deleted_topic_can_be_rolled_back(world: TransactionWorld) -> None:
    half = world.prepare()
    world.hot.topics.delete("T")
    assert answer_of(world.end(half, ROLLBACK)) == (0, None)
    assert (world.delivered(), world.ops()) == ([], [0])


def test_an_end_that_comes_again_is_known_when_the_topic_is_gone(world: TransactionWorld) -> None:
    half = world.prepare()
    world.end(half, COMMIT)
    world.hot.topics.delete("T")
    assert answer_of(world.end(half, COMMIT)) == (
        0,
        "the transaction has already ended; request ignored",
    )


def test_a_rollback_stores_the_op_only(world: TransactionWorld) -> None:
    half = world.prepare()
    assert answer_of(world.end(half, ROLLBACK)) == (0, None)
    assert (world.delivered(), world.ops()) == ([], [0])
    assert world.halves.is_ended(0)


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_nobody_answers_a_oneway_end(world: TransactionWorld, decision: int) -> None:
    assert world.end(world.prepare(), decision, oneway=True) is None
    assert world.ops() == [0]
    assert world.hot.stats.answers[37, 0] == 0
    assert world.hot.stats.oneways == {(37, 0): 1}


def test_what_the_loop_refuses_a_oneway_end_is_counted(world: TransactionWorld) -> None:
    half = world.prepare()
    world.hot.topics.delete("T")
    assert world.end(half, COMMIT, oneway=True) is None
    assert world.hot.stats.oneways == {(37, 17): 1}


def test_an_end_takes_as_long_as_it_waits_for_its_pool_and_the_loop(
    world: TransactionWorld,
) -> None:
    half = world.prepare()
    world.queued_ms = 30
    handed: list[Callable[[], None]] = []
    world.on_loop = handed.append
    assert world.end(half, COMMIT) is None
    world.hot.clock.advance(2_000)
    handed[0]()
    assert world.hot.stats.timed == [(37, 0, 2_030)]


@pytest.mark.parametrize(
    ("decision", "from_check", "remark", "line"),
    [
        (0, "true", "", ", after a check"),
        (0, "false", "boom", ": boom"),
        (0, "true", "x", ", after a check: x"),
    ],
)
def test_who_does_not_know_gets_no_answer_but_a_line_in_the_log(
    world: TransactionWorld,
    caplog: pytest.LogCaptureFixture,
    decision: int,
    from_check: str,
    remark: str,
    line: str,
) -> None:
    half = world.prepare()
    request = end_request(half, decision, fromTransactionCheck=from_check)
    request.remark = remark or None
    with caplog.at_level(logging.INFO):
        assert world.processor.process_request(world.connection, request) is None
    assert world.connection.sent == []
    assert caplog.messages == [
        f"half 0: producer 127.0.0.1:40000 of group P returned {decision}, neither commit nor "
        f"rollback{line}"
    ]


@pytest.mark.parametrize("decision", [4, -1, 7])
def test_what_is_no_end_is_refused(world: TransactionWorld, decision: int) -> None:
    half = world.prepare()
    with pytest.raises(RequestError) as caught:
        world.processor.process_request(world.connection, end_request(half, decision))
    words = f"commitOrRollback is {decision}, expected 8 (commit), 12 (rollback) or 0"
    assert caught.value.remark == f"{words} (not decided yet)"
    assert world.ops() == []


@pytest.mark.parametrize(("host", "flags"), [("127.0.0.2", 0), ("fd00::2", 0x30)])
def test_a_store_host_of_either_kind(tmp_path: Path, host: str, flags: int) -> None:
    world = TransactionWorld(tmp_path, store_host=host)
    world.end(world.prepare(sys_flag=2), COMMIT)
    half, commit, op = world.hot.records()
    assert (half.sys_flag, commit.sys_flag) == (2 | flags & 0x20, 10 | flags & 0x20)
    assert (op.sys_flag, op.born_host) == (flags, encode_host(host, 20911))


# -- what is refused -----------------------------------------------------------------------------


def test_a_slave_ends_nothing(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path, is_slave=True)
    remark = "this broker is a slave: end the transaction on its master"
    half = Half(0, 0)
    assert refusal(world, end_request(half, COMMIT)) == (ResponseCode.SLAVE_NOT_AVAILABLE, remark)
    request = request_of(Code.RESUME_CHECK_HALF_MESSAGE, msgId="0" * 32)
    assert refusal(world, request) == (ResponseCode.SYSTEM_ERROR, remark)


def test_the_header_must_be_whole(world: TransactionWorld) -> None:
    with pytest.raises(HeaderError, match=r"Header\.producerGroup: is missing"):
        world.processor.process_request(world.connection, request_of(Code.END_TRANSACTION))


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"commitLogOffset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"producerGroup": "Q"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
    ],
)
def test_an_end_must_name_its_half(
    world: TransactionWorld, decision: int, changes: dict[str, Any], remark: str
) -> None:
    half = world.prepare()
    request = end_request(half, decision, **changes)
    assert refusal(world, request) == (ResponseCode.SYSTEM_ERROR, remark)
    assert answer_of(world.end(half, decision)) == (0, None)


def test_a_committed_message_is_no_half(world: TransactionWorld) -> None:
    """Its queue offset, group and topic would pass the checks of the original."""
    half = world.prepare()
    world.end(half, COMMIT)
    commit = world.messages("T")[0]
    request = end_request(Half(commit.phy_offset, commit.queue_offset), COMMIT)
    assert refusal(world, request) == (
        ResponseCode.SYSTEM_ERROR,
        "Find prepared transaction message failed",
    )


def _stored_half(world: TransactionWorld, properties: bytes) -> Half:
    """A half as another broker may have stored it."""
    log = world.hot.log
    record = Record(
        queue_id=0,
        flag=0,
        sys_flag=0,
        born_timestamp=world.hot.clock.now,
        born_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"x",
        properties=properties,
    )
    (place,) = log.append(log.topic(TRANS_HALF_TOPIC), [record])
    world.turn()
    return Half(*place)


def test_a_half_without_a_home_cannot_be_committed(world: TransactionWorld) -> None:
    half = _stored_half(world, b"PGROUP\x01P\x02REAL_TOPIC\x01T")
    assert refusal(world, end_request(half, COMMIT)) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "the half message at 0 does not say which topic and queue it belongs to (REAL_TOPIC, "
        "REAL_QID); it cannot be committed, roll it back",
    )
    assert answer_of(world.end(half, ROLLBACK)) == (0, None)


def test_a_home_must_be_storable(world: TransactionWorld) -> None:
    topic = "t" * 128
    half = _stored_half(world, f"PGROUP\x01P\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010".encode())
    code, remark = answer_of(world.end(half, COMMIT))
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert remark == f"topic name of 128 bytes (limit 127): {'t' * 40!r}…"
    assert not world.halves.is_ended(0)
    assert answer_of(world.end(half, ROLLBACK)) == (0, None)


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_what_the_log_refuses_may_be_ended_later(world: TransactionWorld, decision: int) -> None:
    half = world.prepare()
    world.hot.counters[RUNNING_FLAGS] = 1
    remark = "the disk is full"
    answer = world.end(half, decision)
    assert answer_of(answer) == (ResponseCode.SERVICE_NOT_AVAILABLE, remark)
    assert not world.halves.is_ended(0)
    world.hot.counters[RUNNING_FLAGS] = 0
    assert answer_of(world.end(half, decision)) == (0, None)
    assert len(world.delivered()) == (decision == COMMIT)
    assert world.ops() == [0]


@pytest.mark.interpreted
@pytest.mark.parametrize("has_queue", [True, False], ids=["no room for the op", "nor for T"])
def test_a_commit_that_finds_the_queue_table_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_queue: bool
) -> None:
    """Answered 14, as nothing is stored: not a message whose half would be ended again. It comes
    once, when there is room."""
    world = TransactionWorld(tmp_path)
    if has_queue:
        assert world.hot.client().call(send_request()).code == 0
    half = world.prepare()
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 1 + has_queue)
    before = len(world.delivered())
    code, remark = answer_of(world.end(half, COMMIT))
    assert code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "delete unused topics and restart the broker" in (remark or "")
    assert (len(world.delivered()), world.ops()) == (before, [])
    assert not world.halves.is_ended(0)
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 8)
    assert answer_of(world.end(half, COMMIT)) == (0, None)
    assert (len(world.delivered()), world.ops()) == (before + 1, [0])


def test_ends_wait_until_the_ends_of_before_are_known(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = world.prepare()
    world.halves.known.clear()
    waited: list[float] = []

    def wait(timeout: float | None = None) -> bool:
        waited.append(timeout or 0)
        return False

    monkeypatch.setattr(world.halves.known, "wait", wait)
    assert refusal(world, end_request(half, COMMIT)) == (
        ResponseCode.SYSTEM_BUSY,
        "the broker is still reading which transactions have ended; try again soon",
    )
    assert waited == [5.0]


# -- a second end --------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
def test_a_second_end_does_nothing(world: TransactionWorld, first: int, second: int) -> None:
    half = world.prepare()
    world.end(half, first)
    records = world.hot.raw_records()
    assert answer_of(world.end(half, second)) == (
        0,
        "the transaction has already ended; request ignored",
    )
    assert world.hot.raw_records() == records


def test_two_ends_at_once(tmp_path: Path) -> None:
    """The first waits for the next file of the log."""
    world = TransactionWorld(tmp_path, file_size=4096, files=1)
    half = world.prepare(bytes(2500))
    assert world.end(half, COMMIT) is None
    assert answer_of(world.end(half, COMMIT)) == (
        ResponseCode.SYSTEM_ERROR,
        "the transaction is being ended by another request",
    )
    world.hot.allocate(1)
    world.turn()
    assert answer_of(world.connection.sent[-1]) == (0, None)
    assert (len(world.delivered()), world.ops()) == (1, [0])


def test_an_op_that_cannot_be_stored_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The message itself was stored: the answer says so, and it is not delivered again."""
    world = TransactionWorld(tmp_path, file_size=4096, files=1)
    half = world.prepare(bytes(1_850))
    assert answer_of(world.end(half, COMMIT)) == (0, None)
    assert len(world.hot.append_queue.held) == 1, "room for the commit, none for the op"
    world.hot.clock.advance(6_000)
    world.hot.turn()
    world.turn()
    assert (len(world.delivered()), world.ops()) == (1, [])
    assert world.halves.is_ended(0)
    ((after_ms, again),) = world.later
    assert after_ms == 1000
    again()
    world.hot.clock.advance(6_000)
    world.hot.turn()
    world.turn()
    assert caplog.messages == [
        "half 0: could not store its op (retrying every 1000 ms; if the broker stops "
        "before that, the half may be ended twice): SYSTEM_ERROR: the next commit log file could "
        "not be created in time; see store.log"
    ], "said once, tried twice"
    again = world.later[-1][1]
    world.hot.allocate(1)
    with caplog.at_level(logging.INFO):
        again()
        world.turn()
    assert caplog.messages[-1] == "half 0: op stored"
    assert (len(world.delivered()), world.ops()) == (1, [0])


def test_an_op_stays_in_the_line_where_others_fail_fast(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path, file_size=4096, files=1)
    half = world.prepare(bytes(1_850))
    assert answer_of(world.end(half, COMMIT)) == (0, None)
    for _ in range(3):
        world.hot.clock.advance(300)
        world.turn()
    assert len(world.hot.append_queue.held) == 1
    world.hot.allocate(1)
    world.turn()
    assert world.ops() == [0]


def test_the_end_of_one_is_the_end_of_its_copies(world: TransactionWorld) -> None:
    """A check has stored the half again; the producer's own commit comes only now."""
    producer = world.connect()
    half = world.prepare()
    world.round()
    (copy,) = asked(producer)
    assert copy.queue_offset == 1
    assert answer_of(world.end(half, COMMIT)) == (0, None)
    assert world.ops() == [0, 1]
    assert answer_of(world.end(copy, COMMIT))[1] is not None
    world.round()
    assert (len(world.delivered()), asked(producer)) == (1, [])


def test_a_rollback_ends_the_copies_too(world: TransactionWorld) -> None:
    producer = world.connect()
    half = world.prepare()
    world.round()
    (copy,) = asked(producer)
    world.end(half, ROLLBACK)
    world.end(copy, COMMIT)
    assert (world.ops(), world.delivered()) == ([0, 1], [])


# -- safety --------------------------------------------------------------------------------------


def test_a_commit_waits_for_the_flush_like_a_send(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path, waits_for_flush=True)
    half = world.prepare()
    assert world.end(half, COMMIT) is None
    hot = world.hot
    commit, op = hot.records()[-2:]
    assert op.topic == TRANS_OP_HALF_TOPIC
    assert hot.counters[SYNC_FLUSH_WANTED] == op.phy_offset
    hot.counters[FLUSHED_OFFSET] = op.phy_offset - 1
    hot.turn()
    assert world.connection.sent == []
    hot.counters[FLUSHED_OFFSET] = op.phy_offset
    hot.clock.advance(20)
    hot.turn()
    assert answer_of(world.connection.sent[0]) == (0, None)
    assert hot.stats.waited_answers == {(310, 0): 1, (None, 0): 1}
    assert hot.stats.timed == [(37, 0, 20)]
    assert commit.topic == "T"


def test_a_flush_that_takes_too_long_is_a_success(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path, waits_for_flush=True)
    world.end(world.prepare(), COMMIT)
    world.hot.clock.advance(60_000)
    world.hot.turn()
    assert answer_of(world.connection.sent[0]) == (0, None)
    assert world.hot.stats.waited_answers[None, ResponseCode.FLUSH_DISK_TIMEOUT] == 1
    assert world.hot.stats.timed == [(37, 0, 60_000)], "what it was answered"


def test_a_missing_replica_is_a_success(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path, waits_for_replicas=True)
    world.end(world.prepare(), COMMIT)
    world.hot.turn()
    assert answer_of(world.connection.sent[0]) == (0, None)


def test_a_oneway_commit_is_flushed_soon_too(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path, waits_for_flush=True)
    world.end(world.prepare(), COMMIT, oneway=True)
    op = world.hot.records()[-1]
    assert world.hot.counters[SYNC_FLUSH_WANTED] == op.phy_offset
    world.hot.counters[FLUSHED_OFFSET] = op.phy_offset
    world.hot.turn()
    assert len(world.hot.waiters) == 0
    assert world.connection.sent == []
    assert world.hot.stats.waited_answers[None, 0] == 1
    assert (world.hot.stats.answers, world.hot.stats.oneways) == ({}, {(37, 0): 1})


def test_who_does_not_want_to_wait_does_not(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path, waits_for_flush=True)
    half = world.prepare(properties="\x02WAIT\x01false")
    assert answer_of(world.end(half, COMMIT)) == (0, None)
    other = world.prepare()
    assert answer_of(world.end(other, ROLLBACK)) == (0, None)


# -- 323 -----------------------------------------------------------------------------------------


def _resume(world: TransactionWorld, message: Message) -> RemotingCommand:
    message_id = encode_message_id(message.store_host, message.phy_offset)
    return request_of(Code.RESUME_CHECK_HALF_MESSAGE, msgId=message_id)


def _discarded(world: TransactionWorld) -> Message:
    world.prepare(b"late", flag=5, reconsume_times=1)
    for _ in range(world.check_max + 1):
        world.round()
    (message,) = world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    return message


def test_a_discarded_half_is_put_back(world: TransactionWorld) -> None:
    message = _discarded(world)
    assert world.processor.process_request(world.connection, _resume(world, message)) is None
    world.turn()
    assert answer_of(world.connection.sent[-1]) == (0, None)
    half = world.messages(TRANS_HALF_TOPIC)[-1]
    assert properties_of(half.properties) == {
        **properties_of(message.properties),
        "TRANSACTION_CHECK_TIMES": "0",
    }
    assert (half.body, half.flag, half.reconsume_times, half.queue_id) == (b"late", 5, 1, 0)
    producer = world.connect()
    world.round()
    (copy,) = asked(producer)
    world.end(copy, COMMIT)
    assert world.delivered() == [b"late"]


def test_the_log_may_refuse_to_take_it_back(world: TransactionWorld) -> None:
    message = _discarded(world)
    world.hot.counters[RUNNING_FLAGS] = 1
    world.processor.process_request(world.connection, _resume(world, message))
    assert answer_of(world.connection.sent[-1]) == (
        1,
        "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. the disk is full",
    )


def test_only_a_half_is_put_back(world: TransactionWorld) -> None:
    world.end(world.prepare(), COMMIT)
    other = world.messages("T")[0]
    nowhere = dataclasses.replace(other, phy_offset=1 << 40)
    for message in (other, nowhere):
        message_id = encode_message_id(message.store_host, message.phy_offset)
        assert refusal(world, _resume(world, message)) == (
            ResponseCode.SYSTEM_ERROR,
            "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. There is no half message with "
            f"the id {message_id}; those that exceeded the number of checks are in "
            "TRANS_CHECK_MAX_TIME_TOPIC",
        )
    assert refusal(world, request_of(Code.RESUME_CHECK_HALF_MESSAGE, msgId="U")) == (
        ResponseCode.SYSTEM_ERROR,
        "message id 'U' is not 32 or 56 hex digits",
    )
    assert refusal(world, request_of(Code.RESUME_CHECK_HALF_MESSAGE)) == (
        ResponseCode.SYSTEM_ERROR,
        "message id '' is not 32 or 56 hex digits",
    )


def test_a_half_in_the_body_of_a_message_is_not_put_back(world: TransactionWorld) -> None:
    """Its sender may write to one topic; the half would be another one's."""
    world.prepare(b"first")
    world.hot.topic("Evil")
    client = world.hot.client()
    assert client.call(send_request(bytes(300), topic="Evil")).code == 0
    world.turn()
    forged = Message(
        topic=TRANS_HALF_TOPIC,
        queue_id=0,
        phy_offset=world.hot.log.position + RECORD_BODY_AT,
        store_host=STORE_HOST,
        properties=b"PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x010",
    )
    assert client.call(send_request(encode_record(forged), topic="Evil")).code == 0
    world.turn()
    assert world.access.record_at(forged.phy_offset) is not None
    code, remark = refusal(world, _resume(world, forged))
    assert code == 1
    assert "There is no half message with the id" in (remark or "")
    assert len(world.messages(TRANS_HALF_TOPIC)) == 1


def test_a_half_is_put_back_under_its_own_topics_name_only(world: TransactionWorld) -> None:
    """With 5.x's accounts the rights are those on the topic that the request names."""
    request = _resume(world, _discarded(world))
    request.ext_fields["topic"] = "Other"
    code, remark = refusal(world, request)
    assert code == 1
    assert (remark or "").endswith("not one of topic Other")
    for name in ("T", TRANS_CHECK_MAX_TIME_TOPIC):
        request.ext_fields["topic"] = name
        assert world.processor.process_request(world.connection, request) is None
        assert answer_of(world.connection.sent[-1]) == (0, None)


def test_properties_that_are_full_cannot_be_put_back(world: TransactionWorld) -> None:
    half = _stored_half(world, b"A\x01" + b"x" * 32_765)
    message = world.hot.records()[0]
    assert half.queue_offset == message.queue_offset
    assert refusal(world, _resume(world, message)) == (
        ResponseCode.SYSTEM_ERROR,
        "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. Its properties would have 32793 "
        "bytes (limit 32767)",
    )


# -- golden --------------------------------------------------------------------------------------


def golden_records() -> list[dict[str, Any]]:
    found = json.loads((GOLDEN / "store-G" / "records-master.json").read_text())
    return [record for record in found if record["kind"] == "message"]


def golden_world(root: Path, end: int, now_ms: int) -> TransactionWorld:
    """Java's log up to `end`, at the time at which it wrote on."""
    world = TransactionWorld(root, file_size=16_384, files=0, time_out_ms=3_000)
    hot = world.hot
    hot.clock.now = now_ms
    shutil.copytree(GOLDEN / "store-G" / "master" / "commitlog", hot.directory, dirs_exist_ok=True)
    last = hot.directory / f"{16_384:020d}"
    last.write_bytes(last.read_bytes()[: end - 16_384].ljust(16_384, b"\0"))
    hot.counters[MAX_PHY_OFFSET] = end
    hot.counters[ALLOCATED_END] = 2 * 16_384
    world.restart()
    hot.topic("GTxTopic")
    return world


def golden_end(number: int) -> RemotingCommand:
    path = GOLDEN / "wire-json" / "037-END_TRANSACTION" / f"{number:02d}.req.bin"
    return GoldenFrame(path, "request").command()


def stored_after(world: TransactionWorld, end: int) -> list[bytes]:
    found = [(decode_record(raw, 0)[0].phy_offset, raw) for raw in world.hot.raw_records()]
    return [raw for phy_offset, raw in found if phy_offset >= end]


def at_time_of(java: dict[str, Any], ours: bytes) -> bytes:
    """Our record with the moments at which Java stored (and, of an op, made) its own."""
    record = bytearray(ours)
    record[56:64] = java["storeTimestamp"].to_bytes(8, "big")
    if java["topic"] == TRANS_OP_HALF_TOPIC:
        record[40:48] = java["bornTimestamp"].to_bytes(8, "big")
    return bytes(record)


@pytest.mark.parametrize(
    ("number", "end", "phy_offsets"),
    [(1, 19_999, [19_999, 20_300]), (2, 20_770, [20_770]), (4, 23_250, [23_250, 23_595])],
)
def test_java_stores_the_same_bytes(
    tmp_path: Path, number: int, end: int, phy_offsets: list[int]
) -> None:
    """Commit, rollback, and a commit after a check, each where Java's broker wrote it."""
    java = [record for record in golden_records() if record["phyOffset"] in phy_offsets]
    world = golden_world(tmp_path, end, java[0]["storeTimestamp"])
    assert world.processor.process_request(FakeConnection(), golden_end(number)) is None
    world.turn()
    ours = stored_after(world, end)
    assert [raw.hex() for raw in map(at_time_of, java, ours)] == [r["rawHex"] for r in java]
    assert len(ours) == len(java)


def test_java_stores_nothing_for_an_unknown_end(tmp_path: Path) -> None:
    world = golden_world(tmp_path, 20_770, 1_795_177_734_291)
    assert golden_end(3).ext_fields["commitOrRollback"] == str(UNKNOWN)
    assert world.processor.process_request(FakeConnection(), golden_end(3)) is None
    world.turn()
    assert stored_after(world, 20_770) == []


@pytest.fixture
def handed(world: TransactionWorld) -> list[Callable[[], None]]:
    calls: list[Callable[[], None]] = []
    world.on_loop = calls.append
    return calls


def test_the_loop_is_the_only_one_that_appends(
    world: TransactionWorld, handed: list[Callable[[], None]]
) -> None:
    half = world.prepare()
    position = world.hot.log.position
    world.processor.process_request(world.connection, end_request(half, COMMIT))
    assert (world.hot.log.position, len(handed)) == (position, 1)
    assert not world.halves.is_ended(0)
    handed[0]()
    assert world.halves.is_ended(0)
