"""crc32c: the checksum of frames between replicas, by the library of that name.

The library is loaded with the first checksum: it brings importlib.metadata and argparse along, two
MiB in each process that might replicate, and most brokers have no replica. Pure; any thread.

Tested by tests/ha/test_checked_carriage.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Bytes = bytes | bytearray | memoryview

_LOADED: Final[list[Callable[[Bytes, int], int]]] = []
"""The library's function, once it is there."""


def crc32c(data: Bytes, crc: int = 0) -> int:
    """CRC-32C of `data`; crc: of what came before it."""
    if not _LOADED:
        from crc32c import crc32c as load

        _LOADED.append(load)
    return _LOADED[0](data, crc)
