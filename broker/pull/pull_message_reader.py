"""PullMessageReader: the records of a queue that a pull is given.

Runs on the loop thread of `remoting`. Reads the consume queue through CheckedUnits and lends views
of the mapped commit log; only many small records of one size are copied at once. Limits and
statuses are those of RocketMQ's DefaultMessageStore.getMessage. UnitChooser chooses units, and
there is one way to take their records; a run of records that nothing stands in the way of is taken
at once, which is what most pulls find. Knows no request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.longpolling.pull_header import PullHeader, Wanted
from broker.pull.cold_pulls import ColdPulls
from broker.pull.pull_read import PullRead
from broker.pull.pull_settings import PullSettings
from broker.pull.unit_chooser import Chosen, QueuePlace, UnitChooser, all_of, scan_of
from broker.store_access.checked_units import CheckedUnits
from broker.store_access.pages_ahead import PagesAhead
from broker.store_access.tagged_units import Found, Reader, TaggedUnits
from broker.store_access.unit_block import UnitBlock
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
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE

_FOUND: Final = 0
_COPIED: Final = 1 << 16
"""Bytes: what is not longer is joined before it is sent in any case (remoting/connection.py)."""

Run = tuple[list[Buffer], int, int, bool]
"""Records: their pieces, size and count, and whether the last is so far behind that it counts as
"on disk"."""


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
        self._cold = cold
        self._chooser = UnitChooser(units, log, monotonic_ms)
        self._tagged = TaggedUnits(units)

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
            if not self._counts_cold():
                run = self.take_run(block, place.offset, scan, settings)
                if run is not None:
                    following = place.offset + run[2]
                    return _read_of(run, place, following, more_at_hand=following < block.end)
            chosen = all_of(block.units(place.offset, scan))
            return self._read_chosen(header, place, chosen, settings)
        if codes is not None and properties is None and not self._counts_cold():
            return self._read_tagged(header, place, codes, settings, pages)
        count, scan = scan_of(most, settings)
        chosen = self._chooser.choose(place, min(scan, left), codes, properties, count, pages)
        return self._read_chosen(header, place, chosen, settings)

    def _read_tagged(
        self,
        header: PullHeader,
        place: QueuePlace,
        codes: frozenset[int],
        settings: PullSettings,
        pages: PagesAhead | None,
    ) -> PullRead:
        """By tags alone."""
        reader = header.consumerGroup, place.topic, place.queue_id
        most = max(header.maxMsgNums, 1)
        count, scan = scan_of(most, settings)
        found = self._tagged.read_on(reader, place.offset, count, scan, codes, place.high, pages)
        if found is not None:
            run = self.take_tagged(found, most, settings)
            if run is not None:
                return _read_of(run[:4], place, run[4], more_at_hand=True)
        scan = min(scan, place.high - place.offset)
        chosen = self._chooser.choose(place, scan, codes, None, count, pages)
        read = self._read_chosen(header, place, chosen, settings)
        if len(chosen.numbers) == count and read.code == _FOUND:
            self._tagged.note(reader, read.next_offset, codes)
        return read

    def find_tagged(
        self,
        reader: Reader,
        offset: int,
        most: int,
        codes: frozenset[int],
        generation: int,
        settings: PullSettings,
    ) -> Found | None:
        """What `take_tagged` takes, if it was found for an earlier pull. most: the pull's limit."""
        count, scan = scan_of(most, settings)
        return self._tagged.find(reader, offset, count, scan, codes, generation)

    def take_tagged(
        self, found: Found, most: int, settings: PullSettings
    ) -> tuple[list[Buffer], int, int, bool, int] | None:
        """As `take_run`, and the offset that follows."""
        block, first = found
        run = self.take_run(block.units, first, most, settings)
        if run is None:
            return None
        return *run, block.offsets[first + run[2] - 1] + 1

    def take_run(
        self, block: UnitBlock, offset: int, scan: int, settings: PullSettings
    ) -> Run | None:
        """The records from `offset` on, at most `scan` of them, if all are there, in one file, and
        within the limits: half of what unpacking unit by unit costs. None otherwise."""
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
        elif places.is_alike and size <= _COPIED and end <= len(view):
            pieces = [places.copy(view, first, last)]
        else:
            pairs = zip(starts[first:last].tolist(), ends[first:last].tolist(), strict=True)
            pieces = [view[start:end] for start, end in pairs]
        return pieces, size, last - first, file_start + starts[last - 1] < memory_edge

    def _read_chosen(
        self, header: PullHeader, place: QueuePlace, chosen: Chosen, settings: PullSettings
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
        self, chosen: Chosen, most: int, memory_edge: int, settings: PullSettings
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

    def _take(self, chosen: Chosen, most: int, memory_edge: int, settings: PullSettings) -> _Taken:
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


def _read_of(run: Run, place: QueuePlace, following: int, *, more_at_hand: bool) -> PullRead:
    pieces, size, count, slow = run
    return PullRead(
        _FOUND,
        FOUND,
        following,
        place.low,
        place.high,
        slow,
        pieces=pieces,
        size=size,
        count=count,
        more_at_hand=more_at_hand,
    )


def _last_phy(raw: bytes, taken: _Taken, max_phy: int) -> int:
    """Where the record is of the last unit that was scanned and has one."""
    number = taken.scanned - 1
    removed = set(taken.removed)
    while number in removed:
        number -= 1
    return max_phy if number < 0 else int(CQ_UNIT.unpack_from(raw, number * CQ_UNIT_SIZE)[0])
