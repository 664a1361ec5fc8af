"""A file of the log full of heads of records, each within the one before: what a client may have
sent in a body."""

from __future__ import annotations

import zlib
from typing import Final

from store.message_codec import BODY_CRC_MASK, encode_blank, encode_record
from tests.support.memory_commit_log import message

STEP: Final = 400
_TAIL: Final = b"\x01T\0\0"
"""Topic and properties: the end of each."""
_AROUND: Final = 88 + len(_TAIL)
"""Bytes of such a record besides its body."""


def nested_heads(
    size: int, start: int = 0, *, step: int = STEP, ends: int = 1, store_timestamp: int = 0
) -> bytearray:
    """Their bodies are others than they say; in 2 MiB there are 5,000, 5 GB if each were read.

    start: of the log, where the file begins. ends: at how many places they end, the last of them
    right before the file's blank record. store_timestamp: if said, all bodies are right, and all
    were stored then.
    """
    head = bytearray(encode_record(message("T", body=b"x", store_timestamp=store_timestamp))[:88])
    data = bytearray(size)
    for number in range(ends):
        at = size - 8 - 40 * number
        data[at - 4 : at] = _TAIL
    for number, at in enumerate(reversed(range(1, size - STEP - 40 * ends, step))):
        end = size - 8 - 40 * (number % ends)
        body_end = end - len(_TAIL)
        if store_timestamp:
            head[8:12] = (zlib.crc32(data[at + 88 : body_end]) & BODY_CRC_MASK).to_bytes(4, "big")
        head[0:4] = (end - at).to_bytes(4, "big")
        head[28:36] = (start + at).to_bytes(8, "big")
        head[84:88] = (body_end - at - 88).to_bytes(4, "big")
        data[at : at + 88] = head
    data[size - 8 :] = encode_blank(8)
    return data


def heads_and_record(size: int, start: int = 0, *, step: int = STEP) -> tuple[bytearray, int, int]:
    """Such bytes, right behind them a record of `size` bytes, and the file's blank one; the place
    in the file at which that begins, and the one at which it ends."""
    data = nested_heads(size, start, step=step)[:-8]
    at = len(data)
    body = bytes(size - _AROUND)
    record = encode_record(message("T", body=body, phy_offset=start + at, store_timestamp=1))
    data += record + encode_blank(8)
    return data, at, at + len(record)


def heads_between_records(size: int) -> bytearray:
    """Two such heads, a small record right behind them, and so on: what a client may have sent in a
    body, too."""
    data, first = nested_heads(size), nested_heads(size - 88, 88)
    for at in range(1 + 88, size - 2 * STEP, STEP):
        data[at : at + 88] = first[at - 88 : at]
        body = bytes(STEP - 2 * 88 - _AROUND)
        at += 88
        data[at : at + STEP - 2 * 88] = encode_record(message("T", body=body, phy_offset=at))
    return data
