"""UnwritableRetries: tries light queues again that could not be written, and completes them.

On the thread of RebuildConsumeQueueService. A queue that can be written again gets the units that
waited for it, and then those of the records that were left out meanwhile: the log is dispatched
again for it alone, from its last unit on, until nothing is missing.

Tested by tests/store/test_unwritable_queues.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.commit_log_reader import CommitLogReader
from store.control_slots import DISPATCHED_OFFSET, MIN_PHY_OFFSET
from store.errors import DispatchStoppedError, FlushFailedError, StoreError
from store.light_queue import LightQueue
from store.light_queue_table import LightQueueTable
from store.log_dispatch import dispatch_range
from store.record_arrays import RecordArrays
from store.record_properties import PropertyExtractor

log = logging.getLogger(__name__)

_INTERVAL_MS: Final = 60_000
_CHUNK_SIZE: Final = 1 << 20


class UnwritableRetries:
    """See the module. Owned by: the service's thread."""

    def __init__(
        self,
        table: LightQueueTable,
        source: CommitLogReader,
        extractor: PropertyExtractor,
        page: ControlPage,
        clock: Clock,
        go_on: Callable[[], None],
    ) -> None:
        """go_on: called often; raises DispatchStoppedError."""
        self._table = table
        self._source = source
        self._extractor = extractor
        self._counters = page.counters
        self._clock = clock
        self._go_on = go_on
        self.due_ms = 0
        """Monotonic ms of the next try."""

    def try_when_due(self) -> None:
        """Raises DispatchStoppedError, FlushFailedError."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self.due_ms:
            return
        self.due_ms = now_ms + _INTERVAL_MS
        for queue in self._table.unwritable_queues():
            try:
                self._complete(queue)
            except (DispatchStoppedError, FlushFailedError):
                raise
            except (StoreError, OSError) as error:
                log.warning("%r: it still cannot be written: %s", queue, error)

    def _complete(self, queue: LightQueue) -> None:
        at, end = self._table.try_again(queue), 0
        while not self._table.end_unwritable(queue, end):
            at, end = max(at, end), self._counters[DISPATCHED_OFFSET]
            log.info("%r: looking for its records in the log from %s to %s", queue, at, end)
            self._dispatch(queue, max(at, self._counters[MIN_PHY_OFFSET]), end)

    def _dispatch(self, queue: LightQueue, start: int, end: int) -> None:
        def take(records: RecordArrays) -> None:
            self._go_on()
            self._table.dispatch_left_out(records, queue)

        dispatch_range(
            self._source,
            start,
            end,
            self._extractor,
            (take,),
            chunk_size=_CHUNK_SIZE,
            fence_off=step_over,
        )


def step_over(start: int, end: int, reason: str) -> None:
    """Damage in the log: what lies in it stays without a unit, what follows gets its own. The
    dispatch, which came by before, or the next recovery fences it."""
    log.error("rebuilding consume queues: no record from %s to %s: %s", start, end, reason)
