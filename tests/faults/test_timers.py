"""Timer messages of a real broker: on time, recalled, rolled, in crowds, over kills and restarts.

Times are judged by the broker's own store timestamps. A message must never be stored before the
time it asks for; how late it is depends on the test machine, so the bound is generous here and
measured by the bench.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc.clock import WALL_OFFSET, WALL_OFFSET_VARIABLE
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import loads_lenient
from store.message import Message
from store.timer.timer_checkpoint import TimerCheckpoint
from store.timer.timer_slots import TIMER_READ_TIME_MS
from tests.support.broker_group import ASYNC_MASTER, SLAVE, SYNC_MASTER, Group, counters_of
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, drain

_LATE_MS = 15_000
"""Generous: a loaded test machine."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def post_timer(client: FrameClient, topic: str, body: bytes, **properties: object) -> int:
    pairs: dict[str, object] = {"UNIQ_KEY": body.decode(), **properties}
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    fields: dict[str, object] = {
        "a": "P",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": now_ms(),
        "h": 0,
    }
    fields |= {"i": text, "j": 0, "k": "false", "l": 16, "m": "false"}
    return client.post(310, fields, body)


def send_timer(client: FrameClient, topic: str, body: bytes, **pairs: object) -> RemotingCommand:
    answer = client.take(post_timer(client, topic, body, **pairs))
    assert answer.code == 0, answer.remark
    return answer


def recall(client: FrameClient, topic: str, handle: str) -> RemotingCommand:
    return client.call(370, {"topic": topic, "recallHandle": handle, "producerGroup": "P"})


def stored(client: FrameClient, topic: str) -> list[Message]:
    return drain(client, topic, 0)


def wait_for(client: FrameClient, topic: str, count: int, timeout_s: float = 20.0) -> list[Message]:
    wait_until(lambda: client.offset(30, topic, 0) >= count, timeout_s)
    return stored(client, topic)


def bodies(messages: list[Message]) -> list[bytes]:
    return sorted(message.body for message in messages)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    root = tmp_path_factory.mktemp("timers")
    settings = {"recallMessageEnable": "true", "timerPrecisionMs": 100, "timerMaxDelaySec": 60}
    with OurBroker(root, **settings, timerRollWindowSlot=20, mappedFileSizeTimerLog=5200) as broker:
        yield broker.start()


def test_on_time_recalled_and_rolled(broker: OurBroker) -> None:
    """The roll window is 2 s: the third message goes round."""
    with broker.client() as client:
        start_ms = now_ms()
        asked = {
            b"sec": {"TIMER_DELAY_SEC": 1},
            b"ms": {"TIMER_DELAY_MS": 1250},
            b"at": {"TIMER_DELIVER_MS": start_ms + 4_321},
            b"past": {"TIMER_DELIVER_MS": start_ms - 1},
        }
        due_ms = {b"sec": 1_000, b"ms": 1_250, b"at": 4_321, b"past": 0}
        for body, properties in asked.items():
            answer = send_timer(client, "OnTime", body, **properties)
            assert ("recallHandle" in answer.ext_fields) == (body != b"past")
        gone = send_timer(client, "OnTime", b"gone", TIMER_DELAY_MS=1_500).ext_fields
        answer = recall(client, "OnTime", gone["recallHandle"])
        assert (answer.code, answer.remark) == (0, "not set any response code")
        assert answer.ext_fields == {"msgId": "gone", "MSG_REGION": "DefaultRegion"}
        found = wait_for(client, "OnTime", 4)
        for message in found:
            late_ms = message.store_timestamp - start_ms - due_ms[message.body]
            assert 0 <= late_ms < _LATE_MS, message.body
        rolled = next(message for message in found if message.body == b"at")
        assert int(rolled.find_property("TIMER_ROLL_TIMES") or 0) >= 1
        assert rolled.find_property("REAL_TOPIC") == "OnTime"
        # Recalled too late: the handle's time is over.
        late = recall(client, "OnTime", gone["recallHandle"])
        assert (late.code, late.remark) == (604, "recall failed, timestamp invalid")
        assert bodies(stored(client, "OnTime")) == [b"at", b"ms", b"past", b"sec"]


def test_what_is_refused(broker: OurBroker) -> None:
    with broker.client() as client:
        words = (
            "timer message illegal, the delay time should not be bigger than the max delay "
            "60000ms; or if set del msg, the delay time should be bigger than the current time"
        )
        for properties in (
            {"TIMER_DELAY_SEC": 61},
            {"TIMER_DELAY_MS": "soon"},
        ):
            answer = client.take(post_timer(client, "Refused", b"x", **properties))
            assert (answer.code, answer.remark) == (13, words)
        deletes = {"TIMER_DELAY_SEC": 9, "TIMER_DEL_UNIQKEY": "OnTime+1"}
        answer = client.take(post_timer(client, "Refused", b"x", **deletes))
        assert (answer.code, answer.remark) == (
            13,
            "the message is illegal: its property TIMER_DEL_UNIQKEY is the broker's own; recall a "
            "message with request 370 (or set recallByPropertyEnable)",
        )
        for handle, code, remark in (
            ("", 604, "recall handle is invalid"),
            ("?", 604, "recall handle is invalid"),
            ("djEgVA==", 604, "recall handle is invalid"),
            ("djEgVCBiIDEgeA==", 604, "recall failed, topic not match"),
        ):
            answer = recall(client, "OnTime", handle)
            assert (answer.code, answer.remark) == (code, remark)
        answer = recall(client, "Nowhere", "djEgVCBiIDEgeA==")
        assert (answer.code, answer.remark) == (
            17,
            "recall failed, the topic[Nowhere] not exist",
        )


def test_what_a_slave_is_told(broker: OurBroker) -> None:
    with broker.client() as client:
        answer = client.call(60, {})
        found = TimerCheckpoint.decode(answer.body)
        assert (answer.code, len(answer.body)) == (0, 56)
        assert 0 <= now_ms() - found.last_read_time_ms < _LATE_MS
        end = client.offset(30, "rmq_sys_wheel_timer", 0)
        assert found.last_timer_queue_offset == found.master_timer_queue_offset == end
        table = loads_lenient(client.call(28, {}).body)["table"]
        assert table["timerOffsetBehind"] == "0"
        assert 0 <= int(table["timerReadBehind"]) * 1000 < _LATE_MS
        answer = client.call(61, {})
        assert answer.code == 0
        assert b'"timingCount":{"OnTime":{"count":' in answer.body


def test_a_crowd_in_one_slot_delays_no_other(broker: OurBroker) -> None:
    crowd, due_ms = 5_000, now_ms() + 9_000
    with broker.client() as client, broker.client() as other:
        opaques = [
            post_timer(client, "Crowd", b"%d" % number, TIMER_DELIVER_MS=due_ms)
            for number in range(crowd)
        ]
        for opaque in opaques:
            assert client.take(opaque).code == 0
        assert now_ms() < due_ms, "the machine is too slow for this test"
        for number in range(1, 6):
            at_ms = due_ms + number * 100
            send_timer(other, "Beside", b"%d" % number, TIMER_DELIVER_MS=at_ms)
        beside = wait_for(other, "Beside", 5, 30.0)
        found = wait_for(client, "Crowd", crowd, 60.0)
    assert Counter(message.body for message in found) == Counter(b"%d" % n for n in range(crowd))
    assert min(message.store_timestamp for message in found) >= due_ms
    for message in beside:
        late_ms = message.store_timestamp - due_ms - int(message.body) * 100
        assert 0 <= late_ms < _LATE_MS


def test_kills_lose_nothing_and_repeat_nothing(broker: OurBroker) -> None:
    """Each process while slots go out, then all at once with timers pending."""
    count, start_ms = 600, now_ms() + 1_500
    due = {b"%d" % number: start_ms + number * 20 for number in range(count)}
    with broker.client() as client:
        opaques = [
            post_timer(client, "Killed", body, TIMER_DELIVER_MS=at_ms)
            for body, at_ms in due.items()
        ]
        for opaque in opaques:
            assert client.take(opaque).code == 0
    wait_until(lambda: now_ms() > start_ms + 1_000)
    broker.restart_by_kill("remoting", 20.0)
    wait_until(lambda: now_ms() > start_ms + 3_000)
    broker.restart_by_kill("store", 20.0)
    wait_until(lambda: now_ms() > start_ms + 6_000)
    broker.crash()
    broker.start()
    with broker.client() as client:
        wait_until(lambda: now_ms() > start_ms + count * 20)
        found = wait_for(client, "Killed", count, 30.0)
        send_timer(client, "Killed", b"last", TIMER_DELAY_MS=500)
        found = wait_for(client, "Killed", count + 1)
    assert Counter(message.body for message in found) == Counter([*due, b"last"])
    for message in found:
        assert message.store_timestamp >= due.get(message.body, 0)


def test_an_orderly_stop_repeats_nothing(broker: OurBroker) -> None:
    with broker.client() as client:
        for number in range(40):
            at_ms = now_ms() + number * 100
            send_timer(client, "Stopped", b"%d" % number, TIMER_DELIVER_MS=at_ms)
    assert broker.terminate() == 0
    broker.start()
    with broker.client() as client:
        found = wait_for(client, "Stopped", 40)
        send_timer(client, "Stopped", b"last", TIMER_DELAY_MS=300)
        found = wait_for(client, "Stopped", 41)
    assert Counter(message.body for message in found) == Counter(
        [b"last", *(b"%d" % number for number in range(40))]
    )


@pytest.mark.timeout(90)
def test_the_clock_is_set(tmp_path: Path) -> None:
    """Forth: what is due by the new time comes; back: nothing early, nothing lost, and the default
    precision."""
    offset = tmp_path / "offset"
    offset.write_bytes(WALL_OFFSET.pack(0))
    broker = OurBroker(tmp_path)
    broker.env[WALL_OFFSET_VARIABLE] = str(offset)

    def shift(by_ms: int) -> None:
        with offset.open("r+b") as file:
            file.write(WALL_OFFSET.pack(by_ms))

    with broker.start(), broker.client() as client:
        start_ms = now_ms()
        send_timer(client, "T", b"hour", TIMER_DELIVER_MS=start_ms + 3_600_000)
        send_timer(client, "T", b"two hours", TIMER_DELIVER_MS=start_ms + 7_200_000)
        shift(3_700_000)
        [first] = wait_for(client, "T", 1)
        assert first.body == b"hour"
        assert first.store_timestamp >= start_ms + 3_600_000
        shift(0)
        send_timer(client, "T", b"soon", TIMER_DELAY_SEC=3)
        assert bodies(wait_for(client, "T", 2, 30.0)) == [b"hour", b"soon"]
        shift(7_300_000)
        assert bodies(wait_for(client, "T", 3)) == [b"hour", b"soon", b"two hours"]
    assert broker.check().errors == []


def test_messages_come_at_their_millisecond_by_the_clients_clock(tmp_path: Path) -> None:
    """Of slots of a second, whose ends alone would make messages 500 ms late on average. Half of
    them name a delay; the client's clock is read before it sends, and when it has received."""
    count = 40
    asked_ms: dict[bytes, int] = {}
    late_ms: dict[bytes, int] = {}
    with OurBroker(tmp_path).start() as broker, broker.client() as client:
        wait_until(lambda: client.send("Exact", 0, b"first").code == 0, 20)
        for number in range(count):
            body, sent_ms = b"%d" % number, now_ms()
            delay_ms = 2_500 + number * 53
            asked_ms[body] = sent_ms + delay_ms
            if number % 2:
                send_timer(client, "Exact", body, TIMER_DELAY_MS=delay_ms)
            else:
                send_timer(client, "Exact", body, TIMER_DELIVER_MS=asked_ms[body])
        assert len(stored(client, "Exact")) == 1, "the machine is too slow for this test"
        offset, deadline = 1, time.monotonic() + 60
        while len(late_ms) < count and time.monotonic() < deadline:
            pulled = client.take_pull(client.post_pull("Exact", 0, offset, suspend_ms=1_000))
            for message in pulled.messages:
                assert message.body not in late_ms
                late_ms[message.body] = now_ms() - asked_ms[message.body]
                offset += 1
                assert message.store_timestamp >= asked_ms[message.body]
    assert late_ms.keys() == asked_ms.keys()
    assert min(late_ms.values()) >= 0
    assert max(late_ms.values()) < _LATE_MS
    assert statistics.median(late_ms.values()) < 250


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_promoted_slave_goes_on(tmp_path: Path) -> None:
    """The master dies with timers pending, some delivered; what the slave does not know of that, it
    may deliver again, but it loses nothing."""
    with Group(tmp_path).running() as group:
        first, second = group.first, group.second
        group.start(first, SYNC_MASTER)
        group.start(second, SLAVE)
        with first.client() as client:
            wait_until(lambda: client.send("T", 0, b"x").code == 0, 20)
            start_ms = now_ms()
            due = {b"%d" % number: start_ms + number * 400 for number in range(1, 45)}
            for body, at_ms in due.items():
                send_timer(client, "T", body, TIMER_DELIVER_MS=at_ms)
            with counters_of(second) as counters:
                wait_until(lambda: counters[TIMER_READ_TIME_MS] > due[b"1"] + 2_000, 30)
        first.crash()
        assert second.terminate() == 0
        group.start(second, ASYNC_MASTER)
        with second.client() as client:
            wait_until(lambda: {m.body for m in stored(client, "T")} >= set(due), 60)
            found = stored(client, "T")
    # What the slave knew to be delivered was not delivered again.
    assert Counter(m.body for m in found)[b"1"] == 1
    for message in found:
        assert message.store_timestamp >= due.get(message.body, 0)
