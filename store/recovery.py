"""Recovery: where does the commit log end?

Run by the `store` process before any writer starts: the one moment in which it may change log
files. Record by record from a start file: all that checks out is kept, the first thing that does
not is the end; what lies behind it is zeroed on disk, so that it can never be taken for messages
after the next crash. Corresponds to RocketMQ's CommitLog.recoverNormally / recoverAbnormally, with
these differences: a stale record (physicalOffset not its place) is not accepted, and the tail is
zeroed.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from store.clean_exit import CleanExit, find_objection
from store.mapped_file import sync_directory, zero_range
from store.mapped_file_queue import MappedFileQueue
from store.message_codec import (
    BLANK_SIZE,
    RecordCheck,
    RecordKind,
    check_record,
    decode_record,
    read_store_timestamp,
)
from store.store_checkpoint import StoreCheckpoint

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all), now and then during a scan."""

_NORMAL_FILES: Final = 3
_PROGRESS_STEP: Final = 16 << 20


class RecoveryMode(enum.StrEnum):
    """NORMAL: the last stop was orderly. ABNORMAL: the abort file was there."""

    NORMAL = "normal"
    ABNORMAL = "abnormal"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """Where the log ends, and how that was found.

    `start_scanned_at` is None when nothing was scanned (`trusted`: by the word of clean.exit).
    `records` counts what was scanned. `dropped_bytes`: whole later files that were not reachable.
    """

    min_phy_offset: int
    max_phy_offset: int
    start_scanned_at: int | None
    reason: str
    trusted: bool = False
    records: int = 0
    dropped_bytes: int = 0


def recover_commit_log(
    queue: MappedFileQueue,
    checkpoint: StoreCheckpoint,
    mode: RecoveryMode,
    *,
    check_crc: bool = True,
    index_safe: bool = False,
    clean_exit: CleanExit | None = None,
    progress: Progress | None = None,
) -> RecoveryResult:
    """Find the end of a loaded log, zero what is behind it, delete later files.

    index_safe: an abnormal scan starts no later than the index' checkpoint. Durable when it
    returns. Raises StoreError, OSError.
    """
    first = queue.min_offset
    if first is None:
        return _done(0, 0, None, "there are no commit log files")
    trusted = _trust(queue, mode, clean_exit)
    if trusted is not None:
        return trusted
    written = _written_files(queue)
    if not written:
        _cut(queue, first)
        return _done(first, first, first, "the commit log files hold nothing")
    timestamp = checkpoint.min_timestamp(with_index=index_safe)
    start = _normal_start(written) if mode is RecoveryMode.NORMAL else None
    if start is None:
        start = _abnormal_start(queue, written, timestamp)
    scan = _Scan(queue, start, written, check_crc=check_crc, progress=progress)
    tail = scan.run()
    dropped = sum(queue.file_size for file in written if file >= tail)
    _cut(queue, tail)
    result = _done(first, tail, start, scan.reason, records=scan.records, dropped=dropped)
    _report(result, mode)
    return result


def _done(
    first: int, tail: int, start: int | None, reason: str, *, records: int = 0, dropped: int = 0
) -> RecoveryResult:
    return RecoveryResult(
        min_phy_offset=first,
        max_phy_offset=tail,
        start_scanned_at=start,
        reason=reason,
        records=records,
        dropped_bytes=dropped,
    )


def _report(result: RecoveryResult, mode: RecoveryMode) -> None:
    log.info(
        "%s recovery: scanned %s records from %s, the log ends at %s: %s",
        mode,
        result.records,
        result.start_scanned_at,
        result.max_phy_offset,
        result.reason,
    )
    if result.dropped_bytes:
        log.error(
            "commit log: damaged at %s (%s); %s bytes in later files were dropped",
            result.max_phy_offset,
            result.reason,
            result.dropped_bytes,
        )


# -- clean.exit --------------------------------------------------------------------------------


def _trust(
    queue: MappedFileQueue, mode: RecoveryMode, word: CleanExit | None
) -> RecoveryResult | None:
    if word is None or mode is RecoveryMode.ABNORMAL:
        return None
    objection = find_objection(word, queue)
    if objection is not None:
        log.warning("clean.exit is not valid, scanning the log: %s", objection)
        return None
    return RecoveryResult(
        min_phy_offset=queue.min_offset or 0,
        max_phy_offset=word.max_phy_offset,
        start_scanned_at=None,
        reason="the last stop was clean",
        trusted=True,
    )


# -- where to start ----------------------------------------------------------------------------


def _written_files(queue: MappedFileQueue) -> list[int]:
    """Start offsets without the allocated, never written files at the end."""
    starts = queue.start_offsets
    while starts:
        with queue.view(starts[-1], BLANK_SIZE) as head:
            if any(head):
                break
        starts.pop()
    return starts


def _normal_start(written: list[int]) -> int:
    return written[max(0, len(written) - _NORMAL_FILES)]


def _abnormal_start(queue: MappedFileQueue, written: list[int], timestamp: int) -> int:
    """The newest file whose first record is old enough to be on disk with all derived files."""
    for start in reversed(written):
        with queue.view_at(start) as view:
            found = check_record(view, 0, queue.file_size, start, check_crc=False)
            if found.kind is RecordKind.MESSAGE and 0 < read_store_timestamp(view, 0) <= timestamp:
                return start
    return written[0]


# -- the scan ----------------------------------------------------------------------------------


class _Scan:
    """One walk over the records from `start` on. `reason`: why it ended."""

    def __init__(
        self,
        queue: MappedFileQueue,
        start: int,
        written: list[int],
        *,
        check_crc: bool,
        progress: Progress | None,
    ) -> None:
        self._queue = queue
        self._starts = [file for file in written if file >= start]
        self._check_crc = check_crc
        self._progress = progress or (lambda done, total: None)
        self._total = len(self._starts) * queue.file_size
        self.records = 0
        self.reason = ""

    def run(self) -> int:
        """The offset behind the last good record."""
        tail = self._starts[0]
        for start in self._starts:
            with self._queue.view_at(start) as view:
                position, found = self._walk(view, start)
            tail = start + position
            if found.kind is not RecordKind.BLANK:
                self.reason = found.reason
                break
            tail = start + self._queue.file_size
            self.reason = "the last file is full"
        self._progress(self._total, self._total)
        return tail

    def _walk(self, view: memoryview, start: int) -> tuple[int, RecordCheck]:
        """Position and finding of the first thing in a file that is no good message."""
        limit = len(view)
        check_crc = self._check_crc
        report_at = last = position = 0
        while True:
            found = check_record(view, position, limit, start + position, check_crc=check_crc)
            if found.kind is not RecordKind.MESSAGE:
                break
            last, position = position, position + found.size
            self.records += 1
            if position >= report_at:
                report_at = position + _PROGRESS_STEP
                self._progress(start - self._starts[0] + position, self._total)
        if position > last and found.kind is RecordKind.NOTHING and _is_torn(view, last):
            self.records -= 1
            return last, RecordCheck(RecordKind.INVALID, 0, "the last record is torn")
        return position, found


def _is_torn(view: memoryview, position: int) -> bool:
    """Properties have no check sum: of the very last record they must not end in zero bytes."""
    return decode_record(view, position)[0].properties.endswith(b"\0")


# -- the cut -----------------------------------------------------------------------------------


def _cut(queue: MappedFileQueue, tail: int) -> None:
    """Zero [tail, end of its file) and delete the files behind it, durably."""
    last = tail - tail % queue.file_size
    for path in queue.delete_from(last + 1):
        log.info("%s: deleted, it is after the end of the log at %s", path, tail)
    if last in queue.start_offsets:
        zero_range(queue.path_of(last), tail - last, queue.file_size)
    sync_directory(queue.directory)
