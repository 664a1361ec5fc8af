from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.batch_codec import iterate_batch
from store.errors import MessageIllegalError, RecordDamagedError, StoreError
from store.message import Message
from store.message_codec import (
    BODY_CRC_AT,
    MAGIC_BLANK,
    MAGIC_V2,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    RecordKind,
    check_record,
    decode_host,
    decode_message_id,
    decode_record,
    encode_blank,
    encode_host,
    encode_message_id,
    encode_record,
    fixed_size,
    is_blank_at,
    read_checked,
    read_properties,
    read_store_timestamp,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "store-G"


def golden_messages(name: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads((GOLDEN / name).read_text())
    return [record for record in records if record["kind"] == "message"]


@pytest.mark.parametrize(
    ("name", "count"), [("records-master.json", 55), ("records-slave2.json", 31)]
)
def test_golden_records_decode_and_encode_back(name: str, count: int) -> None:
    records = golden_messages(name)
    assert len(records) == count
    for record in records:
        raw = bytes.fromhex(record["rawHex"])
        message, size = decode_record(raw, 0)
        assert size == len(raw) == record["size"]
        assert_equal(message, record)
        assert encode_record(message) == raw


def assert_equal(message: Message, record: dict[str, Any]) -> None:
    assert message.topic == record["topic"]
    assert message.queue_id == record["queueId"]
    assert message.flag == record["flag"]
    assert message.queue_offset == record["queueOffset"]
    assert message.phy_offset == record["physicalOffset"]
    assert message.sys_flag == record["sysFlag"]
    assert message.born_timestamp == record["bornTimestamp"]
    assert "/{}:{}".format(*decode_host(message.born_host)) == record["bornHost"]
    assert message.store_timestamp == record["storeTimestamp"]
    assert "/{}:{}".format(*decode_host(message.store_host)) == record["storeHost"]
    assert message.reconsume_times == record["reconsumeTimes"]
    assert message.prepared_transaction_offset == record["preparedTransactionOffset"]
    assert message.body.hex() == record["bodyHexStored"]
    assert message.property_map() == record["properties"]
    for name, value in record["properties"].items():
        assert message.find_property(name) == value
    assert encode_message_id(message.store_host, message.phy_offset) == record["offsetMsgId"]


def test_golden_files_are_walked_whole() -> None:
    for path in sorted((GOLDEN / "master" / "commitlog").iterdir()):
        data = memoryview(path.read_bytes())
        found = [r for r in golden_messages("records-master.json") if r["file"] == path.name]
        position = 0
        for record in found:
            check = check_record(
                data, position, len(data), int(path.name) + position, check_crc=True
            )
            assert check.kind is RecordKind.MESSAGE
            assert position == record["posInFile"]
            position += check.size
        last = check_record(data, position, len(data), int(path.name) + position, check_crc=True)
        assert last.kind is (RecordKind.BLANK if found[0]["phyOffset"] == 0 else RecordKind.NOTHING)


# -- any record --------------------------------------------------------------------------------

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TOPICS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    sys_flag = draw(st.integers(0, 0xFFFF))
    born = 20 if sys_flag & 0x10 else 8
    store = 20 if sys_flag & 0x20 else 8
    return Message(
        topic=draw(TOPICS),
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(INT64),
        phy_offset=draw(INT64),
        sys_flag=sys_flag,
        born_timestamp=draw(INT64),
        born_host=draw(st.binary(min_size=born, max_size=born)),
        store_timestamp=draw(INT64),
        store_host=draw(st.binary(min_size=store, max_size=store)),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
        body=draw(st.binary(max_size=200)),
        properties=draw(st.binary(max_size=200)),
    )


def assert_read_the_same(data: bytes, position: int, phy_offset: int) -> None:
    """`read_checked` finds what `check_record` accepts, and `decode_record` reads."""
    found = check_record(data, position, len(data), phy_offset, check_crc=True)
    for view in (data, memoryview(data)):
        read = read_checked(view, position, len(data), phy_offset)
        if found.kind is not RecordKind.MESSAGE:
            assert read is None
            continue
        assert read is not None
        message, _ = decode_record(data, position)
        assert (read.size, read.body_size) == (found.size, len(message.body))
        assert (str(read.topic, "utf-8", "replace"), read.body) == (message.topic, message.body)
        for field in dataclasses.fields(Message):
            if field.name != "topic":
                assert getattr(read, field.name) == getattr(message, field.name), field.name


@given(messages(), st.binary(max_size=20), st.binary(max_size=20))
def test_any_record_survives_with_bytes_around_it(
    message: Message, before: bytes, behind: bytes
) -> None:
    raw = encode_record(message)
    data = before + raw + behind
    assert decode_record(data, len(before)) == (message, len(raw))
    assert decode_record(memoryview(data), len(before)) == (message, len(raw))
    found = check_record(data, len(before), len(data), message.phy_offset, check_crc=True)
    assert (found.kind, found.size) == (RecordKind.MESSAGE, len(raw))
    assert_read_the_same(data, len(before), message.phy_offset)
    assert_read_the_same(data, len(before), message.phy_offset ^ 1)
    assert read_store_timestamp(data, len(before)) == message.store_timestamp
    assert read_properties(memoryview(data), len(before)) == message.properties
    assert len(raw) == (
        fixed_size(message.sys_flag)
        + len(message.body)
        + 1
        + len(message.topic.encode())
        + len(message.properties)
    )


@given(messages())
def test_v2_differs_in_the_topic_size_only(message: Message) -> None:
    raw = encode_record(message)
    at = fixed_size(message.sys_flag) - 2 + len(message.body)
    v2 = struct.pack(">iI", len(raw) + 1, MAGIC_V2) + raw[8:at] + b"\0" + raw[at:]
    assert decode_record(v2, 0) == (message, len(v2))
    assert read_properties(v2, 0) == message.properties
    assert check_record(v2, 0, len(v2), message.phy_offset, check_crc=True).size == len(v2)
    assert_read_the_same(v2, 0, message.phy_offset)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(100), "no message at position 0 of the buffer: zero bytes"),
        (encode_blank(100) + bytes(92), "no message at position 0 of the buffer: blank"),
        (b"", "no message at position 0 of the buffer: only 0 bytes left"),
    ],
)
def test_properties_are_read_of_messages_only(data: bytes, reason: str) -> None:
    with pytest.raises(RecordDamagedError) as refused:
        read_properties(data, 0)
    assert str(refused.value) == reason


@given(st.binary(max_size=300), st.integers(0, 300))
def test_garbage_is_judged_not_crashed_on(data: bytes, position: int) -> None:
    found = check_record(data, position, len(data), position, check_crc=True)
    assert found.kind is not RecordKind.MESSAGE
    assert_read_the_same(data, position, position)


@given(messages(), st.data())
def test_a_changed_byte_of_a_checked_field_is_noticed(
    message: Message, data: st.DataObject
) -> None:
    raw = bytearray(encode_record(message))
    at = data.draw(st.integers(0, len(raw) - 1))
    change = data.draw(st.integers(1, 255))
    raw[at] ^= change
    assert_read_the_same(bytes(raw), 0, message.phy_offset)
    found = check_record(bytes(raw), 0, len(raw), message.phy_offset, check_crc=True)
    body_at = fixed_size(message.sys_flag) - 2
    covered = (
        at < BODY_CRC_AT
        or 28 <= at < SYS_FLAG_AT
        or body_at - 4 <= at < body_at + len(message.body)
        or (BODY_CRC_AT <= at < QUEUE_ID_AT and message.body)
    )
    if covered:
        assert found.kind is not RecordKind.MESSAGE


def test_record_layout_byte_by_byte() -> None:
    message = Message(
        topic="To",
        queue_id=2,
        flag=3,
        queue_offset=4,
        phy_offset=5,
        sys_flag=0x10,
        born_timestamp=6,
        born_host=bytes(range(20)),
        store_timestamp=7,
        store_host=bytes(range(8)),
        reconsume_times=8,
        prepared_transaction_offset=9,
        body=b"body",
        properties=b"a\x01b",
    )
    assert encode_record(message).hex(" ") == (
        "00 00 00 70 da a3 20 a7 5b a8 0b b2 00 00 00 02 00 00 00 03 "
        "00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 05 00 00 00 10 "
        "00 00 00 00 00 00 00 06 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 11 12 13 "
        "00 00 00 00 00 00 00 07 00 01 02 03 04 05 06 07 00 00 00 08 "
        "00 00 00 00 00 00 00 09 00 00 00 04 62 6f 64 79 02 54 6f 00 03 61 01 62"
    )


def test_torn_records_are_never_messages() -> None:
    """The last two golden records, cut at every byte, zeros behind."""
    for record in golden_messages("records-master.json")[-2:]:
        raw = bytes.fromhex(record["rawHex"])
        for cut in range(len(raw)):
            torn = raw[:cut] + bytes(len(raw) - cut + 64)
            found = check_record(torn, 0, len(torn), record["phyOffset"], check_crc=True)
            assert_read_the_same(torn, 0, record["phyOffset"])
            whole = torn[: len(raw)] == raw
            assert (found.kind is RecordKind.MESSAGE) <= (whole or _only_text_lost(raw, cut))
            if cut == 0:
                assert found.kind is RecordKind.NOTHING


def _only_text_lost(raw: bytes, cut: int) -> bool:
    """Properties have no check sum: recovery looks at the zeros in them (test_recovery)."""
    return cut >= len(raw) - len(decode_record(raw, 0)[0].properties)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda raw: raw[:4] + struct.pack(">I", 0x12345678) + raw[8:], "magic"),
        (lambda raw: struct.pack(">i", 50) + raw[4:], "totalSize"),
        (lambda raw: struct.pack(">i", len(raw) + 65) + raw[4:], "totalSize"),
        (lambda raw: struct.pack(">i", len(raw) + 1) + raw[4:], "sum of its parts"),
        (lambda raw: raw[:84] + struct.pack(">i", -1) + raw[88:], "body size"),
        (lambda raw: raw[:84] + struct.pack(">i", 1 << 30) + raw[88:], "body size"),
        (lambda raw: raw[:28] + struct.pack(">q", 7) + raw[36:], "physicalOffset"),
        (lambda raw: raw[:8] + struct.pack(">i", 7) + raw[12:], "bodyCRC"),
        (lambda raw: raw[:88] + b"x" + raw[89:], "bodyCRC"),
        (lambda raw: raw[:92] + b"\x80" + raw[93:], "topic size"),
        (lambda raw: raw[:92] + b"\x7f" + raw[93:], "topic size"),
    ],
)
def test_why_a_record_is_not_accepted(change: Any, reason: str) -> None:
    raw = encode_record(Message(topic="T", queue_id=0, phy_offset=1000, body=b"body"))
    data = change(raw) + bytes(64)
    found = check_record(data, 0, len(data), 1000, check_crc=True)
    assert_read_the_same(data, 0, 1000)
    assert found.kind is RecordKind.INVALID
    assert reason in found.reason


def test_crc_is_checked_on_demand_only() -> None:
    raw = encode_record(Message(topic="T", queue_id=0, body=b"body"))
    changed = raw[:88] + b"x" + raw[89:]
    assert check_record(changed, 0, len(changed), 0, check_crc=False).kind is RecordKind.MESSAGE


def test_blank_reaches_exactly_to_the_file_end() -> None:
    data = bytes(10) + encode_blank(30) + b"anything else" + bytes(9)
    assert is_blank_at(data, 10)
    assert not is_blank_at(data, 0)
    assert not is_blank_at(data, len(data) - 4)
    assert check_record(data, 10, 40, 10, check_crc=True).kind is RecordKind.BLANK
    assert check_record(data, 10, 39, 10, check_crc=True).kind is RecordKind.INVALID
    assert encode_blank(30) == struct.pack(">iI", 30, MAGIC_BLANK)
    with pytest.raises(RecordDamagedError, match="blank"):
        decode_record(data[:40], 10)


@pytest.mark.parametrize("left", range(8))
def test_less_than_a_blank_left_is_invalid(left: int) -> None:
    assert check_record(bytes(8), 8 - left, 8, 0, check_crc=True).kind is RecordKind.INVALID


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="t" * 256, queue_id=0),
        Message(topic="T", queue_id=0, properties=bytes(32768)),
        Message(topic="T", queue_id=0, born_host=bytes(20)),
        Message(topic="T", queue_id=0, sys_flag=0x20),
    ],
)
def test_what_does_not_fit_is_not_encoded(message: Message) -> None:
    with pytest.raises(MessageIllegalError):
        encode_record(message)


def test_queue_offset_place() -> None:
    raw = encode_record(Message(topic="T", queue_id=0, queue_offset=77))
    assert struct.unpack_from(">q", raw, QUEUE_OFFSET_AT) == (77,)
    assert dataclasses.is_dataclass(decode_record(raw, 0)[0])


# -- batches -----------------------------------------------------------------------------------


def item(flag: int, body: bytes, properties: bytes, *, total: int = 0) -> bytes:
    size = total or 22 + len(body) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


@given(st.lists(st.tuples(INT32, st.binary(max_size=50), st.binary(max_size=50)), max_size=5))
def test_batch_items_come_back(items: list[tuple[int, bytes, bytes]]) -> None:
    body = b"".join(item(*parts) for parts in items)
    found = [(one.flag, bytes(one.body), bytes(one.properties)) for one in iterate_batch(body)]
    assert found == items


@pytest.mark.fault(40)
@pytest.mark.parametrize(
    "body",
    [
        item(0, b"abc", b"")[:-1],
        item(0, b"abc", b"") + b"\0",
        item(0, b"abc", b"", total=24),
        item(0, b"abc", b"", total=1 << 30),
        struct.pack(">iiiii", 25, 0, 0, 0, -1) + b"abc\0\0",
        struct.pack(">iiiii", 25, 0, 0, 0, 1 << 30) + b"abc\0\0",
        struct.pack(">iiiii", 25, 0, 0, 0, 3) + b"abc\xff\xff",
        struct.pack(">iiiii", 25, 0, 0, 0, 3) + b"abc\x7f\xff",
    ],
)
def test_a_batch_that_lies_about_sizes_is_illegal(body: bytes) -> None:
    with pytest.raises(MessageIllegalError, match="batch"):
        list(iterate_batch(body))


@given(st.binary(max_size=100))
def test_any_batch_body_is_parsed_or_refused(body: bytes) -> None:
    try:
        items = list(iterate_batch(body))
    except MessageIllegalError:
        return
    assert sum(22 + len(one.body) + len(one.properties) for one in items) == len(body)


# -- hosts and ids -----------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "255.1.2.3", "fd00::2:19cd", "::1"])
def test_hosts_and_message_ids(address: str) -> None:
    host = encode_host(address, 10911)
    assert decode_host(host) == (address, 10911)
    text = encode_message_id(host, 1 << 40)
    assert len(text) in (32, 56)
    assert text == text.upper()
    assert decode_message_id(text) == (host, 1 << 40)
    assert decode_message_id(text.lower()) == (host, 1 << 40)


@pytest.mark.parametrize("text", ["", "00", "zz" * 16, "0" * 33, "0 " * 16, "é" * 32])
def test_bad_message_ids(text: str) -> None:
    with pytest.raises(StoreError, match="message id"):
        decode_message_id(text)


def test_hosts_of_other_sizes() -> None:
    with pytest.raises(StoreError):
        decode_host(bytes(9))
