"""The records of transactions: what is kept, what is changed; ops of either line of RocketMQ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.append.send_properties import record_asks_to_wait
from broker.transaction.transaction_records import (
    check_body,
    check_header,
    commit_record,
    half_copy,
    halves_of_op,
    is_copy,
    number_in,
    op_record,
    with_number,
)
from store.message import Message
from store.message_codec import decode_record, encode_host
from store.message_properties import parse_properties

HALF = Message(
    topic="RMQ_SYS_TRANS_HALF_TOPIC",
    queue_id=0,
    flag=3,
    queue_offset=7,
    phy_offset=700,
    sys_flag=0x21,
    born_timestamp=11,
    store_timestamp=12,
    store_host=bytes(20),
    reconsume_times=2,
    body=b"body",
    properties=b"UNIQ_KEY\x01U\x02REAL_TOPIC\x01T",
)


def half_with(properties: bytes) -> Message:
    return Message(topic="H", queue_id=0, properties=properties)


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("-1", -1), ("+2", 2), ("x", -1), ("1.5", -1), ("9" * 19, -1), ("٣", -1)],
)
def test_numbers_in_properties(text: str, number: int) -> None:
    assert number_in(half_with(f"A\x011\x02N\x01{text}".encode()), "N") == number


def test_a_property_that_is_not_there() -> None:
    assert number_in(half_with(b"NN\x011\x02N\x01"), "N") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"N\x015"),
        (b"A\x01b", b"A\x01b\x02N\x015"),
        (b"N\x014\x02A\x01b", b"A\x01b\x02N\x015"),
        (b"N\x014\x02N\x013", b"N\x015"),
        (b"A\x01\xff\x02", b"A\x01\xff\x02N\x015"),
    ],
)
def test_setting_a_number_keeps_every_other_byte(before: bytes, after: bytes) -> None:
    assert with_number(half_with(before), "N", 5) == after


_names = st.sampled_from(["N", "NN", "A", "B", "Ä"])
_values = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]))


@given(st.lists(st.tuples(_names, _values), max_size=5), st.integers(0, 99))
def test_setting_a_number_changes_one_property(pairs: list[tuple[str, str]], value: int) -> None:
    text = "\x02".join(f"{name}\x01{content}" for name, content in pairs)
    changed = with_number(half_with(text.encode()), "N", value)
    assert parse_properties(changed.decode()) == {**parse_properties(text), "N": str(value)}


def test_a_commit_is_its_half_elsewhere() -> None:
    record = commit_record(HALF, 4, 0)
    assert (record.queue_id, record.sys_flag, record.prepared_transaction_offset) == (4, 9, 700)
    assert (record.flag, record.reconsume_times, record.born_timestamp) == (3, 2, 11)
    assert (record.body, record.properties) == (HALF.body, HALF.properties)


def test_a_copy_keeps_what_the_original_loses() -> None:
    record = half_copy(HALF, b"P", 0x20)
    assert (record.flag, record.reconsume_times) == (3, 2)
    assert (record.sys_flag, record.properties, record.queue_id) == (0x21, b"P", 0)
    assert record.prepared_transaction_offset == 0


@pytest.mark.parametrize(
    ("body", "halves"),
    [(b"7", [7]), (b"7,8,9,", [7, 8, 9]), (b"", []), (b"x", []), (b"-1,3", [3]), (b"\xff", [])],
)
def test_the_halves_of_an_op(body: bytes, halves: list[int]) -> None:
    op = Message(topic="O", queue_id=0, body=body, properties=b"WAIT\x01true\x02TAGS\x01d")
    assert halves_of_op(op) == halves


def test_another_tag_is_no_op() -> None:
    assert halves_of_op(Message(topic="O", queue_id=0, body=b"7", properties=b"TAGS\x01e")) == []


def test_our_own_op_names_its_half() -> None:
    record = op_record(12, 99, bytes(8), 0)
    made = Message(topic="O", queue_id=0, body=bytes(record.body), properties=record.properties)
    assert halves_of_op(made) == [12]


def test_what_a_producer_is_shown() -> None:
    header = check_header(HALF, 900, 8, encode_host("127.0.0.2", 20911))
    assert header.offset_msg_id == "7F000002000051AF0000000000000384"
    assert (header.msg_id, header.transaction_id) == ("U", "U")
    assert (header.commit_log_offset, header.tran_state_table_offset) == (900, 8)
    shown = decode_record(check_body(HALF, b"WAIT\x01true", ("T", 3), 900, 8), 0)[0]
    assert (shown.topic, shown.queue_id, shown.phy_offset, shown.queue_offset) == ("T", 3, 900, 8)
    assert (shown.properties, shown.store_timestamp, shown.flag) == (b"WAIT\x01false", 12, 3)


@pytest.mark.parametrize(
    ("properties", "waits"),
    [(b"", True), (b"WAIT\x01true", True), (b"WAIT\x01false", False), (b"AWAIT\x01false", True)],
)
def test_waiting_is_the_senders_wish(properties: bytes, waits: bool) -> None:
    assert record_asks_to_wait(half_with(properties).properties) is waits


def test_what_makes_a_copy() -> None:
    text = b"PGROUP\x01P\x02UNIQ_KEY\x01U\x02REAL_TOPIC\x01T\x02REAL_QID\x011"
    half = replace(HALF, properties=text)
    copy = replace(half, queue_offset=9, phy_offset=900, properties=text + b"\x02A\x01b")
    assert is_copy(copy, half)
    others: dict[str, Any] = {
        "born_timestamp": 12,
        "born_host": encode_host("10.0.0.1", 1),
        "properties": b"",
    }
    for name, other in others.items():
        assert not is_copy(replace(copy, **{name: other}), half), name
    for mine, other in (b"PGROUP", b"P"), (b"UNIQ_KEY", b"U"), (b"TOPIC", b"T"), (b"QID", b"1"):
        changed = text.replace(mine + b"\x01" + other, mine + b"\x01" + other * 2)
        assert changed != text
        assert not is_copy(replace(copy, properties=changed), half), mine
        assert not is_copy(copy, replace(half, properties=changed)), mine
