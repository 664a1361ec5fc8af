"""Keys and values of RocksDB: all that 5.3.3 wrote can be read, and gives the same bytes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from adopt.rocks_codec import (
    Bound,
    DamagedEntryError,
    StoredOffset,
    StoredVersion,
    Table,
    Unit,
    UnitKey,
    decode_bound,
    decode_pop_time,
    decode_unit,
    decode_unit_key,
    decode_v2,
    encode_bound,
    encode_pop_key,
    encode_unit,
    encode_unit_key,
)
from adopt.rocks_database import RocksDatabase
from tests.adopt.golden_stores import QUEUES, unpack_all


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    return directory


def test_every_unit_and_bound_of_java_goes_both_ways(golden: Path) -> None:
    units: dict[tuple[str, int], int] = {}
    with RocksDatabase(golden / "clean" / "consumequeue") as database:
        for key, value in database.entries("default"):
            place = decode_unit_key(key)
            assert encode_unit_key(place) == key
            assert encode_unit(decode_unit(value)) == value
            name = place.topic, place.queue_id
            assert place.queue_offset == units.get(name, 0)
            units[name] = place.queue_offset + 1
        bounds = [decode_bound(*entry) for entry in database.entries("offset")]
        assert [encode_bound(bound) for bound in bounds] == list(database.entries("offset"))
    assert units == QUEUES
    ends = {(b.topic, b.queue_id): b.queue_offset + 1 for b in bounds if b.is_max}
    assert ends.pop(("CHECKPOINT_TOPIC", 0)) == 1
    assert ends == QUEUES
    assert Bound("CHECKPOINT_TOPIC", 0, True, 236940, 0) in bounds


def test_an_example_byte_by_byte() -> None:
    key = UnitKey("TRocksA", 0, 1)
    raw = bytes.fromhex("00000007 01 54526f636b7341 01 00000000 01 0000000000000001")
    assert (encode_unit_key(key), decode_unit_key(raw)) == (raw, key)
    assert decode_unit(
        bytes.fromhex("0000000000000392000000e7000000000027a808000001a200000000")
    ) == (Unit(0x392, 0xE7, 2598920, 0x1A200000000))
    offset = bytes.fromhex("01000102000747526f636b733101000754526f636b73410100000001")
    assert decode_v2(offset, (20).to_bytes(8)) == StoredOffset(
        Table.CONSUMER_OFFSET, "GRocks1", "TRocksA", 1, 20
    )
    version = bytes.fromhex("01000401") + b"data_version"
    assert decode_v2(
        version, bytes.fromhex("0000000000000000000001a21a1ed1400000000000000003")
    ) == StoredVersion(Table.SUBSCRIPTION_GROUP, 0, 1795734556992, 3)


def test_pop_keys(golden: Path) -> None:
    with RocksDatabase(golden / "pop" / "kvStore") as database:
        keys = [key for key, _ in database.entries("popState")]
    assert len(keys) == 24
    assert keys[1] == encode_pop_key(decode_pop_time(keys[1]), "GRocks1", "TRocksB", 0, 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\x07",
        b"\x7f\xff\xff\xff\x01T\x01",
        b"\xff\xff\xff\xff\x01T\x01",
        b"\0\0\0\x01\x01\xff\x01\0\0\0\0\x01" + bytes(8),
        b"\0\0\0\x01\x01T\x02\0\0\0\0\x01" + bytes(8),
        b"\0\0\0\x01\x01T\x01\0\0\0\0\x02" + bytes(8),
        b"\0\0\0\x01\x01T\x01\xff\0\0\0\x01" + bytes(8),
        b"\0\0\0\x01\x01T\x01\0\0\0\0\x01" + b"\xff" * 8,
        b"\0\0\0\x01\x01T\x01\0\0\0\0\x01" + bytes(9),
    ],
)
def test_what_java_does_not_write_is_refused(raw: bytes) -> None:
    with pytest.raises(DamagedEntryError):
        decode_unit_key(raw)
    for value in (b"", bytes(7), bytes(16), bytes(24)):
        with pytest.raises(DamagedEntryError):
            decode_bound(raw, value)
    with pytest.raises(DamagedEntryError):
        decode_unit(raw)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x02\0\x01\x02\0\x01G", bytes(8)),
        (b"\x01\0\x03\x02", b"\x01{}"),
        (b"\x01\0\x03\x02\xff\xffT", b"\x01{}"),
        (b"\x01\0\x03\x02\0\x05T", b"\x01{}"),
        (b"\x01\0\x03\x02\0\x01T", b"\x02{}"),
        (b"\x01\0\x03\x02\0\x01T", b"\x01"),
        (b"\x01\0\x01\x02\0\x01G\x01\0\x01T\x01\0\0\0", bytes(8)),
        (b"\x01\0\x01\x02\0\x01G\x01\0\x01T\x01\0\0\0\0", bytes(7)),
        (b"\x01\0\x01\x02\0\x01G\x01\0\x01T\x01\xff\0\0\0", bytes(8)),
        (b"\x01\0\x04\x01data_version", bytes(23)),
    ],
)
def test_damaged_config_v2_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(DamagedEntryError):
        decode_v2(key, value)


def test_kinds_of_later_versions_are_none() -> None:
    assert decode_v2(b"\x01\0\x09\x02\0\x01T", b"\x01{}") is None
    assert decode_v2(b"\x01\0\x03\x07\0\x01T", b"\x01{}") is None
