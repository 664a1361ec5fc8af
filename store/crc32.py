"""Chooses what computes the CRC-32 of a body: zlib, for long ones zlib-ng where it is there.

Any thread. Both give the same value. A body of 1 KiB takes zlib 390 ns, and zlib-ng 44 with the
processor's carry-less multiplication; one of 128 bytes takes 150 and 195. A broker that cannot
import zlib-ng is only slower.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Final, Protocol, cast


class Crc32(Protocol):
    """The CRC of bytes that follow others, whose CRC is `value`."""

    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


CrcOf = Callable[[bytes | bytearray | memoryview, int, int, int], int]
"""The CRC of [start, end) of a buffer; last, the place of its first byte in the log."""
LONG: Final = 256
"""Bytes of a long body."""
crc32: Final[Crc32] = zlib.crc32
"""For short ones."""


def _long_crc32() -> Crc32:
    try:
        return cast("Crc32", importlib.import_module("zlib_ng.zlib_ng").crc32)
    except ImportError:
        return zlib.crc32


long_crc32: Final = _long_crc32()


def crc32_for(size: int) -> Crc32:
    """What is fastest for `size` bytes."""
    return long_crc32 if size >= LONG else crc32
