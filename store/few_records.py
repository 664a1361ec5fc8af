"""FewRecordsDispatch: the way of a few records into consume queues and index, without arrays.

Used by ReputMessageService in process `store`, on its dispatch thread, before it parses a chunk as
arrays, whose set-up takes most of the time of a single record, for which a consumer may wait. Takes
what is ordinary only and writes nothing otherwise: what belongs into batch queues, light queues or
the schedule topic, what is damaged, incomplete, fenced or a file's blank, goes the way of arrays.
The files are the same, byte for byte; tests compare both. It must not know who waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from store.commit_log_reader import CommitLogReader
from store.consume_queue_table import ConsumeQueueTable
from store.index_file import IndexEntry
from store.index_service import IndexService
from store.inner_batch import INNER_BATCH_FLAG
from store.lmq_places import MULTI_QUEUE_OFFSET
from store.message_codec import (
    SIZE_AND_MAGIC,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
)
from store.put_aside import is_of_record
from store.record_arrays import MIN_RECORD_SIZE, read_record_head
from store.record_properties import SCHEDULE_TOPIC, PropertyExtractor, key_hashes
from store.unit_runs import FewRecord, runs_of_few

log = logging.getLogger(__name__)

MOST_RECORDS: Final = 12
"""For more than this arrays are faster (tests/bench/dispatch.py prints both)."""


class FewRecordsDispatch:
    """See the module. Owned by: the dispatch thread."""

    def __init__(
        self,
        source: CommitLogReader,
        extractor: PropertyExtractor,
        queues: ConsumeQueueTable,
        concerns_batch_queues: Callable[[Collection[bytes]], bool],
        index: IndexService | None,
        on_moved: Callable[[], None],
    ) -> None:
        """concerns_batch_queues: BatchConsumeQueueTable.concerns. index: None without
        messageIndexEnable. on_moved: called once consumers can read the records, before they are
        indexed."""
        self._source = source
        self._extractor = extractor
        self._queues = queues
        self._concerns_batch_queues = concerns_batch_queues
        self._index = index
        self._on_moved = on_moved

    def dispatch(self, start: int, end: int) -> tuple[int, int] | None:
        """Dispatch [start, end) of the log if it is a few ordinary records, and nothing else.

        Gives their number and the store timestamp (ms) of the last; None: nothing was done. Raises
        DiskFullError, StoreError.
        """
        try:
            records = self._dispatch(start, end)
        except Exception as error:
            if not is_of_record(error):
                raise
            # The way of arrays finds out which record it is (CarefulDispatch).
            return None
        if records is None or not self._has_all(records):
            return None
        return len(records), records[-1].store_timestamp

    def _has_all(self, records: list[FewRecord]) -> bool:
        """Whether each queue reaches over its records; else they go the way of arrays, too. What is
        missing in a queue no consumer would ever see: 0.3 us a queue are worth it."""
        last = {(record.topic, record.queue_id): record for record in records if record.has_unit}
        for (topic, queue_id), record in last.items():
            end = record.phy_offset + record.size
            if not self._queues.reaches(str(topic, "utf-8", "replace"), queue_id, end):
                log.error(
                    "topic %s, queue %s: the record at %s got no unit, dispatching it again",
                    str(topic, "utf-8", "replace"),
                    queue_id,
                    record.phy_offset,
                )
                return False
        return True

    def _dispatch(self, start: int, end: int) -> list[FewRecord] | None:
        records = self._read(start, end)
        if not records or self._concerns_batch_queues({record.topic for record in records}):
            return None
        self._queues.append_runs(runs_of_few(records))
        self._on_moved()
        if self._index is not None:
            entries = [
                IndexEntry(key_hash, record.phy_offset, record.store_timestamp)
                for record in records
                for key_hash in record.key_hashes
            ]
            if entries:
                self._index.put_few(entries)
        return records

    def _read(self, start: int, end: int) -> list[FewRecord] | None:
        source = self._source
        fences = source.fences
        at = start % source.file_size
        size = end - start
        if fences and (fences.find(start) is not None or fences.next_start(start) < end):
            return None
        if at + size > source.file_size or (view := source.view_of_file(start)) is None:
            return None
        with view, view[at : at + size] as piece:
            return self._read_all(piece, start)

    def _read_all(self, piece: memoryview, phy_offset: int) -> list[FewRecord] | None:
        """None: these are not all few and ordinary."""
        places = _places(piece)
        if places is None:
            return None
        records = []
        for at in places:
            head = read_record_head(piece, at, phy_offset)
            record = None if head is None else self._record(piece, head)
            if record is None:
                return None
            records.append(record)
        return records

    def _record(self, piece: memoryview, head: tuple[int, ...]) -> FewRecord | None:
        (_, size, queue_id, queue_offset, phy_offset, sys_flag, timestamp, *parts) = head
        topic_at, topic_size, properties_at, properties_size = parts
        topic = bytes(piece[topic_at : topic_at + topic_size])
        properties = bytes(piece[properties_at : properties_at + properties_size])
        if sys_flag & INNER_BATCH_FLAG or topic == SCHEDULE_TOPIC:
            return None
        if self._extractor.with_lmq and MULTI_QUEUE_OFFSET in properties:
            return None
        kind = sys_flag & TRANSACTION_MASK
        is_indexed = self._index is not None and kind != TRANSACTION_ROLLBACK
        return FewRecord(
            phy_offset,
            size,
            topic,
            queue_id,
            queue_offset,
            self._extractor.tags_code(properties),
            timestamp,
            kind in (0, TRANSACTION_COMMIT),
            key_hashes(properties, str(topic, "utf-8", "replace")) if is_indexed else (),
        )


def _places(piece: memoryview) -> list[int] | None:
    """Where the records begin; None if they are too many, or do not fill `piece`."""
    places: list[int] = []
    at, end = 0, len(piece)
    while at + MIN_RECORD_SIZE <= end and len(places) < MOST_RECORDS:
        size, _ = SIZE_AND_MAGIC.unpack_from(piece, at)
        if size < MIN_RECORD_SIZE:
            return None
        places.append(at)
        at += size
    return places if at == end else None
