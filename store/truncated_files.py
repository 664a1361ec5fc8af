"""What a log file lacks that somebody has truncated, and that has its length back.

Pure but for reading the log. Used by the main thread of process `store` when it starts beside a
living writer: the records that a truncated file no longer holds become a fence before any queue is
looked at, since a queue's units would otherwise seem to be wrong ones, and their offsets free.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from store.commit_log_reader import CommitLogReader
from store.log_fences import Fence, new_fence
from store.message_codec import RecordKind, check_record
from store.record_walk import single_record, walk_good_records
from store.short_file_service import ShortFile


def find_holes(source: CommitLogReader, files: Iterable[ShortFile]) -> Iterator[Fence]:
    """A fence for each of the files of which published records are lost. Raises StoreError."""
    for file in files:
        view = source.view_of_file(file.start_offset)
        if view is None:
            continue
        with view:
            end = min(file.start_offset + len(view), source.max_phy_offset)
            start = _first_lost(source, view, file, end)
        if start < end:
            yield new_fence(start, end, f"its file was truncated to {file.size} bytes")


def _first_lost(source: CommitLogReader, view: memoryview, file: ShortFile, end: int) -> int:
    """Where the first record before `end` starts that was not wholly in the file's first bytes;
    `end`: there is none."""
    file_start = file.start_offset
    position, limit = 0, end - file_start
    while position < limit:
        if (fence := source.fences.find(file_start + position)) is not None:
            position = fence.end - file_start
            continue
        good = walk_good_records(view, position, file_start, check_crc=False)
        if not good.count:
            found = check_record(view, position, limit, file_start + position, check_crc=False)
            if found.kind is RecordKind.BLANK:
                return end
            if found.kind is not RecordKind.MESSAGE:
                return file_start + position
            good = single_record(view, position, found.size)
        starts: list[int] = [*good.positions.tolist(), good.end]
        for start, behind in itertools.pairwise(starts):
            if behind > file.size:
                return min(file_start + start, end)
        position = good.end
    return end
