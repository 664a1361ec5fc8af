"""What stands in for a range that nobody has: whole records of its exact size, in no queue."""

from __future__ import annotations

import pytest

from store.lost_range import LostRange
from store.message_codec import RecordKind, check_record, decode_record
from store.record_arrays import parse_records
from store.record_properties import PropertyExtractor

FILE_SIZE = 4 << 20


def lost(start: int, end: int) -> LostRange:
    return LostRange(start, end, FILE_SIZE, "SELF_TEST_TOPIC", 1_700_000_000_000)


@pytest.mark.parametrize(
    ("start", "end", "kinds"),
    [
        (1_000, 1_116, [RecordKind.MESSAGE]),
        (1_000, 1_318, [RecordKind.MESSAGE]),
        (7, 7 + (2 << 20) + 50, [RecordKind.MESSAGE, RecordKind.MESSAGE]),
        (FILE_SIZE - 8, FILE_SIZE, [RecordKind.BLANK]),
        (FILE_SIZE - 500, FILE_SIZE + 500, [RecordKind.BLANK, RecordKind.MESSAGE]),
    ],
)
def test_the_records_fill_the_range(start: int, end: int, kinds: list[RecordKind]) -> None:
    data = lost(start, end).records()
    assert data is not None
    assert len(data) == end - start
    found = []
    at = 0
    while at < len(data):
        left = min(len(data), at + FILE_SIZE - (start + at) % FILE_SIZE)
        check = check_record(data, at, left, start + at, check_crc=True)
        assert check.size, check
        found.append(check.kind)
        if check.kind is RecordKind.MESSAGE:
            message, _ = decode_record(data, at)
            assert (message.phy_offset, message.store_timestamp) == (start + at, 1_700_000_000_000)
        at += check.size
    assert found == kinds


def test_no_queue_refers_to_them() -> None:
    data = lost(1_000, 1_318).records()
    assert data is not None
    records = parse_records(memoryview(data), 1_000, PropertyExtractor({}))
    units = records.unit_records()
    assert records.count == 1
    assert units is not None
    assert not units.size
    assert not records.key_hashes.size


@pytest.mark.parametrize(("start", "end"), [(0, 50), (FILE_SIZE - 4, FILE_SIZE)])
def test_a_range_without_room_for_a_record_stays(start: int, end: int) -> None:
    assert lost(start, end).records() is None
