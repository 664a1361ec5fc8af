"""A follower's log is cut while its store is open: what nobody was ever shown goes.

Only where no derived file has to change: nothing behind the cut is dispatched, nor may it be, as
the confirm offset lies before it; and the cut lies in the last file. Everything else is cut while
the store is closed (store/replica_resync.py), by the same request, which stays until this cut is
done: a process that dies meanwhile leaves the rest of it to the next start.

Process `ha`, which writes the log then, keeps the tail, lowers MAX_PHY_OFFSET and zeroes (TailCut).
Process `store` forgets that it has flushed what is gone (FlushedEnd): other bytes come in its
place, and would count as flushed.

Tested by tests/store/test_log_cut.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from ipc.control_page import ControlPage
from store.control_slots import (
    CONFIRM_OFFSET,
    DISPATCHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
)
from store.controller_mode import RoleNow
from store.cut_backup import Beat, backup_of, copy_from, make_directory
from store.errors import StoreError
from store.log_fences import fences_path, load_fences
from store.log_flusher import LogFlusher
from store.mapped_file import MappedFile
from store.message_store_config import MessageStoreConfig
from store.record_arrays import walk_records
from store.resync_request import REQUEST_NAME, find_request, forget_request, write_json
from store.store_progress import StoreProgress

log = logging.getLogger(__name__)

_SPARE: Final = 16 << 20
"""Bytes that stay free on the disk beside the copy."""


class TailCut:
    """In process `ha`, on the thread of the member of the group."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        forget_flushed: Callable[[int], None],
        zero_behind_end: Callable[[], None],
        beat: Beat = lambda: None,
    ) -> None:
        """forget_flushed: FlushedEnd.end_at in process `store`. zero_behind_end: durably, what is
        written and not published. Both raise StoreError."""
        self._config = config
        self._counters = page.counters
        self._forget_flushed = forget_flushed
        self._zero_behind_end = zero_behind_end
        self._beat = beat

    def cut(self, offset: int) -> bool:
        """End the log here, durably, as the request that is written down says. False: the store has
        to be opened anew for it, which performs that request, wherever this has ended. While
        nobody else writes the log."""
        try:
            if not self._fits(offset):
                return False
            self._keep_tail(offset)
            self._counters[MAX_PHY_OFFSET] = offset
            self._forget_flushed(offset)
            self._zero_behind_end()
            forget_request(self._config.root)
        except (StoreError, OSError) as error:
            log.error("the log is not cut at %s while it is open: %s", offset, error)
            return False
        log.warning("the log ends at %s now; nothing behind it was read or acknowledged", offset)
        return True

    def _fits(self, offset: int) -> bool:
        counters, size = self._counters, self._config.mapped_file_size_commit_log
        end, shown = counters[MAX_PHY_OFFSET], counters[DISPATCHED_OFFSET]
        if not (counters[MIN_PHY_OFFSET] < offset < end and offset % size):
            return False
        if offset // size != (end - 1) // size or max(shown, counters[CONFIRM_OFFSET]) > offset:
            return False
        if len(load_fences(fences_path(self._config.commit_log_path)).within(offset, end)):
            return False
        return self._ends_record(max(shown, offset - offset % size), offset)

    def _ends_record(self, start: int, offset: int) -> bool:
        """Whether whole records lie from `start`, where one begins, to `offset`, in one file."""
        file_start = offset - offset % self._config.mapped_file_size_commit_log
        path = self._config.log_directories.path_of(file_start)
        at, size = start - file_start, offset - start
        with MappedFile.open(path, file_start) as mapped, mapped.view(at, size) as view:
            _, stopped = walk_records(view)
        return stopped == size

    def _keep_tail(self, offset: int) -> None:
        config = self._config
        request = find_request(config.root)
        if request is None or request.offset != offset:
            raise StoreError(f"no request says that the log is cut at {offset}")
        make_directory(config.root / request.backup)
        write_json(config.root / request.backup / REQUEST_NAME, asdict(request))
        file_start = offset - offset % config.mapped_file_size_commit_log
        path = config.log_directories.path_of(file_start)
        target = backup_of(path.parent, request.backup)
        way = "free space: the store is opened anew until there is some"
        copy_from(path, file_start, offset, target, self._beat, way, spare=_SPARE)


class FlushedEnd:
    """In process `store`, on its main thread."""

    def __init__(
        self, page: ControlPage, role: RoleNow, flusher: LogFlusher, progress: StoreProgress
    ) -> None:
        self._counters = page.counters
        self._role = role
        self._flusher = flusher
        self._progress = progress

    def end_at(self, offset: int) -> None:
        """The log ends here now, and what was behind it does not count as flushed any more; nor
        does the check point say so, on disk, when this returns. Raises StoreError: nothing has
        changed; OSError."""
        counters = self._counters
        if not self._role.is_slave() or counters[MAX_PHY_OFFSET] != offset:
            raise StoreError(f"the log cannot be cut at {offset}: it ends elsewhere, or grows")
        if counters[DISPATCHED_OFFSET] > offset:
            raise StoreError(
                f"the log cannot be cut at {offset} while it is open: it is dispatched up to "
                f"{counters[DISPATCHED_OFFSET]}"
            )
        progress = self._progress
        shown_ms = max(progress.dispatched_timestamp, progress.checkpoint.logics_msg_timestamp)
        self._flusher.end_at(offset, shown_ms)
        progress.write_checkpoint()
