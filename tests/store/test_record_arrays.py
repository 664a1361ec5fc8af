"""record_arrays and record_properties against a reader that goes field by field."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import record_arrays
from store.java_hash import index_key_hash, tags_code
from store.message import Message
from store.message_codec import decode_record, encode_blank, encode_record, record_head
from store.record_arrays import RECORD_HEAD, RecordArrays, ScanEnd, parse_records, walk_sizes
from store.record_properties import PropertyExtractor
from tests.support.memory_commit_log import MemoryCommitLog, message

LEVELS = {1: 1000, 2: 5000, 3: 10_000}


def extractor() -> PropertyExtractor:
    return PropertyExtractor(LEVELS)


def expected_tags_code(record: Message) -> int:
    properties = record.property_map()
    code = tags_code(properties.get("TAGS"))
    if record.topic == "SCHEDULE_TOPIC_XXXX" and re.fullmatch(
        r"[0-9]+", properties.get("DELAY", "x")
    ):
        level = min(int(properties["DELAY"]), max(LEVELS))
        if level > 0:
            code = record.store_timestamp + LEVELS[level]
    return code


def expected_keys(record: Message) -> list[int]:
    if record.sys_flag & 0xC == 0xC:
        return []
    properties = record.property_map()
    keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    keys += [word for word in properties.get("KEYS", "").split(" ") if word]
    if tags := properties.get("TAGS"):
        keys.append(f"T#{tags}")
    return [index_key_hash(f"{record.topic}#{key}") for key in keys]


def assert_same(found: RecordArrays, records: list[Message], sizes: list[int]) -> None:
    def column(name: str) -> list[Any]:
        return [getattr(record, name) for record in records]

    assert found.count == len(records)
    assert found.phy_offsets.tolist() == column("phy_offset")
    assert found.sizes.tolist() == sizes
    assert found.queue_ids.tolist() == column("queue_id")
    assert found.queue_offsets.tolist() == column("queue_offset")
    assert found.sys_flags.tolist() == column("sys_flag")
    assert found.store_timestamps.tolist() == column("store_timestamp")
    topics = [str(found.topics[i], "utf-8", "replace") for i in found.topic_ids]
    assert topics == column("topic")
    assert found.tags_codes.tolist() == [expected_tags_code(record) for record in records]
    keys: list[list[int]] = [[] for _ in records]
    for record, key_hash in zip(found.key_records, found.key_hashes, strict=True):
        keys[record].append(int(key_hash))
    assert keys == [expected_keys(record) for record in records]
    assert (np.diff(found.key_records) >= 0).all()


def read_naively(log: MemoryCommitLog) -> tuple[list[Message], list[int]]:
    records, sizes, at = [], [], 0
    while at < len(log.data):
        record, size = decode_record(log.data, at)
        records.append(record)
        sizes.append(size)
        at += size
    return records, sizes


def check_log(log: MemoryCommitLog) -> None:
    records, sizes = read_naively(log)
    found = parse_records(memoryview(log.data), log.start, extractor())
    assert found.end is ScanEnd.COMPLETE
    assert found.consumed == len(log.data)
    assert_same(found, records, sizes)


def test_layout_is_the_codecs() -> None:
    assert RECORD_HEAD.itemsize == record_head(0).size
    fields = record_head(0).unpack(bytes(range(88)))
    row = np.frombuffer(bytes(range(88)), RECORD_HEAD)[0]
    assert [int(row[name]) for name in ("total_size", "magic", "queue_id")] == [
        fields[0],
        fields[1],
        fields[3],
    ]
    assert int(row["store_timestamp"]) == fields[10]
    assert int(row["body_size"]) == fields[14]


WORDS = st.sampled_from(
    ["a", "bb", "TagA", "TagB", "k-1", "k-22", "日本", "😀x", "\x01", "a\x01b", "x y"]
)
NAMES = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "XTAGS", "TAGSX", "MYKEYS", "WAIT", "", "CLUSTER", "é"]
)
VALUES = st.one_of(
    WORDS,
    st.sampled_from(["", "0", "1", "2", "3", "9", "-1", "x", "1 2  3", " ", "TAGS\x01v", "KEYS"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=6),
)
PAIRS = st.lists(
    st.tuples(NAMES, st.sampled_from(["\x01", "\x01", "\x01", ""]), VALUES), max_size=5
)
PROPERTIES = st.builds(
    lambda pairs, tail: "\x02".join("".join(pair) for pair in pairs) + tail,
    PAIRS,
    st.sampled_from(["", "\x02"]),
)
MESSAGES = st.builds(
    message,
    st.sampled_from(["T", "Topic", "Topid", "SCHEDULE_TOPIC_XXXX", "日本"]),
    st.integers(0, 5),
    st.integers(0, 1 << 40),
    sys_flag=st.sampled_from([0, 0, 0, 0x4, 0x8, 0xC, 0x10, 0x20, 0x30, 0x38]),
    body=st.binary(max_size=40),
    store_timestamp=st.integers(1, 1 << 41),
    properties=PROPERTIES.map(str.encode),
)


@given(st.lists(st.tuples(MESSAGES, st.booleans(), st.sampled_from([1, 2, 5, 40])), max_size=12))
def test_any_mixture_is_read_as_field_by_field(
    parts: list[tuple[Message, bool, int]],
) -> None:
    log = MemoryCommitLog(start=0)
    for record, v2, times in parts:
        for _ in range(times):
            log.append(record, v2=v2)
    check_log(log)


@given(
    st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=4),
    st.lists(st.integers(0, 1 << 62), min_size=30, max_size=200),
)
def test_records_of_one_form_with_different_values(
    pairs: list[tuple[str, str]], seeds: list[int]
) -> None:
    """The same properties but for one character of each value: the fast way and its limits."""
    alphabet = "abcdefgh 0123\x01é"
    log = MemoryCommitLog()
    for n, seed in enumerate(seeds):
        text = "\x02".join(
            f"{name}\x01{alphabet[(seed >> 4 * i) % len(alphabet)]}{value}"
            for i, (name, value) in enumerate(pairs)
        )
        topic = "SCHEDULE_TOPIC_XXXX" if seed % 3 == 0 else "Topic"
        log.append(message(topic, seed % 4, n, properties=text.encode()))
    check_log(log)


@pytest.mark.parametrize("count", [1, 5, 23, 24, 25, 300])
def test_producer_shaped_records(count: int) -> None:
    log = MemoryCommitLog()
    for n in range(count):
        text = (
            f"KEYS\x01order-{n:04d} b\x02UNIQ_KEY\x01{n:032X}\x02WAIT\x01true\x02TAGS\x01Tag{n % 7}"
        )
        log.append(message("Topic", n % 8, n // 8, properties=text.encode()))
    check_log(log)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("alike", [0, 10, 60])
def test_many_forms_of_one_length(alike: int, is_first: bool) -> None:
    """Every form has too few records for a template but one, which may have enough."""
    mixed, same = [6 + n % 17 for n in range(100)], [5] * alike
    log = MemoryCommitLog()
    for n, cut in enumerate(same + mixed if is_first else mixed + same):
        keys = "k" * cut + " " + "x" * (38 - cut) + ("é" if n % 7 == 3 else "xx")
        text = f"TAGS\x01Tag{n % 3}\x02KEYS\x01{keys}\x02UNIQ_KEY\x01{n:032X}".encode()
        log.append(message("Topic", n % 8, n // 8, properties=text))
    check_log(log)


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("body", [b"", b"x", b"\xff" * 4])
@pytest.mark.parametrize("count", [1, 60])
def test_the_smallest_record_at_the_end(count: int, body: bytes, v2: bool) -> None:
    """No topic, no properties: its lengths are the view's last bytes."""
    log = MemoryCommitLog()
    for number in range(count):
        log.append(message("T", queue_offset=number))
    log.append(message("", body=body), v2=v2)
    check_log(log)


def test_delay_levels_give_delivery_times() -> None:
    log = MemoryCommitLog()
    for n in range(40):
        text = f"DELAY\x01{n % 5}\x02TAGS\x01TagA"
        log.append(
            message("SCHEDULE_TOPIC_XXXX", properties=text.encode(), store_timestamp=7000 + n)
        )
    found = parse_records(memoryview(log.data), 0, extractor())
    tag = tags_code("TagA")
    assert found.tags_codes[:5].tolist() == [tag, 8001, 12_002, 17_003, 17_004]
    check_log(log)


@pytest.mark.parametrize("count", [3, 60])
def test_keys_can_be_left_out(count: int) -> None:
    log = MemoryCommitLog()
    for _ in range(count):
        log.append(message(properties=b"TAGS\x01a\x02KEYS\x01b"))
    found = parse_records(memoryview(log.data), 0, PropertyExtractor(LEVELS, with_keys=False))
    assert len(found.key_hashes) == 0
    assert found.tags_codes.tolist() == [tags_code("a")] * count


@pytest.mark.parametrize("count", [2, 100])
def test_ends(count: int) -> None:
    log = MemoryCommitLog(start=1 << 33)
    for n in range(count):
        log.append(message("T", 0, n))
    whole = bytes(log.data)
    size = len(whole) // count

    def parse(data: bytes) -> RecordArrays:
        return parse_records(memoryview(data), 1 << 33, extractor())

    assert parse(b"").end is ScanEnd.COMPLETE
    for cut in (1, 8, size - 1):
        found = parse(whole + whole[:cut])
        assert (found.count, found.consumed) == (count, len(whole))
        assert found.end is ScanEnd.PARTIAL
        assert found.needed == (size if cut >= 8 else 0)
    for blank in (8, 90, 91, 1000):
        found = parse(whole + encode_blank(blank).ljust(blank, b"\0"))
        assert (found.count, found.consumed, found.end) == (count, len(whole), ScanEnd.BLANK)
    found = parse(whole + bytes(100))
    assert (found.count, found.end) == (count, ScanEnd.INVALID)
    assert str((1 << 33) + len(whole)) in found.reason


def _damages() -> list[tuple[str, int, bytes]]:
    return [
        ("magic", 4, b"\0\0\0\1"),
        ("phy_offset", 28, struct.pack(">q", 5)),
        ("body size", 84, struct.pack(">i", 5)),
        ("body size", 84, struct.pack(">i", -1)),
        ("body size", 84, struct.pack(">i", 1 << 30)),
        ("topic size", 92, b"\x7f"),
        ("topic size", 92, b"\xff"),
        ("properties size", 94, struct.pack(">h", -1)),
        ("properties size", 94, struct.pack(">h", 2)),
        ("sys_flag", 36, struct.pack(">i", 0x30)),
        ("size", 0, struct.pack(">i", 4)),
        ("size", 0, struct.pack(">i", -4)),
    ]


@pytest.mark.parametrize("count", [4, 90])
@pytest.mark.parametrize(("what", "at", "damage"), _damages())
def test_a_damaged_record_ends_the_batch_before_it(
    count: int, what: str, at: int, damage: bytes
) -> None:
    log = MemoryCommitLog()
    for n in range(count):
        log.append(message("T", 0, n))
    size = len(log.data) // count
    good = count - 2
    log.data[good * size + at : good * size + at + len(damage)] = damage
    found = parse_records(memoryview(log.data), 0, extractor())
    assert (found.count, found.consumed) == (good, good * size), what
    assert found.end is ScanEnd.INVALID
    assert str(good * size) in found.reason
    assert len(found.tags_codes) == good


@given(st.lists(st.tuples(st.integers(91, 99), st.integers(1, 150)), max_size=8))
def test_walk_finds_every_record(runs: list[tuple[int, int]]) -> None:
    data, expected = bytearray(), []
    for size, times in runs:
        for _ in range(times):
            expected.append(len(data))
            data += struct.pack(">i", size).ljust(size, b"\0")
    at, end = walk_sizes(memoryview(data))
    assert at.tolist() == expected
    assert end == len(data)


def test_units_by_transaction_type() -> None:
    log = MemoryCommitLog()
    for kind in (0x0, 0x4, 0x8, 0xC):
        log.append(message(sys_flag=kind, properties=b"KEYS\x01k"))
    found = parse_records(memoryview(log.data), 0, extractor())
    rows = found.unit_records()
    assert rows is not None
    assert rows.tolist() == [0, 2]
    assert found.key_records.tolist() == [0, 1, 2]


def test_both_ways_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain way for few records gives the arrays of the bulk way."""
    log = MemoryCommitLog()
    for n in range(200):
        text = f"TAGS\x01T{n % 13}\x02KEYS\x01{n * 37}".encode()
        log.append(message("T" * (n % 3 + 1), n % 4, n, sys_flag=(n % 4) << 4, properties=text))
    bulk = parse_records(memoryview(log.data), 0, extractor())
    monkeypatch.setattr(record_arrays, "_SMALL_BATCH", 1000)
    plain = parse_records(memoryview(log.data), 0, extractor())
    for name in ("phy_offsets", "sizes", "queue_offsets", "store_timestamps", "tags_codes"):
        assert getattr(bulk, name).tolist() == getattr(plain, name).tolist()
    assert bulk.key_hashes.tolist() == plain.key_hashes.tolist()
    assert [bulk.topics[i] for i in bulk.topic_ids] == [plain.topics[i] for i in plain.topic_ids]


def test_nothing_keeps_the_view(tmp_path: object) -> None:
    log = MemoryCommitLog()
    for n in range(100):
        log.append(message(queue_offset=n, properties=b"TAGS\x01a\x02KEYS\x01b"))
    view = memoryview(bytearray(log.data))
    found = parse_records(view, 0, extractor())
    view.release()
    assert found.count == 100
    assert encode_record(message())
