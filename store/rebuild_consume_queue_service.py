"""RebuildConsumeQueueService: writes wrong units again, from the log, while the broker runs.

A thread of process `store`. Told of a place (a reader found a unit that does not name its record)
or of a queue (recovery or retention found its files not as they should be), it looks for the wrong
units around the place or in the whole queue, searches the log between the right units next to them,
and writes each unit where its record's queue offset says: the queue's ends do not move, and what
dispatch appends meanwhile lies behind. A unit whose record the log does not have becomes a blank
one. One pass over the log serves all queues that wait. Light queues that could not be written are
tried again on this thread (unwritable_retries.py). It must not know who reads the queues.

Nothing in RocketMQ corresponds to it.

Tested by tests/store/test_damaged_queues.py.
"""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.service_thread import FailureHandler, ServiceThread
from store.commit_log_reader import CommitLogReader
from store.consume_queue import ConsumeQueue
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import (
    DISPATCHED_OFFSET,
    MIN_PHY_OFFSET,
    QUEUE_UNITS_LOST,
    QUEUE_UNITS_REBUILT,
    QUEUES_REBUILDING,
)
from store.errors import DiskFullError, DispatchStoppedError, StoreError
from store.light_queue_table import LightQueueTable
from store.log_dispatch import dispatch_range
from store.record_arrays import RecordArrays
from store.record_properties import PropertyExtractor
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE
from store.unit_check import right_units
from store.unit_runs import UnitRun, runs_of_units
from store.unwritable_retries import UnwritableRetries, step_over

log = logging.getLogger(__name__)

REBUILD_QUEUE: Final = "rebuild_queue"
"""Command of process `remoting`: topic, queue_id, queue_offset of a wrong unit."""
_BLOCK: Final = 1_024
"""Units that are checked together."""
_IDLE_MS: Final = 60_000
_RETRY_MS: Final = 1_000
_CHUNK_SIZE: Final = 1 << 20

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(slots=True)
class _Gap:
    """Wrong units [begin, end) of a queue, whose records lie in [low, high) of the log."""

    queue: ConsumeQueue
    begin: int
    end: int
    low: int
    high: int
    generation: int
    found: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.found = np.zeros(self.end - self.begin, np.bool_)


class RebuildConsumeQueueService(ServiceThread):
    """See the module. Owned by: its own thread; anybody may `request`."""

    def __init__(
        self,
        table: ConsumeQueueTable,
        source: CommitLogReader,
        extractor: PropertyExtractor,
        page: ControlPage,
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """source: for this thread alone."""
        super().__init__("RebuildConsumeQueueService", on_failure=on_failure)
        self._table = table
        self._source = source
        self._extractor = extractor
        self._counters = page.counters
        self._retries: Final = (
            UnwritableRetries(table, source, extractor, page, clock, self._go_on)
            if isinstance(table, LightQueueTable)
            else None
        )
        self._lock = threading.Lock()
        self._places: dict[Place, None] = {}
        self._whole_queues: dict[ConsumeQueue, None] = {}
        """Those of `table.damaged`, until they were rebuilt."""
        table.on_damage = self.wakeup

    def request(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Look at the units around `queue_offset`. Any thread."""
        with self._lock:
            self._places[topic, queue_id, queue_offset] = None
        self.wakeup()

    def step(self) -> None:
        """Rebuild what was reported, else sleep."""
        try:
            if self._retries is not None:
                self._retries.try_when_due()
            busy = self.rebuild_once()
        except DispatchStoppedError:
            return
        except DiskFullError as error:
            log.error("rebuilding consume queues: %s; trying again", error)
            self.wait_for_running(_RETRY_MS)
            return
        if not busy:
            self.wait_for_running(_IDLE_MS)

    def finish(self) -> None:
        """Before an orderly stop: the files are flushed after it."""
        self._source.close()

    def rebuild_once(self) -> bool:
        """One pass for everything that was reported; False if nothing was. Raises DiskFullError:
        nothing is forgotten."""
        self._whole_queues.update(dict.fromkeys(self._table.take_damaged()))
        with self._lock:
            places = list(self._places)
        if not places and not self._whole_queues:
            self._counters[QUEUES_REBUILDING] = 0
            return False
        self._counters[QUEUES_REBUILDING] = len(
            {(queue.topic, queue.queue_id) for queue in self._whole_queues}
            | {place[:2] for place in places}
        )
        queues = list(self._whole_queues)
        touched, gaps = self._find_gaps(places, queues)
        if gaps:
            self._search(gaps)
        self._finish_gaps(gaps)
        self._publish(touched)
        for queue in queues:
            del self._whole_queues[queue]
        with self._lock:
            for place in places:
                self._places.pop(place, None)
        return True

    # -- what is wrong -------------------------------------------------------------------------

    def _find_gaps(
        self, places: list[Place], queues: list[ConsumeQueue]
    ) -> tuple[dict[ConsumeQueue, None], list[_Gap]]:
        """The queues to be published, and their wrong units."""
        touched: dict[ConsumeQueue, None] = {}
        gaps: list[_Gap] = []
        for queue in queues:
            ends = _make_whole(self._table, queue)
            if ends is not None:
                touched[queue] = None
                gaps += self._gaps_of(queue, self._wrong_between(queue, *ends))
        for topic, queue_id, queue_offset in places:
            with self._table.lock:
                queue_found = self._table.find(topic, queue_id)
            if queue_found is None or queue_found in touched:
                continue
            ends = _make_whole(self._table, queue_found)
            if ends is None or not ends[0] <= queue_offset < ends[1]:
                continue
            touched[queue_found] = None
            wrong = self._wrong_around(queue_found, queue_offset, *ends)
            gaps += self._gaps_of(queue_found, wrong)
        return touched, gaps

    def _wrong_between(self, queue: ConsumeQueue, begin: int, end: int) -> list[int]:
        """Queue offsets in [begin, end) of wrong and of blank units."""
        wrong: list[int] = []
        for at in range(begin, end, _BLOCK):
            wrong += self._wrong_in_block(queue, at, min(at + _BLOCK, end))
            self._go_on()
        return wrong

    def _wrong_around(self, queue: ConsumeQueue, place: int, begin: int, end: int) -> list[int]:
        """The same, from the block of `place` in both directions up to a block without any."""
        first = place - place % _BLOCK
        wrong = self._wrong_in_block(queue, max(first, begin), min(first + _BLOCK, end))
        if not wrong:
            return wrong
        before = range(first - _BLOCK, begin - _BLOCK, -_BLOCK)
        after = range(first + _BLOCK, end, _BLOCK)
        for starts in (before, after):
            for at in starts:
                more = self._wrong_in_block(queue, max(at, begin), min(at + _BLOCK, end))
                wrong += more
                self._go_on()
                if not more:
                    break
        return sorted(wrong)

    def _wrong_in_block(self, queue: ConsumeQueue, begin: int, end: int) -> list[int]:
        wrong: list[int] = []
        at = begin
        while at < end:
            with self._table.lock:
                units = queue.read_units(at, end - at)
            if not len(units):
                # Not even after make_files_whole: its files were deleted in this moment.
                return wrong + list(range(at, end))
            offsets = np.arange(at, at + len(units))
            right = right_units(self._source, units, queue.topic.encode(), queue.queue_id, offsets)
            right &= units["size"] != PRE_BLANK_SIZE
            wrong += offsets[~right].tolist()
            at += len(units)
        return wrong

    def _gaps_of(self, queue: ConsumeQueue, wrong: list[int]) -> list[_Gap]:
        """Neighbours together, each with the part of the log where its records must be."""
        gaps: list[_Gap] = []
        at = 0
        while at < len(wrong):
            last = at
            while last + 1 < len(wrong) and wrong[last + 1] == wrong[last] + 1:
                last += 1
            begin, end = wrong[at], wrong[last] + 1
            low, high = self._counters[MIN_PHY_OFFSET], self._counters[DISPATCHED_OFFSET]
            with self._table.lock:
                generation = queue.bounds.generation
                if begin > queue.start_offset:
                    low = max(low, queue.record_end(begin - 1))
                following = queue.read_units(end, 1)
            if len(following):
                high = min(high, int(following[0]["phy_offset"]))
            gaps.append(_Gap(queue, begin, end, low, high, generation))
            at = last + 1
        return gaps

    # -- the log -------------------------------------------------------------------------------

    def _search(self, gaps: list[_Gap]) -> None:
        """Walk the parts of the log in question once and write what is found."""
        by_queue: dict[tuple[str, int], list[_Gap]] = {}
        for gap in gaps:
            log.error(
                "%r: %s units from offset %s on are wrong: searching the log from %s to %s",
                gap.queue,
                gap.end - gap.begin,
                gap.begin,
                gap.low,
                gap.high,
            )
            by_queue.setdefault((gap.queue.topic, gap.queue.queue_id), []).append(gap)

        def take(records: RecordArrays) -> None:
            self._go_on()
            for run in runs_of_units(records):
                for gap in by_queue.get((run.topic, run.queue_id), ()):
                    self._write(gap, run)

        for low, high in _joined([(gap.low, gap.high) for gap in gaps if gap.low < gap.high]):
            try:
                dispatch_range(
                    self._source,
                    low,
                    high,
                    self._extractor,
                    (take,),
                    chunk_size=_CHUNK_SIZE,
                    fence_off=step_over,
                )
            except (DiskFullError, DispatchStoppedError):
                raise
            except StoreError as error:
                log.error("rebuilding consume queues from %s to %s: %s", low, high, error)

    def _write(self, gap: _Gap, run: UnitRun) -> None:
        """The part of the run that lies in the gap."""
        begin = max(gap.begin, run.queue_offset)
        end = min(gap.end, run.queue_offset + len(run.units) // CQ_UNIT_SIZE)
        if begin >= end or not gap.low < run.last_end or run.first_end > gap.high:
            return
        at = (begin - run.queue_offset) * CQ_UNIT_SIZE
        with self._table.lock:
            if gap.queue.bounds.generation != gap.generation or _is_unwritable(gap.queue):
                return
            with _passing_by(gap.queue):
                gap.queue.repair.rewrite(begin, run.units[at : at + (end - begin) * CQ_UNIT_SIZE])
                gap.found[begin - gap.begin : end - gap.begin] = True

    def _finish_gaps(self, gaps: list[_Gap]) -> None:
        """Blank what the log does not have, and count."""
        low = self._counters[MIN_PHY_OFFSET]
        for gap in gaps:
            missing = np.flatnonzero(~gap.found).tolist()
            blanked = sum(self._blank(gap, gap.begin + number) for number in missing)
            self._counters[QUEUE_UNITS_REBUILT] += int(gap.found.sum())
            expected = gap.low <= low
            if not expected:
                self._counters[QUEUE_UNITS_LOST] += blanked
            log.warning(
                "%r: rebuilt from offset %s on: %s units; %s have no record in the log",
                gap.queue,
                gap.begin,
                int(gap.found.sum()),
                len(missing),
            )

    def _blank(self, gap: _Gap, queue_offset: int) -> bool:
        """True if the unit was not blank before: one that is, of a record in damage, stays.
        phy_offsets never decrease within a queue: the blank has that of the unit before it."""
        queue = gap.queue
        with self._table.lock:
            if _is_unwritable(queue):
                return False
            units = queue.read_units(queue_offset, 1)
            is_blank = len(units) > 0 and int(units[0]["size"]) == PRE_BLANK_SIZE
            if is_blank or queue.bounds.generation != gap.generation:
                return False
            phy_offset = 0
            if queue_offset > queue.start_offset:
                before = queue.read_units(queue_offset - 1, 1)
                phy_offset = int(before[0]["phy_offset"]) if len(before) else 0
            with _passing_by(queue):
                queue.repair.rewrite(queue_offset, CQ_UNIT.pack(phy_offset, PRE_BLANK_SIZE, 0))
            return not _is_unwritable(queue)

    def _publish(self, queues: dict[ConsumeQueue, None]) -> None:
        for queue in queues:
            with self._table.lock:
                self._table.publish_rebuilt(queue, self._counters[MIN_PHY_OFFSET])

    def _go_on(self) -> None:
        if self.stopped:
            raise DispatchStoppedError


def _make_whole(table: ConsumeQueueTable, queue: ConsumeQueue) -> tuple[int, int] | None:
    """Have all files of the queue; its first and its next queue offset. None: they cannot be
    written now."""
    with table.lock:
        if not _is_unwritable(queue):
            with _passing_by(queue):
                queue.make_files_whole()
        return None if _is_unwritable(queue) else (queue.start_offset, queue.max_offset)


def _passing_by(queue: ConsumeQueue) -> AbstractContextManager[None]:
    return queue.files.unwritable.passing_by((queue.topic, queue.queue_id))


def _is_unwritable(queue: ConsumeQueue) -> bool:
    return (queue.topic, queue.queue_id) in queue.files.unwritable


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges that overlap become one."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined
