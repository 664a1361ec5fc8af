"""TransactionalMessageService: rounds over a real log; whatever happens, a commit is delivered."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.timer.timer_hook import TimerSettings
from broker.topic.system_topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from broker.transaction.transaction_records import halves_of_op, op_record
from remoting.errors import RequestError
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.control_slots import MAX_PHY_OFFSET, RUNNING_FLAGS
from store.message import Message
from store.message_codec import decode_record
from store.record import Record
from tests.broker.broker_fakes import FakeConnection
from tests.broker.hot_path_world import properties_of, record, send_request
from tests.broker.transaction.test_end_transaction_processor import (
    golden_end,
    golden_records,
    golden_world,
    stored_after,
)
from tests.broker.transaction_world import (
    COMMIT,
    RESERVED_HOURS,
    ROLLBACK,
    STORE_HOST,
    TIME_OUT_MS,
    Half,
    TransactionWorld,
    asked,
    end_request,
)
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

HOUR_MS = 3_600_000
IMMUNE = "\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x01"


@pytest.fixture
def world(tmp_path: Path) -> TransactionWorld:
    return TransactionWorld(tmp_path)


# -- a round -------------------------------------------------------------------------------------


def test_halves_that_have_ended_are_passed(world: TransactionWorld) -> None:
    producer = world.connect()
    for number, decision in enumerate([COMMIT, ROLLBACK, COMMIT]):
        world.end(world.prepare(b"%d" % number), decision)
    world.round()
    assert (asked(producer), world.progress()) == ([], (3, 3))
    assert world.delivered() == [b"0", b"2"]


def test_a_half_without_an_end_is_asked_about(world: TransactionWorld) -> None:
    producer = world.connect()
    half = world.prepare(b"x", flag=9, reconsume_times=4)
    world.round()
    stored, copy = world.messages(TRANS_HALF_TOPIC)
    assert asked(producer) == [Half(copy.phy_offset, 1)]
    assert properties_of(copy.properties) == {
        **properties_of(stored.properties),
        "TRANSACTION_CHECK_TIMES": "1",
    }
    assert (copy.flag, copy.reconsume_times, copy.body) == (9, 4, b"x")
    assert (copy.born_timestamp, copy.born_host) == (stored.born_timestamp, stored.born_host)
    assert world.progress() == (half.queue_offset + 1, None)
    world.round()
    (again,) = asked(producer)
    assert again.queue_offset == 2
    assert properties_of(world.messages(TRANS_HALF_TOPIC)[2].properties)[
        "TRANSACTION_CHECK_TIMES"
    ] == ("2")
    world.end(again, COMMIT, fromTransactionCheck="true")
    assert world.delivered() == [b"x"]
    world.round()
    assert (asked(producer), world.progress()) == ([], (3, 1))


@pytest.mark.parametrize(
    ("age_ms", "asks"), [(TIME_OUT_MS, 0), (TIME_OUT_MS + 1, 1), (0, 0), (-1, 1)]
)
def test_a_half_must_have_an_age(world: TransactionWorld, age_ms: int, asks: int) -> None:
    """Who is born in the future has a clock that is wrong: he is asked, as by the original."""
    producer = world.connect()
    world.prepare(born_timestamp=world.hot.clock.now - age_ms)
    world.round(0)
    assert len(asked(producer)) == asks
    assert world.progress() == (1 if asks else None, None)


def test_a_young_half_ends_the_round(world: TransactionWorld) -> None:
    producer = world.connect()
    now_ms = world.hot.clock.now
    world.prepare(born_timestamp=now_ms - TIME_OUT_MS - 1)
    world.prepare(born_timestamp=now_ms)
    world.prepare(born_timestamp=now_ms - TIME_OUT_MS - 1)
    world.round(0)
    assert (len(asked(producer)), world.progress()) == (1, (1, None))
    world.round()
    assert (len(asked(producer)), world.progress()) == (3, (4, None))


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_there_is_one_queue_of_halves_and_one_of_ends(
    world: TransactionWorld, decision: int
) -> None:
    """RocketMQ gathers ends in a batch for each queue of halves, and mixed up their times. Here
    each end is stored in its own turn, whatever queue its message is for."""
    world.hot.topic("U")
    halves = [
        world.prepare(topic=topic, queue_id=queue) for topic in ("T", "U") for queue in range(4)
    ]
    assert [half.queue_offset for half in halves] == list(range(8))
    assert {half.queue_id for half in world.messages(TRANS_HALF_TOPIC)} == {0}
    for number, half in enumerate(halves):
        world.end(half, decision)
        assert world.ops() == list(range(number + 1))
    assert {op.queue_id for op in world.messages(TRANS_OP_HALF_TOPIC)} == {0}


def test_producers_of_a_group_take_turns(world: TransactionWorld) -> None:
    first, second, other = world.connect(), world.connect(client_id="d"), world.connect("Q")
    for _ in range(4):
        world.prepare()
    world.round()
    assert [len(asked(c)) for c in (first, second, other)] == [2, 2, 0]


def test_only_who_may_end_a_half_is_asked_about_it(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A check hands over the message: any account that called itself a producer of the group got
    it."""
    mallory = [world.connect(client_id=f"m{n}", account="mallory") for n in range(7)]
    alice = world.connect(client_id="a", account="alice")
    judged = []

    def may_end(_connection: ConnectionLike, account: str, half: Message) -> bool:
        judged.append(properties_of(half.properties)["REAL_TOPIC"])
        return account == "alice"

    world.may_end = may_end
    for _ in range(5):
        world.prepare()
    world.round()
    assert len(asked(alice)) == 5
    assert len(judged) == 8 + 5, "a crowd is looked at once a round"
    assert set(judged) == {"T"}
    world.producers.on_connection_close(alice)
    caplog.clear()
    world.round()
    assert [each.sent for each in mallory] == [[]] * 7
    assert caplog.messages == [
        "producer group P: none of its connected producers may publish to topic T, 5 undecided "
        "half message(s)"
    ]


def test_a_right_that_is_taken_away_within_a_round(world: TransactionWorld) -> None:
    alice = world.connect(account="alice")
    verdicts = [True, True, False]
    world.may_end = lambda *_asked: verdicts.pop(0)
    world.prepare()
    world.prepare()
    world.round()
    assert (len(asked(alice)), verdicts) == (1, [])


def test_a_dead_producer_is_survived(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    dead = world.connect()
    halves = [world.prepare(b"%d" % number) for number in range(3)]
    dead.close("killed")
    world.producers.on_connection_close(dead)
    caplog.clear()
    world.round()
    assert caplog.messages == [
        "producer group P: no producer is connected, 3 undecided half message(s)"
    ]
    caplog.clear()
    second = world.connect()
    world.round()
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert len(halves) == 3
    for copy in asked(second):
        world.end(copy, COMMIT)
    assert world.delivered() == [b"0", b"1", b"2"]


def test_a_connection_that_closes_is_not_asked(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """It is still in the table, for another moment."""
    producer = world.connect()
    world.prepare()
    producer.close("gone")
    world.round()
    assert producer.sent == []
    assert caplog.messages[-1].startswith(
        "producer group P: no producer is connected, 1 undecided half"
    )


def test_halves_without_group_or_home_reach_the_discard_topic(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    store_half(world, b"REAL_TOPIC\x01T\x02REAL_QID\x010")
    store_half(world, b"PGROUP\x01P")
    store_half(world, f"PGROUP\x01P\x02REAL_TOPIC\x01{'t' * 256}\x02REAL_QID\x010".encode())
    producer = world.connect()
    world.round()
    assert producer.sent == []
    _, homeless, unstorable = world.messages(TRANS_HALF_TOPIC)[:3]
    assert caplog.messages[-3:] == [
        f"half at {homeless.phy_offset}: its real topic is missing",
        f"half at {unstorable.phy_offset}: cannot be checked: topic of 256 bytes (limit 255)",
        "producer group : no producer is connected, 1 undecided half message(s)",
    ]
    for _ in range(world.check_max):
        world.round()
    assert len(world.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 3


def store_half(
    world: TransactionWorld, properties: bytes, *, turn: bool = True, **changes: Any
) -> None:
    """A half as somebody else may have stored it."""
    fields: dict[str, Any] = {
        "queue_id": 0,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": world.hot.clock.now,
        "born_host": bytes(8),
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": b"x",
        "properties": properties,
        **changes,
    }
    log = world.hot.log
    log.append(log.topic(TRANS_HALF_TOPIC), [Record(**fields)])
    if turn:
        world.turn()


# -- discarding ----------------------------------------------------------------------------------


def test_a_half_is_checked_so_often_and_then_discarded(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    producer = world.connect()
    world.prepare(b"x", flag=2)
    for _ in range(world.check_max):
        world.round()
    assert len(asked(producer)) == world.check_max
    assert world.messages(TRANS_CHECK_MAX_TIME_TOPIC) == []
    world.round()
    (message,) = world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    last = world.messages(TRANS_HALF_TOPIC)[-1]
    assert (message.properties, message.body, message.flag) == (last.properties, b"x", 2)
    assert message.queue_id == 0, "the only queue of the topic"
    assert caplog.messages[-1] == (
        "half 3: topic T, key U: checked too often or too old, moved to "
        "TRANS_CHECK_MAX_TIME_TOPIC at offset 0; RESUME_CHECK_HALF_MESSAGE (323) puts it back"
    )
    assert world.hot.topics.find(TRANS_CHECK_MAX_TIME_TOPIC) is not None
    world.round()
    assert (asked(producer), world.progress()) == ([], (4, None))
    assert len(world.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 1


def test_an_old_half_is_discarded_unasked(world: TransactionWorld) -> None:
    producer = world.connect()
    now_ms = world.hot.clock.now
    world.prepare(born_timestamp=now_ms - RESERVED_HOURS * HOUR_MS)
    world.prepare(born_timestamp=now_ms - RESERVED_HOURS * HOUR_MS - 1)
    world.round(0)
    assert [half.queue_offset for half in asked(producer)] == [2]
    assert len(world.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 1


def test_properties_that_are_full_end_in_the_discard_topic(world: TransactionWorld) -> None:
    """The original tries to store such a copy again and again, until its minute is over."""
    producer = world.connect()
    filler = b"PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02A\x01"
    store_half(world, filler + b"x" * (32_767 - len(filler)))
    immune = filler.replace(b"A\x01", b"CHECK_IMMUNITY_TIME_IN_SECONDS\x0199\x02A\x01")
    store_half(world, immune + b"x" * (32_767 - len(immune)))
    world.round(10_000)
    assert producer.sent == []
    assert len(world.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 2


@pytest.mark.parametrize("more", ["", IMMUNE + "90", "\x02TIMER_DELAY_MS\x0160000"])
def test_a_half_that_was_taken_can_be_checked_and_committed(tmp_path: Path, more: str) -> None:
    """Some bytes below the limit its send was answered SEND_OK, but it was never checked, and the
    commit of one with a timer was refused for good."""
    world = TransactionWorld(tmp_path, file_size=4 << 20, check_max=10**9)
    world.hot.timers.use(TimerSettings(True, 1_000, 86_400_000, 1_000))
    producer = world.connect()
    client = world.hot.client()
    world.prepare()
    refused = []
    for room in range(0, 260, 4):
        text = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U{more}\x02A\x01"
        text += "a" * (32_767 - len(text) - room)
        answer = client.call(send_request(properties=text, born_timestamp=world.hot.clock.now))
        world.turn()
        if answer.code == 0:
            world.round()
            world.round()
            *_, copy = asked(producer)
            world.end(copy, COMMIT)
            home = "rmq_sys_wheel_timer" if "TIMER" in more else "T"
            *_, message = world.messages(home)
            assert message.find_property("A") == "a" * (text.count("a"))
            break
        refused.append((answer.code, (answer.remark or "").partition("properties of")[0]))
    assert 30 < len(refused) < 60
    assert set(refused) == {(13, "the message is illegal: ")}


def test_a_commit_after_the_discard_is_delivered(world: TransactionWorld) -> None:
    half = world.prepare(b"late")
    for _ in range(world.check_max + 1):
        world.round()
    world.end(half, COMMIT)
    assert world.delivered() == [b"late"]


@pytest.mark.parametrize("text", ["many", "-1"])
def test_a_number_of_checks_that_is_none_counts_from_the_start(
    world: TransactionWorld, text: str
) -> None:
    world.connect()
    properties = (
        f"PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02TRANSACTION_CHECK_TIMES\x01{text}"
    )
    store_half(world, properties.encode())
    world.round()
    copy = world.messages(TRANS_HALF_TOPIC)[-1]
    assert properties_of(copy.properties)["TRANSACTION_CHECK_TIMES"] == "0"


# -- immunity ------------------------------------------------------------------------------------


def test_an_immune_half_is_asked_about_when_its_time_is_over(world: TransactionWorld) -> None:
    """It goes to the queue's end each round; that is no check (in the original it counts as one,
    and a half that is immune for long is discarded without one)."""
    producer = world.connect()
    world.prepare(properties=f"{IMMUNE}240")
    for offset in range(1, 5):
        world.round()
        copy = world.messages(TRANS_HALF_TOPIC)[-1]
        assert copy.queue_offset == offset
        assert properties_of(copy.properties)["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
        assert "TRANSACTION_CHECK_TIMES" not in properties_of(copy.properties)
    assert asked(producer) == []
    world.round()
    assert [half.queue_offset for half in asked(producer)] == [5]


def test_an_immune_half_fills_no_memory(world: TransactionWorld) -> None:
    """Its copies of all rounds were remembered; an end that names one of them has no effect."""
    world.connect()
    half = world.prepare(b"late", properties=f"{IMMUNE}9999999")
    for _ in range(30):
        world.round()
    copies = [Half(each.phy_offset, each.queue_offset) for each in world.messages(TRANS_HALF_TOPIC)]
    assert len(copies) == 31
    assert world.halves.forget(0) == [0, 30]
    world.halves.add_copy(0, 30)
    for copy in copies[1:30]:
        world.end(copy, COMMIT)
    assert world.delivered() == []
    world.end(half, COMMIT)
    world.end(copies[30], COMMIT)
    assert world.delivered() == [b"late"]


@pytest.mark.parametrize(("text", "asks"), [("soon", 0), ("-1", 0), ("6", 0), ("5", 1), ("0", 1)])
def test_an_immunity_that_is_no_number_is_the_timeout(
    world: TransactionWorld, text: str, asks: int
) -> None:
    producer = world.connect()
    world.prepare(properties=IMMUNE + text)
    world.round(TIME_OUT_MS - 1)
    assert len(asked(producer)) == asks
    assert len(world.messages(TRANS_HALF_TOPIC)) == 2


@pytest.mark.parametrize("restarted", [False, True])
def test_an_op_for_the_first_ends_the_copies_of_an_immune_half(
    world: TransactionWorld, restarted: bool
) -> None:
    producer = world.connect()
    half = world.prepare(properties=f"{IMMUNE}90")
    world.round()
    if restarted:
        world.offsets.save_if_changed()
        world.restart()
    world.end(half, COMMIT)
    world.round()
    world.round()
    assert (asked(producer), len(world.delivered())) == ([], 1)
    assert world.ops() == ([0] if restarted else [0, 1])


def test_a_start_learns_of_families_from_immune_copies(world: TransactionWorld) -> None:
    world.connect()
    half = world.prepare(properties=f"{IMMUNE}600\x02TRAN_PREPARED_QUEUE_OFFSET\x01x")
    world.round()
    world.offsets.save_if_changed()
    world.restart()
    world.round()
    world.end(half, COMMIT)
    assert world.ops() == [0, 2]
    copy = world.messages(TRANS_HALF_TOPIC)[1]
    assert properties_of(copy.properties)["TRAN_PREPARED_QUEUE_OFFSET"] == "0"


# -- ends of an earlier life ----------------------------------------------------------------------


def codes_of_end(world: TransactionWorld, half: Half) -> list[int]:
    """The answers to a commit that is tried until it is not refused."""
    codes: list[int] = []
    while 0 not in codes:
        try:
            answer = world.end(half, COMMIT)
        except RequestError as error:
            codes.append(int(error.code))
        else:
            assert answer is not None
            codes.append(answer.code)
    return codes


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_an_end_is_remembered_over_a_restart(world: TransactionWorld, decision: int) -> None:
    """Also where progress is beyond it: its op is not read at the start. The commit of before came
    again, and was stored once more."""
    halves = [world.prepare(b"%d" % number) for number in range(9)]
    open_half = world.prepare(b"open")
    for half in halves:
        world.end(half, decision)
    for _ in range(3):
        world.round()
    assert world.progress()[1] == 9
    world.offsets.save_if_changed()
    world.most_ops = 4
    world.restart()
    before, ops = world.delivered(), world.ops()
    for half in reversed(halves):
        *busy, last = codes_of_end(world, half)
        assert (set(busy) <= {ResponseCode.SYSTEM_BUSY}, last) == (True, 0)
        assert world.connection.sent[-1].remark == (
            "the transaction has already ended; request ignored"
        )
    world.turn()
    assert (world.delivered(), world.ops()) == (before, ops)
    world.end(open_half, COMMIT)
    assert world.delivered() == [*before, b"open"]


def test_one_request_reads_so_many_ops(world: TransactionWorld) -> None:
    halves = [world.prepare() for _ in range(12)]
    for half in halves[1:]:
        world.end(half, COMMIT)
    for _ in range(3):
        world.round()
    world.offsets.save_if_changed()
    world.most_ops = 5
    world.restart()
    assert codes_of_end(world, halves[0]) == [2, 2, 0]
    assert len(world.delivered()) == 12


def test_an_earlier_op_that_raises_is_passed(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no end of an older half is ever known, nor served."""
    halves = [world.prepare(b"%d" % number) for number in range(4)]
    for half in halves[1:]:
        world.end(half, COMMIT)
    for _ in range(3):
        world.round()
    world.offsets.save_if_changed()
    world.restart()

    def raising(op: Message) -> list[int]:
        if op.body == b"2":
            raise ValueError("no op")
        return halves_of_op(op)

    monkeypatch.setattr("broker.transaction.earlier_ends.halves_of_op", raising)
    assert codes_of_end(world, halves[1]) == [0]
    assert codes_of_end(world, halves[0]) == [0]
    world.turn()
    assert sorted(world.delivered()) == [b"0", b"1", b"2", b"3"]


def test_nobody_waits_for_who_reads_earlier_ops(world: TransactionWorld) -> None:
    """The ends of younger halves go on; one of an earlier half is to come again."""
    old = world.prepare(b"old")
    world.end(old, COMMIT)
    for _ in range(3):
        world.round()
    world.offsets.save_if_changed()
    world.restart()
    young = world.prepare(b"young")
    with world.earlier._lock:
        assert codes_of_end(world, young) == [0]
        with pytest.raises(RequestError, match="try again"):
            world.end(old, COMMIT)
    assert codes_of_end(world, old) == [0]


# -- what a half says of itself ------------------------------------------------------------------


def forged_properties(original: int, immunity: str = "") -> bytes:
    """Of a half of another producer and topic, which says that it is a copy of one."""
    text = f"PGROUP\x01Q\x02UNIQ_KEY\x01E\x02REAL_TOPIC\x01Evil\x02REAL_QID\x010{immunity}"
    return f"{text}\x02TRAN_PREPARED_QUEUE_OFFSET\x01{original}".encode()


def forge(world: TransactionWorld, original: int, *, immunity: str = "") -> Half:
    """Such a half in the log: sent to an older broker, or to a Java one."""
    store_half(world, forged_properties(original, immunity))
    stored = world.messages(TRANS_HALF_TOPIC)[-1]
    return Half(stored.phy_offset, stored.queue_offset)


@pytest.mark.parametrize("immunity", ["", f"{IMMUNE}600"])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("behind", [False, True])
def test_a_half_does_not_end_the_one_that_it_names(
    world: TransactionWorld, immunity: str, *, restarted: bool, decision: int, behind: bool
) -> None:
    """Whoever may send to some topic ended the transactions of everybody, also those to come."""
    world.hot.topic("Evil")
    victim = None if behind else world.prepare(b"paid", born_timestamp=world.hot.clock.now + 50_000)
    evil = forge(world, 7 if behind else 0, immunity=immunity)
    world.round()
    if restarted:
        world.offsets.save_if_changed()
        world.restart()
        world.round()
    answer = world.end(evil, decision, producerGroup="Q")
    assert answer is not None
    assert answer.code == 0
    while victim is None or (behind and victim.queue_offset < 7):
        victim = world.prepare(b"paid")
    answer = world.end(victim, COMMIT)
    assert answer is not None
    assert (answer.code, answer.remark) == (0, None)
    assert world.delivered() == [b"paid"]


def test_huge_numbers_make_no_end_forgotten(world: TransactionWorld) -> None:
    """257 halves that name far ones: a commit that came again was stored twice."""
    half = world.prepare(b"once")
    world.end(half, COMMIT)
    for number in range(257):
        store_half(world, forged_properties(10**17 - (number << 16)), turn=False)
    world.turn()
    world.round()
    for evil in world.messages(TRANS_HALF_TOPIC)[1:258]:
        place = Half(evil.phy_offset, evil.queue_offset)
        request = end_request(place, ROLLBACK, producerGroup="Q")
        assert world.processor.process_request(world.connection, request) is None
    world.turn()
    assert all(map(world.halves.is_ended, range(258)))
    answer = world.end(half, COMMIT)
    assert answer is not None
    assert answer.remark == "the transaction has already ended; request ignored"
    assert world.delivered() == [b"once"]


@pytest.mark.parametrize("number", [1, 2, 10**17, -1])
def test_no_half_is_a_copy_of_itself_or_of_a_later_one(
    world: TransactionWorld, number: int
) -> None:
    for _ in range(3):
        store_half(world, forged_properties(number))
    stored = world.messages(TRANS_HALF_TOPIC)
    assert world.service._find_original(stored[1]) is None
    assert world.service._find_original(stored[2]) == (1 if number == 1 else None)


def test_a_half_that_names_an_ended_one_is_asked_about(world: TransactionWorld) -> None:
    """A consumer that sends a committed message on carries the property along: it was never
    checked, and lost if its producer did not end it."""
    producer = world.connect("Q")
    world.end(world.prepare(), COMMIT)
    forge(world, 0)
    world.round()
    assert [half.queue_offset for half in asked(producer)] == [2]


def test_a_copy_whose_original_is_gone_is_not_committed_twice(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.connect()
    half = world.prepare(properties=f"{IMMUNE}90")
    world.round()
    world.restart()
    world.end(half, COMMIT)
    record_at = world.access.record_at
    monkeypatch.setattr(
        world.access, "record_at", lambda at: None if at == half.phy_offset else record_at(at)
    )
    for _ in range(3):
        world.round()
    assert (asked(producer), len(world.delivered())) == ([], 1)


# -- the store does not do what it should --------------------------------------------------------


def test_a_half_that_the_log_lacks_is_passed(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.connect()
    gone, half = world.prepare(), world.prepare()
    record_at = world.access.record_at
    monkeypatch.setattr(
        world.access, "record_at", lambda at: None if at == gone.phy_offset else record_at(at)
    )
    world.round()
    assert [copy.queue_offset for copy in asked(producer)] == [2]
    assert half.queue_offset == 1
    assert "half 0: 1 half message(s) up to 2 missing in the log" in caplog.messages


def test_a_round_begins_within_the_queue(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.connect()
    for _ in range(3):
        world.prepare()
    bounds = {TRANS_HALF_TOPIC: (2, 3), TRANS_OP_HALF_TOPIC: (0, 0)}
    monkeypatch.setattr(world.access, "offsets", lambda topic, _queue_id: bounds[topic])
    world.hot.clock.advance(60_000)
    world.service.check()
    assert [copy.queue_offset for copy in asked(producer)] == [3]


def test_what_the_log_refuses_is_tried_again(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    producer = world.connect()
    world.end(world.prepare(), COMMIT)
    world.prepare()
    world.hot.counters[RUNNING_FLAGS] = 1
    world.round()
    assert (asked(producer), world.progress()) == ([], (1, 1))
    assert caplog.messages[-1] == "half 1: could not be stored again: the disk is full"
    world.hot.counters[RUNNING_FLAGS] = 0
    world.round()
    assert (len(asked(producer)), world.progress()) == (1, (2, 1))


def test_a_loop_that_does_not_answer_ends_the_round(
    world: TransactionWorld, caplog: pytest.LogCaptureFixture
) -> None:
    producer = world.connect()
    world.prepare()
    handed: list[Any] = []
    world.on_loop = handed.append
    world.round()
    assert (asked(producer), world.progress()) == ([], (None, None))
    assert caplog.messages[-1] == (
        "half 0: check round ended, the next one continues here: 1 half messages were not "
        "stored again within 50 ms"
    )
    (late,) = handed
    late()
    world.turn()
    world.on_loop = lambda function: function()
    world.round()
    assert len(asked(producer)) == 2, "the copy that came late, and the half"


def test_copies_wait_for_the_next_file_and_their_halves_may_end_meanwhile(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path, file_size=4096, files=1)
    half = world.prepare(bytes(2500))
    world.round()
    assert world.end(half, COMMIT) is None
    world.hot.allocate(1)
    world.hot.allocate(2)
    world.turn()
    assert (len(world.delivered()), world.ops()) == (1, [0, 1])
    producer = world.connect()
    world.round()
    assert (asked(producer), world.progress()) == ([], (2, 2))


def test_a_half_whose_end_waits_is_not_asked_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = TransactionWorld(tmp_path, file_size=4096, files=1)
    producer = world.connect()
    half = world.prepare(bytes(2500))
    world.end(half, COMMIT)
    world.hot.clock.advance(60_000)
    world.service.check()
    assert caplog.messages[-1] == "half 0: could not be stored again: its end is being stored"
    assert asked(producer) == []


def test_a_half_that_ends_before_its_copy_is_stored_gets_none(world: TransactionWorld) -> None:
    producer = world.connect()
    half = world.prepare()

    def end_first(function: Any) -> None:
        world.on_loop = lambda function: function()
        world.end(half, COMMIT)
        function()

    world.on_loop = end_first
    world.round()
    assert (asked(producer), len(world.messages(TRANS_HALF_TOPIC))) == ([], 1)
    assert world.progress() == (1, 1)


def test_a_clock_that_jumps_a_month_gives_no_half_up(world: TransactionWorld) -> None:
    world.prepare()
    world.hot.clock.now += 30 * 24 * HOUR_MS
    world.round()
    assert len(world.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 0
    world.hot.clock.now -= 30 * 24 * HOUR_MS
    world.hot.clock.advance(RESERVED_HOURS * HOUR_MS + 1)
    world.round()
    assert len(world.messages(TRANS_CHECK_MAX_TIME_TOPIC)) == 1


def test_a_round_has_a_minute(world: TransactionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = world.connect()
    for _ in range(65):
        world.prepare()
    world.hot.clock.advance(60_000)
    times = iter([0, 0, 60_000, 60_001])
    monkeypatch.setattr(world.hot.clock, "monotonic_ms", lambda: next(times))
    world.service.check()
    assert len(asked(producer)) == 64


def test_a_stop_ends_the_round(world: TransactionWorld) -> None:
    producer = world.connect()
    for _ in range(65):
        world.prepare()
    world.hot.clock.advance(60_000)
    answers = iter([False, True])
    world.service.check(lambda: next(answers))
    assert len(asked(producer)) == 64


# -- progress ------------------------------------------------------------------------------------


def test_progress_waits_for_the_disk(world: TransactionWorld) -> None:
    """A copy that a crash loses must not be all that is left of its half."""
    world.connect()
    world.prepare()
    world.hot.clock.advance(60_000)
    world.service.check()
    end = world.hot.log.position
    world.flushed = end - 1
    assert not world.service.settle()
    assert world.progress() == (None, None)
    world.flushed = end
    assert world.service.settle()
    assert world.progress() == (1, None)


def test_rounds_go_on_while_the_disk_is_slow(world: TransactionWorld) -> None:
    """Each round's progress is stored when the log of its time is on disk; at most 64 wait."""
    world.flushed = 0
    world.connect()
    world.prepare()
    ends = []
    for _ in range(66):
        world.hot.clock.advance(60_000)
        world.prepare(born_timestamp=world.hot.clock.now - TIME_OUT_MS)
        world.service.check()
        world.turn()
        ends.append((world.hot.counters[MAX_PHY_OFFSET], world.service._position))
    assert not world.service.settle()
    assert world.progress() == (None, None)
    for end, position in (ends[0], ends[62], ends[65]):
        world.flushed = end - 1
        world.service.settle()
        assert world.progress()[0] != position
        world.flushed = end
        assert world.service.settle() == (end == ends[65][0])
        assert world.progress() == (position, None)


def test_an_orderly_stop_does_not_wait(world: TransactionWorld) -> None:
    world.connect()
    world.prepare()
    world.hot.clock.advance(60_000)
    world.service.check()
    world.flushed = 0
    assert world.service.settle(at_once=True)
    assert world.progress() == (1, None)


def test_a_round_without_progress_stores_none(world: TransactionWorld) -> None:
    world.connect()
    world.prepare()
    world.round(0)
    assert world.progress() == (None, None)
    assert world.offsets.changes == 0


# -- starts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("saved", [False, True])
def test_a_start_goes_on_where_it_was(world: TransactionWorld, saved: bool) -> None:
    producer = world.connect()
    ended, open_ = world.prepare(b"a"), world.prepare(b"b")
    world.end(ended, COMMIT)
    world.round()
    if saved:
        world.offsets.save_if_changed()
    asked(producer)
    world.restart()
    assert world.progress() == ((2, 1) if saved else (None, None))
    world.round()
    # Unsaved progress: the half is asked about once more, which harms nobody.
    copies = asked(producer)
    assert [copy.queue_offset for copy in copies] == ([3] if saved else [3, 4])
    assert open_.queue_offset == 1
    assert world.end(copies[0], COMMIT) is not None
    assert world.delivered() == [b"a", b"b"]


def test_an_end_of_before_a_start_is_known(world: TransactionWorld) -> None:
    half = world.prepare()
    world.end(half, COMMIT)
    world.restart()
    answer = world.end(half, COMMIT)
    assert answer is not None
    assert answer.remark == "the transaction has already ended; request ignored"


def test_a_start_waits_for_the_store(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the queue table does not show yet is not taken for missing. What is stored meanwhile is
    not waited for: under load there would always be some."""
    world.end(world.prepare(), COMMIT)
    world.halves.known.clear()
    ends = {topic: world.bridge.offsets(topic) for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)}
    bounds = dict.fromkeys(ends, (0, 0))
    monkeypatch.setattr(world.access, "offsets", lambda topic, _queue_id: bounds.get(topic, (0, 0)))
    assert not world.service.recover()
    bounds[TRANS_HALF_TOPIC] = ends[TRANS_HALF_TOPIC]
    assert not world.service.recover()
    world.hot.log.topic(TRANS_HALF_TOPIC).next_offsets[0] += 1
    bounds[TRANS_OP_HALF_TOPIC] = ends[TRANS_OP_HALF_TOPIC]
    assert world.service.recover()
    assert world.service.recover()


def put_op(world: TransactionWorld, half: int, body: bytes | None = None) -> None:
    log = world.hot.log
    record = op_record(half, 1, STORE_HOST, 0)
    if body is not None:
        fields = {name: getattr(record, name) for name in record.__struct_fields__}
        record = Record(**{**fields, "body": body})
    log.append(log.topic(TRANS_OP_HALF_TOPIC), [record])
    world.turn()


def test_an_op_ends_no_half_that_came_after_it(world: TransactionWorld) -> None:
    """Such ops are left when the half queue was made anew."""
    put_op(world, 0)
    put_op(world, 99)
    half = world.prepare(b"new")
    world.restart()
    assert world.end(half, COMMIT) is not None
    assert world.delivered() == [b"new"]


def test_an_earlier_op_ends_no_half_that_came_after_it(world: TransactionWorld) -> None:
    """The same of the ops that are read when somebody asks."""
    first = world.prepare(b"first")
    put_op(world, 1)
    second = world.prepare(b"second")
    world.turn()
    world.earlier.begin(world.access.offsets(TRANS_OP_HALF_TOPIC, 0)[1], 2)
    for half in (first, second):
        assert codes_of_end(world, half) == [0]
    assert world.delivered() == [b"first", b"second"]


def test_ops_of_a_5x_broker_are_read(world: TransactionWorld) -> None:
    producer = world.connect()
    for _ in range(3):
        world.prepare()
    put_op(world, 0, b"0,2,")
    world.restart()
    world.round()
    assert [half.queue_offset for half in asked(producer)] == [3]
    assert properties_of(world.messages(TRANS_HALF_TOPIC)[3].properties)["UNIQ_KEY"] == "U"
    assert world.progress() == (3, 1)


def test_an_op_that_cannot_be_read_ends_nothing(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.end(world.prepare(), COMMIT)
    monkeypatch.setattr(world.bridge, "find_message", lambda _topic, _offset: None)
    world.halves.known.clear()
    world.halves._chunks.clear()
    assert world.service.recover()
    assert not world.halves.is_ended(0)
    assert world.halves.advance_ops(0) == 1


def test_many_ended_halves_are_passed_in_one_round(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is read."""
    count = 100_000
    bounds = {TRANS_HALF_TOPIC: (0, count), TRANS_OP_HALF_TOPIC: (0, count)}
    monkeypatch.setattr(world.access, "offsets", lambda topic, _queue_id: bounds[topic])
    monkeypatch.delattr(type(world.access), "record_at")
    for half in range(count):
        world.halves.end(half)
        world.halves.add_op(half, half)
    world.round()
    assert world.progress() == (count, count)


# -- Java ----------------------------------------------------------------------------------------


def test_a_check_is_java_s_check(tmp_path: Path) -> None:
    """From the stored bytes to the frame; the order of properties is the hash map's in Java."""
    end = 22_889
    java = next(r for r in golden_records() if r["phyOffset"] == end)
    world = golden_world(tmp_path, end, java["storeTimestamp"])
    producer = world.connect("G_txproducer")
    world.round(0)
    (raw,) = stored_after(world, end)
    copy = decode_record(raw, 0)[0]
    assert same(copy) == same(decode_record(bytes.fromhex(java["rawHex"]), 0)[0])
    (request,) = producer.sent
    golden = GoldenFrame(GOLDEN / "wire-json/039-CHECK_TRANSACTION_STATE/01.req.bin", "request")
    frame = golden.command()
    assert (request.code, request.flag, request.ext_fields) == (
        frame.code,
        frame.flag,
        frame.ext_fields,
    )
    assert same(decode_record(request.body, 0)[0]) == same(decode_record(frame.body, 0)[0])
    assert len(request.body) == len(frame.body)
    assert world.processor.process_request(FakeConnection(), golden_end(4)) is None
    world.turn()
    commit = decode_record(stored_after(world, end)[1], 0)[0]
    expected = next(r for r in golden_records() if r["phyOffset"] == 23_250)
    stored = decode_record(bytes.fromhex(expected["rawHex"]), 0)[0]
    assert same(commit, store_timestamp=0) == same(stored, store_timestamp=0)
    world.round()
    assert world.progress() == (4, 3), "as in Java's consumerOffset.json"


def same(message: Message, **changes: Any) -> dict[str, Any]:
    """Every field; properties without their order."""
    fields = {name: getattr(message, name) for name in message.__slots__}
    return {**fields, "properties": properties_of(message.properties), **changes}


# -- random histories against a model ------------------------------------------------------------


@dataclass
class Transaction:
    """One transaction as its producer knows it."""

    body: bytes
    half: Half
    decision: int
    places: list[Half] = field(default_factory=list)
    """Where its half and the copies are, as far as the producer was told."""
    told: bool = False
    """The producer has sent its decision, and the broker lives on."""


class Histories:
    """A broker, producers, and what must be true."""

    def __init__(self, root: Path) -> None:
        self.world = TransactionWorld(root, check_max=1_000, files=12, file_size=1 << 16)
        self.producer = self.world.connect()
        self.transactions: list[Transaction] = []
        self.crashed = False

    def prepare(self, decision: int, *, immune: bool) -> None:
        body = b"%d" % len(self.transactions)
        half = self.world.prepare(body, properties=f"{IMMUNE}100" if immune else "")
        self.transactions.append(Transaction(body, half, decision, [half]))

    def end(self, which: int, place: int, *, published: bool = True) -> None:
        """The producer says its decision, naming the half or any copy that it knows."""
        if not self.transactions:
            return
        transaction = self.transactions[which % len(self.transactions)]
        half = transaction.places[place % len(transaction.places)]
        request = self.world.end(half, transaction.decision, oneway=not published)
        assert request is None or request.code == 0
        transaction.told = True

    def round(self, advance_ms: int) -> None:
        self.world.round(advance_ms)
        by_body = {transaction.body: transaction for transaction in self.transactions}
        requests, self.producer.sent = self.producer.sent, []
        for request in requests:
            transaction = by_body[decode_record(request.body, 0)[0].body]
            assert self.crashed or not transaction.told, "asked about after its end"
            (copy,) = asked_in(request)
            transaction.places.append(copy)

    def restart(self, *, saved: bool) -> None:
        if saved:
            self.world.offsets.save_if_changed()
        self.world.restart()
        self.crashed = True

    def finish(self) -> None:
        """Everybody is asked and answers; then nothing is open any more."""
        for _ in range(20):
            self.round(200_000)
            for transaction in self.transactions:
                for place in range(len(transaction.places)):
                    half = transaction.places[place]
                    self.world.end(half, transaction.decision)
                transaction.told = True
        self.crashed = False
        self.round(200_000)
        self.check()

    def check(self) -> None:
        delivered = self.world.delivered()
        for transaction in self.transactions:
            count = delivered.count(transaction.body)
            if transaction.decision == ROLLBACK or (not transaction.told and not self.crashed):
                assert count == 0
            elif transaction.told:
                assert count >= 1
                assert count == 1 or self.restarted

    restarted = False


def asked_in(request: Any) -> list[Half]:
    fields = request.ext_fields
    return [Half(int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"]))]


_prepare = st.tuples(st.just("prepare"), st.sampled_from([COMMIT, ROLLBACK]), st.booleans())
_end = st.tuples(st.just("end"), st.integers(0, 9), st.integers(0, 3))
_round = st.tuples(st.just("round"), st.sampled_from([0, 6_000, 60_000, 120_000]), st.none())
_restart = st.tuples(st.just("restart"), st.booleans(), st.none())


def play(steps: list[tuple[str, Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        histories = Histories(Path(root))
        try:
            for what, first, second in steps:
                if what == "prepare":
                    histories.prepare(first, immune=second)
                elif what == "end":
                    histories.end(first, second)
                elif what == "round":
                    histories.round(first)
                else:
                    histories.restarted = True
                    histories.restart(saved=first)
                histories.check()
            histories.finish()
        finally:
            histories.world.hot.close()


@given(st.lists(st.one_of(_prepare, _end, _end, _round), max_size=25))
def test_exactly_once_without_a_restart(steps: list[tuple[str, Any, Any]]) -> None:
    play(steps)


@given(st.lists(st.one_of(_prepare, _end, _round, _restart), max_size=25))
def test_at_least_once_with_restarts(steps: list[tuple[str, Any, Any]]) -> None:
    play(steps)


def test_a_lost_turn_loses_no_half(world: TransactionWorld) -> None:
    """The process dies between the commit's place and its publication: the half is still there."""
    half = world.prepare(b"x")
    request_end = world.turn
    world.turn = lambda: None  # type: ignore[method-assign]
    world.end(half, COMMIT)
    assert world.halves.is_ended(0)
    world.turn = request_end  # type: ignore[method-assign]
    world.restart(lost_turn=True)
    producer = world.connect()
    world.round()
    (copy,) = asked(producer)
    world.end(copy, COMMIT)
    assert world.delivered() == [b"x"]


@pytest.mark.parametrize("count", [0, 2])
def test_halves_of_a_broker_with_rocksdb_are_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    world = TransactionWorld(tmp_path)
    topic = world.hot.log.topic("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
    for _ in range(count):
        world.hot.log.append(topic, (record(b"half"),))
    world.turn()
    world.restart()
    told = [line for line in caplog.messages if "ROCKSDB" in line]
    assert [line.partition("half messages")[0] for line in told] == (
        [f"transactions: {count} "] if count else []
    )
