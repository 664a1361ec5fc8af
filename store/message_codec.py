"""The commit log record: its byte layout, known only here.

Pure functions over buffers, any thread; knows no file. All integers big-endian, signed unless said.

    offset  size  field                        offset  size  field
    0       4     totalSize                    40      8     bornTimestamp (ms)
    4       4     magic (unsigned here)        48      8/20  bornHost: address, port int32
    8       4     bodyCRC, 0 for no body       56      8     storeTimestamp (ms)
    12      4     queueId                      64      8/20  storeHost
    16      4     flag                         72      4     reconsumeTimes
    20      8     queueOffset                  76      8     preparedTransactionOffset
    28      8     physicalOffset               84      4+n   body size, body
    36      4     sysFlag                      ..      1+n   topic size (V2: 2), topic
                                               ..      2+n   properties size, properties

Offsets behind bornHost grow by 12 for each host that is IPv6 (sysFlag 0x10 born, 0x20 store). A
blank record fills a file to its end: int32 bytes left in the file, BLANK magic; the rest is any
value. Corresponds to RocketMQ's CommitLog.checkMessageAndReturnSize, MessageDecoder,
MessageExtEncoder.
"""

from __future__ import annotations

import enum
import ipaddress
import struct
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from store.crc32 import CrcOf, crc32_for
from store.errors import MessageIllegalError, RecordDamagedError, StoreError
from store.message import Message
from store.message_properties import PROPERTIES_LIMIT

Buffer = bytes | bytearray | memoryview

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""5.x, for names over TOPIC_LIMIT: the topic's size takes two bytes."""
MAGIC_BLANK: Final = 0xCBD43194
BODY_CRC_MASK: Final = 0x7FFFFFFF

BORN_HOST_V6_FLAG: Final = 0x10
STORE_HOST_V6_FLAG: Final = 0x20
TRANSACTION_MASK: Final = 0xC
TRANSACTION_NOT: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC

SIZE_AND_MAGIC: Final = Struct(">iI")
assert SIZE_AND_MAGIC.size == 8
BLANK_SIZE: Final = SIZE_AND_MAGIC.size
"""Least bytes that stay free behind the last record of a file: room for its blank record."""

_BEFORE_BORN_HOST: Final = ">iIiiiqqiq"
_HEADS: Final = tuple(
    Struct(f"{_BEFORE_BORN_HOST}{born}sq{store}siqi")
    for store, born in ((8, 8), (8, 20), (20, 8), (20, 20))
)
"""Index: sysFlag >> 4 & 3."""
assert [head.size for head in _HEADS] == [88, 100, 100, 112]
RECORD_HEADS: Final = tuple((head.size + 2, head.pack) for head in _HEADS)
"""`fixed_size`, and what packs everything before the body, its size included. Index: the sysFlag's
HOSTS_V6_FLAGS, shifted by HOSTS_V6_SHIFT."""
HOSTS_V6_SHIFT: Final = 4
PROPERTIES_LENGTH: Final = Struct(">h")
USUAL_PROPERTIES_LENGTHS: Final = tuple(map(PROPERTIES_LENGTH.pack, range(1024)))
"""Packed: 15 ns instead of 60."""
TOPIC_LENGTH_V2: Final = Struct(">h")
assert PROPERTIES_LENGTH.size == TOPIC_LENGTH_V2.size == 2
TOPIC_LIMIT: Final = 127
"""Most bytes of a topic name in a V1 record."""
TOPIC_LIMIT_V2: Final = 255
"""Most bytes of a topic name that RocketMQ 5.x stores (HookUtils.MAX_TOPIC_LENGTH)."""

# Places of single fields, for readers that need few of them.
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
QUEUE_OFFSET_AT: Final = 20
PHY_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
_BORN_TIMESTAMP_AT: Final = 40
BORN_HOST_AT: Final = 48
assert struct.calcsize(_BEFORE_BORN_HOST) == BORN_HOST_AT
assert struct.calcsize(">iIiiiqq") == SYS_FLAG_AT
assert struct.calcsize(">iIiiiqqi") == _BORN_TIMESTAMP_AT
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
RECORD_PLACE: Final = Struct(">i8xi4xqq")
"""What a record says of its own place: totalSize, queueId, queueOffset, physicalOffset."""
assert RECORD_PLACE.size == SYS_FLAG_AT
HEAD_SIZE: Final = _HEADS[0].size
"""Bytes before the body if both hosts are IPv4; their last four are its size."""
BODY_SIZE_AT: Final = HEAD_SIZE - 4
HOSTS_V6_FLAGS: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_TOPIC_PLACE: Final = Struct(">4xI28xi44xi")
"""The magic, sysFlag, and the body's size if both hosts are IPv4."""
assert _TOPIC_PLACE.size == HEAD_SIZE


class RecordKind(enum.IntEnum):
    """What `check_record` found."""

    MESSAGE = 1
    BLANK = 2
    NOTHING = 3
    """Zero bytes: nothing was ever written here."""
    INVALID = 4


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """`size`: bytes of the message or blank, else 0. `reason`: why not, for people."""

    kind: RecordKind
    size: int = 0
    reason: str = ""


# -- layout ------------------------------------------------------------------------------------


def record_head(sys_flag: int) -> Struct:
    """The struct of everything before the body, the body's size included."""
    return _HEADS[sys_flag >> 4 & 3]


def fixed_size(sys_flag: int) -> int:
    """Bytes of a record besides body, topic (with its size byte) and properties."""
    return _HEADS[sys_flag >> 4 & 3].size + 2


def store_timestamp_position(sys_flag: int) -> int:
    """Where in a record its storeTimestamp (int64) is."""
    return BORN_HOST_AT + (20 if sys_flag & BORN_HOST_V6_FLAG else 8)


def read_store_timestamp(view: Buffer, position: int) -> int:
    """The storeTimestamp (ms) of the record at `position`. No checks."""
    (sys_flag,) = _INT32.unpack_from(view, position + SYS_FLAG_AT)
    found: int = _INT64.unpack_from(view, position + store_timestamp_position(sys_flag))[0]
    return found


def read_born_timestamp(view: Buffer, position: int) -> int:
    """The bornTimestamp (ms) of the record at `position`. No checks."""
    found: int = _INT64.unpack_from(view, position + _BORN_TIMESTAMP_AT)[0]
    return found


def body_crc(body: Buffer) -> int:
    """bodyCRC as stored."""
    return crc32_for(len(body))(body) & BODY_CRC_MASK


def has_magic(record: Buffer) -> bool:
    """Whether these bytes, more than four, begin as a V1 or V2 record does."""
    return bytes(record[4:8]) in _MAGICS


def holds_topic(view: Buffer, position: int, topic: bytes) -> bool:
    """Whether at `position` there is the magic of a V1 or V2 record, and its topic is this (UTF-8).
    False, too, where its sizes lead outside `view`."""
    try:
        magic, sys_flag, body_size = _TOPIC_PLACE.unpack_from(view, position)
        at = position + HEAD_SIZE + body_size
        if sys_flag & HOSTS_V6_FLAGS:
            body_at = position + _HEADS[sys_flag >> 4 & 3].size
            at = body_at + _INT32.unpack_from(view, body_at - 4)[0]
        if magic != MAGIC_V1:
            if magic != MAGIC_V2:
                return False
            at += 1
        size = view[at]
        return size == len(topic) and at > position and view[at + 1 : at + 1 + size] == topic
    except (struct.error, IndexError):
        return False


# -- encoding ----------------------------------------------------------------------------------


def encode_topic(name: bytes) -> tuple[int, bytes]:
    """The magic of records of this topic, and its name behind its size as they hold it: V2 for
    names over TOPIC_LIMIT bytes, as RocketMQ 5.x. Raises MessageIllegalError: over
    TOPIC_LIMIT_V2."""
    if len(name) <= TOPIC_LIMIT:
        return MAGIC_V1, bytes((len(name),)) + name
    _limit("topic", len(name), TOPIC_LIMIT_V2)
    return MAGIC_V2, TOPIC_LENGTH_V2.pack(len(name)) + name


def encode_record(message: Message) -> bytes:
    """`message` as a record of its topic's version. Raises MessageIllegalError when a part does not
    fit."""
    sys_flag = message.sys_flag
    _check_hosts(message)
    magic, topic = encode_topic(message.topic.encode())
    _limit("properties", len(message.properties), PROPERTIES_LIMIT)
    size = fixed_size(sys_flag) + len(message.body) + len(topic) + len(message.properties)
    head = record_head(sys_flag).pack(
        size,
        magic,
        body_crc(message.body),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.phy_offset,
        sys_flag,
        message.born_timestamp,
        message.born_host,
        message.store_timestamp,
        message.store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        len(message.body),
    )
    tail = PROPERTIES_LENGTH.pack(len(message.properties)) + message.properties
    return b"".join((head, message.body, topic, tail))


def encode_blank(left: int) -> bytes:
    """The 8 bytes that close a file with `left` bytes left."""
    return SIZE_AND_MAGIC.pack(left, MAGIC_BLANK)


def _limit(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise MessageIllegalError(f"{what} of {size} bytes (limit {limit})")


def _check_hosts(message: Message) -> None:
    for name, flag, host in (
        ("born_host", BORN_HOST_V6_FLAG, message.born_host),
        ("store_host", STORE_HOST_V6_FLAG, message.store_host),
    ):
        if len(host) != (20 if message.sys_flag & flag else 8):
            raise MessageIllegalError(
                f"{name} of {len(host)} bytes contradicts sysFlag {message.sys_flag:#x}"
            )


# -- decoding ----------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """Where the parts of a record are in its buffer. `fields`: the head, unpacked."""

    fields: tuple[Any, ...]
    body_at: int
    topic_at: int
    topic_end: int
    end: int


def is_blank_at(view: Buffer, position: int) -> bool:
    """Whether a blank record starts at `position`."""
    if len(view) - position < BLANK_SIZE:
        return False
    magic: int = SIZE_AND_MAGIC.unpack_from(view, position)[1]
    return magic == MAGIC_BLANK


def decode_record(view: Buffer, position: int) -> tuple[Message, int]:
    """The V1 or V2 record at `position`, and its size.

    Sizes are checked against each other and the buffer; CRC and physicalOffset are not
    (`check_record`). Raises RecordDamagedError.
    """
    found = _lay_out(view, position, len(view))
    if isinstance(found, RecordCheck):
        text = found.reason or found.kind.name.lower()
        raise RecordDamagedError(f"no message at position {position} of the buffer: {text}")
    fields = found.fields
    message = Message(
        topic=str(view[found.topic_at : found.topic_end], "utf-8", "replace"),
        queue_id=fields[3],
        flag=fields[4],
        queue_offset=fields[5],
        phy_offset=fields[6],
        sys_flag=fields[7],
        born_timestamp=fields[8],
        born_host=fields[9],
        store_timestamp=fields[10],
        store_host=fields[11],
        reconsume_times=fields[12],
        prepared_transaction_offset=fields[13],
        body=bytes(view[found.body_at : found.body_at + fields[14]]),
        properties=bytes(view[found.topic_end + 2 : found.end]),
    )
    return message, found.end - position


class RecordHead(NamedTuple):
    """What a record says of itself, without its body. Times in ms."""

    phy_offset: int
    born_timestamp: int
    store_timestamp: int
    properties: bytes


def read_head(view: Buffer, position: int) -> RecordHead:
    """The head of the V1 or V2 record at `position`; its body is not looked at.

    Raises RecordDamagedError when the record's sizes contradict each other.
    """
    found = _lay_out(view, position, len(view))
    if isinstance(found, RecordCheck):
        text = found.reason or found.kind.name.lower()
        raise RecordDamagedError(f"no message at position {position} of the buffer: {text}")
    properties = bytes(view[found.topic_end + 2 : found.end])
    return RecordHead(found.fields[6], found.fields[8], found.fields[10], properties)


def read_properties(view: Buffer, position: int) -> bytes:
    """The properties alone, as `read_head`."""
    return read_head(view, position).properties


class CheckedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as `read_checked` reads it: its fields in their order, then topic (UTF-8), body and
    properties. A Message costs 2 us more."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    phy_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_size: int
    topic: bytes
    body: bytes
    properties: bytes


def read_checked(view: Buffer, position: int, limit: int, phy_offset: int) -> CheckedRecord | None:
    """The V1 or V2 record at `position`; None where `check_record`, which takes the same arguments,
    would find no message with the costly checks. A third of the cost of both."""
    found = _lay_out(view, position, limit)
    if isinstance(found, RecordCheck) or found.fields[6] != phy_offset:
        return None
    fields = found.fields
    topic = bytes(view[found.topic_at : found.topic_end])
    body = bytes(view[found.body_at : found.body_at + fields[14]])
    if 0 in topic or (body and body_crc(body) != fields[2]):
        return None
    properties = bytes(view[found.topic_end + 2 : found.end])
    parts: tuple[Any, ...] = (*fields, topic, body, properties)
    return CheckedRecord(*parts)


def check_record(
    view: Buffer, position: int, limit: int, phy_offset: int, *, check_crc: bool | CrcOf
) -> RecordCheck:
    """Judge what lies at `position` of a file's bytes, which is `phy_offset` in the log.

    limit: where in `view` the file ends; a blank must end exactly there. Stricter than RocketMQ:
    physicalOffset must be the actual position (a stale record of an older write is not a message),
    a blank must have the right size, and with check_crc a topic must not contain zero bytes.
    CrcOf: of a scan that meets records within each other (body_crcs.py).
    """
    found = _lay_out(view, position, limit)
    if isinstance(found, RecordCheck):
        return found
    fields = found.fields
    if fields[6] != phy_offset:
        return _invalid(f"physicalOffset field says {fields[6]}, the place is {phy_offset}")
    if check_crc and (reason := _find_damage(view, found, phy_offset - position, check_crc)):
        return _invalid(reason)
    return RecordCheck(RecordKind.MESSAGE, found.end - position)


def _find_damage(view: Buffer, layout: _Layout, view_start: int, check: bool | CrcOf) -> str:
    """The result of the costly checks: the body's CRC, and a topic whose end was never written.
    view_start: the place of the view's first byte in the log."""
    if 0 in bytes(view[layout.topic_at : layout.topic_end]):
        return "the topic has zero bytes"
    _, _, expected, *_, body_size = layout.fields
    start, end = layout.body_at, layout.body_at + body_size
    if isinstance(check, bool):
        crc = body_crc(view[start:end])
    else:
        crc = check(view, start, end, view_start + start) & BODY_CRC_MASK
    if body_size and crc != expected:
        return f"bodyCRC field says {expected:#x}, the body has {crc:#x}"
    return ""


def _invalid(reason: str) -> RecordCheck:
    return RecordCheck(RecordKind.INVALID, 0, reason)


def _lay_out(view: Buffer, position: int, limit: int) -> _Layout | RecordCheck:
    left = limit - position
    if left < BLANK_SIZE:
        return _invalid(f"only {left} bytes left")
    size, magic = SIZE_AND_MAGIC.unpack_from(view, position)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return _no_message(size, magic, left)
    if not _HEADS[0].size <= size <= left:
        return _invalid(f"totalSize {size} is impossible, {left} bytes left")
    return _lay_out_message(view, position, position + size)


def _no_message(size: int, magic: int, left: int) -> RecordCheck:
    if magic == MAGIC_BLANK:
        if size == left:
            return RecordCheck(RecordKind.BLANK, size)
        return _invalid(f"a blank of {size} bytes where {left} are left in the file")
    if size == 0 and magic == 0:
        return RecordCheck(RecordKind.NOTHING, 0, "zero bytes")
    return _invalid(f"magic {magic:#x} is not a record's")


def _lay_out_message(view: Buffer, position: int, end: int) -> _Layout | RecordCheck:
    (sys_flag,) = _INT32.unpack_from(view, position + SYS_FLAG_AT)
    head = _HEADS[sys_flag >> 4 & 3]
    body_at = position + head.size
    if body_at > end:
        return _invalid(f"totalSize {end - position} is too small for the head")
    fields = head.unpack_from(view, position)
    length_at = body_at + fields[14]
    topic_at = length_at + (1 if fields[1] == MAGIC_V1 else 2)
    if fields[14] < 0 or topic_at > end:
        return _invalid(f"body size {fields[14]} is impossible in {end - position} bytes")
    topic_size = int.from_bytes(view[length_at:topic_at], "big", signed=True)
    topic_end = topic_at + topic_size
    if topic_size < 0 or topic_end + 2 > end:
        return _invalid(f"topic size {topic_size} is impossible in {end - position} bytes")
    (properties_size,) = PROPERTIES_LENGTH.unpack_from(view, topic_end)
    if properties_size < 0 or topic_end + 2 + properties_size != end:
        return _invalid(f"totalSize {end - position} is not the sum of its parts")
    return _Layout(fields, body_at, topic_at, topic_end, end)


# -- hosts and message ids ---------------------------------------------------------------------


def encode_host(address: str, port: int) -> bytes:
    """A host as records hold it: 4 or 16 address bytes, port as int32. ValueError: no address."""
    return ipaddress.ip_address(address).packed + _INT32.pack(port)


def decode_host(host: Buffer) -> tuple[str, int]:
    """Address text and port of a host of 8 or 20 bytes. Raises StoreError for other sizes."""
    if len(host) not in (8, 20):
        raise StoreError(f"a host of {len(host)} bytes; 8 (IPv4) or 20 (IPv6) are valid")
    (port,) = _INT32.unpack_from(host, len(host) - 4)
    return str(ipaddress.ip_address(bytes(host[:-4]))), port


def encode_message_id(store_host: bytes, phy_offset: int) -> str:
    """offsetMsgId: 32 (IPv4) or 56 upper-case hex digits."""
    return (store_host + _INT64.pack(phy_offset)).hex().upper()


def decode_message_id(message_id: str) -> tuple[bytes, int]:
    """storeHost bytes and phy_offset of an offsetMsgId. Raises StoreError."""
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        raw = b""
    if len(message_id) not in (32, 56) or len(raw) * 2 != len(message_id):
        raise StoreError(f"message id {message_id!r} is not 32 or 56 hex digits")
    return raw[:-8], int.from_bytes(raw[-8:], "big", signed=True)
