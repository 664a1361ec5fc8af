"""PopMessageReader: the messages of a queue that a pop may hand out.

Runs on the loop thread of `remoting`; reads consume queue units that are checked against their
records, and lends views of the mapped log. Statuses and limits follow
DefaultMessageStore.getMessage. Knows no request, and nothing of what was handed out.

Tested by tests/broker/pop/test_pop_model.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.filter.message_filter import MessageFilter
from broker.filter.subscription_filter import tag_code
from broker.filter.unit_marks import MARKED_CODES, UnitMarks
from broker.store_access.checked_units import CheckedUnits
from ipc.queue_table import QueueTableReader
from store.commit_log_reader import CommitLogReader
from store.get_message_status import (
    FOUND,
    MESSAGE_WAS_REMOVING,
    NO_MATCHED_MESSAGE,
    OFFSET_FOUND_NULL,
    OFFSET_OVERFLOW_ONE,
    find_outside,
)
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE

SCAN_UNITS: Final = 800
"""Units looked at in one read with a filter."""

Wanted = tuple[frozenset[int] | None, MessageFilter | None]
"""The tag codes, None for all of them; the filter by properties, None without one."""
EVERYTHING: Final[Wanted] = (None, None)


def newest_offset(bounds: tuple[int, int], is_young: Callable[[], bool]) -> int:
    """Where a group begins that has no offset and begins at the newest message. bounds: of the
    queue. is_young: whether its first message is in memory still; then it begins there."""
    low, high = bounds
    return 0 if low <= 0 and is_young() else max(high - 1, 0)


class QueueRead(NamedTuple):
    """`records`: views of the log; `offsets`: their queue offsets."""

    status: bytes
    """By RocketMQ's names (store/get_message_status.py)."""
    next_offset: int
    max_offset: int
    offsets: list[int]
    records: list[memoryview]


class ReadLimits(NamedTuple):
    """Bytes of one read, from memory and from disk; `memory`: how far behind the log's end
    records count as on disk."""

    memory_bytes: int
    disk_bytes: int
    disk_count: int
    memory: int


class PopMessageReader:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        limits: ReadLimits,
        table: QueueTableReader,
        units: CheckedUnits,
        log: CommitLogReader,
        marks: UnitMarks,
        queue_end: Callable[[str, int], int | None],
    ) -> None:
        """queue_end: what the log's writer knows of a queue's end, None: nothing. It is further
        than the table while process `store` is behind, or was restarted."""
        self._limits = limits
        self._table = table
        self._units = units
        self._log = log
        self._marks = marks
        self._queue_end = queue_end

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) offset of a queue, whose last messages may not be readable yet."""
        low, high = self._table.offsets(topic, queue_id)
        return low, max(high, self._queue_end(topic, queue_id) or 0)

    def read(
        self, topic: str, queue_id: int, offset: int, count: int, wanted: Wanted, log_end: int
    ) -> QueueRead:
        """Up to `count` messages from `offset` on. log_end: of the published log."""
        low, high = self._table.offsets(topic, queue_id)
        if low <= offset < high:
            return self._read_found(topic, queue_id, offset, count, wanted, high, log_end)
        if high <= offset <= (self._queue_end(topic, queue_id) or 0):
            return QueueRead(OFFSET_OVERFLOW_ONE, offset, offset, [], [])
        outside = find_outside(low, high, offset)
        assert outside is not None
        return QueueRead(outside.status, outside.following, high, [], [])

    def has_wanted(self, topic: str, queue_id: int, offset: int, wanted: Wanted) -> bool:
        """Whether a pop from `offset` on would say anything else than that no message matches."""
        found = self.read(topic, queue_id, offset, 1, wanted, 0)
        return found.status != NO_MATCHED_MESSAGE

    def _read_found(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count: int,
        wanted: Wanted,
        high: int,
        log_end: int,
    ) -> QueueRead:
        codes, properties = wanted
        raw = self._raw_units(topic, queue_id, offset, count, wanted, high)
        if properties is not None:
            codes = MARKED_CODES
        if not raw:
            return QueueRead(OFFSET_FOUND_NULL, offset, high, [], [])
        limits = self._limits
        left = limits.memory_bytes
        offsets: list[int] = []
        records: list[memoryview] = []
        at = offset
        removed = False
        for phy, size, tags in CQ_UNIT.iter_unpack(raw):
            if len(offsets) >= count:
                break
            if codes is None or tag_code(tags) in codes:
                record = None if size == PRE_BLANK_SIZE else self._record(phy, size)
                if record is None:
                    removed = True
                else:
                    if not records and phy < log_end - limits.memory:
                        left, count = limits.disk_bytes, min(count, limits.disk_count)
                    if records and size > left:
                        break
                    left -= size
                    records.append(record)
                    offsets.append(at)
            at += 1
        if offsets:
            return QueueRead(FOUND, at, high, offsets, records)
        status = MESSAGE_WAS_REMOVING if removed else NO_MATCHED_MESSAGE
        return QueueRead(status, at, high, [], [])

    def _raw_units(
        self, topic: str, queue_id: int, offset: int, count: int, wanted: Wanted, high: int
    ) -> bytes:
        codes, properties = wanted
        units = self._units
        if codes is None and properties is None:
            return units.read(topic, queue_id, offset, min(count, high - offset), high)
        scan = min(SCAN_UNITS, high - offset)
        if properties is None:
            return units.read_filtered(topic, queue_id, offset, scan, codes, count)

        def is_right(number: int, phy_offset: int, size: int) -> bool:
            return units.is_right(topic, queue_id, offset + number, phy_offset, size)

        raw = units.read_filtered(topic, queue_id, offset, scan, codes, 0)
        return self._marks.mark(raw, codes, properties, count, is_right) if raw else raw

    def _record(self, phy_offset: int, size: int) -> memoryview | None:
        view = self._log.view_of_file(phy_offset)
        if view is None:
            return None
        start = phy_offset % self._log.file_size
        return view[start : start + size]
