"""The keys and values that RocketMQ keeps in RocksDB, both ways.

Pure functions, any thread. All integers are big-endian. Names come from files that anybody may have
written: what does not fit raises DamagedEntryError, which says what was found.

    consume queues, default   i4 n, 1, topic, 1, i4 queue, 1, i8 queue offset
                              -> i8 phy offset, i4 size, i8 tags code, i8 store timestamp
    consume queues, offset    i4 n, 1, topic, 1, "max"|"min", 1, i4 queue
                              -> i8 phy offset, i8 queue offset; of CHECKPOINT_TOPIC: i8 phy offset
    config v2                 1, i2 table, 2, i2 n, name -> 1, JSON
                              1, i2 table, 2, i2 n, group, 1, i2 n, topic, 1, i4 queue -> i8 offset
                              1, i2 table, 1, "data_version" -> i8 state, i8 ms, i8 counter
    pops (kvStore)            i8 ms, group, @, topic, @, i4 queue, @, i8 offset -> JSON

Tested by tests/adopt/test_rocks_codec.py.
"""

from __future__ import annotations

import enum
import struct
from struct import Struct
from typing import Final, NamedTuple

CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
_SEPARATOR: Final = b"\x01"
_LENGTH: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_QUEUE_AND_OFFSET: Final = Struct(">icq")
_QUEUE: Final = Struct(">ci")
_UNIT: Final = Struct(">qiqq")
_PLACE: Final = Struct(">qq")
_INT64: Final = Struct(">q")
_VERSION: Final = Struct(">qqq")
_JSON: Final = 1
"""The only serialization of config v2."""


class DamagedEntryError(ValueError):
    """A key or value that RocketMQ does not write."""


class Unit(NamedTuple):
    """One message's entry of a consume queue."""

    phy_offset: int
    size: int
    tags_code: int
    store_timestamp: int


class UnitKey(NamedTuple):
    """Where a unit is."""

    topic: str
    queue_id: int
    queue_offset: int


class Bound(NamedTuple):
    """The first (`min`) or last (`max`) unit of a queue; of CHECKPOINT_TOPIC only `phy_offset`: up
    to where the log is dispatched."""

    topic: str
    queue_id: int
    is_max: bool
    phy_offset: int
    queue_offset: int


class Table(enum.IntEnum):
    """The tables of config v2."""

    CONSUMER_OFFSET = 1
    PULL_OFFSET = 2
    TOPIC = 3
    SUBSCRIPTION_GROUP = 4


class StoredVersion(NamedTuple):
    """A table's data version in config v2."""

    table: Table
    state_version: int
    timestamp: int
    counter: int


class StoredText(NamedTuple):
    """A topic or group of config v2: its JSON."""

    table: Table
    name: str
    text: bytes


class StoredOffset(NamedTuple):
    """A consumer or pull offset of config v2."""

    table: Table
    group: str
    topic: str
    queue_id: int
    offset: int


# -- consume queues ----------------------------------------------------------------------------


def encode_unit_key(key: UnitKey) -> bytes:
    """Its key."""
    return _named(key.topic) + _QUEUE_AND_OFFSET.pack(key.queue_id, _SEPARATOR, key.queue_offset)


def decode_unit_key(raw: bytes) -> UnitKey:
    """Raises DamagedEntryError."""
    topic, at = _find_name(raw)
    try:
        queue_id, mark, offset = _QUEUE_AND_OFFSET.unpack(raw[at:])
    except struct.error as error:
        raise _damaged("key of a unit", raw) from error
    _check(mark == _SEPARATOR and queue_id >= 0 and offset >= 0, "key of a unit", raw)
    return UnitKey(topic, queue_id, offset)


def encode_unit(unit: Unit) -> bytes:
    """Its value."""
    return _UNIT.pack(*unit)


def decode_unit(raw: bytes) -> Unit:
    """Raises DamagedEntryError."""
    _check(len(raw) == _UNIT.size, "unit", raw)
    return Unit(*_UNIT.unpack(raw))


def encode_bound(bound: Bound) -> tuple[bytes, bytes]:
    """Key and value."""
    what = b"max" if bound.is_max else b"min"
    key = _named(bound.topic) + what + _QUEUE.pack(_SEPARATOR, bound.queue_id)
    if bound.topic == CHECKPOINT_TOPIC:
        return key, _INT64.pack(bound.phy_offset)
    return key, _PLACE.pack(bound.phy_offset, bound.queue_offset)


def decode_bound(key: bytes, value: bytes) -> Bound:
    """Raises DamagedEntryError."""
    topic, at = _find_name(key)
    what, mark = key[at : at + 3], key[at + 3 : at + 4]
    is_known = what in (b"max", b"min") and mark == _SEPARATOR and len(key) == at + 8
    _check(is_known, "bound of a queue", key)
    queue_id = _LENGTH.unpack_from(key, at + 4)[0]
    if topic == CHECKPOINT_TOPIC and len(value) == _INT64.size:
        return Bound(topic, queue_id, what == b"max", _INT64.unpack(value)[0], 0)
    _check(len(value) == _PLACE.size and queue_id >= 0, "bound of a queue", key)
    return Bound(topic, queue_id, what == b"max", *_PLACE.unpack(value))


# -- config v2 ---------------------------------------------------------------------------------


def decode_v2(key: bytes, value: bytes) -> StoredVersion | StoredText | StoredOffset | None:
    """One entry of config/rdb; None for a kind that 5.3.3 does not know. Raises
    DamagedEntryError."""
    _check(len(key) >= 4 and key[0] == 1, "key of config v2", key)
    number = _SHORT.unpack_from(key, 1)[0]
    if number not in {int(each) for each in Table}:
        return None
    table = Table(number)
    if key[3:] == b"\x01data_version":
        _check(len(value) == _VERSION.size, "data version", value)
        return StoredVersion(table, *_VERSION.unpack(value))
    if key[3] != 2:
        return None
    name, at = _find_short_name(key, 4)
    if table in (Table.TOPIC, Table.SUBSCRIPTION_GROUP):
        _check(at == len(key) and len(value) > 1 and value[0] == _JSON, "entry of config v2", key)
        return StoredText(table, name, value[1:])
    _check(key[at : at + 1] == _SEPARATOR, "key of an offset", key)
    topic, end = _find_short_name(key, at + 1)
    _check(key[end : end + 1] == _SEPARATOR and len(key) == end + 5, "key of an offset", key)
    queue_id = _LENGTH.unpack_from(key, end + 1)[0]
    _check(len(value) == _INT64.size and queue_id >= 0, "offset", key)
    return StoredOffset(table, name, topic, queue_id, _INT64.unpack(value)[0])


# -- pops --------------------------------------------------------------------------------------


def decode_pop_time(key: bytes) -> int:
    """When the message becomes visible again, ms. Raises DamagedEntryError."""
    _check(len(key) > _INT64.size, "key of a pop", key)
    return int(_INT64.unpack_from(key)[0])


def encode_pop_key(visible_ms: int, group: str, topic: str, queue_id: int, offset: int) -> bytes:
    """The key of one message that is popped."""
    names = f"{group}@{topic}@".encode()
    return _INT64.pack(visible_ms) + names + _LENGTH.pack(queue_id) + b"@" + _INT64.pack(offset)


# -- parts -------------------------------------------------------------------------------------


def _named(topic: str) -> bytes:
    raw = topic.encode()
    return _LENGTH.pack(len(raw)) + _SEPARATOR + raw + _SEPARATOR


def _find_name(raw: bytes) -> tuple[str, int]:
    """The topic at the start of a key, and where the key goes on behind it."""
    _check(len(raw) > _LENGTH.size, "key of a queue", raw)
    size = _LENGTH.unpack_from(raw)[0]
    at = _LENGTH.size + 1
    is_whole = (
        0 < size <= len(raw) - at - 1
        and raw[at - 1 : at] == _SEPARATOR
        and raw[at + size : at + size + 1] == _SEPARATOR
    )
    _check(is_whole, "key of a queue", raw)
    return _text(raw[at : at + size], raw), at + size + 1


def _find_short_name(raw: bytes, at: int) -> tuple[str, int]:
    _check(len(raw) >= at + _SHORT.size, "key of config v2", raw)
    size = _SHORT.unpack_from(raw, at)[0]
    start = at + _SHORT.size
    _check(0 < size <= len(raw) - start, "key of config v2", raw)
    return _text(raw[start : start + size], raw), start + size


def _text(name: bytes, whole: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise _damaged("name", whole) from error


def _check(is_right: bool, what: str, raw: bytes) -> None:
    if not is_right:
        raise _damaged(what, raw)


def _damaged(what: str, raw: bytes) -> DamagedEntryError:
    return DamagedEntryError(f"not the {what} of RocketMQ: {raw[:48].hex()}, {len(raw)} bytes")
