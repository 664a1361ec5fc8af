"""PullMessageReader: the records of a queue that a pull is given.

Runs on the loop thread of `remoting`. Reads the consume queue through CheckedUnits and lends views
of the mapped commit log: no message is copied or joined here. Limits and statuses are those of
RocketMQ's DefaultMessageStore.getMessage. Three ways to choose units (all, by tags, by properties)
end in one way to take their records; a run of records that nothing stands in the way of is taken at
once, which is what most pulls find. Knows no request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from broker.filter.message_filter import ExpressionMessageFilter, MessageFilter
from broker.filter.selector_verdicts import VerdictTable
from broker.filter.subscription_filter import tag_code
from broker.filter.unit_marks import SCAN_LIMIT_MS, UnitMarks
from broker.longpolling.pull_header import PullHeader, Wanted
from broker.pull.cold_pulls import ColdPulls
from broker.pull.pull_read import PullRead
from broker.pull.pull_settings import PullSettings
from broker.store_access.checked_units import CheckedUnits
from broker.store_access.pages_ahead import PagesAhead
from broker.store_access.unit_block import Places, UnitBlock
from ipc.control_page import ControlPage
from remoting.connection import Buffer
from remoting.response_code import ResponseCode
from store.commit_log_reader import CommitLogReader
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.get_message_status import (
    FOUND,
    MESSAGE_WAS_REMOVING,
    NO_MATCHED_MESSAGE,
    OFFSET_FOUND_NULL,
)
from store.put_aside import is_of_record
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE
from store.unit_check import as_units

_SCAN_UNITS: Final = 800
_FOUND: Final = 0


class QueuePlace(NamedTuple):
    """Where a pull reads, and the bounds of the queue: low <= offset < high."""

    topic: str
    queue_id: int
    offset: int
    low: int
    high: int


class _Chosen(NamedTuple):
    """The units that were looked at, and those of them that are wanted: their numbers, where
    their records are, and of what size."""

    raw: bytes
    numbers: Sequence[int]
    phys: Sequence[int]
    sizes: Sequence[int]


class _Taken(NamedTuple):
    """The records of the first of the chosen units. scanned: units that the pull is done with.
    removed: the numbers of chosen ones without a record."""

    pieces: list[Buffer]
    messages: int
    size: int
    scanned: int
    removed: list[int]


class PullMessageReader:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        page: ControlPage,
        units: CheckedUnits,
        log: CommitLogReader,
        monotonic_ms: Callable[[], int],
        cold: ColdPulls | None = None,
    ) -> None:
        """cold: counts what is read of cold data, where that is wanted."""
        self._counters = page.counters
        self._units = units
        self._log = log
        self._monotonic_ms = monotonic_ms
        self._cold = cold
        self._marks = UnitMarks(log, monotonic_ms)
        self._verdicts = VerdictTable(monotonic_ms)

    def read(
        self,
        header: PullHeader,
        place: QueuePlace,
        wanted: Wanted,
        settings: PullSettings,
        pages: PagesAhead | None,
    ) -> PullRead:
        """Raises PagesMissingError if `pages` finds that records are not in memory."""
        codes, properties = wanted
        most = max(header.maxMsgNums, 1)
        left = place.high - place.offset
        if codes is None and properties is None:
            scan = min(most, left)
            block = self._units.block(
                place.topic, place.queue_id, place.offset, scan, place.high, pages
            )
            read = None if self._counts_cold() else self._read_run(block, place, scan, settings)
            if read is not None:
                return read
            chosen = _all_of(block.units(place.offset, scan))
        else:
            scan = min(max(_SCAN_UNITS, most), left)
            count = max(min(most, settings.count_in_memory), 1)
            chosen = self._choose(place, scan, codes, properties, count, pages)
        return self._read_chosen(header, place, chosen, settings)

    # -- choosing ------------------------------------------------------------------------------

    def _choose(
        self,
        place: QueuePlace,
        scan: int,
        codes: frozenset[int] | None,
        properties: MessageFilter | None,
        count: int,
        pages: PagesAhead | None,
    ) -> _Chosen:
        """Of `scan` units those that are wanted, until there are `count` of them."""
        topic, queue_id, offset = place.topic, place.queue_id, place.offset
        if properties is None:
            raw, numbers = self._units.choose(topic, queue_id, offset, scan, codes, count, pages)
            return _of_array(raw, numbers)
        if codes is None and isinstance(properties, ExpressionMessageFilter):
            chosen = self._find_by_verdicts(place, scan, properties, count, pages)
            if chosen is not None:
                return chosen
        raw, _ = self._units.choose(topic, queue_id, offset, scan, codes, 0, pages)
        return self._mark(place, raw, codes, properties, count)

    def _mark(
        self,
        place: QueuePlace,
        raw: bytes,
        codes: frozenset[int] | None,
        properties: MessageFilter,
        count: int,
    ) -> _Chosen:
        """By looking at each record."""
        topic, queue_id, units = place.topic, place.queue_id, self._units

        def is_right(number: int, phy_offset: int, size: int) -> bool:
            return units.is_right(topic, queue_id, place.offset + number, phy_offset, size)

        raw = self._marks.mark(raw, codes, properties, count, is_right)
        marks = [tag_code(tags) for _phy, _size, tags in CQ_UNIT.iter_unpack(raw)]
        return _of_numbers(raw, [number for number, mark in enumerate(marks) if mark])

    def _find_by_verdicts(
        self,
        place: QueuePlace,
        scan: int,
        wanted: ExpressionMessageFilter,
        count: int,
        pages: PagesAhead | None,
    ) -> _Chosen | None:
        """The same, block by block. None where that is not possible; it costs time only."""
        verdicts = self._verdicts.of(wanted.selector)
        stop_at_ms = self._monotonic_ms() + SCAN_LIMIT_MS
        at, end = place.offset, place.offset + scan
        raw = b""
        numbers: list[int] = []
        while at < end and len(numbers) < count:
            block = self._units.find_long_block(place.topic, place.queue_id, at, place.high, pages)
            if block is None:
                return None
            if at == block.end:
                break
            places = block.places(self._log.file_size)
            view = self._view_of(places)
            if places is None or view is None:
                return None
            properties = block.properties(places, view)
            if properties is None:
                return None
            first = at - block.begin
            last = min(first + verdicts.most, end - block.begin, block.end - block.begin)
            try:
                found, looked_at = verdicts.find_matches(
                    view,
                    properties[0][first:last].tolist(),
                    properties[1][first:last].tolist(),
                    count - len(numbers),
                    stop_at_ms,
                )
            except Exception as error:
                if not is_of_record(error):
                    raise
                return None  # A look at each record finds out which one it is.
            numbers += [number + at - place.offset for number in found]
            raw += block.units(at, looked_at)
            at += looked_at
            if (block.ends_file and at == block.end) or self._monotonic_ms() >= stop_at_ms:
                break
        return _of_numbers(raw, numbers)

    def _view_of(self, places: Places | None) -> memoryview | None:
        """The file with the records of the block, if all of them are still there."""
        if places is None:
            return None
        return self._log.view_of_file(places.file_start + int(places.starts[0]))

    # -- taking --------------------------------------------------------------------------------

    def _read_run(
        self, block: UnitBlock, place: QueuePlace, scan: int, settings: PullSettings
    ) -> PullRead | None:
        run = self.take_run(block, place.offset, scan, settings)
        if run is None:
            return None
        pieces, size, count, slow = run
        return PullRead(
            _FOUND,
            FOUND,
            place.offset + count,
            place.low,
            place.high,
            slow,
            pieces=pieces,
            size=size,
            count=count,
            more_at_hand=place.offset + count < block.end,
        )

    def take_run(
        self, block: UnitBlock, offset: int, scan: int, settings: PullSettings
    ) -> tuple[list[Buffer], int, int, bool] | None:
        """The records from `offset` on, at most `scan` of them, if all are there, in one file, and
        within the limits: half of what unpacking unit by unit costs. None otherwise. Their pieces,
        size and count, and whether the last is so far behind that it counts as "on disk"."""
        log = self._log
        places = block.places(log.file_size)
        if places is None or offset >= block.end:
            return None
        file_start, starts = places.file_start, places.starts
        ends, totals = places.ends, places.totals
        first = offset - block.begin
        phy = file_start + starts[first]
        memory_edge = self._counters[MAX_PHY_OFFSET] - settings.memory_limit
        most, most_size = settings.count_in_memory, settings.bytes_in_memory
        if phy < memory_edge:
            most, most_size = min(most, settings.count_in_disk), settings.bytes_in_disk
        last = min(first + max(min(scan, most), 1), block.end - block.begin)
        size = totals[last] - totals[first]
        if size > most_size or phy < self._counters[MIN_PHY_OFFSET]:
            return None
        view = log.view_of_file(phy)
        if view is None:
            return None
        start, end = starts[first], ends[last - 1]
        pieces: list[Buffer]
        if end - start == size:
            pieces = [view[start:end]]
        else:
            pairs = zip(starts[first:last].tolist(), ends[first:last].tolist(), strict=True)
            pieces = [view[start:end] for start, end in pairs]
        return pieces, size, last - first, file_start + starts[last - 1] < memory_edge

    def _read_chosen(
        self, header: PullHeader, place: QueuePlace, chosen: _Chosen, settings: PullSettings
    ) -> PullRead:
        max_phy = self._counters[MAX_PHY_OFFSET]
        memory_edge = max_phy - settings.memory_limit
        most = max(header.maxMsgNums, 1)
        taken = self._take_at_once(chosen, most, memory_edge, settings)
        if taken is None:
            taken = self._take(chosen, most, memory_edge, settings)
        if self._counts_cold():
            assert self._cold is not None
            done = zip(chosen.numbers, chosen.phys, chosen.sizes, strict=True)
            records = [(phy, size) for number, phy, size in done if number < taken.scanned]
            self._cold.add(header.consumerGroup, records)
        slow = _last_phy(chosen.raw, taken, max_phy) < memory_edge
        low, high, next_offset = place.low, place.high, place.offset + taken.scanned
        if taken.messages:
            return PullRead(
                _FOUND,
                FOUND,
                next_offset,
                low,
                high,
                slow,
                pieces=taken.pieces,
                size=taken.size,
                count=taken.messages,
            )
        if chosen.raw:
            status = MESSAGE_WAS_REMOVING if taken.removed else NO_MATCHED_MESSAGE
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            return PullRead(code, status, next_offset, low, high, slow)
        # The unit here is wrong: the pull waits, and is run again when the queue is rebuilt.
        return PullRead(ResponseCode.PULL_NOT_FOUND, OFFSET_FOUND_NULL, place.offset, low, high)

    def _take_at_once(
        self, chosen: _Chosen, most: int, memory_edge: int, settings: PullSettings
    ) -> _Taken | None:
        """What `_take` gives, where all records are there, in one file and within the limits: a
        quarter of its work, for nearly every pull with a filter. None otherwise."""
        if not chosen.numbers:
            return None
        log, first = self._log, chosen.phys[0]
        most, most_size = min(most, settings.count_in_memory), settings.bytes_in_memory
        if first < memory_edge:
            most, most_size = min(most, settings.count_in_disk), settings.bytes_in_disk
        count = max(min(len(chosen.numbers), most), 1)
        phys, sizes = chosen.phys[:count], chosen.sizes[:count]
        size, file_start = sum(sizes), first - first % log.file_size
        if (
            size > most_size
            or first < self._counters[MIN_PHY_OFFSET]
            or min(phys) < first
            or max(phys) >= file_start + log.file_size
            or PRE_BLANK_SIZE in sizes
        ):
            return None
        view = log.view_of_file(first)
        if view is None:
            return None
        pieces: list[Buffer] = [
            view[phy - file_start : phy - file_start + length]
            for phy, length in zip(phys, sizes, strict=True)
        ]
        is_full = count >= most
        scanned = chosen.numbers[count - 1] + 1 if is_full else len(chosen.raw) // CQ_UNIT_SIZE
        return _Taken(pieces, count, size, scanned, [])

    def _take(self, chosen: _Chosen, most: int, memory_edge: int, settings: PullSettings) -> _Taken:
        """Views of the records, neighbours in one. memory_edge: below it the limits are those of
        what is on disk."""
        file_size, min_phy = self._log.file_size, self._counters[MIN_PHY_OFFSET]
        count_limit, byte_limit = min(most, settings.count_in_memory), settings.bytes_in_memory
        pieces: list[Buffer] = []
        removed: list[int] = []
        count = size = 0
        scanned = len(chosen.raw) // CQ_UNIT_SIZE
        run_start = run_end = file_start = file_end = -1
        view = memoryview(b"")
        for number, phy, length in zip(chosen.numbers, chosen.phys, chosen.sizes, strict=True):
            if phy < min_phy or length == PRE_BLANK_SIZE:
                removed.append(number)
                continue
            if count and (size + length > byte_limit or count >= count_limit):
                scanned = number
                break
            if phy < memory_edge:
                count_limit = min(count_limit, settings.count_in_disk)
                byte_limit = settings.bytes_in_disk
            if phy != run_end or phy >= file_end:
                if run_start >= 0:
                    pieces.append(view[run_start - file_start : run_end - file_start])
                if not file_start <= phy < file_end:
                    found = self._log.view_of_file(phy)
                    if found is None:
                        run_start = -1
                        removed.append(number)
                        continue
                    view = found
                    file_start = phy - phy % file_size
                    file_end = file_start + len(view)
                run_start = phy
            run_end = phy + length
            count += 1
            size += length
            if count >= count_limit:
                scanned = number + 1
                break
        if run_start >= 0:
            pieces.append(view[run_start - file_start : run_end - file_start])
        return _Taken(pieces, count, size, scanned, removed)

    def _counts_cold(self) -> bool:
        return self._cold is not None and self._cold.enabled


def _all_of(raw: bytes) -> _Chosen:
    count = len(raw) // CQ_UNIT_SIZE
    return _of_numbers(raw, range(count))


def _of_array(raw: bytes, numbers: NDArray[np.int64]) -> _Chosen:
    units = as_units(raw)[numbers]
    return _Chosen(raw, numbers.tolist(), units["phy_offset"].tolist(), units["size"].tolist())


def _of_numbers(raw: bytes, numbers: Sequence[int]) -> _Chosen:
    units = [CQ_UNIT.unpack_from(raw, number * CQ_UNIT_SIZE) for number in numbers]
    return _Chosen(raw, numbers, [unit[0] for unit in units], [unit[1] for unit in units])


def _last_phy(raw: bytes, taken: _Taken, max_phy: int) -> int:
    """Where the record is of the last unit that was scanned and has one."""
    number = taken.scanned - 1
    removed = set(taken.removed)
    while number in removed:
        number -= 1
    return max_phy if number < 0 else int(CQ_UNIT.unpack_from(raw, number * CQ_UNIT_SIZE)[0])
