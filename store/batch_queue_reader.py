"""BatchQueueReader: batch consume queues as a process reads them that does not write them.

Lives in `remoting`; any thread may call it (one lock). Which offsets exist comes from the queue
table and is passed with each call; what lies behind them in the files is not looked at. A new
generation of a queue closes what was open of it. A pull mostly goes on where another has ended:
such places are remembered, and one read takes the place of a listed directory and a binary search.
Corresponds to RocketMQ's BatchConsumeQueue.getBatchMsgIndexBuffer and getOffsetInQueueByTime.

Tested by tests/store/test_batch_consume_queues.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from store.batch_consume_queue import find_first
from store.batch_units import BatchUnit, parse_unit
from store.boundary_type import BoundaryType
from store.consume_queue_files import ConsumeQueueFiles, is_safe_topic
from store.mapped_file import find_start_offset
from store.message_store_config import BATCH_UNIT_SIZE, MessageStoreConfig

_MOST_PLACES: Final = 256
"""Of one queue. A pull leaves a place behind each of the few records that it may end at."""


class BatchQueueReader:
    """Reads units. Guarded by: its own lock."""

    def __init__(
        self, config: MessageStoreConfig, generation_of: Callable[[str, int], int]
    ) -> None:
        """Uses the paths and sizes of `config`. generation_of: see QueueTableReader."""
        self._files = ConsumeQueueFiles(
            config.batch_consume_queue_path,
            config.mapper_file_size_batch_consume_queue,
            writable=False,
        )
        self._generation_of = generation_of
        self._generations: dict[tuple[str, int], int] = {}
        self._places: dict[tuple[str, int], dict[int, int]] = {}
        """Of each queue: where the unit lies whose first message has this queue offset."""
        self._lock: Final = threading.Lock()

    def read_units(
        self, topic: str, queue_id: int, queue_offset: int, count: int, high: int
    ) -> list[BatchUnit]:
        """Up to `count` units from the one that holds the message at `queue_offset` on, or the
        next one behind it; fewer at a file's end. high: the queue's max offset."""
        if not is_safe_topic(topic):
            return []
        with self._lock:
            self._check_generation(topic, queue_id)
            places = self._places.setdefault((topic, queue_id), {})
            position = places.get(queue_offset)
            if position is not None:
                units = self._read_at(topic, queue_id, position, count, high)
                if units and units[0].base == queue_offset:
                    _note_places(places, units, position)
                    return units
            for start in self._files_from(topic, queue_id, queue_offset):
                position = self._find_in_file(
                    topic, queue_id, start, lambda unit: unit.following <= queue_offset
                )
                if position >= start + self._files.file_size:
                    continue
                units = self._read_at(topic, queue_id, position, count, high)
                if units:
                    _note_places(places, units, position)
                    return units
        return []

    def offset_by_timestamp(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        low: int,
        high: int,
        boundary: BoundaryType | None = None,
    ) -> int:
        """Queue offset of the first record of its file that was stored at or after `timestamp_ms`,
        of the file's last one where none was; in [low, high]. The file is the last one whose first
        record is not younger. As RocketMQ finds it: LOWER, also if none is named; UPPER differs
        only among records of exactly that time, of which it is the last."""
        if not is_safe_topic(topic) or high <= low:
            return low
        with self._lock:
            self._check_generation(topic, queue_id)
            offset = self._offset_in_files(topic, queue_id, timestamp_ms, high)
            if boundary is BoundaryType.UPPER:
                offset = self._last_at(topic, queue_id, timestamp_ms, offset, high)
        return min(max(offset, low), high)

    def close(self) -> None:
        """Close all files; idempotent."""
        with self._lock:
            self._files.close()

    # -- under the lock ------------------------------------------------------------------------

    def _check_generation(self, topic: str, queue_id: int) -> None:
        generation = self._generation_of(topic, queue_id)
        if self._generations.get((topic, queue_id)) != generation:
            self._generations[topic, queue_id] = generation
            self._files.forget(topic, queue_id)
            self._places.pop((topic, queue_id), None)

    def _starts(self, topic: str, queue_id: int) -> list[int]:
        try:
            names = os.listdir(self._files.root / topic / str(queue_id))
        except OSError:
            return []
        found = (find_start_offset(name) for name in names)
        return sorted(start for start in found if start is not None)

    def _files_from(self, topic: str, queue_id: int, queue_offset: int) -> list[int]:
        """The file that holds `queue_offset`, and those behind it."""
        starts = self._starts(topic, queue_id)
        for number in range(len(starts) - 1, 0, -1):
            unit = self._unit_at(topic, queue_id, starts[number])
            if unit is not None and unit.base <= queue_offset:
                return starts[number:]
        return starts

    def _unit_at(self, topic: str, queue_id: int, position: int) -> BatchUnit | None:
        return parse_unit(self._files.read(topic, queue_id, position, BATCH_UNIT_SIZE))

    def _find_in_file(
        self, topic: str, queue_id: int, start: int, is_before: Callable[[BatchUnit], bool]
    ) -> int:
        return find_first(
            lambda position: self._unit_at(topic, queue_id, position),
            start,
            start + self._files.file_size,
            is_before,
        )

    def _read_at(
        self, topic: str, queue_id: int, position: int, count: int, high: int
    ) -> list[BatchUnit]:
        """Units from `position` on, none of the next file."""
        data = self._files.read(topic, queue_id, position, count * BATCH_UNIT_SIZE)
        units = []
        for at in range(0, len(data), BATCH_UNIT_SIZE):
            unit = parse_unit(data, at)
            if unit is None or unit.following > high:
                break
            units.append(unit)
        return units

    def _offset_in_files(self, topic: str, queue_id: int, timestamp_ms: int, high: int) -> int:
        starts = self._starts(topic, queue_id)
        chosen = starts[0] if starts else 0
        for start in reversed(starts):
            unit = self._unit_at(topic, queue_id, start)
            if unit is not None and unit.base < high and unit.store_timestamp <= timestamp_ms:
                chosen = start
                break
        position = self._find_in_file(
            topic,
            queue_id,
            chosen,
            lambda unit: unit.store_timestamp < timestamp_ms and unit.following <= high,
        )
        unit = None
        if position < chosen + self._files.file_size:
            unit = self._unit_at(topic, queue_id, position)
        if (unit is None or unit.base >= high) and position > chosen:
            unit = self._unit_at(topic, queue_id, position - BATCH_UNIT_SIZE)
        return -1 if unit is None else unit.base

    def _last_at(self, topic: str, queue_id: int, timestamp_ms: int, offset: int, high: int) -> int:
        """Of the records of exactly that time, which begin at `offset`, the last one of its
        file."""
        starts = self._files_from(topic, queue_id, offset)
        if offset < 0 or not starts:
            return offset
        position = self._find_in_file(
            topic,
            queue_id,
            starts[0],
            lambda unit: unit.store_timestamp <= timestamp_ms and unit.following <= high,
        )
        if position == starts[0]:
            return offset
        unit = self._unit_at(topic, queue_id, position - BATCH_UNIT_SIZE)
        return offset if unit is None or unit.store_timestamp != timestamp_ms else unit.base


def _note_places(places: dict[int, int], units: list[BatchUnit], position: int) -> None:
    """Where the units behind these lie, if there are any: who reads there checks it."""
    if len(places) > _MOST_PLACES:
        places.clear()
    for unit in units[: _MOST_PLACES // 4]:
        position += BATCH_UNIT_SIZE
        places[unit.following] = position
