from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.record_doubts import RecordDoubts
from ha.record_expectations import (
    QueueEnd,
    RecordColumns,
    RecordExpectations,
    RecordFields,
)
from ha.record_validator import RecordValidator
from ipc.clock import SystemClock
from store.message_codec import (
    BODY_CRC_AT,
    PHY_OFFSET_AT,
    encode_blank,
    encode_record,
    fixed_size,
    record_head,
)
from tests.support.memory_commit_log import as_v2, message
from tests.support.plain_log import FILE_SIZE, PlainLog

START = 7 * FILE_SIZE


class EverythingExpected(RecordExpectations):
    """So that only the records' form is judged."""

    def __init__(self) -> None:
        super().__init__(lambda *_: QueueEnd(0, 0), SystemClock())

    def judge(self, record: RecordFields, muted: object) -> None:
        return None

    def admit_usual(self, topic: bytes, head: object) -> bool:
        return False

    def admit_many(self, records: RecordColumns, muted: object) -> tuple[int, None]:
        return len(records.heads), None


def new_validator(file_size: int, position: int) -> RecordValidator:
    return RecordValidator(
        file_size, position, EverythingExpected(), RecordDoubts(SystemClock()), check_crc=True
    )


def reason_of(validator: RecordValidator, file: bytes | bytearray, received: int) -> str | None:
    bad = validator.check(memoryview(file), received)
    return None if bad is None else bad.text


def fill(directory: Path, count: int, start: int = START) -> tuple[bytearray, list[int]]:
    """One file with `count` records; its bytes, and where each record ends."""
    log = PlainLog(directory, start=start)
    for number in range(count):
        log.append(b"x" * (7 * number % 100))
    ends = [offset + len(raw) for offset, raw in log.records]
    assert ends[-1] < start + FILE_SIZE
    return bytearray(log.path(start).read_bytes()), ends


def test_all_records_that_are_whole_are_good(tmp_path: Path) -> None:
    file, ends = fill(tmp_path, 10)
    validator = new_validator(FILE_SIZE, START)
    assert validator.check(memoryview(file), ends[-1]) is None
    assert validator.position == ends[-1]


@given(cuts=st.lists(st.integers(1, 400), min_size=1, max_size=60))
def test_pieces_that_end_anywhere_say_the_same(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    file, ends = fill(tmp_path_factory.mktemp("log"), 10)
    validator = new_validator(FILE_SIZE, START)
    received = START
    while received < ends[-1]:
        received = min(received + cuts[received % len(cuts)], ends[-1])
        # Nothing behind what was received may be looked at.
        seen = bytearray(b"\xee" * FILE_SIZE)
        seen[: received - START] = file[: received - START]
        assert validator.check(memoryview(seen), received) is None
        assert validator.position == max((end for end in ends if end <= received), default=START)


def test_byte_by_byte_over_a_blank_into_the_next_file(tmp_path: Path) -> None:
    log = PlainLog(tmp_path, start=START)
    while log.end < START + FILE_SIZE + 500:
        log.append(b"body" * 40)
    ends = [offset + len(raw) for offset, raw in log.records]
    blank_end = START + FILE_SIZE
    validator = new_validator(FILE_SIZE, START)
    for received in range(START + 1, log.end + 1):
        file = memoryview(log.path(received - 1).read_bytes())
        assert validator.check(file, received) is None
        good = [end for end in [*ends, blank_end] if end <= received]
        assert validator.position == max(good, default=START)


def test_v2_records_are_good() -> None:
    record = as_v2(encode_record(message(phy_offset=START)))
    validator = new_validator(FILE_SIZE, START)
    file = memoryview(record.ljust(FILE_SIZE, b"\0"))
    assert validator.check(file, START + len(record)) is None
    assert validator.position == START + len(record)


def damage(file: bytearray, at: int, kind: str) -> None:
    if kind == "magic":
        file[at + 4] ^= 1
    elif kind == "place":
        struct.pack_into(">q", file, at + PHY_OFFSET_AT, START + at - FILE_SIZE)
    elif kind == "crc":
        file[at + BODY_CRC_AT] ^= 1
    elif kind == "body":
        file[at + record_head(0).size] ^= 1
    elif kind == "size":
        struct.pack_into(">i", file, at, 2**31 - 1)
    elif kind == "small":
        struct.pack_into(">i", file, at, fixed_size(0))
    elif kind == "zeros":
        file[at:] = bytes(len(file) - at)
    elif kind == "blank":
        file[at : at + 8] = encode_blank(100)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("magic", "magic"),
        ("place", "physicalOffset"),
        ("crc", "bodyCRC"),
        ("body", "bodyCRC"),
        ("size", "totalSize"),
        ("small", "totalSize"),
        ("zeros", "zero bytes"),
        ("blank", "blank of 100 bytes"),
    ],
)
def test_what_is_no_record_is_named_and_stops_there(tmp_path: Path, kind: str, reason: str) -> None:
    file, ends = fill(tmp_path, 10)
    damage(file, ends[4] - START, kind)
    validator = new_validator(FILE_SIZE, START)
    assert reason in (reason_of(validator, file, ends[-1]) or "")
    assert validator.position == ends[4]


@pytest.mark.parametrize("kind", ["magic", "place", "size", "small", "zeros", "blank"])
def test_a_bad_head_is_seen_before_the_body_is_there(tmp_path: Path, kind: str) -> None:
    file, ends = fill(tmp_path, 10)
    damage(file, ends[4] - START, kind)
    validator = new_validator(FILE_SIZE, START)
    assert validator.check(memoryview(file), ends[4] + 40) is not None


def test_a_record_that_waits_is_not_judged_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, ends = fill(tmp_path, 2)
    looks: list[int] = []
    monkeypatch.setattr("ha.record_validator._needed", _counting(looks))
    validator = new_validator(FILE_SIZE, START)
    for received in range(START + 60, ends[0]):
        assert validator.check(memoryview(file), received) is None
    assert len(looks) <= 5  # head, place, body, topic, properties


def _counting(looks: list[int]) -> object:
    from ha.record_validator import _needed

    def counting(file: memoryview, at: int, *rest: int) -> tuple[int, str | None]:
        looks.append(at)
        return _needed(file, at, *rest)

    return counting


# -- many records at once ----------------------------------------------------------------------

BIG = 1 << 16
KINDS = ("v1", "v2", "v6", "no body", "no topic", "long topic", "zero in the topic")


def encode(kind: str, phy_offset: int, body: bytes) -> bytes:
    """A record; those with "zero in" are none."""
    topic = {"no topic": "", "long topic": "t" * 127, "zero in the topic": "a\0b"}.get(kind, "T")
    plain = message(
        topic=topic,
        phy_offset=phy_offset,
        body=b"" if kind == "no body" else body,
        sys_flag=0x10 if kind == "v6" else 0,
        properties=b"KEYS\x01k",
    )
    record = encode_record(plain)
    return as_v2(record) if kind == "v2" else record


def judge(file: bytearray, received: int, *, many: bool) -> tuple[str | None, int]:
    """What the validator says of a file, in columns or one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ha.record_validator._MANY", 1 if many else BIG)
        validator = new_validator(BIG, 7 * BIG)
        return reason_of(validator, file, 7 * BIG + received), validator.position


@given(
    kinds=st.lists(st.sampled_from(KINDS[:-1]), min_size=1, max_size=40),
    odd=st.sampled_from([None, *KINDS]),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=8),
    damage_at=st.floats(0, 1),
    xor=st.sampled_from([0, 0, 1, 0x80, 0xFF]),
    cut=st.floats(0.5, 1),
    blank=st.booleans(),
)
def test_columns_say_what_check_record_says(
    kinds: list[str],
    odd: str | None,
    sizes: list[int],
    damage_at: float,
    xor: int,
    cut: float,
    blank: bool,
) -> None:
    data = bytearray()
    if odd is not None:
        kinds = [*kinds[: len(kinds) // 2], odd, *kinds[len(kinds) // 2 :]]
    for number, kind in enumerate(kinds):
        body = bytes([number % 251]) * sizes[number % len(sizes)]
        data += encode(kind, 7 * BIG + len(data), body)
    end = len(data)
    if blank:
        data += encode_blank(BIG - len(data))
        end = BIG
    file = bytearray(bytes(data).ljust(BIG, b"\0"))
    file[int(damage_at * (len(data) - 1))] ^= xor
    received = max(int(end * cut), 1)
    assert judge(file, received, many=True) == judge(file, received, many=False)


@pytest.mark.parametrize("kind", ["v1", "no body", "long topic"])
def test_columns_know_the_usual_record(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise they would be slow, and right."""
    file = bytearray()
    for number in range(100):
        file += encode(kind, 7 * BIG + len(file), bytes([number]) * number)
    end = 7 * BIG + len(file)
    alone: list[int] = []
    monkeypatch.setattr("ha.record_validator._needed", _counting(alone))
    validator = new_validator(BIG, 7 * BIG)
    assert validator.check(memoryview(bytes(file).ljust(BIG, b"\0")), end) is None
    assert (validator.position, alone) == (end, [])
