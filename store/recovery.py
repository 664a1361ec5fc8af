"""Recovery: where does the commit log end, and what of it cannot be read?

Run by the `store` process before any writer starts: the one moment in which it may change log
files. Record by record from a start file. What does not check out is damage when whole records lie
behind it, or when it is older than what was flushed: it is fenced (store/log_fences.py), its bytes
stay, and the walk goes on behind it. Otherwise the log ends there, and what is behind is a torn
tail: it is kept aside (store/cut_backup.py) and zeroed, so that it can never be taken for messages
after the next crash. Corresponds to RocketMQ's CommitLog.recoverNormally / recoverAbnormally, with
these differences: those end the log at the first damage and leave the bytes there; here a stale
record (physicalOffset not its place, or older than what is before it) is not accepted.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from store.believed_time import WITNESSES, BelievedTime
from store.body_crcs import BodyCrcs
from store.clean_exit import CleanExit, find_objection
from store.cut_backup import end_of_data, keep_tail
from store.log_fences import NO_FENCES, LogFences, new_fence
from store.mapped_file import zero_range
from store.mapped_file_queue import MappedFileQueue
from store.message_codec import (
    BLANK_SIZE,
    SIZE_AND_MAGIC,
    RecordCheck,
    RecordKind,
    check_record,
    decode_record,
    read_store_timestamp,
)
from store.record_search import find_in_files
from store.record_walk import (
    FIRST_STEP,
    WALK_STEP,
    GoodRecords,
    single_record,
    walk_good_records,
)
from store.scan_start import find_abnormal_start, find_normal_start, written_files
from store.store_checkpoint import StoreCheckpoint

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all), now and then during a scan."""

_PAGE: Final = 4096
_TORN: Final = RecordCheck(RecordKind.INVALID, 0, "the last record is torn")


class RecoveryMode(enum.StrEnum):
    """NORMAL: the last stop was orderly. ABNORMAL: the abort file was there."""

    NORMAL = "normal"
    ABNORMAL = "abnormal"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogClues:
    """What is known of the log beside its files and the checkpoint.

    `fences`: damage; None: unknown, all is scanned. `is_replica`: what is missing at the end comes
    again from the master. `known_end`: the log had records up to there, which somebody has
    truncated: what is missing is damage, and the log goes on behind it. `now_ms`: the wall clock;
    records of later times are not taken at their word (BelievedTime).
    """

    now_ms: int
    clean_exit: CleanExit | None = None
    fences: LogFences | None = NO_FENCES
    is_replica: bool = False
    known_end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """Where the log ends, and how that was found.

    `start_scanned_at` is None when nothing was scanned (`trusted`: by the word of clean.exit).
    `records` counts what was scanned. `flushed_offset`: the scanned part is on disk up to there,
    with its units in the queues, by the checkpoint; None when nothing was scanned. `fences`: all
    that are known now. `tail`: where what was cut off is kept; None when nothing but zeros was.
    """

    min_phy_offset: int
    max_phy_offset: int
    start_scanned_at: int | None
    reason: str
    trusted: bool = False
    records: int = 0
    flushed_offset: int | None = None
    fences: LogFences = NO_FENCES
    tail: Path | None = None


def recover_commit_log(
    queue: MappedFileQueue,
    checkpoint: StoreCheckpoint,
    mode: RecoveryMode,
    clues: LogClues,
    *,
    check_crc: bool = True,
    index_safe: bool = False,
    progress: Progress | None = None,
) -> RecoveryResult:
    """Find the end of a loaded log and its damage, keep and zero what is behind the end.

    index_safe: an abnormal scan starts no later than the index' checkpoint. Durable when it
    returns, except for the fences. Raises StoreError, OSError.
    """
    fences = clues.fences
    first = queue.min_offset
    if first is None:
        return _done(0, 0, None, "there are no commit log files")
    trusted = _trust(queue, mode, clues.clean_exit) if fences is not None else None
    if trusted is not None:
        assert fences is not None
        low, high = trusted.min_phy_offset, trusted.max_phy_offset
        return replace(trusted, fences=fences.within(low, high))
    written = written_files(queue)
    if not written and clues.known_end <= first:
        return _cut(queue, _done(first, first, first, "the commit log files hold nothing"))
    written = written or [first]
    start = written[0] if fences is None else None
    if start is None and mode is RecoveryMode.NORMAL:
        start = find_normal_start(written)
    if start is None:
        timestamp = checkpoint.min_timestamp(with_index=index_safe)
        start = find_abnormal_start(queue, written, timestamp)
    scan = _Scan(
        queue,
        start,
        fences or NO_FENCES,
        check_crc=check_crc,
        flushed=_flushed_part(checkpoint, clues),
        known_end=0 if clues.is_replica else clues.known_end,
        progress=progress,
        believed=BelievedTime(clues.now_ms),
    )
    tail = scan.run()
    result = replace(
        _done(first, tail, start, scan.reason),
        records=scan.records,
        flushed_offset=scan.flushed_offset,
        fences=scan.fences.within(first, tail),
    )
    _report(result, mode)
    return _cut(queue, result)


def _done(first: int, tail: int, start: int | None, reason: str) -> RecoveryResult:
    return RecoveryResult(
        min_phy_offset=first, max_phy_offset=tail, start_scanned_at=start, reason=reason
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


@dataclass(frozen=True, slots=True)
class _FlushedPart:
    """What is known to have been on disk: the log up to `offset`, and records stored before
    `timestamp` (ms); those before `with_units` (ms; 0: none) with their units in the queues."""

    offset: int
    timestamp: int
    with_units: int = 0

    def holds(self, phy_offset: int, newest_before: int) -> bool:
        """Whether what follows `phy_offset` was on disk; newest_before: store timestamp of the
        record before it."""
        return phy_offset < self.offset or 0 < newest_before < self.timestamp


def _flushed_part(checkpoint: StoreCheckpoint, clues: LogClues) -> _FlushedPart:
    if clues.is_replica:
        return _FlushedPart(0, 0)
    offset = clues.clean_exit.max_phy_offset if clues.clean_exit is not None else 0
    return _FlushedPart(offset, checkpoint.physic_msg_timestamp, checkpoint.min_timestamp())


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


# -- the scan ----------------------------------------------------------------------------------


class _Scan:
    """One walk over the records from `start` on. `reason`: why it ended. `fences`: those that were
    known and still are damage, and what was found."""

    def __init__(
        self,
        queue: MappedFileQueue,
        start: int,
        known: LogFences,
        *,
        check_crc: bool,
        flushed: _FlushedPart,
        known_end: int,
        progress: Progress | None,
        believed: BelievedTime,
    ) -> None:
        self._queue = queue
        self._start = start
        self._known = known
        self._check_crc = check_crc
        self._flushed = flushed
        self._known_end = known_end
        self._progress = progress or (lambda done, total: None)
        self._total = queue.end_offset - start
        self._done = 0
        """Bytes that were walked when it was last told."""
        self._newest = 0
        """Store timestamp (ms) of the last good record, as it stands there."""
        self._believed = believed
        self._crcs = BodyCrcs()
        self._step = WALK_STEP
        self._sees_unflushed = False
        self.flushed_offset = start
        """Up to here the log is on disk, and its units are, by the checkpoint."""
        self.fences = LogFences(fence for fence in known if fence.start < start)
        self.records = 0
        self.reason = ""

    def run(self) -> int:
        """The offset behind the last good record, or behind the last fence."""
        at = self._start
        while at < self._queue.end_offset:
            at, found = self._walk(at)
            self.reason = found.reason
            if found.kind is RecordKind.BLANK:
                self.reason = "the last file is full"
                continue
            behind = self._fence(at, found.reason)
            if behind is None:
                break
            at, self._step = behind, FIRST_STEP
        self._progress(self._total, self._total)
        return at

    def _walk(self, start: int) -> tuple[int, RecordCheck]:
        """Where, in the file of `start`, the first thing is that is no good message, and what; for
        a blank the start of the next file."""
        file_size = self._queue.file_size
        file_start = start - start % file_size
        check_crc = self._check_crc
        last = position = start - file_start
        with self._queue.view_at(file_start) as view:
            while True:
                good = walk_good_records(
                    view, position, file_start, check_crc=check_crc, step=self._step
                )
                if not good.count:
                    at = file_start + position
                    check = self._crcs.crc if check_crc else False
                    found = check_record(view, position, file_size, at, check_crc=check)
                    if found.kind is not RecordKind.MESSAGE:
                        break
                    good = single_record(view, position, found.size)
                last, position = int(good.positions[-1]), good.end
                self._step = min(self._step * 2, WALK_STEP)
                self.records += good.count
                self._believed.note(view, good.positions[-WITNESSES:].tolist())
                self._note_flushed(file_start, good)
                self._done = file_start - self._start + position
                self._beat()
            if position > last:
                self._newest = read_store_timestamp(view, last)
                if found.kind is RecordKind.NOTHING and _is_torn(view, last):
                    self.records -= 1
                    return file_start + last, _TORN
        if found.kind is RecordKind.BLANK:
            return file_start + file_size, found
        return file_start + position, found

    def _note_flushed(self, file_start: int, good: GoodRecords) -> None:
        """Follow the records that are on disk: those before the first that may not be, whatever
        the clock did between them."""
        bound = self._flushed.with_units
        if self._sees_unflushed or not bound:
            return
        unflushed = good.timestamps >= bound
        count = int(unflushed.argmax()) if unflushed.any() else good.count
        self._sees_unflushed = count < good.count
        if count:
            end = good.end if count == good.count else int(good.positions[count])
            self.flushed_offset = file_start + end

    def _fence(self, at: int, reason: str) -> int | None:
        """Where records, or the log's end, follow the damage at `at`; None: the log ends here."""
        behind = find_in_files(
            self._queue,
            at + 1,
            not_before=self._believed.ms,
            beat=self._beat,
            crcs=self._crcs,
        )
        if behind is None:
            if self._flushed.holds(at, self._newest):
                behind = self._end_of_flushed(at)
            if at < self._known_end:
                behind = max(behind or 0, self._known_end)
        if behind is None:
            return None
        known = self._known.find(at)
        if known is None or (known.start, known.end) != (at, behind):
            known = new_fence(at, behind, reason)
        self.fences = self.fences.with_fence(known)
        return behind

    def _end_of_flushed(self, at: int) -> int | None:
        """Where the log continues behind damage that nothing follows; None when all is zero."""
        queue = self._queue
        for start in reversed(queue.start_offsets):
            low = max(at - start, 0)
            if low >= queue.file_size:
                break
            with queue.view_at(start) as view:
                end = end_of_data(queue.path_of(start), view, low, self._beat)
                if end > low:
                    return start + max(end, _announced_end(view, at - start, end))
        return None

    def _beat(self) -> None:
        self._progress(self._done, self._total)


def _announced_end(view: memoryview, position: int, data_end: int) -> int:
    """Where the damaged record ends by its own size, if its data could do so; else 0."""
    if position < 0 or position + SIZE_AND_MAGIC.size > len(view):
        return 0
    end = position + int(SIZE_AND_MAGIC.unpack_from(view, position)[0])
    return end if data_end <= end <= min(data_end + _PAGE, len(view) - BLANK_SIZE) else 0


def _is_torn(view: memoryview, position: int) -> bool:
    """Properties have no check sum: of the very last record they must not end in zero bytes."""
    return decode_record(view, position)[0].properties.endswith(b"\0")


# -- the cut -----------------------------------------------------------------------------------


def _cut(queue: MappedFileQueue, result: RecoveryResult) -> RecoveryResult:
    """Keep what is behind the end, then zero its file and delete the ones behind it, durably."""
    tail = result.max_phy_offset
    kept = keep_tail(queue, tail, lambda: None)
    if kept is not None:
        log.error(
            "commit log: truncated at %s (%s); the bytes after it are kept in %s",
            tail,
            result.reason,
            kept,
        )
    last = tail - tail % queue.file_size
    for path in queue.delete_from(last + 1):
        log.info("%s: removed, it is after the end of the log at %s", path, tail)
    if last in queue.start_offsets:
        zero_range(queue.path_of(last), tail - last, queue.file_size)
    queue.directories.sync()
    return replace(result, tail=kept)
