"""The records of a batch made together: as those made one by one, or not made at all."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store import batch_records
from store.batch_codec import BATCH_ITEM_HEAD, MOST_BATCH_MESSAGES, iterate_batch
from store.batch_records import BatchCommon, BatchPlace, encode_batch
from store.errors import MessageIllegalError
from store.message import Message
from store.message_codec import encode_host, encode_record
from store.message_properties import PROPERTIES_LIMIT

HOST4, HOST6 = encode_host("127.0.0.1", 10911), encode_host("fd00::1", 10911)
COMMON = BatchCommon(
    queue_id=3,
    sys_flag=1,
    born_timestamp=1_700_000_000_123,
    born_host=HOST4,
    reconsume_times=2,
    topic=b"\x05Topic",
    properties=b"WAIT\x01true\x02CLUSTER\x01C",
)
PLACE = BatchPlace(
    phy_offset=1 << 40,
    queue_offset=77,
    store_timestamp=1_700_000_000_456,
    store_host=HOST4,
    room=1 << 24,
)
MARKS = (b"DELAY\x01", b"TIMER_DE", b"INNER_")


def are_plain(_joined: bytes, texts: Sequence[bytes]) -> bool:
    return not any(mark in text for mark in MARKS for text in texts)


Item = tuple[int, bytes, bytes]
"""Flag, body, properties."""


def batch_of(items: list[Item]) -> bytearray:
    packed = bytearray()
    for flag, body, properties in items:
        size = BATCH_ITEM_HEAD.size + len(body) + 2 + len(properties)
        packed += BATCH_ITEM_HEAD.pack(size, 0, 0, flag, len(body)) + body
        packed += struct.pack(">h", len(properties)) + properties
    return packed


def one_by_one(
    body: bytearray, common: BatchCommon = COMMON, place: BatchPlace = PLACE
) -> tuple[bytes, list[int]] | None:
    """The records by encode_record, and where each begins; None: some message is not plain."""
    at, offsets, records = place.phy_offset, list[int](), b""
    try:
        items = list(iterate_batch(body))
    except MessageIllegalError:
        return None
    for number, item in enumerate(items):
        own = bytes(item.properties)
        separator = b"" if not own or own.endswith(b"\x02") else b"\x02"
        properties = own + separator + common.properties
        try:
            own.decode()
        except UnicodeDecodeError:
            return None
        if any(mark in own for mark in MARKS) or len(properties) > PROPERTIES_LIMIT:
            return None
        message = Message(
            topic=common.topic[1:].decode(),
            queue_id=common.queue_id,
            flag=item.flag,
            queue_offset=place.queue_offset + number,
            phy_offset=at,
            sys_flag=common.sys_flag,
            born_timestamp=common.born_timestamp,
            born_host=common.born_host,
            store_timestamp=place.store_timestamp,
            store_host=place.store_host,
            reconsume_times=common.reconsume_times,
            body=bytes(item.body),
            properties=properties,
        )
        offsets.append(at)
        record = encode_record(message)
        records += record
        at += len(record)
    return (records, offsets) if items else None


def check(body: bytearray, common: BatchCommon = COMMON, place: BatchPlace = PLACE) -> bool:
    """The same bytes and offsets, or neither of them; whether there are records."""
    before = bytes(body)
    made = encode_batch(memoryview(body), common, place, are_plain)
    expected = one_by_one(body, common, place)
    assert bytes(body) == before
    if expected is None:
        assert made is None
        return False
    assert made is not None
    assert (made[0], list(made[1])) == expected
    return True


_flags = st.sampled_from([0, 0, 0, 1, -1, 2**31 - 1, -(2**31)])
_pairs = st.sampled_from(
    [
        *(b"KEYS\x01k", b"UNIQ_KEY\x01ABCDEF", b"TAGS\x01\xc3\xa9", b"CLUSTER\x01other", b""),
        *(
            b"\xff",
            b"DELAY\x013",
            b"XDELAY",
            b"TIMER_DELAY_MS\x015",
            b"INNER_NUM\x012",
            b"K\x01\x02",
        ),
    ]
)
_plain_pairs = st.sampled_from([b"KEYS\x01k", b"UNIQ_KEY\x01ABCDEF", b"TAGS\x01\xc3\xa9", b""])
_texts = st.one_of(
    st.lists(_plain_pairs, max_size=3).map(b"\x02".join),
    st.lists(_pairs, max_size=4).map(b"\x02".join),
)
_items: st.SearchStrategy[list[Item]] = st.lists(
    st.tuples(_flags, st.binary(max_size=20), _texts), max_size=9
)


@st.composite
def _equal_items(draw: st.DrawFn) -> list[Item]:
    """Of equal sizes; mostly, of equal flags and with or without a separator at the end, too."""
    count = draw(st.integers(1, 12))
    body_size, fill = draw(st.integers(0, 9)), draw(st.sampled_from([b"x", b"y\x02", b"\xc3\xa9"]))
    end = draw(st.sampled_from([b"", b"\x02", b"z"]))
    items = []
    for number in range(count):
        body = bytes([number]) * body_size
        items.append((0, body, b"N\x01" + b"%02d" % number + fill + end))
    if draw(st.booleans()):
        at = draw(st.integers(0, count - 1))
        flag, body, text = items[at]
        changed = [(5, body, text), (flag, body, text[:-1] + b"\x02"), (flag, body, b"")]
        items[at] = draw(st.sampled_from(changed))
    return items


@given(items=st.one_of(_items, _equal_items()))
@example(items=[])
@example(items=[(0, b"", b"")] * 5)
@example(items=[(0, b"x", b"A\x01\xc3"), (0, b"x", b"\xa9\x01bc")] * 2)
@example(items=[(0, b"x", b"A\x01\xc3\xa9")] * 4)
def test_as_one_by_one(items: list[Item]) -> None:
    check(batch_of(items))


@given(
    items=st.one_of(_items, _equal_items()),
    at=st.integers(0, 400),
    value=st.integers(0, 255),
    cut=st.integers(0, 5),
)
def test_damaged_batches(items: list[Item], at: int, value: int, cut: int) -> None:
    body = batch_of(items)
    if body:
        body[at % len(body)] = value
    check(body[: len(body) - cut])


@pytest.mark.parametrize("count", [1, 3, 4, 16, 63, 64, 65, 200])
@pytest.mark.parametrize("same", [True, False])
def test_batches_of_every_length(count: int, same: bool) -> None:
    items = [(0, b"%04d" % n, b"K\x01%04d" % n) for n in range(count)]
    if not same:
        items[-1] = (0, b"longer", b"")
    assert check(batch_of(items))


@pytest.mark.parametrize("place", [0, 1, 63, 64, 69])
def test_one_odd_message_among_equal_ones(place: int) -> None:
    """Beyond the messages of one struct, too."""
    text = b"K\x01vvvvv"
    for odd in (b"DELAY\x013", b"INNER_N", b"K\x01\xc3vvvv"):
        items = [(0, b"x", text)] * 70
        assert len(odd) == len(text)
        items[place] = (0, b"x", odd)
        assert not check(batch_of(items))
    items[place] = (0, b"x", text[:-1] + b"\x02")
    assert check(batch_of(items)), "its end is another one, and it is made in the loop"


@pytest.mark.parametrize("number", [1, 5])
def test_hosts_of_both_kinds(number: int) -> None:
    for flag, born, store in ((0x10, HOST6, HOST4), (0x20, HOST4, HOST6), (0x30, HOST6, HOST6)):
        common = msgspec.structs.replace(COMMON, sys_flag=flag, born_host=born)
        place = msgspec.structs.replace(PLACE, store_host=store)
        assert check(batch_of([(1, b"body", b"A\x01b")] * number), common, place)


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("more", [0, 1])
def test_the_longest_properties(number: int, more: int) -> None:
    text = b"K\x01".ljust(PROPERTIES_LIMIT - len(COMMON.properties) - 1 + more, b"v")
    assert check(batch_of([(0, b"x", text)] * number)) is (not more)


@pytest.mark.parametrize(
    "changes", [{"sys_flag": 1 << 31}, {"born_timestamp": 1 << 63}, {"reconsume_times": -(1 << 40)}]
)
@pytest.mark.parametrize("number", [1, 4])
def test_numbers_that_do_not_fit(number: int, changes: dict[str, int]) -> None:
    body = memoryview(batch_of([(0, b"x", b"")] * number))
    common = msgspec.structs.replace(COMMON, **changes)
    assert encode_batch(body, common, PLACE, are_plain) is None


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("own", [b"", b"K\x01v\x02"])
def test_room_is_used_to_its_last_byte(own: bytes, more: int) -> None:
    """By those of one size and of several: what takes all of it is made, not a byte more."""
    for last in (b"body", b"body" + b"y" * 3):
        body = batch_of([*((0, b"body", own) for _ in range(9)), (0, last, own)])
        expected = one_by_one(body)
        assert expected is not None
        place = msgspec.structs.replace(PLACE, room=len(expected[0]) - more)
        made = encode_batch(memoryview(body), COMMON, place, are_plain)
        assert (made is None) == bool(more)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("same", [True, False])
def test_as_many_messages_as_there_may_be(more: int, *, same: bool) -> None:
    text = b"longer than the shortest"
    items = [(0, text, b"")] * (MOST_BATCH_MESSAGES - 1 + more)
    items.append((0, text if same else b"", b""))
    body = batch_of(items)
    place = msgspec.structs.replace(PLACE, room=1 << 30)
    made = encode_batch(memoryview(body), COMMON, place, are_plain)
    assert (made is None) == bool(more)


def test_what_cannot_have_room_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head, the topic and the common properties of each record count, too."""
    begun: list[int] = []
    monkeypatch.setattr(batch_records, "_encode_rows", lambda *_: begun.append(1))
    monkeypatch.setattr(batch_records, "_encode_each", lambda *_: begun.append(2))
    body = batch_of([(0, b"body", b"")] * 10)
    expected = one_by_one(body)
    assert expected is not None
    for room in (len(expected[0]) - 1, len(expected[0])):
        place = msgspec.structs.replace(PLACE, room=room)
        encode_batch(memoryview(body), COMMON, place, are_plain)
        assert begun == ([] if room < len(expected[0]) else [1, 2])
