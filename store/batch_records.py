"""The records of a batch, made together: the body that a client sent becomes bytes of the log.

Pure functions over buffers, called by CommitLog on the loop thread of `remoting`; knows no file.
Messages of equal sizes are taken apart and put together by one struct for all of them; all others
in one loop. Only what is plain is made here: None says that somebody must look at the batch message
by message (SendRecords, which says what is wrong with it). The layouts are those of batch_codec.py
and message_codec.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec

from store.batch_codec import BATCH_ITEM_HEAD, MOST_BATCH_MESSAGES, count_batch
from store.crc32 import LONG, crc32, crc32_for, long_crc32
from store.message_codec import (
    BODY_CRC_AT,
    BODY_CRC_MASK,
    MAGIC_V1,
    PHY_OFFSET_AT,
    PROPERTIES_LENGTH,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    record_head,
)
from store.message_properties import PAIR_END, PROPERTIES_LIMIT

_ITEM: Final = Struct(">i8xii")
"""Of an item's head: totalSize, flag, body size."""
assert _ITEM.size == BATCH_ITEM_HEAD.size
_ITEM_SIZE: Final = _ITEM.size
_LENGTH_SIZE: Final = PROPERTIES_LENGTH.size
_LEAST_ITEM: Final = _ITEM_SIZE + _LENGTH_SIZE
_BODY_SIZE: Final = 4
"""Bytes of the last field of a record's head."""
_HEADS: Final = {
    size: Struct(f">iIIiiqq{size - SYS_FLAG_AT - _BODY_SIZE}si")
    for size in {record_head(hosts << 4).size for hosts in range(4)}
}
"""By its size: a record's head whose fields from sysFlag up to the body's size are one piece."""
assert all(head.size == size for size, head in _HEADS.items())
assert (BODY_CRC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, PHY_OFFSET_AT) == (8, 12, 20, 28)
_ROWS_FROM: Final = 4
"""With fewer messages the loop is as fast."""
_MOST_ROWS: Final = 64
"""Messages in one struct."""
_SHAPES: Final = 128
"""Pairs of structs that are kept, at most 28 KiB each. To make one for 16 messages takes 5 us."""
_PAIR_END_BYTE: Final = PAIR_END[0]


class BatchCommon(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What all records of a batch have in common. As in Record, sys_flag carries the host bits."""

    queue_id: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int
    topic: bytes
    """The name behind its size byte."""
    properties: bytes
    """Stored behind the properties of each message; not empty."""


class BatchPlace(msgspec.Struct, frozen=True, gc=False):
    """Where the first record of a batch begins, and what the writer adds to each."""

    phy_offset: int
    queue_offset: int
    store_timestamp: int
    store_host: bytes
    room: int
    """Bytes that all records may take."""


ArePlain = Callable[[bytes, Sequence[bytes]], bool]
"""Whether messages can be stored as they are, by their properties: joined, and one by one. It may
say no for a word that two neighbours make."""
BatchRecords = tuple[bytes, Sequence[int]]
"""The bytes of all records of a batch, and where each begins in the log."""


def encode_batch(
    body: memoryview, common: BatchCommon, place: BatchPlace, are_plain: ArePlain
) -> BatchRecords | None:
    """The records of the batch `body`, back to back.

    None: it is damaged or empty, it holds a message that is not plain, or no text, or a number
    does not fit its field; or it holds too many, or takes more than place.room, which is known
    before it is made.
    """
    if len(body) < _LEAST_ITEM or not _may_fit(body, common, place.room):
        return None
    try:
        made = _encode_rows(body, common, place, are_plain)
        return made or _encode_each(body, common, place, are_plain)
    except struct.error:
        return None


def _may_fit(body: memoryview, common: BatchCommon, room: int) -> bool:
    """Whether the messages are not too many, nor their records certainly too large for `room`. They
    are counted only where that is not plain from the size of `body`: 0.2 us for each."""
    added = record_head(common.sys_flag).size + len(common.topic) + len(common.properties)
    added -= _ITEM_SIZE
    most = len(body) // _LEAST_ITEM
    if most <= MOST_BATCH_MESSAGES and len(body) + most * added <= room:
        return True
    number = count_batch(body)
    return number <= MOST_BATCH_MESSAGES and len(body) + number * added <= room


def _head(common: BatchCommon, place: BatchPlace, size: int, flag: int, body_size: int) -> bytes:
    """The head of a record, with 0 for its CRC and its offsets."""
    sys_flag = common.sys_flag
    packed: bytes = record_head(sys_flag).pack(
        size,
        MAGIC_V1,
        0,
        common.queue_id,
        flag,
        0,
        0,
        sys_flag,
        common.born_timestamp,
        common.born_host,
        place.store_timestamp,
        place.store_host,
        common.reconsume_times,
        0,
        body_size,
    )
    return packed


def _are_text(joined: bytes, texts: Sequence[bytes]) -> bool:
    if joined.isascii():
        return True
    try:
        for text in texts:
            text.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- messages of equal sizes -------------------------------------------------------------------


@lru_cache(_SHAPES)
def _row_structs(
    count: int, head_size: int, body_size: int, middle_size: int, properties_size: int, end: int
) -> tuple[Struct, Struct]:
    """For `count` items: head, body, the properties' size, properties. For as many records: size
    and magic, CRC, queue and flag, both offsets, sysFlag to the body's size, body, topic and the
    properties' size, properties, and the `end` bytes that all have in common."""
    item = f"{_ITEM_SIZE}s{body_size}s{_LENGTH_SIZE}s{properties_size}s"
    record = (
        f"{BODY_CRC_AT}sI{QUEUE_OFFSET_AT - QUEUE_ID_AT}sqq{head_size - SYS_FLAG_AT}s"
        f"{body_size}s{middle_size}s{properties_size}s{end}s"
    )
    return Struct(">" + item * count), Struct(">" + record * count)


def _encode_rows(
    body: memoryview, common: BatchCommon, place: BatchPlace, are_plain: ArePlain
) -> BatchRecords | None:
    """Long and plain: 16 messages of 128 bytes take 13 us here, 22 in the loop and 19 with arrays
    of numpy; 100 take 60, 140 and 57.

    None: the items have not all the sizes and the flag of the first one, or are not plain.
    """
    item_size, flag, body_size = _ITEM.unpack_from(body)
    properties_size = item_size - _ITEM_SIZE - body_size - _LENGTH_SIZE
    if body_size < 0 or properties_size < 0:
        return None
    count, rest = divmod(len(body), item_size)
    if rest or count < _ROWS_FROM:
        return None
    ended = properties_size == 0 or body[item_size - 1] == _PAIR_END_BYTE
    end = common.properties if ended else PAIR_END + common.properties
    stored_size = properties_size + len(end)
    if stored_size > PROPERTIES_LIMIT:
        return None
    length = PROPERTIES_LENGTH.pack(properties_size)
    middle = common.topic + PROPERTIES_LENGTH.pack(stored_size)
    head_size = record_head(common.sys_flag).size
    size = head_size + body_size + len(middle) + stored_size
    if count * size > place.room:
        return None
    head = _head(common, place, size, flag, body_size)
    item_head = body[:_ITEM_SIZE].tobytes()
    row = [
        *(head[:BODY_CRC_AT], 0, head[QUEUE_ID_AT:QUEUE_OFFSET_AT], 0, 0, head[SYS_FLAG_AT:]),
        *(b"", middle, b"", end),
    ]
    queue_offset, phy_offset = place.queue_offset, place.phy_offset
    pieces: list[bytes] = []
    for first in range(0, count, _MOST_ROWS):
        taken = min(count - first, _MOST_ROWS)
        items, records = _row_structs(
            taken, head_size, body_size, len(middle), properties_size, len(end)
        )
        values = items.unpack_from(body, first * item_size)
        bodies, texts = values[1::4], values[3::4]
        if values[::4].count(item_head) != taken or values[2::4].count(length) != taken:
            return None
        joined = b"".join(texts)
        if not (are_plain(joined, texts) and _are_text(joined, texts)):
            return None
        if properties_size:
            ends = joined[properties_size - 1 :: properties_size].count(PAIR_END)
            if ends != (taken if ended else 0):
                return None
        fields = row * taken
        fields[1::10] = [crc & BODY_CRC_MASK for crc in map(crc32_for(body_size), bodies)]
        fields[3::10] = range(queue_offset, queue_offset + taken)
        fields[4::10] = range(phy_offset, phy_offset + taken * size, size)
        fields[6::10] = bodies
        fields[8::10] = texts
        pieces.append(records.pack(*fields))
        queue_offset += taken
        phy_offset += taken * size
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return data, range(place.phy_offset, phy_offset, size)


# -- messages of any sizes ---------------------------------------------------------------------


def _encode_each(
    body: memoryview, common: BatchCommon, place: BatchPlace, are_plain: ArePlain
) -> BatchRecords | None:
    """Long and plain: 1.4 us a message of 128 bytes."""
    data = body.tobytes()
    at, end = 0, len(data)
    head_size = record_head(common.sys_flag).size
    middle = _head(common, place, 0, 0, 0)[SYS_FLAG_AT:-_BODY_SIZE]
    unpack, unpack_length = _ITEM.unpack_from, PROPERTIES_LENGTH.unpack_from
    pack, pack_length = _HEADS[head_size].pack, PROPERTIES_LENGTH.pack
    queue_id, topic = common.queue_id, common.topic
    plain_end, separated_end = common.properties, PAIR_END + common.properties
    fixed_size = head_size + len(topic) + _LENGTH_SIZE
    queue_offset, phy_offset = place.queue_offset, place.phy_offset
    room_end = phy_offset + place.room
    pieces: list[bytes] = []
    texts: list[bytes] = []
    phy_offsets: list[int] = []
    while at < end:
        item_size, flag, body_size = unpack(data, at)
        item_end = at + item_size
        at += _ITEM_SIZE
        body_end = at + body_size
        (length,) = unpack_length(data, body_end)
        if body_size < 0 or length < 0 or body_end + _LENGTH_SIZE + length != item_end:
            return None
        content = data[at:body_end]
        text = data[body_end + _LENGTH_SIZE : item_end]
        texts.append(text)
        text += separated_end if text and text[-1] != _PAIR_END_BYTE else plain_end
        length = len(text)
        if length > PROPERTIES_LIMIT:
            return None
        size = fixed_size + body_size + length
        if phy_offset + size > room_end:
            return None
        crc = (long_crc32 if body_size >= LONG else crc32)(content) & BODY_CRC_MASK
        head = pack(
            size, MAGIC_V1, crc, queue_id, flag, queue_offset, phy_offset, middle, body_size
        )
        pieces += (head, content, topic, pack_length(length), text)
        phy_offsets.append(phy_offset)
        phy_offset += size
        queue_offset += 1
        at = item_end
    joined = b"".join(texts)
    if at > end or not (are_plain(joined, texts) and _are_text(joined, texts)):
        return None
    return b"".join(pieces), phy_offsets
