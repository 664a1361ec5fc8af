"""Bodies as their senders wrote them: inflates what RocketMQ's clients compressed.

Pure; executors. A body is any client's bytes: what it inflates to is bounded, and a body that
cannot be inflated stays as it is stored, with the reason. (Java: CompressionType, Compressor.)

Tested by tests/spark/sources/test_rows.py.
"""

from __future__ import annotations

import zlib
from typing import Final

from spark.sources.errors import SourceError
from tools.message_decoder import (
    COMPRESSED,
    COMPRESSION_MASK,
    COMPRESSION_NAMES,
    MAX_INFLATED_BODY,
)

_INSTALL: Final = (
    "a message is compressed with {name}, and {library} cannot be imported: "
    "pip install 'rocketmq-python-broker[spark]' on every executor"
)
_STEP: Final = 1 << 10
_LARGEST_WINDOW: Final = 1 << 27
"""Memory that a frame of ZSTD may ask for: what its levels up to 22 use."""


def read_body(stored: bytes, sys_flag: int, limit: int = MAX_INFLATED_BODY) -> tuple[bytes, str]:
    """The body, and why it is not as its sender wrote it; "" where it is. SourceError: a library is
    missing."""
    if not sys_flag & COMPRESSED or not stored:
        return stored, ""
    name = COMPRESSION_NAMES.get(sys_flag & COMPRESSION_MASK)
    if name is None:
        return (
            stored,
            f"compressed by method {(sys_flag & COMPRESSION_MASK) >> 8}, which is unknown",
        )
    try:
        body, is_whole = _INFLATERS[name](stored, limit)
    except _Unreadable as error:
        return stored, f"not {name}, though the message says so: {error}"
    if not is_whole or len(body) > limit:
        return stored, f"{name} that is cut short, or inflates to more than {limit} bytes"
    return body, ""


class _Unreadable(Exception):
    """The bytes are not what their method makes."""


def _zlib(stored: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(stored, limit + 1)
    except zlib.error as error:
        raise _Unreadable(str(error)) from None
    return body, inflater.eof


def _lz4(stored: bytes, limit: int) -> tuple[bytes, bool]:
    try:
        import lz4.frame
    except ImportError:
        raise SourceError(_INSTALL.format(name="LZ4", library="lz4")) from None
    inflater = lz4.frame.LZ4FrameDecompressor()
    try:
        body: bytes = inflater.decompress(stored, max_length=limit + 1)
    except (RuntimeError, MemoryError) as error:
        raise _Unreadable(str(error)) from None
    return body, inflater.eof


def _zstd(stored: bytes, limit: int) -> tuple[bytes, bool]:
    """A block of few bytes may inflate to 128 KiB, so it is fed in steps: too much is noticed."""
    try:
        import zstandard
    except ImportError:
        raise SourceError(_INSTALL.format(name="ZSTD", library="zstandard")) from None
    inflater = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for at in range(0, len(stored), _STEP):
            parts.append(inflater.decompress(stored[at : at + _STEP]))
            size += len(parts[-1])
            if inflater.eof or size > limit:
                break
    except (zstandard.ZstdError, MemoryError) as error:
        raise _Unreadable(str(error)) from None
    return b"".join(parts), inflater.eof


_INFLATERS: Final = {"zlib": _zlib, "LZ4": _lz4, "ZSTD": _zstd}
