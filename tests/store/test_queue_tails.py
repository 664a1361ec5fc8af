"""store.queue_tails: the last record that a queue's files name."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from store.queue_tails import find_record_end

HIGH = 1 << 20


def write(root: Path, queue: str, start: int, units: list[tuple[int, int]], size: int) -> None:
    """Units of `size` bytes, zeros behind them."""
    directory = root / queue
    directory.mkdir(parents=True, exist_ok=True)
    data = b"".join(struct.pack(">qi", *unit).ljust(size, b"\0") for unit in units)
    (directory / f"{start:020d}").write_bytes(data.ljust(3_000 * size, b"\0"))


@pytest.mark.parametrize("size", [20, 46])
def test_the_last_of_all_queues(tmp_path: Path, size: int) -> None:
    write(tmp_path, "T/0", 0, [(at * 100, 100) for at in range(1, 2_000)], size)
    write(tmp_path, "T/1", 0, [(5, 100), (400_000, 77)], size)
    write(tmp_path, "T/1", 3_000 * size, [], size)
    assert find_record_end(tmp_path, size, 300, HIGH, 4_096) == 400_077
    assert find_record_end(tmp_path, size, 500_000, HIGH, 4_096) == 500_000


def test_blanks_and_what_cannot_be_are_passed_over(tmp_path: Path) -> None:
    odd = [(7_000, 0x7FFFFFFF), (HIGH, 100), (7_000, 5_000), (7_000, -5), (-5, 100)]
    write(tmp_path, "T/0", 0, [(6_000, 100), *(odd * 200)], 20)
    assert find_record_end(tmp_path, 20, 0, HIGH, 4_096) == 6_100


def test_without_queues(tmp_path: Path) -> None:
    assert find_record_end(tmp_path / "none", 20, 8, HIGH, 4_096) == 8
