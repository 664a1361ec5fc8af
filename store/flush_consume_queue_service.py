"""FlushConsumeQueueService: brings the consume queues to disk, and with them the checkpoint.

A thread of process `store`. Every round it flushes the queues with enough new pages; in longer
intervals, and when the log has grown much, all of them, and then the checkpoint may say so: the
timestamp and the position are taken before the flush and set after it, so that it never promises
units that are not on disk (RocketMQ sets them at dispatch). Units of light queues are in no file at
first (store/light_queue_files.py): a thorough flush writes those that were there at the one before
it, and the checkpoint says what held then. It must not know files. Corresponds to RocketMQ's
DefaultMessageStore.FlushConsumeQueueService.

Tested by tests/store/test_flush_consume_queue_service.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread
from store.errors import DiskFullError, FlushFailedError, StoreError
from store.message_store_config import MessageStoreConfig

log = logging.getLogger(__name__)

_MOST_GROWTH: Final = 1 << 30
"""Bytes of the log between two checkpoints: recovery reads the log from the file of the last one
on, and in RocketMQ's minute a busy broker writes many GB."""

_PAUSE_MS: Final = 0.2
_STOP_MS: Final = 4_000
"""For units of light queues at a stop: the supervisor kills who takes longer than 10 s with all."""


class _Mark(NamedTuple):
    """A moment: what was dispatched then, and how many units of light queues there were."""

    offset: int
    timestamp: int
    units: int


class FlushedQueues(Protocol):
    """All queues."""

    def flush_queues(self, least_pages: int) -> int:
        """Flush the queues with that many new pages; 0 = all. Raises FlushFailedError."""

    def unwritten_units(self) -> tuple[int, int]:
        """Of the units of light queues, in the order of the log: how many were ever built, and how
        many of these, from the first on, are in files; -1 while a queue cannot be written."""

    def write_units(self, until: int) -> bool:
        """Have some more of the first `until` of them in files; False: all are that can be. Raises
        DiskFullError, StoreError."""


class FlushConsumeQueueService(ServiceThread):
    """The service. A failed fdatasync ends it: see ServiceThread.on_failure."""

    def __init__(
        self,
        config: MessageStoreConfig,
        queues: FlushedQueues,
        clock: Clock,
        *,
        dispatched_offset: Callable[[], int],
        dispatched_timestamp: Callable[[], int],
        on_flushed: Callable[[int, int], None],
        begins_with_all: bool = False,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """dispatched_offset: log position up to which units are built. dispatched_timestamp: store
        time (ms) of the newest dispatched record, 0 before the first. on_flushed(that time, that
        position) sets logicsMsgTimestamp and logicsPhysicalOffset and flushes the checkpoint.
        begins_with_all: there are units that the checkpoint does not know to be on disk; they are
        flushed in the first round, which may tell a time of 0."""
        super().__init__("FlushConsumeQueueService", on_failure=on_failure)
        self._queues = queues
        self._clock = clock
        self._interval_ms = config.flush_interval_consume_queue
        self._least_pages = config.flush_consume_queue_least_pages
        self._thorough_interval_ms = config.flush_consume_queue_thorough_interval
        self._dispatched_offset = dispatched_offset
        self._dispatched_timestamp = dispatched_timestamp
        self._on_flushed = on_flushed
        self._last_thorough_ms = clock.monotonic_ms()
        self._last_thorough_offset: int | None = None
        """None: not known before the first round."""
        self._earlier: _Mark | None = None
        """Of the last thorough flush."""
        self._is_due = begins_with_all
        self._gives_up = False

    def step(self) -> None:
        """Wait one interval, then flush."""
        self.wait_for_running(self._interval_ms)
        if not self.stopped:
            self.flush_once()

    def write_in_time(self) -> None:
        """Before the services stop: of 100,000 light queues this takes longer than a service may
        for its end, and of many more longer than a stop may. Then it ends like a kill. Thread of
        who stops them."""
        until, _ = self._queues.unwritten_units()
        deadline_ms = self._clock.monotonic_ms() + _STOP_MS
        try:
            while self._queues.write_units(until):
                if self._clock.monotonic_ms() >= deadline_ms:
                    self._give_up("they cannot be written in time")
                    return
        except FlushFailedError:
            raise
        except StoreError as error:
            self._give_up(str(error))
            return
        if self._queues.unwritten_units()[1] < 0:
            log.warning("some light queues cannot be written: the next start recovers the store")

    def _give_up(self, why: str) -> None:
        self._gives_up = True
        all_units, in_files = self._queues.unwritten_units()
        log.warning(
            "%s units of light queues are left to the next start, which builds them from the log "
            "as after a kill: %s",
            all_units - max(in_files, 0),
            why,
        )

    def finish(self) -> None:
        """Before an orderly stop everything is flushed, or all that there is room for."""
        if self._gives_up:
            return
        try:
            self.flush_all()
        except DiskFullError as error:
            log.error("light queues are built from the log by the next start: %s", error)

    def flush_once(self) -> None:
        """One round: thorough when it is time. Raises FlushFailedError."""
        offset = self._dispatched_offset()
        if self._last_thorough_offset is None:
            self._last_thorough_offset = offset
        passed_ms = self._clock.monotonic_ms() - self._last_thorough_ms
        grown = offset - self._last_thorough_offset
        is_time = passed_ms >= self._thorough_interval_ms or grown >= _MOST_GROWTH
        if self._is_due or is_time:
            mark = self._mark()
            try:
                self._flush_thoroughly(mark, mark if self._is_due else self._earlier)
            except DiskFullError as error:
                log.warning("light queues are written later: %s", error)
        else:
            self._queues.flush_queues(self._least_pages)

    def flush_all(self) -> None:
        """Write and flush every queue, then the checkpoint. Raises FlushFailedError,
        DiskFullError."""
        mark = self._mark()
        self._flush_thoroughly(mark, mark)

    def _mark(self) -> _Mark:
        self._last_thorough_ms = self._clock.monotonic_ms()
        offset = self._last_thorough_offset = self._dispatched_offset()
        # Units that are built meanwhile are counted, and their records are not.
        return _Mark(offset, self._dispatched_timestamp(), self._queues.unwritten_units()[0])

    def _flush_thoroughly(self, now: _Mark, written: _Mark | None) -> None:
        """written: what must be in files. Raises DiskFullError: what is, is flushed."""
        try:
            while written is not None and self._queues.write_units(written.units):
                # A lock that is taken again at once is never free for who waits: dispatch.
                self.wait_for_running(_PAUSE_MS)
        finally:
            self._flush_written(now)

    def _flush_written(self, now: _Mark) -> None:
        in_files = self._queues.unwritten_units()[1]
        self._queues.flush_queues(0)
        # A queue that cannot be written was not flushed, either.
        in_files = min(in_files, self._queues.unwritten_units()[1])
        flushed = next(
            (mark for mark in (now, self._earlier) if mark is not None and mark.units <= in_files),
            None,
        )
        self._earlier = now
        if flushed is not None and (flushed.timestamp or self._is_due):
            self._is_due = False
            self._on_flushed(flushed.timestamp, flushed.offset)
