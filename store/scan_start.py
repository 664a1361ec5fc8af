"""Where a recovery begins to scan the commit log.

Run by the main thread of process `store` before any writer starts (store/recovery.py). It changes
nothing, and does not know where the log ends.

Tested by tests/store/test_recovery.py.
"""

from __future__ import annotations

from typing import Final

from store.mapped_file_queue import MappedFileQueue
from store.message_codec import (
    BLANK_SIZE,
    RecordKind,
    check_record,
    read_born_timestamp,
    read_store_timestamp,
)

_NORMAL_FILES: Final = 3


def written_files(queue: MappedFileQueue) -> list[int]:
    """Start offsets without the allocated, never written files at the end."""
    starts = queue.start_offsets
    while starts:
        with queue.view(starts[-1], BLANK_SIZE) as head:
            if any(head):
                break
        starts.pop()
    return starts


def find_normal_start(written: list[int]) -> int:
    """After an orderly stop: some files before the end."""
    return written[max(0, len(written) - _NORMAL_FILES)]


def find_abnormal_start(queue: MappedFileQueue, written: list[int], timestamp: int) -> int:
    """The newest file whose first records are old enough to be on disk with all derived files:
    stored no later than `timestamp` (ms)."""
    for start in reversed(written):
        with queue.view_at(start) as view:
            if 0 < _latest_of_first(view, start) <= timestamp:
                return start
    return written[0]


def _latest_of_first(view: memoryview, file_start: int) -> int:
    """The latest time (ms) in the first two records of a log file; 0 when it begins with none. One
    time that is damaged must not make the file look old: what is before it would not be scanned."""
    at = latest = 0
    for _ in range(2):
        found = check_record(view, at, len(view), file_start + at, check_crc=False)
        if found.kind is not RecordKind.MESSAGE:
            break
        latest = max(latest, read_store_timestamp(view, at), read_born_timestamp(view, at))
        at += found.size
    return latest
