"""CarefulDispatch: chunks of the log on their way to the dispatchers, though a record may raise.

Used by ReputMessageService and by whoever dispatches a range of the log again (recovery, rebuild),
on their threads. A chunk that raises is tried in halves, down to the record that is to blame
(put_aside.is_of_record). That one is put aside from what raised only: with properties that cannot
be read it still gets its place in its queue, without tags, keys and light queues, so that consumers
see it; a dispatcher that raises lacks it, the others have it. What must wait (a full disk) and what
ends the service leaves as ever. It must not know queues or keys.

Tested by tests/store/test_put_aside.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from store.commit_log_reader import CommitLogReader
from store.errors import StoreError
from store.message_codec import SIZE_AND_MAGIC
from store.put_aside import ReadBy, RecordGuard, is_of_record
from store.record_arrays import (
    Int64Array,
    RecordArrays,
    ScanEnd,
    parse_records,
    walk_records,
)
from store.record_properties import SCHEDULE_TOPIC, PropertyExtractor

Dispatcher = Callable[[RecordArrays], None]
"""Builds something from records; those that it was given before change nothing."""
_ONE: Final = SIZE_AND_MAGIC.size
"""A chunk of so many bytes is one record."""


def read_chunk(
    source: CommitLogReader,
    phy_offset: int,
    end: int,
    chunk_size: int,
    extractor: PropertyExtractor,
) -> tuple[RecordArrays, int]:
    """Records from `phy_offset` on, none reaching over `end`, and where to read on.

    About chunk_size bytes, one record at least. A blank leads to the next file, once that is
    within `end`, a fence to where it ends. Raises StoreError when the file is missing.
    """
    fences = source.fences
    fence = fences.find(phy_offset)
    if fence is not None:
        return parse_records(memoryview(b""), phy_offset, extractor), min(fence.end, end)
    end = min(end, fences.next_start(phy_offset))
    view = source.view_of_file(phy_offset)
    if view is None:
        raise StoreError(
            f"commit log: no file for offset {phy_offset} (minimum {source.min_phy_offset}, "
            f"published up to {end}); was it deleted by hand?"
        )
    chunk_size = max(chunk_size, SIZE_AND_MAGIC.size)
    with view:
        at = phy_offset % source.file_size
        left = min(source.file_size - at, end - phy_offset)
        with view[at : at + min(left, chunk_size)] as piece:
            records = parse_records(piece, phy_offset, extractor)
        if not records.count and records.end is ScanEnd.PARTIAL and left > chunk_size:
            with view[at : at + min(left, records.needed)] as piece:
                records = parse_records(piece, phy_offset, extractor)
    following = phy_offset + records.consumed
    if records.end is ScanEnd.BLANK:
        next_file = following - following % source.file_size + source.file_size
        following = next_file if next_file <= end else following
    return records, following


class CarefulDispatch:
    """See the module. Owned by: the thread that dispatches."""

    def __init__(
        self,
        source: CommitLogReader,
        extractor: PropertyExtractor,
        dispatchers: Sequence[Dispatcher],
    ) -> None:
        self._source = source
        self._extractor = extractor
        self._dispatchers = tuple(dispatchers)
        self._guard = RecordGuard(ReadBy.DISPATCH)

    def dispatch(self, start: int, end: int, chunk_size: int) -> tuple[RecordArrays, int]:
        """Read a chunk (read_chunk) and hand it to the dispatchers. Raises StoreError."""
        while True:
            try:
                records, following = read_chunk(
                    self._source, start, end, chunk_size, self._extractor
                )
                if records.count:
                    for dispatch in self._dispatchers:
                        dispatch(records)
                return records, following
            except Exception as error:
                if not is_of_record(error):
                    raise
                if chunk_size <= _ONE:
                    return self._dispatch_one(start, end)
                chunk_size = max(chunk_size // 2, _ONE)

    def _dispatch_one(self, start: int, end: int) -> tuple[RecordArrays, int]:
        """The record at `start`, of which something raises."""
        records = None
        with self._guard.of(start):
            records, following = read_chunk(self._source, start, end, _ONE, self._extractor)
        if records is None:
            records, following = self._read_plainly(start, end)
        for dispatch in self._dispatchers:
            with self._guard.of(start):
                dispatch(records)
        return records, following

    def _read_plainly(self, start: int, end: int) -> tuple[RecordArrays, int]:
        """Without a look at its properties; as damage if it raises even so."""
        plain = _PlainExtractor(self._extractor)
        with self._guard.of(start):
            records, following = read_chunk(self._source, start, end, _ONE, plain)
            plain.delay(records)
            return records, following
        nothing = parse_records(memoryview(b""), start, plain)
        nothing.end, nothing.reason = ScanEnd.INVALID, "it cannot be read"
        return nothing, start


def dispatch_piece(
    view: memoryview, phy_offset: int, extractor: PropertyExtractor, dispatch: Dispatcher
) -> None:
    """Hand the whole records at the start of `view`, which begins at `phy_offset`, to one
    dispatcher; one that raises is put aside as by CarefulDispatch. Raises StoreError."""
    try:
        dispatch(parse_records(view, phy_offset, extractor))
        return
    except Exception as error:
        if not is_of_record(error):
            raise
    guard, plain = RecordGuard(ReadBy.DISPATCH), _PlainExtractor(extractor)
    places, end = walk_records(view)
    for at, following in zip(places.tolist(), [*places[1:].tolist(), end], strict=True):
        piece = view[at:following]
        with guard.of(phy_offset + at):
            dispatch(parse_records(piece, phy_offset + at, extractor))
        if guard.failed:
            with guard.of(phy_offset + at):
                records = parse_records(piece, phy_offset + at, plain)
                plain.delay(records)
                dispatch(records)


class _PlainExtractor(PropertyExtractor):
    """Finds nothing in properties."""

    def __init__(self, usual: PropertyExtractor) -> None:
        super().__init__({}, with_keys=False)
        self._usual = usual

    def extract(
        self,
        view: memoryview,
        properties_at: Int64Array,
        properties_sizes: Int64Array,
        topics: list[bytes],
        topic_ids: Int64Array,
        store_timestamps: Int64Array,
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """See PropertyExtractor."""
        nothing = np.zeros(0, np.int64)
        return np.zeros(len(properties_at), np.int64), nothing, nothing

    def delay(self, records: RecordArrays) -> None:
        """A delayed record's level is its queue's, too: it is not delivered before its time."""
        for row, topic_id in enumerate(records.topic_ids.tolist()):
            if records.topics[topic_id] == SCHEDULE_TOPIC:
                level = int(records.queue_ids[row]) + 1
                stored_ms = int(records.store_timestamps[row])
                records.tags_codes[row] = stored_ms + self._usual.delay_ms(level)
