"""ConsumeQueueReader: consume queues as a process reads them that does not write them.

Lives in `remoting`; any thread may call it (one lock). It follows no file by itself: which offsets
exist comes from the queue table and is passed with each call, and the caller uses `forget` when a
queue's files were deleted or recreated (the table's generation). Units are 20 bytes as in
store/consume_queue.py. Corresponds to RocketMQ's ConsumeQueue.getIndexBuffer and
getOffsetInQueueByTime.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ipc.queue_table import QueueTableReader
from store.boundary_type import BoundaryType
from store.commit_log_reader import CommitLogReader
from store.consume_queue_files import DEFAULT_OPEN_FILES, ConsumeQueueFiles, is_safe_topic
from store.lmq_places import is_lmq
from store.message_store_config import MessageStoreConfig
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE

_REMOVED: Final = -2
"""Store time of a unit whose record is gone, or that has none."""


CheckUnit = Callable[[bytes, int], tuple[int, int, int] | None]
"""(20 bytes or none, queue offset) -> phy_offset, size and tags code; None: no record."""


def plain_unit(data: bytes, _queue_offset: int) -> tuple[int, int, int] | None:
    """A unit as it is written; None for a blank one or without a file."""
    if len(data) < CQ_UNIT_SIZE:
        return None
    phy_offset, size, tags_code = CQ_UNIT.unpack(data)
    return None if size in (0, PRE_BLANK_SIZE) else (phy_offset, size, tags_code)


class ConsumeQueueReader:
    """Reads units. Guarded by: its own lock."""

    def __init__(
        self,
        config: MessageStoreConfig,
        table: QueueTableReader | None = None,
        *,
        open_files: int = DEFAULT_OPEN_FILES,
    ) -> None:
        """Uses the paths and mapped_file_size_consume_queue of `config`. table: has the units of
        light queues that are in no file yet; None: light queues are not read."""
        self._table = table
        self._files = ConsumeQueueFiles(
            config.consume_queue_path,
            config.mapped_file_size_consume_queue,
            writable=False,
            open_files=open_files,
        )
        self._lock = threading.Lock()

    def read_units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        """At most `count` units from `queue_offset`, fewer at the file's end, b"" without a file.

        The caller keeps within the queue's min and max offset: behind max lie zeros.
        """
        if queue_offset < 0 or not is_safe_topic(topic):
            return b""
        if self._table is not None and is_lmq(topic):
            row = self._table.find_row(topic, queue_id)
            waiting = None if row is None else self._table.unwritten.read(row, queue_offset)
            if waiting is not None:
                return self._read_both(topic, queue_id, queue_offset, count, *waiting)
        return self._read_files(topic, queue_id, queue_offset, count)

    def _read_files(self, topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        position, size = queue_offset * CQ_UNIT_SIZE, count * CQ_UNIT_SIZE
        with self._lock:
            return self._files.read(topic, queue_id, position, size)

    def _read_both(
        self, topic: str, queue_id: int, queue_offset: int, count: int, first: int, units: bytes
    ) -> bytes:
        """units: those that are in no file, from the queue offset `first` on."""
        if queue_offset >= first:
            return units[(queue_offset - first) * CQ_UNIT_SIZE :][: count * CQ_UNIT_SIZE]
        in_files = min(count, first - queue_offset)
        data = self._read_files(topic, queue_id, queue_offset, in_files)
        if len(data) < in_files * CQ_UNIT_SIZE:
            return data
        return data + units[: (count - in_files) * CQ_UNIT_SIZE]

    def find_unit(
        self, topic: str, queue_id: int, queue_offset: int
    ) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags code) of one unit; None for a blank one or without a file."""
        return plain_unit(self.read_units(topic, queue_id, queue_offset, 1), queue_offset)

    def forget(self, topic: str, queue_id: int) -> None:
        """Close the queue's files: they are not the ones on disk any more."""
        with self._lock:
            self._files.forget(topic, queue_id)

    def close(self) -> None:
        """Close all files; idempotent."""
        with self._lock:
            self._files.close()

    # -- by time -------------------------------------------------------------------------------

    def offset_by_timestamp(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        min_offset: int,
        max_offset: int,
        log: CommitLogReader,
        *,
        check: CheckUnit = plain_unit,
        boundary: BoundaryType | None = None,
    ) -> int:
        """Queue offset of the record stored nearest to `timestamp_ms`, as 4.9 finds it, or on that
        side of it (_at_boundary).

        log: has the records' store times; units before its start are passed over. `check` judges
        every unit used. An exact hit wins; of two neighbours the nearer one, the left one in a
        tie; beyond the newest record it is the last record's offset; 0 for an empty queue or when
        a record cannot be read. RocketMQ picks the file by its modification time, which a copied
        store has lost; here it is the first file whose last record is not older than the asked
        time. Nor does it believe a time that neither neighbour bears out: no check covers it, and
        whoever begins to consume at a place found by a wrong one misses messages.
        """
        if max_offset <= min_offset:
            return 0

        min_phy_offset = log.min_phy_offset

        def time_at(queue_offset: int) -> int:
            unit = check(self.read_units(topic, queue_id, queue_offset, 1), queue_offset)
            if unit is None or unit[0] < min_phy_offset:
                return _REMOVED
            return log.store_timestamp_at(unit[0])

        def believed_time_at(queue_offset: int) -> int:
            """Its own, or a neighbour's where both are in order without it."""
            stored = time_at(queue_offset)
            if stored < 0 or not min_offset < queue_offset < max_offset - 1:
                return stored
            before, behind = time_at(queue_offset - 1), time_at(queue_offset + 1)
            return min(max(stored, before), behind) if 0 <= before <= behind else stored

        if boundary is not None:
            return _at_boundary(min_offset, max_offset, timestamp_ms, believed_time_at, boundary)
        low, high = self._find_file(min_offset, max_offset, timestamp_ms, believed_time_at)
        return _nearest(low, high, timestamp_ms, believed_time_at)

    def _find_file(
        self,
        min_offset: int,
        max_offset: int,
        timestamp_ms: int,
        time_at: Callable[[int], int],
    ) -> tuple[int, int]:
        """First and last queue offset, both included, of the file to search."""
        units_per_file = self._files.file_size // CQ_UNIT_SIZE
        low = min_offset
        while True:
            high = min(low - low % units_per_file + units_per_file, max_offset)
            if high == max_offset or time_at(high - 1) >= timestamp_ms:
                return low, high - 1
            low = high


def _at_boundary(
    min_offset: int,
    max_offset: int,
    timestamp_ms: int,
    time_at: Callable[[int], int],
    boundary: BoundaryType,
) -> int:
    """As 5.3.3 finds it: LOWER the first record that is not older, max_offset if all are; UPPER the
    last one that is not younger, min_offset if all are. min_offset, too, if a record cannot be
    read. Removed records are older than all. (Of equal times RocketMQ looks through one file.)"""
    after_ms = timestamp_ms + (boundary is BoundaryType.UPPER)
    low, high = min_offset, max_offset
    last_ms = _REMOVED
    while low < high:
        middle = (low + high) // 2
        stored = time_at(middle)
        if stored < 0 and stored != _REMOVED:
            return min_offset
        if stored >= after_ms:
            high = middle
        else:
            low, last_ms = middle + 1, stored
    if boundary is BoundaryType.LOWER:
        return low
    return min_offset if last_ms == _REMOVED else low - 1


def _nearest(low: int, high: int, timestamp_ms: int, time_at: Callable[[int], int]) -> int:
    first = low
    left = right = left_time = right_time = -1
    while low <= high:
        middle = (low + high) // 2
        stored = time_at(middle)
        if stored == _REMOVED:
            left, low = middle, middle + 1
        elif stored < 0:
            return 0
        elif stored == timestamp_ms:
            return middle
        elif stored > timestamp_ms:
            right, right_time, high = middle, stored, middle - 1
        else:
            left, left_time, low = middle, stored, middle + 1
    if left_time < 0:
        return right if right >= 0 else max(left, first)
    if right_time < 0:
        return left
    return right if timestamp_ms - left_time > right_time - timestamp_ms else left
