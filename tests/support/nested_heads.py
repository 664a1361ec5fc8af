"""A file of the log full of heads of records, each within the one before, whose bodies are others
than they say: what a client may have sent in a body."""

from __future__ import annotations

from typing import Final

from store.message_codec import encode_blank, encode_record
from tests.support.memory_commit_log import message

STEP: Final = 400


def nested_heads(size: int, start: int = 0) -> bytearray:
    """They all say to end with the file, which begins at `start` of the log: of 2 MiB there are
    5,000, 5 GB if each were read."""
    head = bytearray(encode_record(message("T", body=b"x"))[:88])
    data = bytearray(size)
    for at in range(1, size - STEP, STEP):
        head[0:4] = (size - 8 - at).to_bytes(4, "big")
        head[28:36] = (start + at).to_bytes(8, "big")
        head[84:88] = (size - 8 - at - 88 - 4).to_bytes(4, "big")
        data[at : at + 88] = head
    data[size - 12 : size - 8] = b"\x01T\0\0"
    data[size - 8 :] = encode_blank(8)
    return data
