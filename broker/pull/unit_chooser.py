"""UnitChooser: which units of a queue a pull with a filter wants.

Runs on the loop thread of `remoting`, for PullMessageReader, which takes the records of what is
chosen here. By tags, by properties whose verdicts are remembered, or by a look at each record:
whichever costs least gives the same. Knows no request.

Tested by tests/broker/pull/test_pull_message_reader.py.
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
from broker.pull.pull_settings import PullSettings
from broker.store_access.checked_units import CheckedUnits
from broker.store_access.pages_ahead import PagesAhead
from broker.store_access.unit_block import Places
from store.commit_log_reader import CommitLogReader
from store.put_aside import is_of_record
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE
from store.unit_check import as_units

_SCAN_UNITS: Final = 800


class QueuePlace(NamedTuple):
    """Where a pull reads, and the bounds of the queue: low <= offset < high."""

    topic: str
    queue_id: int
    offset: int
    low: int
    high: int


class Chosen(NamedTuple):
    """The units that were looked at, and those of them that are wanted: their numbers, where
    their records are, and of what size."""

    raw: bytes
    numbers: Sequence[int]
    phys: Sequence[int]
    sizes: Sequence[int]


class UnitChooser:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self, units: CheckedUnits, log: CommitLogReader, monotonic_ms: Callable[[], int]
    ) -> None:
        self._units = units
        self._log = log
        self._monotonic_ms = monotonic_ms
        self._marks = UnitMarks(log, monotonic_ms)
        self._verdicts = VerdictTable(monotonic_ms)

    def choose(
        self,
        place: QueuePlace,
        scan: int,
        codes: frozenset[int] | None,
        properties: MessageFilter | None,
        count: int,
        pages: PagesAhead | None,
    ) -> Chosen:
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
    ) -> Chosen:
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
    ) -> Chosen | None:
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


def scan_of(most: int, settings: PullSettings) -> tuple[int, int]:
    """How many messages a pull with a filter looks for, and among how many units. most: its own
    limit."""
    return max(min(most, settings.count_in_memory), 1), max(_SCAN_UNITS, most)


def all_of(raw: bytes) -> Chosen:
    """Every unit."""
    count = len(raw) // CQ_UNIT_SIZE
    return _of_numbers(raw, range(count))


def _of_array(raw: bytes, numbers: NDArray[np.int64]) -> Chosen:
    units = as_units(raw)[numbers]
    return Chosen(raw, numbers.tolist(), units["phy_offset"].tolist(), units["size"].tolist())


def _of_numbers(raw: bytes, numbers: Sequence[int]) -> Chosen:
    units = [CQ_UNIT.unpack_from(raw, number * CQ_UNIT_SIZE) for number in numbers]
    return Chosen(raw, numbers, [unit[0] for unit in units], [unit[1] for unit in units])
