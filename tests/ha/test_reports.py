"""ha.reports: the bytes of both forms, and that no damaged one is read."""

from __future__ import annotations

import hashlib
import hmac
import struct

import pytest

from ha.reports import DamagedReportError, Reports
from tests.support.every_row import every_row

KEY = b"k" * 32


def sealed(offset: int, key: bytes = KEY) -> bytes:
    """Truth from outside: the layout of the module's docstring, packed here."""
    data = struct.pack(">q", offset)
    return data + hmac.new(key, data, hashlib.sha256).digest()[:16]


def test_rocketmqs_form_is_eight_bytes() -> None:
    reports = Reports(None)
    assert reports.pack(4096) == struct.pack(">q", 4096)
    data = struct.pack(">qqq", 1, -5, 1 << 40) + b"\0\0"
    assert reports.take(data) == ([1, -5, 1 << 40], b"\0\0")
    assert reports.take(b"") == ([], b"")


def test_the_sealed_form() -> None:
    reports = Reports(KEY)
    assert reports.pack(4096) == sealed(4096)
    assert reports.take(sealed(1) + sealed(2) + b"rest") == ([1, 2], b"rest")
    assert reports.take(sealed(1)[:23]) == ([], sealed(1)[:23])


@every_row("bit", range(24 * 8))
def test_no_flipped_bit_is_read(bit: int) -> None:
    """Wherever it is, and though a good report follows."""
    changed = bytearray(sealed(5955))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedReportError, match="wrong seal"):
        Reports(KEY).take(bytes(changed) + sealed(8003))


def test_another_connections_seal_is_none() -> None:
    with pytest.raises(DamagedReportError):
        Reports(KEY).take(sealed(4096, b"other connection" * 2))
