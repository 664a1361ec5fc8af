"""The walk over many records at once against check_record, one record after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.message import Message
from store.message_codec import RecordKind, check_record, encode_blank, read_store_timestamp
from store.record_walk import WALK_STEP, single_record, walk_good_records
from tests.support.memory_commit_log import MemoryCommitLog, message

Walked = tuple[list[tuple[int, int]], int, str]
"""(position, store timestamp) of the good records, where they end, and why."""

MESSAGES = st.builds(
    message,
    st.sampled_from(["T", "Topic", "TopicOfTheSameLength", "日本"]),
    sys_flag=st.sampled_from([0, 0, 0, 0x8, 0x10, 0x20, 0x30]),
    body=st.sampled_from([b"", b"x", b"body" * 9, bytes(200)]),
    store_timestamp=st.integers(1, 1 << 41),
    properties=st.sampled_from([b"", b"KEYS\x01k", b"UNIQ_KEY\x01" + b"7" * 32]),
)
LOGS = st.lists(
    st.tuples(MESSAGES, st.booleans(), st.sampled_from([1, 2, 7])), min_size=1, max_size=12
)


def written(parts: list[tuple[Message, bool, int]], start: int, ends_with_blank: bool) -> bytearray:
    """A file of these records, whole and with zeros or a blank behind."""
    log = MemoryCommitLog(start=start)
    for record, v2, times in parts:
        for _ in range(times):
            log.append(record, v2=v2)
    left = 500
    return log.data + (encode_blank(left) if ends_with_blank else b"").ljust(left, b"\0")


def one_by_one(data: bytearray, start: int, *, check_crc: bool) -> Walked:
    records: list[tuple[int, int]] = []
    view, position = memoryview(data), 0
    while True:
        found = check_record(view, position, len(view), start + position, check_crc=check_crc)
        if found.kind is not RecordKind.MESSAGE:
            return records, position, found.reason
        records.append((position, read_store_timestamp(view, position)))
        position += found.size


def many_at_once(data: bytearray, start: int, *, check_crc: bool, step: int = WALK_STEP) -> Walked:
    """As recovery does it."""
    records: list[tuple[int, int]] = []
    view, position = memoryview(data), 0
    while True:
        good = walk_good_records(view, position, start, check_crc=check_crc, step=step)
        if not good.count:
            found = check_record(view, position, len(view), start + position, check_crc=check_crc)
            if found.kind is not RecordKind.MESSAGE:
                return records, position, found.reason
            good = single_record(view, position, found.size)
        records += zip(good.positions.tolist(), good.timestamps.tolist(), strict=True)
        position = good.end


@given(parts=LOGS, blank=st.booleans(), step=st.sampled_from([91, 300, 1_000, 1 << 20]))
def test_good_records(parts: list[tuple[Message, bool, int]], blank: bool, step: int) -> None:
    data = written(parts, 1 << 30, blank)
    count = sum(times for _, _, times in parts)
    found = many_at_once(data, 1 << 30, check_crc=True, step=step)
    assert found == one_by_one(data, 1 << 30, check_crc=True)
    assert len(found[0]) == count


@given(
    parts=LOGS,
    changes=st.lists(
        st.tuples(
            st.integers(0, 1 << 30),
            st.sampled_from([b"\0", b"\xff", b"\x01", b"\x80", b"\0\0\0\0", b"\xff\xff\xff\xff"]),
        ),
        min_size=1,
        max_size=3,
    ),
    check_crc=st.booleans(),
    step=st.sampled_from([500, 1 << 20]),
)
def test_whatever_is_wrong_ends_it_at_the_same_place(
    parts: list[tuple[Message, bool, int]],
    changes: list[tuple[int, bytes]],
    check_crc: bool,
    step: int,
) -> None:
    data = written(parts, 0, ends_with_blank=False)
    for place, new in changes:
        at = place % (len(data) - 500)
        data[at : at + len(new)] = new
    found = many_at_once(data, 0, check_crc=check_crc, step=step)
    assert found == one_by_one(data, 0, check_crc=check_crc)


@pytest.mark.parametrize("v2", [False, True])
def test_every_byte_of_a_record(v2: bool) -> None:
    """The second of three, each of its bytes made zero, 255, and one bit another."""
    log = MemoryCommitLog()
    places = [log.append(message("Topic", properties=b"KEYS\x01k"), v2=v2) for _ in range(3)]
    for at in range(places[1], places[2]):
        for new in (0, 255, log.data[at] ^ 1):
            data = bytearray(log.data + bytes(100))
            data[at] = new
            assert many_at_once(data, 0, check_crc=True) == one_by_one(data, 0, check_crc=True)


def test_the_smallest_record_at_the_end_of_what_is_looked_at() -> None:
    """Without body, topic and properties; nothing lies behind it in its step."""
    log = MemoryCommitLog()
    sizes = [log.append(message("", body=b"", properties=b"")) for _ in range(40)]
    data = bytearray(log.data)
    good = walk_good_records(memoryview(data), 0, 0, check_crc=True)
    assert good.positions.tolist() == sizes
    assert good.end == len(data)


def test_a_record_longer_than_a_step_is_left_to_check_record() -> None:
    log = MemoryCommitLog(file_size=16 << 20)
    log.append(message(body=bytes(100)))
    log.append(message(body=bytes(5 << 20)))
    log.append(message(body=bytes(100)))
    found = many_at_once(log.data + bytes(500), 0, check_crc=True)
    assert len(found[0]) == 3
    assert found == one_by_one(log.data + bytes(500), 0, check_crc=True)
