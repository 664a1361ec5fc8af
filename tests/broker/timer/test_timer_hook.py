"""broker.timer.timer_hook and the recall handle, against records and answers of a Java 5.3.3."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from broker.timer.recall_message_handle import (
    RecallMessageHandle,
    decode_handle,
    recall_handle_field,
)
from broker.timer.timer_hook import TimerHook
from remoting.errors import RequestError
from store.commit_log import own_record
from store.message_codec import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.broker.hot_path_world import TIMERS, HotPathWorld, properties_of, send_request
from tests.broker.transaction.test_end_transaction_processor import _stored_half
from tests.broker.transaction_world import TransactionWorld

SETTINGS = replace(TIMERS, enabled=True, congest_num=10)
TIMER_TOPIC = "rmq_sys_wheel_timer"
_TOO_FAR = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; "
    "or if set del msg, the delay time should be bigger than the current time"
)


@pytest.fixture
def world(tmp_path: Path) -> HotPathWorld:
    world = HotPathWorld(tmp_path)
    world.topic()
    world.timers.use(SETTINGS)
    return world


def hook_at(world: HotPathWorld, now_ms: int) -> TimerHook:
    class At:
        def now_ms(self) -> int:
            return now_ms

        def monotonic_ms(self) -> int:
            return 0

        def monotonic_ns(self) -> int:
            return 0

        def since_boot_ms(self) -> int:
            return 0

    return TimerHook(SETTINGS, lambda _slot_ms: 0, At(), world.topics)


@pytest.mark.parametrize(
    ("properties", "stored_ms", "out_ms"),
    [
        # Three records of golden five-x/store-pop-timer: a message, a far one, its recall.
        ("TIMER_DELIVER_MS\x011795391992659", 1795391985373, 1795391992000),
        ("TIMER_DELIVER_MS\x011795395585387", 1795391985398, 1795395585000),
        ("TIMER_DELIVER_MS\x011795395585001", 1795391985509, 1795395585000),
        # By HookUtils: a multiple of the precision is delivered at the end of the slot before.
        ("TIMER_DELIVER_MS\x011795391993000", 1795391985373, 1795391992000),
        ("TIMER_DELAY_MS\x017300", 1795391708297, 1795391715000),
        ("TIMER_DELAY_SEC\x013\x02TIMER_DELAY_MS\x019000", 1795391708297, 1795391711000),
    ],
)
def test_the_slot_is_javas(
    world: HotPathWorld, properties: str, stored_ms: int, out_ms: int
) -> None:
    place = hook_at(world, stored_ms).divert("TDelay", 2, 0, properties)
    assert place is not None
    assert (place.topic, place.queue_id, place.sys_flag) == (TIMER_TOPIC, 0, 0)
    found = properties_of(place.properties.encode())
    assert found["TIMER_OUT_MS"] == str(out_ms)
    assert (found["REAL_TOPIC"], found["REAL_QID"]) == ("TDelay", "2")


@pytest.mark.parametrize(
    ("properties", "sys_flag"),
    [
        ("KEYS\x01k", 0),
        ("TIMER_DELIVER_MS\x011", 0),
        ("TIMER_DELAY_MS\x01-5", 0),
        ("TIMER_DELAY_MS\x015000\x02TIMER_OUT_MS\x017", 0),
        ("TIMER_DELAY_MS\x015000", TRANSACTION_PREPARED),
        ("TIMER_DELAY_MS\x015000", TRANSACTION_ROLLBACK),
    ],
)
def test_what_is_stored_at_once(world: HotPathWorld, properties: str, sys_flag: int) -> None:
    assert world.timers.divert("T", 0, sys_flag, properties) is None


@pytest.mark.parametrize(
    "properties",
    [
        "TIMER_DELAY_SEC\x01259201",
        "TIMER_DELAY_MS\x01soon",
        "TIMER_DELIVER_MS\x01" + "9" * 20,
        "TIMER_DELIVER_MS\x011\x02TIMER_DEL_UNIQKEY\x01T+1",
    ],
)
def test_what_is_illegal(tmp_path: Path, properties: str) -> None:
    world = HotPathWorld(tmp_path, send={"recall_by_property": True})
    world.topic()
    world.timers.use(SETTINGS)
    answer = world.client().call(send_request(properties=properties))
    assert (answer.code, answer.remark) == (13, _TOO_FAR)
    assert world.records() == []


def test_a_slot_that_is_full(world: HotPathWorld) -> None:
    now_ms = world.clock.now_ms()
    slot_ms = (now_ms + 4_999) // 1000 * 1000
    world.in_slot[slot_ms] = 10
    text = f"TIMER_DELIVER_MS\x01{now_ms + 5_000}"
    assert world.timers.divert("T", 0, 0, text) is not None
    world.in_slot[slot_ms] = 20
    with pytest.raises(RequestError) as caught:
        world.timers.divert("T", 0, 0, text)
    assert (caught.value.code, caught.value.remark) == (
        1,
        "timer message is under flow control, max num limit is 20 or the current value is greater "
        "than 10 and less than 20, trigger random flow control",
    )


def test_a_send_names_its_handle(world: HotPathWorld) -> None:
    text = "UNIQ_KEY\x01KEY\x02TIMER_DELAY_SEC\x0190\x02"
    answer = world.client().call(send_request(properties=text))
    assert answer.code == 0
    [message] = world.records()
    assert (message.topic, message.queue_id) == (TIMER_TOPIC, 0)
    out_ms = int(message.find_property("TIMER_OUT_MS") or 0)
    handle = decode_handle(answer.ext_fields["recallHandle"])
    assert handle == RecallMessageHandle("T", "broker-g", str(out_ms + 1), "KEY")


def test_a_handle_of_java() -> None:
    """reference/timer.md, captured: `v1 TDelay jbroker 1795394308001 …`."""
    text = base64.urlsafe_b64encode(b"v1 TDelay jbroker 1795394308001 0102").decode()
    assert text.startswith("djEgVERlbGF5IGpicm9rZXIgMTc5NTM5NDMwODAwMSAwMTAy")
    assert decode_handle(text) == RecallMessageHandle("TDelay", "jbroker", "1795394308001", "0102")
    properties = b"TIMER_OUT_MS\x011795394308000\x02UNIQ_KEY\x010102"
    assert recall_handle_field("TDelay", "jbroker", properties) == {"recallHandle": text}
    assert recall_handle_field("%RETRY%G", "jbroker", properties) == {}


@pytest.mark.parametrize("text", ["", "=", "+/+/", "a b", "é", "djE=", "djIgVCBiIDEgeA=="])
def test_no_handles(text: str) -> None:
    with pytest.raises(ValueError, match=r"^recall handle is invalid$"):
        decode_handle(text)


@pytest.mark.parametrize("control", ["\x00", "\x01", "\x02", "\t", "\n", "\x1f", "\x7f"])
@pytest.mark.parametrize("part", range(4))
def test_a_handle_holds_no_control_characters(control: str, part: int) -> None:
    """Its parts become properties of a record: DELAY, REAL_TOPIC, whatever one likes."""
    parts = ["T", "broker-g", "1795394308001", "KEY"]
    parts[part] += f"{control}DELAY\x0118"
    with pytest.raises(ValueError, match=r"^recall handle is invalid$"):
        decode_handle(RecallMessageHandle(*parts).encode())
    stored = f"TIMER_OUT_MS\x011795394308000\x02UNIQ_KEY\x01K{control}".encode()
    if control not in "\x01\x02":
        assert recall_handle_field("T", "broker-g", stored) == {}


def test_batches_and_replies_have_no_time(world: HotPathWorld) -> None:
    with pytest.raises(RequestError) as caught:
        world.timers.refuse("TIMER_DELAY_MS\x015", "a batch")
    assert (caught.value.code, caught.value.remark) == (13, "a batch cannot hold delayed messages")


def test_a_transaction_begins_to_wait_when_it_is_committed(tmp_path: Path) -> None:
    world = TransactionWorld(tmp_path)
    world.hot.timers.use(SETTINGS)
    properties = "PGROUP\x01P\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02TIMER_DELAY_MS\x0160000"
    half = _stored_half(world, properties.encode())
    answer = world.end(half, TRANSACTION_COMMIT)
    assert answer is not None
    assert answer.code == 0, answer.remark
    [message] = [found for found in world.hot.records() if found.topic == TIMER_TOPIC]
    assert message.find_property("REAL_TOPIC") == "T"
    assert int(message.find_property("TIMER_OUT_MS") or 0) > world.hot.clock.now_ms() + 58_000


def test_a_record_of_the_brokers_own(world: HotPathWorld) -> None:
    record = own_record(
        3, b"0", b"TIMER_DELAY_MS\x0190000", now_ms=1, store_host=bytes(8), store_host_flag=0
    )
    topic, stored = world.timers.divert_record("rmq_sys_REVIVE_LOG_C", record)
    assert (topic, stored.queue_id) == (TIMER_TOPIC, 0)
    assert b"REAL_TOPIC\x01rmq_sys_REVIVE_LOG_C\x02REAL_QID\x013" in stored.properties
