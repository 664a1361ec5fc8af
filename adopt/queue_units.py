"""The units of a store's consume queues as RocksDB keeps them: each with the time of its message.

Queue files have no times, the log has no words on what was deleted: a unit is written where a
record of the log and the files of its queue name each other. So messages of a topic that was
deleted, and perhaps made again, do not come back. Batch queues have units of their own form: for
them the records alone count, one plain unit each. One thread, read-only, one walk of the log in its
order; memory grows with the queues. Knows no database.

Tested by tests/adopt/test_queue_units.py; with Java's broker by
tests/interop/test_migrated_counts.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from adopt.log_survey import Progress, QueueName, walk_places
from adopt.rocks_codec import Unit, UnitKey
from store.consume_queue_files import ConsumeQueueFiles, is_safe_topic
from store.dledger.source_queues import read_queue_ends
from store.mapped_file_queue import StoreFile, list_store_files
from store.record_properties import PropertyExtractor
from store.stored_units import CQ_UNIT, CQ_UNIT_DTYPE, CQ_UNIT_SIZE, PRE_BLANK_SIZE

BATCH_QUEUES: Final = "batchconsumequeue"
_AT_ONCE: Final = 50_000 * CQ_UNIT_SIZE


class QueueUnits:
    """See the module."""

    def __init__(self, root: Path, queues: Path) -> None:
        """root: of the store; queues: where its consumequeue is now."""
        self._log: Final = root / "commitlog"
        self._queues: Final = queues
        self._batches: Final = root / BATCH_QUEUES
        self.ends: Final = {(name, qid): end for name, qid, end in read_queue_ends(queues)}
        """Where each queue of files goes on."""
        self.bounds: Final[dict[QueueName, tuple[int, int]]] = {}
        """Filled by `units`: of each queue that has any, the place of its last record, and where it
        goes on."""

    def units(self, log_end: int, progress: Progress) -> Iterator[tuple[UnitKey, Unit]]:
        """All, in the log's order. Raises OSError."""
        files, extractor = self._open_files(), PropertyExtractor({}, with_keys=False)
        try:
            for place in walk_places(self._log, log_end, progress):
                if place.queue in self.ends:
                    tags_code = _find_tags_code(files, place.queue, place.queue_offset, place.at)
                elif self.is_batch(place.queue):
                    tags_code = extractor.tags_code(place.message.properties)
                else:
                    tags_code = None
                if tags_code is None:
                    continue
                following = place.queue_offset + place.number
                self.bounds[place.queue] = (place.at, following)
                yield (
                    UnitKey(*place.queue, place.queue_offset),
                    Unit(place.at, place.size, tags_code, place.message.store_timestamp),
                )
        finally:
            files.close()

    def is_batch(self, queue: QueueName) -> bool:
        """Whether its units are in a batch queue."""
        topic, queue_id = queue
        return is_safe_topic(topic) and (self._batches / topic / str(queue_id)).is_dir()

    def count(self, log_start: int, log_end: int) -> Iterator[tuple[QueueName, int]]:
        """Of each queue of files: its units of what the log has. Raises OSError."""
        for (topic, queue_id), end in self.ends.items():
            files = list_store_files(self._queues / topic / str(queue_id))
            yield (
                (topic, queue_id),
                sum(_count(file, end * CQ_UNIT_SIZE, log_start, log_end) for file in files),
            )

    def _open_files(self) -> ConsumeQueueFiles:
        """All have one size."""
        for topic, queue_id in self.ends:
            for file in list_store_files(self._queues / topic / str(queue_id)):
                return ConsumeQueueFiles(self._queues, file.size, writable=False)
        return ConsumeQueueFiles(self._queues, CQ_UNIT_SIZE, writable=False)


def _find_tags_code(
    files: ConsumeQueueFiles, queue: QueueName, queue_offset: int, phy_offset: int
) -> int | None:
    """None: that place of the queue has another record, or none."""
    data = files.read(*queue, queue_offset * CQ_UNIT_SIZE, CQ_UNIT_SIZE)
    if len(data) < CQ_UNIT_SIZE:
        return None
    found, size, tags_code = CQ_UNIT.unpack(data)
    return int(tags_code) if found == phy_offset and 0 < size < PRE_BLANK_SIZE else None


def _count(file: StoreFile, end: int, log_start: int, log_end: int) -> int:
    """Units before `end`, a position of the queue, whose records are in the log."""
    found = 0
    left = min(file.size, end - file.start_offset)
    with file.path.open("rb") as opened:
        while left >= CQ_UNIT_SIZE:
            raw = opened.read(min(left, _AT_ONCE))
            units = np.frombuffer(raw[: len(raw) // CQ_UNIT_SIZE * CQ_UNIT_SIZE], CQ_UNIT_DTYPE)
            phys, sizes = units["phy_offset"], units["size"]
            is_there = (phys >= log_start) & (phys < log_end)
            found += int(np.count_nonzero(is_there & (sizes > 0) & (sizes < PRE_BLANK_SIZE)))
            left -= len(raw) or left
    return found
