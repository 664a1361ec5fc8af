"""IndexService: the key index of the whole store, written; IndexReader: the same, queried.

IndexService lives in process `store`: its dispatch thread puts entries, its clean thread deletes
expired files, both under one lock. IndexReader lives in `remoting` and follows the files through
read-only maps. An index file is named by the local time of its creation; when it is full the next
one begins and the full one is flushed by a thread of its own. RocketMQ loses keys after a crash
(it deletes the newest file and rebuilds only what recovery dispatches); here `rebuild_from` says
from where the log must be dispatched again to the index alone. Follows IndexService.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ipc.clock import Clock
from store.errors import StoreError, WrongFileSizeError
from store.index_file import (
    INDEX_HEADER,
    IndexEntry,
    IndexFile,
    Int64Array,
    index_file_size,
)
from store.java_hash import index_key_hash
from store.record_arrays import RecordArrays

log = logging.getLogger(__name__)

_NAME_SIZE: Final = 17
_JOIN_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class QueryOffsetResult:
    """Found records, newest file first, and how far the index reaches."""

    phy_offsets: list[int]
    index_last_update_timestamp: int
    index_last_update_phy_offset: int


def index_file_name(now_ms: int, after: str) -> str:
    """yyyyMMddHHmmssSSS in local time, but always behind the name `after` ("" for none).

    So the order is kept even if two files are made in one millisecond or the clock is set back.
    """
    seconds, millis = divmod(now_ms, 1000)
    name = f"{time.strftime('%Y%m%d%H%M%S', time.localtime(seconds))}{millis:03d}"
    return name if name > after else f"{int(after) + 1:0{_NAME_SIZE}d}"


def list_index_files(directory: Path) -> list[Path]:
    """Index files in order; names that are no number are left out, as in RocketMQ."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [directory / name for name in names if name.isascii() and name.isdigit()]


def query_index_files(
    files: Sequence[IndexFile], topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
) -> QueryOffsetResult:
    """At most `max_num` records of `topic` with `key` stored in [begin_ms, end_ms] (ms).

    Equal hashes are not told apart: the client compares the keys. Reads newest to oldest.
    """
    found: list[int] = []
    key_hash = index_key_hash(f"{topic}#{key}")
    for file in reversed(files):
        if file.is_time_matched(begin_ms, end_ms):
            file.select_phy_offsets(found, key_hash, max_num, begin_ms, end_ms)
        if file.begin_timestamp < begin_ms or len(found) >= max_num:
            break
    last = files[-1].header if files else (0,) * 6
    return QueryOffsetResult(found, last[1], last[3])


def _why_deleted(
    file: IndexFile, is_last: bool, exited_ok: bool, safe_timestamp: int
) -> str | None:
    """Why a file that was found is not kept; None when it is."""
    if is_last and file.unit_count <= 1:
        return "has no entry, its creation may have been cut short"
    if not exited_ok and (is_last or file.end_timestamp > safe_timestamp):
        return "may be half on disk"
    return None


class IndexService:
    """The index as its one writer has it. Guarded by: its lock."""

    def __init__(
        self,
        directory: Path,
        hash_slot_num: int,
        max_index_num: int,
        clock: Clock,
        on_flushed: Callable[[int], None],
    ) -> None:
        """directory: <storePathRootDir>/index. on_flushed(end_timestamp ms) is called when a full
        file is on disk (checkpoint indexMsgTimestamp), on a thread of the service."""
        self._directory = directory
        self._sizes = hash_slot_num, max_index_num
        self._clock = clock
        self._on_flushed = on_flushed
        self._lock = threading.Lock()
        self._files: list[IndexFile] = []
        self._flushing: list[threading.Thread] = []
        self._failure: StoreError | None = None
        """What went wrong on the flushing thread; raised to the dispatch thread."""

    # -- life ----------------------------------------------------------------------------------

    def load(self, *, exited_ok: bool, safe_timestamp: int) -> None:
        """Open the files. Raises WrongFileSizeError, OSError.

        After an unclean stop of the machine (exited_ok False) the newest file and those with
        entries younger than `safe_timestamp` (checkpoint indexMsgTimestamp, ms) are deleted:
        their pages may be half on disk, the header's older than the slots', and a file may be
        shorter than it was made, which of older ones is an error. `rebuild_from` then
        says what is missing. When only our process died, the files are whole but for the last
        batch: give exited_ok True.
        """
        paths = list_index_files(self._directory)
        is_short = False
        for path in paths:
            if path.stat().st_size == 0:
                log.warning("index file %s is empty, its creation was cut short: deleted", path)
                path.unlink()
                continue
            is_last = path is paths[-1]
            if not exited_ok and (is_short or self._was_cut(path, is_last, safe_timestamp)):
                # Nor is what follows it kept: `rebuild_from` knows no holes.
                is_short = True
                log.warning(
                    "index file %s is incomplete on disk: deleted; rebuilding it", path.name
                )
                path.unlink()
                continue
            file = IndexFile(path, *self._sizes, writable=True)
            reason = _why_deleted(file, is_last, exited_ok, safe_timestamp)
            if reason:
                log.warning("index file %s %s: deleted, to be rebuilt", path.name, reason)
                file.destroy()
                continue
            self._files.append(file)
        if self._files:
            repaired = self._files[-1].repair_chains()
            if repaired:
                log.warning("index file %s: %s chains repaired", self._files[-1].path, repaired)

    def _was_cut(self, path: Path, is_last: bool, safe_timestamp: int) -> bool:
        """Whether a file is too short, and was not flushed before the machine stopped. (One that
        was flushed has the length of other settings.)"""
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size >= index_file_size(*self._sizes):
                return False
            header = file.read(INDEX_HEADER.size)
        if is_last or len(header) < INDEX_HEADER.size:
            return True
        end_timestamp: int = INDEX_HEADER.unpack(header)[1]
        return end_timestamp == 0 or end_timestamp > safe_timestamp

    def drop_beyond(self, max_phy_offset: int) -> int:
        """Delete files that know records at or behind the log's end: it was cut by recovery, and
        new records at those places must get their keys. `rebuild_from` says what is missing.
        Returns how many."""
        before = len(self._files)
        while self._files and self._files[-1].end_phy_offset >= max(max_phy_offset, 1):
            file = self._files.pop()
            log.warning("index file %s reaches beyond the log: deleted", file.path.name)
            file.destroy()
        return before - len(self._files)

    @property
    def has_files(self) -> bool:
        """Whether there is any index file."""
        return bool(self._files)

    @property
    def rebuild_from(self) -> int:
        """The log is indexed up to the record that begins here (included, perhaps in part).

        Dispatching it and what follows again is harmless: entries are never doubled.
        """
        return self._files[-1].end_phy_offset if self._files else 0

    def flush(self) -> None:
        """Write everything to disk and tell the checkpoint. Raises FlushFailedError."""
        with self._lock:
            last = self._files[-1] if self._files else None
            end_timestamp = last.end_timestamp if last else 0
        if last is not None:
            last.flush()
            self._on_flushed(end_timestamp)

    def shutdown(self) -> None:
        """Flush and close; idempotent. Raises FlushFailedError, also one that has happened in the
        background."""
        self._join_flushing(_JOIN_TIMEOUT_S)
        if self._failure is not None:
            raise self._failure
        self.flush()
        with self._lock:
            for file in self._files:
                file.close()
            self._files.clear()

    # -- building ------------------------------------------------------------------------------

    def dispatch(self, records: RecordArrays) -> None:
        """Add the keys of `records` that are not there yet. Raises DiskFullError, OSError."""
        if not len(records.key_hashes):
            return
        self.put_keys(
            records.key_hashes,
            records.phy_offsets[records.key_records],
            records.store_timestamps[records.key_records],
        )

    def put_keys(
        self, key_hashes: Int64Array, phy_offsets: Int64Array, store_timestamps: Int64Array
    ) -> None:
        """Add entries (ms timestamps); phy_offsets ascend. What is there already is skipped."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            at = self._count_known(phy_offsets)
            while at < len(key_hashes):
                file = self._writable_file()
                at += file.put_batch(key_hashes[at:], phy_offsets[at:], store_timestamps[at:])

    def put_few(self, entries: Sequence[IndexEntry]) -> None:
        """`put_keys` for a few entries, without arrays. Raises DiskFullError, OSError."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            is_put = bool(self._files) and self._files[-1].put_few(entries)
        if not is_put:
            self.put_keys(*(np.array(column, np.int64) for column in zip(*entries, strict=True)))

    def _count_known(self, phy_offsets: Int64Array) -> int:
        """How many of the entries the index has: all before its last record, some of that one."""
        if not self._files:
            return 0
        last = self._files[-1].end_phy_offset
        if phy_offsets[0] > last:
            return 0
        older = int(np.searchsorted(phy_offsets, last))
        newer = int(np.searchsorted(phy_offsets, last + 1))
        return min(older + self._entries_of_last_record(last), newer)

    def _entries_of_last_record(self, last: int) -> int:
        count = 0
        for file in reversed(self._files):
            for phy_offset in file.last_units():
                if phy_offset != last:
                    return count
                count += 1
        return count

    def _writable_file(self) -> IndexFile:
        last = self._files[-1] if self._files else None
        if last is not None and not last.is_full:
            return last
        name = index_file_name(self._clock.now_ms(), last.path.name if last else "")
        file = IndexFile.create(
            self._directory / name,
            *self._sizes,
            end_phy_offset=last.end_phy_offset if last else 0,
            end_timestamp=last.end_timestamp if last else 0,
        )
        log.info("index file %s created", file.path)
        self._files.append(file)
        if last is not None:
            self._flush_in_background(last)
        return file

    def _flush_in_background(self, full: IndexFile) -> None:
        # Read here: a stop that cannot wait longer unmaps the file while it is flushed.
        end_timestamp = full.end_timestamp

        def flush() -> None:
            try:
                full.flush()
                self._on_flushed(end_timestamp)
            except StoreError as error:
                self._failure = error

        self._join_flushing(0)
        thread = threading.Thread(target=flush, name="FlushIndexFileThread", daemon=True)
        self._flushing.append(thread)
        thread.start()

    def _join_flushing(self, timeout_s: float) -> None:
        for thread in self._flushing:
            thread.join(timeout_s)
        self._flushing = [thread for thread in self._flushing if thread.is_alive()]
        if self._flushing and timeout_s:
            log.error("FlushIndexFileThread did not stop within %s s", timeout_s)

    # -- expiry --------------------------------------------------------------------------------

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete the oldest files that only know records before `min_phy_offset`, never the last.

        Returns how many.
        """
        deleted = 0
        with self._lock:
            while len(self._files) > 1 and self._files[0].end_phy_offset < min_phy_offset:
                self._join_flushing(_JOIN_TIMEOUT_S)
                file = self._files.pop(0)
                file.destroy()
                log.info("index file %s deleted: ends before %s", file.path, min_phy_offset)
                deleted += 1
        return deleted

    # -- queries -------------------------------------------------------------------------------

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> QueryOffsetResult:
        """See query_index_files."""
        with self._lock:
            return query_index_files(self._files, topic, key, max_num, begin_ms, end_ms)


class IndexReader:
    """The index as another process sees it. Guarded by: its lock; any thread may query."""

    def __init__(self, directory: Path, hash_slot_num: int, max_index_num: int) -> None:
        """directory: <storePathRootDir>/index; it need not exist yet."""
        self._directory = directory
        self._sizes = hash_slot_num, max_index_num
        self._lock = threading.Lock()
        self._files: dict[Path, IndexFile] = {}

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> QueryOffsetResult:
        """See query_index_files; maps new files and unmaps deleted ones first."""
        with self._lock:
            self._refresh()
            files = [self._files[path] for path in sorted(self._files)]
            return query_index_files(files, topic, key, max_num, begin_ms, end_ms)

    def close(self) -> None:
        """Unmap everything; idempotent."""
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _refresh(self) -> None:
        present = set(list_index_files(self._directory))
        for path in self._files.keys() - present:
            self._files.pop(path).close()
        for path in present - self._files.keys():
            try:
                self._files[path] = IndexFile(path, *self._sizes, writable=False)
            except (FileNotFoundError, WrongFileSizeError) as error:
                log.debug("index file %s is not readable yet: %s", path, error)
