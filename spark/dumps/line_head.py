"""The head of a dump line: which life of which broker wrote it, its number, which line was before.

Runs in the executors, and in one process of `mqreport verify` (msgspec). A line may have a head and
still be a bad line. Must not know what is concluded from it (spark/evidence/dump_chain.py).
"""

from __future__ import annotations

from typing import Final

import msgspec

_LARGEST_SEQ: Final = 2**63 - 1
NO_JSON: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""What decoding raises for text that is no JSON, or of other types."""


class LineHead(msgspec.Struct, gc=False):
    """docs/metrics_dump.md defines the fields."""

    v: int
    cluster: str
    broker: str
    broker_id: int
    boot: str
    boot_ts: int
    seq: int
    prev_digest: str | None = None
    prev_boot: str | None = None
    prev_seq: int | None = None


_DECODER: Final = msgspec.json.Decoder(LineHead)


def find_head(line: bytes) -> LineHead | None:
    """None for what is no line of a broker."""
    try:
        head = _DECODER.decode(line)
    except NO_JSON:
        return None
    return head if 1 <= head.seq <= _LARGEST_SEQ else None
