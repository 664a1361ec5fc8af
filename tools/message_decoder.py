"""Stored messages as answers to 11, 12 and 33 carry them, back to back: bytes to MessageExt.

No I/O; any thread. The bytes came from a peer: every length is checked before it is used and
inflated bodies are bounded. Knows nothing of queues, routes or printing. (Java: MessageDecoder.)

    4 total size | 4 magic | 4 body CRC | 4 queue id | 4 flag | 8 queue offset
    | 8 physical offset | 4 sys flag | 8 born timestamp | 4 or 16 + 4 born host
    | 8 store timestamp | 4 or 16 + 4 store host | 4 reconsume times | 8 prepared offset
    | 4 + n body | 1 (V1) or 2 (V2) + n topic | 2 + n properties
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tools.errors import MessageDecodeError

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
"""Written by 5.x for topics longer than 127 bytes."""

COMPRESSED: Final = 0x1
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
COMPRESSION_MASK: Final = 0x700
COMPRESSION_NAMES: Final = {0: "zlib", 0x100: "LZ4", 0x200: "ZSTD", 0x300: "zlib"}

MAX_INFLATED_BODY: Final = 64 << 20
"""Bytes of a body after inflating; clients send at most 4 MiB by default."""

UNIQ_KEY: Final = "UNIQ_KEY"
NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

_HEAD: Final = struct.Struct(">iiiiiqqiq")
_TAIL: Final = struct.Struct(">iq")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_LONG: Final = struct.Struct(">q")

assert (_HEAD.size, _TAIL.size) == (48, 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageExt:
    """One stored message; hosts as "ip:port", times in milliseconds (Java: MessageExt)."""

    topic: str
    queue_id: int
    flag: int
    queue_offset: int
    phy_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    store_size: int
    body_crc: int
    body: bytes
    body_note: str | None
    """Why the body is not as its sender wrote it; None: it is complete."""
    stored_body: bytes
    """As stored: still compressed, if it was sent so. Both are cut at the decoder's limit."""
    stored_body_size: int
    properties: dict[str, str]
    offset_msg_id: str
    broker_name: str = ""

    @property
    def msg_id(self) -> str:
        """What clients call the message: the sender's unique key, else the offset id."""
        return self.properties.get(UNIQ_KEY) or self.offset_msg_id


class _Reader:
    """Reads one record field by field, checking each length. Owned by: decode_messages."""

    __slots__ = ("_data", "_end", "_start", "position")

    def __init__(self, data: memoryview, start: int, end: int) -> None:
        self._data = data
        self._start = start
        self._end = end
        self.position = start

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        position = self.position
        self._advance(layout.size)
        return layout.unpack_from(self._data, position)

    def take(self, size: int) -> bytes:
        position = self.position
        self._advance(size)
        return bytes(self._data[position : position + size])

    def text(self, size: int) -> str:
        return self.take(size).decode(errors="replace")

    def host(self, v6: bool) -> tuple[bytes, int]:
        address = self.take(16 if v6 else 4)
        return address, self.numbers(_INT)[0]

    def _advance(self, size: int) -> None:
        if size < 0 or self.position + size > self._end:
            raise self.error(f"a field of {size} bytes does not fit")
        self.position += size

    def error(self, reason: str) -> MessageDecodeError:
        return MessageDecodeError(
            f"stored message at byte {self._start} of the answer: {reason} "
            f"(byte {self.position - self._start} of {self._end - self._start})"
        )


def decode_messages(
    data: bytes, *, broker_name: str = "", max_body: int = MAX_INFLATED_BODY
) -> Iterator[MessageExt]:
    """The messages of one answer. max_body: bytes of a body that are kept, at least 1. Raises
    MessageDecodeError at the first malformed one."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        if position + 8 > len(view):
            raise MessageDecodeError(f"{len(view) - position} bytes behind the last message")
        (size,) = _INT.unpack_from(view, position)
        if not _HEAD.size <= size <= len(view) - position:
            raise MessageDecodeError(
                f"stored message at byte {position} of the answer: size {size} "
                f"where {len(view) - position} bytes are left"
            )
        yield _decode(_Reader(view, position, position + size), broker_name, max_body)
        position += size


def _decode(reader: _Reader, broker_name: str, max_body: int) -> MessageExt:
    head = reader.numbers(_HEAD)
    size, magic, crc, queue_id, flag, queue_offset, phy_offset, sys_flag, born_timestamp = head
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise reader.error(f"magic {magic & 0xFFFFFFFF:08x} is not that of a message")
    born_host = reader.host(bool(sys_flag & BORN_HOST_V6))
    (store_timestamp,) = reader.numbers(_LONG)
    store_host = reader.host(bool(sys_flag & STORE_HOST_V6))
    reconsume_times, prepared_offset = reader.numbers(_TAIL)
    body_size = reader.numbers(_INT)[0]
    stored = reader.take(body_size)
    topic = reader.text(reader.take(1)[0] if magic == MAGIC_V1 else reader.numbers(_SHORT)[0])
    properties = decode_properties(reader.text(reader.numbers(_SHORT)[0]))
    body, note = _readable_body(stored, sys_flag, max_body)
    return MessageExt(
        topic=topic,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        phy_offset=phy_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=_host_text(*born_host),
        store_timestamp=store_timestamp,
        store_host=_host_text(*store_host),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        store_size=size,
        body_crc=crc,
        body=body,
        body_note=note,
        stored_body=stored[:max_body],
        stored_body_size=body_size,
        properties=properties,
        offset_msg_id=encode_message_id(*store_host, phy_offset),
        broker_name=broker_name,
    )


def _readable_body(stored: bytes, sys_flag: int, max_body: int) -> tuple[bytes, str | None]:
    """The body as sent, or as stored with the reason why it could not be inflated."""
    if not sys_flag & COMPRESSED or not stored:
        if len(stored) > max_body:
            return stored[:max_body], f"{len(stored)} bytes, cut after {max_body}"
        return stored, None
    kind = COMPRESSION_NAMES.get(sys_flag & COMPRESSION_MASK)
    if kind != "zlib":
        how = kind or "an unknown method"
        return stored[:max_body], f"compressed with {how}, shown as stored"
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(stored, max_body)
    except zlib.error as error:
        return stored[:max_body], f"compressed and damaged ({error}), shown as stored"
    if inflater.unconsumed_tail:
        return body, f"inflates to more than {max_body} bytes, cut there"
    return body, None if inflater.eof else "compressed and cut short, shown as far as it goes"


def _host_text(address: bytes, port: int) -> str:
    if len(address) == 16:
        return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"
    return f"{socket.inet_ntop(socket.AF_INET, address)}:{port}"


def encode_message_id(address: bytes, port: int, phy_offset: int) -> str:
    """The offset id of a message: store host and physical offset, upper-case hex."""
    return (address + _INT.pack(port) + _LONG.pack(phy_offset)).hex().upper()


def decode_message_id(message_id: str) -> tuple[str, int]:
    """An offset id's broker as "ip:port" and its physical offset; AdminError if it is none."""
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28):
        raise MessageDecodeError(
            f"{message_id!r} is not an offset message id (32 hex digits, 56 with IPv6): "
            "for a unique key use queryMsgByUniqueKey"
        )
    (port,) = _INT.unpack_from(raw, len(raw) - 12)
    (phy_offset,) = _LONG.unpack_from(raw, len(raw) - 8)
    if not 0 < port < 65536:
        raise MessageDecodeError(
            f"{message_id!r} names port {port}: not an offset message id; "
            "for a unique key use queryMsgByUniqueKey"
        )
    return _host_text(raw[:-12], port), phy_offset


def decode_properties(text: str) -> dict[str, str]:
    """The properties in stored order; pieces without a name or a value are skipped."""
    pairs = (piece.split(NAME_VALUE_SEPARATOR, 1) for piece in text.split(PROPERTY_SEPARATOR))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0] and pair[1]}


def encode_properties(properties: dict[str, str]) -> str:
    """The stored form of properties."""
    return PROPERTY_SEPARATOR.join(
        f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items()
    )
