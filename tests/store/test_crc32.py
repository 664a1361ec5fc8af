"""Both CRC-32s, of short bodies and of long ones, are zlib's."""

from __future__ import annotations

import random
import sys
import zlib

import pytest

from store.crc32 import LONG, _long_crc32, crc32, crc32_for, long_crc32


def test_every_size_around_the_bound() -> None:
    data = random.Random(1).randbytes(2 * LONG)
    for size in (*range(LONG // 2), *range(LONG - 9, LONG + 9), 2 * LONG):
        for body in (data[:size], memoryview(data)[:size]):
            assert crc32_for(size)(body) == crc32(body) == long_crc32(body) == zlib.crc32(body)


def test_zlib_serves_without_zlib_ng(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zlib_ng", None)
    monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    assert _long_crc32() is zlib.crc32
