"""BatchQueueReader: batch consume queues as a process reads them that does not write them.

Lives in `remoting`; any thread may call it (one lock). Which offsets exist comes from the queue
table and is passed with each call; what lies behind them in the files is not looked at. A new
generation of a queue closes what was open of it. Corresponds to RocketMQ's
BatchConsumeQueue.getBatchMsgIndexBuffer and getOffsetInQueueByTime.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from store.batch_consume_queue import find_first
from store.batch_units import BatchUnit, parse_unit
from store.consume_queue_files import ConsumeQueueFiles, is_safe_topic
from store.mapped_file import find_start_offset
from store.message_store_config import BATCH_UNIT_SIZE, MessageStoreConfig


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
            for start in self._files_from(topic, queue_id, queue_offset):
                units = self._read_file(topic, queue_id, start, queue_offset, count, high)
                if units:
                    return units
        return []

    def offset_by_timestamp(
        self, topic: str, queue_id: int, timestamp_ms: int, low: int, high: int
    ) -> int:
        """Queue offset of the first record of its file that was stored at or after `timestamp_ms`,
        of the file's last one where none was; in [low, high]. The file is the last one whose first
        record is not younger. As RocketMQ finds it (BoundaryType.LOWER)."""
        if not is_safe_topic(topic) or high <= low:
            return low
        with self._lock:
            self._check_generation(topic, queue_id)
            offset = self._offset_in_files(topic, queue_id, timestamp_ms, high)
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

    def _read_file(
        self, topic: str, queue_id: int, start: int, queue_offset: int, count: int, high: int
    ) -> list[BatchUnit]:
        position = self._find_in_file(
            topic, queue_id, start, lambda unit: unit.following <= queue_offset
        )
        if position >= start + self._files.file_size:
            return []
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
