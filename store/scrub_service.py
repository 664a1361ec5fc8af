"""ScrubService: reads the closed files of the commit log again and again, as the disk returns them.

A thread of process `store`. A pass goes over all closed files every scrubIntervalHours, at no more
than scrubBytesPerSecond, less under load; a file that was closed since is read soon. What is done
with a file is ClosedFileScrubber's. It asks no replica: process `remoting` does, when a pass has
ended (broker/slave/damage_repair_service.py). The thread is not niced: it would hold the
interpreter's lock while it waits for a processor, and dispatch with it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any, Final

from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.service_thread import FailureHandler, ServiceThread
from store.closed_file_scrubber import ClosedFileScrubber
from store.control_slots import (
    DISPATCHED_OFFSET,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    SCRUB_PASS_ENDED_MS,
    SCRUB_PASSES,
    SCRUBBED_BYTES,
)
from store.errors import StoreError
from store.mapped_file_queue import list_store_files
from store.message_store_config import MessageStoreConfig
from store.scrub_pace import ScrubPace, load_progress, progress_path, save_progress

log = logging.getLogger(__name__)

LOOK_MS: Final = 5_000
"""Pause between two looks for something to read."""
_HOUR_MS: Final = 3_600_000
_UNDISPATCHED: Final = 8 << 20
_UNFLUSHED: Final = 64 << 20
"""Bytes: with more the broker counts as busy."""


class _InterruptedError(Exception):
    """A stop, or another pass is wanted: the file is read again later."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A pass that an operator asked for."""

    number: int
    bytes_per_second: float


class ScrubService(ServiceThread):
    """See the module. Owned by its thread; what others call is guarded by `_lock`."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        scrubber: ClosedFileScrubber,
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        super().__init__("ScrubService", on_failure=on_failure)
        self._config = config
        self._counters = page.counters
        self._scrubber = scrubber
        self._clock = clock
        self._progress_path = progress_path(config.commit_log_path)
        self._progress = load_progress(self._progress_path)
        self._pace = ScrubPace(clock, self._is_busy)
        self._is_prepared = False
        self._opened_end: Final = page.counters[MAX_PHY_OFFSET]
        self._unreadable: set[int] = set()
        """Files that could not be read in this pass."""
        self._lock: Final = threading.Lock()
        self._wanted: _Wanted | None = None
        self._recheck: dict[int, None] = {}
        self._is_rechecking = False
        self._pass_number = 0
        self._ended_number = 0
        self._pass_rate = 0.0

    # -- any thread ----------------------------------------------------------------------------

    def request_pass(self, bytes_per_second: float) -> int:
        """Begin a whole pass now, at this rate; returns its number (see `status`)."""
        with self._lock:
            number = max(self._pass_number, self._wanted.number if self._wanted else 0) + 1
            self._wanted = _Wanted(number, bytes_per_second)
        self.wakeup()
        return number

    def recheck(self, phy_offset: int) -> None:
        """The file that holds `phy_offset` was repaired: read it before the others."""
        size = self._config.mapped_file_size_commit_log
        with self._lock:
            self._recheck[phy_offset - phy_offset % size] = None
        self.wakeup()

    def status(self) -> dict[str, Any]:
        """Numbers of the running and of the last ended pass, where it is, how far files are closed,
        repaired files that are to be read again."""
        with self._lock:
            wanted, unread = self._wanted, len(self._recheck) + self._is_rechecking
        return {
            "pass": wanted.number if wanted else self._pass_number,
            "ended": self._ended_number,
            "position": self._progress.position,
            "closed_end": self._closed_end(),
            "unread_repairs": unread,
        }

    # -- the service ---------------------------------------------------------------------------

    def step(self) -> None:
        """Read one file, or wait until there is one to read."""
        self._prepare()
        try:
            start = self._next_file()
            if start is not None:
                self._scrub(start)
                return
        except _InterruptedError:
            return
        except (OSError, StoreError) as error:
            # What could not be fenced or noted is found again.
            log.error("scrub: %s", error)
        self.wait_for_running(LOOK_MS)

    def _prepare(self) -> None:
        """Digests of what is no closed file any more, after a cut or a new beginning, are gone."""
        if self._is_prepared:
            return
        self._is_prepared = True
        self._counters[SCRUB_PASS_ENDED_MS] = self._progress.last_ended_ms
        self._scrubber.prepare(self._opened_end)

    def _next_file(self) -> int | None:
        """Repaired files first, then the pass; between passes those without digests."""
        self._begin_wanted()
        closed = self._closed_files()
        self._scrubber.forget_below(self._counters[MIN_PHY_OFFSET])
        with self._lock:
            repaired = [start for start in self._recheck if start in closed]
            self._recheck.clear()
            self._recheck.update(dict.fromkeys(repaired[1:]))
            self._is_rechecking = bool(repaired)
        if repaired:
            return repaired[0]
        rate = self._config.scrub_bytes_per_second
        progress = self._progress
        if not progress.pass_started_ms and rate and self._is_due():
            with self._lock:
                self._pass_number += 1
            self._begin(rate)
        if progress.pass_started_ms and (self._pass_rate or rate):
            following = next((start for start in closed if start >= progress.position), None)
            if following is None:
                self._end_pass()
            return following
        if not rate:
            return None
        known = {*self._scrubber.known_files(), *self._unreadable}
        return next((start for start in closed if start not in known), None)

    def _begin_wanted(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, None
            if wanted is not None:
                self._pass_number = wanted.number
        if wanted is not None:
            self._begin(wanted.bytes_per_second)

    def _is_due(self) -> bool:
        """By the wall clock; one that jumped costs a pass, at most."""
        age_ms = self._clock.now_ms() - self._progress.last_started_ms
        return not 0 <= age_ms < self._config.scrub_interval_hours * _HOUR_MS

    def _begin(self, bytes_per_second: float) -> None:
        self._pass_rate = bytes_per_second
        self._pace.begin_anew()
        self._unreadable.clear()
        self._progress.pass_started_ms = self._clock.now_ms()
        self._progress.position = 0
        self._save_progress()
        log.info("scrub: starting a pass, at most %.0f bytes a second", bytes_per_second)

    def _end_pass(self) -> None:
        progress = self._progress
        progress.last_started_ms, progress.pass_started_ms = progress.pass_started_ms, 0
        progress.last_ended_ms = self._clock.now_ms()
        self._pass_rate = 0.0
        self._save_progress()
        self._counters[SCRUB_PASS_ENDED_MS] = progress.last_ended_ms
        self._counters[SCRUB_PASSES] += 1
        self._ended_number = self._pass_number
        log.info("scrub: finished the pass, files closed before %s", self._closed_end())

    def _save_progress(self) -> None:
        save_progress(self._progress_path, self._progress)

    # -- which files ---------------------------------------------------------------------------

    def _closed_end(self) -> int:
        """Nobody writes to files that end here or before, they are on disk, and have units."""
        counters = self._counters
        end = min(counters[FLUSHED_OFFSET], counters[DISPATCHED_OFFSET])
        return int(end - end % self._config.mapped_file_size_commit_log)

    def _closed_files(self) -> list[int]:
        low, end = self._counters[MIN_PHY_OFFSET], self._closed_end()
        files = list_store_files(self._config.log_directories)
        return [file.start_offset for file in files if low <= file.start_offset < end]

    # -- one file ------------------------------------------------------------------------------

    def _scrub(self, start: int) -> None:
        try:
            for damage in self._scrubber.scrub(start, self._before_read):
                self.recheck(damage.start)
        except (OSError, StoreError) as error:
            if start >= self._counters[MIN_PHY_OFFSET]:
                log.error("scrub: the file at %s cannot be read or treated: %s", start, error)
                self._unreadable.add(start)
        self._go_on_behind(start)

    def _go_on_behind(self, start: int) -> None:
        if self._progress.pass_started_ms and start >= self._progress.position:
            self._progress.position = start + self._config.mapped_file_size_commit_log
            self._save_progress()

    def _before_read(self, size: int) -> None:
        """Wait until `size` bytes may be read. Raises _InterruptedError."""
        rate = self._pass_rate or self._config.scrub_bytes_per_second or float(size)
        at_ms = self._pace.time_of(size, rate)
        while not self.stopped and self._wanted is None:
            left_ms = at_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._counters[SCRUBBED_BYTES] += size
                return
            self.wait_for_running(left_ms)
        raise _InterruptedError

    def _is_busy(self) -> bool:
        counters = self._counters
        end = counters[MAX_PHY_OFFSET]
        return bool(
            end - counters[DISPATCHED_OFFSET] > _UNDISPATCHED
            or end - counters[FLUSHED_OFFSET] > _UNFLUSHED
        )
