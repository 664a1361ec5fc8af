"""Up to where the consume queues have records, whatever the log says: for a log that lost its end.

Run by the main thread of process `store` before recovery, and only when somebody has truncated a
file of the log: what the file lacks is zeros then, and nothing in it says how far it went. Every
message that a consumer may have seen has a unit, so that the queues know. Reads the files as they
lie there; it changes nothing and loads no queue.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from store.clean_exit import CleanExit
from store.mapped_file import find_start_offset
from store.mapped_file_queue import MappedFileQueue
from store.message_store_config import BATCH_UNIT_SIZE, MessageStoreConfig
from store.stored_units import CQ_UNIT_SIZE, PRE_BLANK_SIZE

_STEP: Final = 400
"""Units of a read."""


def known_end(
    config: MessageStoreConfig, files: MappedFileQueue, clean_exit: CleanExit | None
) -> int:
    """Up to where the log went before somebody truncated a file of it; 0 while all are whole.
    Raises OSError."""
    if not files.completed:
        return 0
    low, high, size = files.min_offset or 0, files.end_offset, files.file_size
    if clean_exit is not None and clean_exit.file_size == size:
        low = max(low, min(clean_exit.max_phy_offset, high))
    low = find_record_end(config.consume_queue_path, CQ_UNIT_SIZE, low, high, size)
    return find_record_end(config.batch_consume_queue_path, BATCH_UNIT_SIZE, low, high, size)


def find_record_end(root: Path, unit_size: int, low: int, high: int, largest: int) -> int:
    """The end of the last record that a unit names in the log [low, high); `low` when none does.
    root: the directory of the consume queues, or of the batch consume queues; a unit of either
    begins with the record's place and size. largest: bytes of a record, at most; a unit that says
    more is damaged. Some twenty reads for each queue. Raises OSError."""
    found = low
    unit = np.dtype(
        {
            "names": ["phy", "size"],
            "formats": [">i8", ">i4"],
            "offsets": [0, 8],
            "itemsize": unit_size,
        }
    )
    for directory in _queue_directories(root):
        files = sorted(
            (start, entry.path)
            for entry in os.scandir(directory)
            if (start := find_start_offset(entry.name)) is not None
        )
        for _, path in reversed(files):
            end = _last_record_end(path, unit, high, largest)
            if end is not None:
                found = max(found, end)
                break
    return found


def _queue_directories(root: Path) -> Iterator[str]:
    if root.is_dir():
        for topic in os.scandir(root):
            if topic.is_dir():
                yield from (queue.path for queue in os.scandir(topic.path) if queue.is_dir())


def _last_record_end(path: str, unit: np.dtype[np.void], high: int, largest: int) -> int | None:
    """The end of the last record before `high` in one file of a queue; None: it has no unit."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        unit_size = unit.itemsize
        count = _count_units(fd, unit_size)
        while count > 0:
            first = max(count - _STEP, 0)
            data = os.pread(fd, (count - first) * unit_size, first * unit_size)
            units = np.frombuffer(data, unit, len(data) // unit_size)
            sizes, phys = units["size"].astype(np.int64), units["phy"].astype(np.int64)
            is_good = (sizes > 0) & (sizes != PRE_BLANK_SIZE) & (sizes <= largest)
            is_good &= (phys >= 0) & (phys <= high - sizes)
            if is_good.any():
                return int((phys + sizes)[is_good].max())
            count = first
        return None
    finally:
        os.close(fd)


def _count_units(fd: int, unit_size: int) -> int:
    """Units before the first that was never written: those of a file begin at its start."""
    low, high = 0, os.fstat(fd).st_size // unit_size
    while low < high:
        middle = (low + high) // 2
        if any(os.pread(fd, unit_size, middle * unit_size)):
            low = middle + 1
        else:
            high = middle
    return low
