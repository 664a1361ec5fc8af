"""What the kernel says of its clock, by bytes that are laid out as it lays them out."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from ipc.clock_error import ClockError


def asked(monkeypatch: pytest.MonkeyPatch, status: int, answer: int = 0) -> int | None:
    """By a kernel with a maximum error of 12,345 us."""

    class Library:
        @staticmethod
        def adjtimex(buffer: Any) -> int:
            assert buffer.raw == bytes(256), "it asks, and sets nothing"
            struct.pack_into("=i4xqqqqi", buffer, 0, 0, 1, 2, 12_345, 3, status)
            return answer

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library)
    return ClockError().read_ms()


@pytest.mark.parametrize(
    ("status", "answer", "expected"),
    [(0x2001, 0, 13), (0x2041, 5, None), (0x2001, -1, None)],
    ids=["held", "not held", "not allowed"],
)
def test_error(
    monkeypatch: pytest.MonkeyPatch, status: int, answer: int, expected: int | None
) -> None:
    assert asked(monkeypatch, status, answer) == expected


def test_this_kernel_answers() -> None:
    found = ClockError().read_ms()
    assert found is None or 0 <= found < 10**9
