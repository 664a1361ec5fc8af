"""Where the consume queues of a source end: read from their files, changing nothing.

One thread. The log alone does not say where a queue goes on whose messages have all expired.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from store.dledger.unfinished_import import QueueEnd
from store.mapped_file_queue import StoreFile, list_store_files
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE

_QUEUE: Final = re.compile("0|[1-9][0-9]{0,9}")
_LAST_QUEUE: Final = (1 << 31) - 1
_NO_UNIT: Final = bytes(CQ_UNIT_SIZE)


def read_queue_ends(directory: Path) -> Iterator[QueueEnd]:
    """Of each queue that ever had a message, in order. Raises OSError."""
    topics = sorted(directory.iterdir()) if directory.is_dir() else []
    for topic in topics:
        if not is_topic(topic):
            continue
        for queue in sorted(topic.iterdir()):
            if _QUEUE.fullmatch(queue.name) and int(queue.name) <= _LAST_QUEUE:
                end = _find_end(list_store_files(queue))
                if end:
                    yield topic.name, int(queue.name), end


def is_topic(path: Path) -> bool:
    """Whether it is a directory that a broker can have made for a topic."""
    return path.is_dir() and path.name.isprintable()


def _find_end(files: list[StoreFile]) -> int:
    """The queue offset behind the last unit; 0 without one."""
    for file in reversed(files):
        with file.path.open("rb") as opened:
            count = _count_units(opened.fileno(), file.size // CQ_UNIT_SIZE)
        if count:
            return file.start_offset // CQ_UNIT_SIZE + count
    return 0


def _count_units(fd: int, most: int) -> int:
    """Units fill a file from its start, zeros follow."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        raw = os.pread(fd, CQ_UNIT_SIZE, middle * CQ_UNIT_SIZE)
        phy_offset, size, _ = CQ_UNIT.unpack(raw) if len(raw) == CQ_UNIT_SIZE else (0, 0, 0)
        if raw != _NO_UNIT and size > 0 and phy_offset >= 0:
            low = middle + 1
        else:
            high = middle
    return low
