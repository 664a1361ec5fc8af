"""ClosedFileScrubber: reads one closed file of the commit log, and acts on what it finds.

On the scrub thread of process `store`; `accept` is called by its main thread, too. Damaged records
are fenced (LogDamage), or written again where the page cache still has them whole. The digests of a
file are kept beside those that are expected of it (LogDigests), of which it is the only writer. It
does not know which file is next, nor how fast it may read.

Tested by tests/store/test_scrub_service.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.commit_log_reader import CommitLogReader
from store.control_slots import CHANGED_CHUNKS, SCRUB_DAMAGED_RANGES
from store.disk_reader import DiskReader
from store.errors import StoreError
from store.file_scan import Damage, FileScan, ScannedFile
from store.log_damage import LogDamage
from store.log_digests import CHUNK_SIZE, FileDigests, LogDigests
from store.log_repair import LogRepair
from store.message_codec import RecordKind, check_record
from store.message_store_config import MessageStoreConfig

log = logging.getLogger(__name__)


class ClosedFileScrubber:
    """See the module. Guarded by: `_lock`, what concerns the files of digests."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        source: CommitLogReader,
        damage: LogDamage,
        repair: LogRepair,
        clock: Clock,
        *,
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        """source, damage: not shared. repair: writes again what the cache has."""
        self._directories: Final = config.log_directories
        self._file_size: Final = config.mapped_file_size_commit_log
        self._counters = page.counters
        self._source = source
        self._damage = damage
        self._repair = repair
        self._clock = clock
        self._chunk_size = chunk_size
        self._digests = LogDigests(config.commit_log_path)
        self._lock: Final = threading.Lock()
        self._written_again: set[int] = set()
        """Starts of damage that was written again from the cache: not twice."""
        self._changed: dict[int, int] = {}
        """File to how many of its chunks have changed."""

    # -- digests -------------------------------------------------------------------------------

    def known_files(self) -> list[int]:
        """Start offsets of the files that have digests, in order."""
        return self._digests.starts()

    def accept(self, start: int, chunk: int, digest: str) -> None:
        """What a chunk of the file at `start` is expected to hold from now on. Raises StoreError,
        OSError."""
        with self._lock:
            known = self._digests.load(start)
            if known is None or chunk >= len(known.digests):
                raise StoreError(f"no digest of chunk {chunk} of the file at {start}")
            self._save(known.accepting(chunk, digest))

    def prepare(self, log_end: int) -> None:
        """At the start: digests of what is no closed file any more, after a cut or a new beginning,
        are gone. log_end: of the log as it was opened. Raises OSError."""
        with self._lock:
            for start in self._digests.starts():
                if start + self._file_size > log_end:
                    self._digests.drop(start)
                elif (known := self._load(start)) is not None:
                    self._count_changed(known)

    def forget_below(self, phy_offset: int) -> None:
        """Files that were deleted. Raises OSError."""
        with self._lock:
            for start in self._digests.starts():
                if start < phy_offset:
                    self._digests.drop(start)
                    self._changed.pop(start, None)

    # -- one file ------------------------------------------------------------------------------

    def scrub(self, start: int, on_read: Callable[[int], None]) -> list[Damage]:
        """Read the file at `start`; returns the damage that was written again, which is to be read
        once more. on_read: gets the size before each read; what it raises ends the reading. Raises
        StoreError, OSError."""
        scanned = self._scan(start, on_read)
        self._keep(start, scanned)
        return [damage for damage in scanned.damages if self._treat(damage)]

    def _scan(self, start: int, on_read: Callable[[int], None]) -> ScannedFile:
        fences = self._source.fences
        mapped = self._source.view_of_file(start)
        if mapped is None:
            raise StoreError("it no longer exists")
        with mapped, DiskReader(self._directories.path_of(start), on_read) as reader:
            scan = FileScan(
                reader,
                start,
                mapped,
                fences,
                chunk_size=self._chunk_size,
                now_ms=self._clock.now_ms(),
            )
            return scan.run()

    def _treat(self, damage: Damage) -> bool:
        """Fence the damage, or write again what the page cache has whole: then True."""
        self._counters[SCRUB_DAMAGED_RANGES] += 1
        start, end = damage.start, damage.end
        if start in self._written_again or not self._is_whole_in_cache(damage):
            self._damage.fence_off(start, end, f"scrub: {damage.reason}")
            return False
        self._written_again.add(start)
        log.error(
            "commit log: [%s, %s) is damaged on disk (%s) and intact in the page cache; "
            "writing it again",
            start,
            end,
            damage.reason,
        )
        self._repair.write_again(start, end)
        return True

    def _is_whole_in_cache(self, damage: Damage) -> bool:
        view = self._source.view_of_file(damage.start)
        if view is None:
            return False
        size, at = self._file_size, damage.start
        with view:
            while at < damage.end:
                found = check_record(view, at % size, size, at, check_crc=True)
                if found.kind not in (RecordKind.MESSAGE, RecordKind.BLANK):
                    return False
                at += found.size
        return at == damage.end

    def _keep(self, start: int, scanned: ScannedFile) -> None:
        """The digests of this reading beside those that are expected."""
        with self._lock:
            known = self._load(start)
            merged = merge_digests(known, start, scanned, self._clock.now_ms(), self._chunk_size)
            self._save(merged)
        before = known.found if known is not None else {}
        for chunk in sorted(merged.found.keys() - before.keys()):
            log.error(
                "commit log: [%s, %s) has changed since it was read first, though every record "
                "passes its checks; asking the group's other brokers",
                *merged.range_of(chunk),
            )

    def _load(self, start: int) -> FileDigests | None:
        try:
            return self._digests.load(start)
        except StoreError as error:
            log.error("%s: rebuilding its digests", error)
            return None

    def _save(self, digests: FileDigests) -> None:
        self._digests.save(digests)
        self._count_changed(digests)

    def _count_changed(self, digests: FileDigests) -> None:
        self._changed[digests.start] = len(digests.found)
        self._counters[CHANGED_CHUNKS] = sum(self._changed.values())


def merge_digests(
    known: FileDigests | None, start: int, scanned: ScannedFile, now_ms: int, chunk_size: int
) -> FileDigests:
    """What is expected stays, what was found is noted beside it."""
    if known is not None and (
        known.chunk_size != chunk_size or len(known.digests) != len(scanned.digests)
    ):
        known = None
    expected = list(known.digests) if known is not None else [""] * len(scanned.digests)
    found: dict[int, str] = {}
    damaged: set[int] = set()
    for chunk, digest in enumerate(scanned.digests):
        if digest is None:
            damaged.add(chunk)
        elif not expected[chunk]:
            expected[chunk] = digest
        elif expected[chunk] != digest:
            found[chunk] = digest
    data_end = scanned.data_end
    if data_end is None:
        data_end = known.data_end if known is not None else len(expected) * chunk_size
    return FileDigests(
        start=start,
        data_end=data_end,
        checked_ms=now_ms,
        digests=tuple(expected),
        found=found,
        damaged=frozenset(damaged),
        chunk_size=chunk_size,
    )
