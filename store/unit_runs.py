"""Units of records, sorted by queue: what dispatch appends and a rebuild writes again.

Pure functions over a batch of records; any thread. It must not know files.

Tested by tests/store/test_lmq_units.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.lmq_places import LMQ_QUEUE_ID
from store.lmq_units import LmqUnits
from store.record_arrays import Int64Array, RecordArrays
from store.stored_units import CQ_UNIT, CQ_UNIT_DTYPE, CQ_UNIT_SIZE

_RADIX_LIMIT: Final = 1 << 16
"""Sort keys below this fit uint16, which numpy sorts by radix, ten times as fast."""


class UnitRun(NamedTuple):
    """Units of one queue with consecutive queue offsets."""

    topic: str
    queue_id: int
    queue_offset: int
    """Of the first unit."""
    units: memoryview
    first_end: int
    """Log position of the end of the first unit's record."""
    last_end: int


class FewRecord(NamedTuple):
    """What dispatch needs of one of few records."""

    phy_offset: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    tags_code: int
    store_timestamp: int
    has_unit: bool
    key_hashes: Sequence[int]


def runs_of_few(records: Sequence[FewRecord]) -> Iterator[UnitRun]:
    """`runs_of_units`, without arrays."""
    if len(records) > 1:
        numbers: dict[bytes, int] = {}
        for record in records:
            numbers.setdefault(record.topic, len(numbers))
        records = sorted(records, key=lambda record: (numbers[record.topic], record.queue_id))
    run: list[FewRecord] = []
    for record in records:
        if not record.has_unit:
            continue
        if run and not _continues(run[-1], record):
            yield _run_of_few(run)
            run = []
        run.append(record)
    if run:
        yield _run_of_few(run)


def _continues(last: FewRecord, record: FewRecord) -> bool:
    return (
        record.queue_offset == last.queue_offset + 1
        and record.queue_id == last.queue_id
        and record.topic == last.topic
    )


def _run_of_few(records: Sequence[FewRecord]) -> UnitRun:
    first, last = records[0], records[-1]
    units = b"".join(
        CQ_UNIT.pack(record.phy_offset, record.size, record.tags_code) for record in records
    )
    return UnitRun(
        str(first.topic, "utf-8", "replace"),
        first.queue_id,
        first.queue_offset,
        memoryview(units),
        first.phy_offset + first.size,
        last.phy_offset + last.size,
    )


def runs_of_units(records: RecordArrays) -> Iterator[UnitRun]:
    """The units of `records`, by queue and in log order within each."""
    if records.lmq_units is not None:
        yield from _runs_with_lmq(records, records.lmq_units)
        return
    order, starts = _sort_by_queue(records)
    if len(order):
        yield from _runs(
            records,
            order,
            starts,
            records.topics,
            records.topic_ids[order],
            records.queue_ids[order],
            records.queue_offsets[order],
        )


def _runs_with_lmq(records: RecordArrays, lmq: LmqUnits) -> Iterator[UnitRun]:
    """A record may have units in several queues, and a light queue may be a record's topic, too."""
    rows = records.unit_records()
    own = np.arange(records.count) if rows is None else rows
    light = np.flatnonzero(np.isin(lmq.records, own))
    topics = list(records.topics)
    numbers = {topic: number for number, topic in enumerate(topics)}
    for queue in lmq.queues:
        if queue not in numbers:
            numbers[queue] = len(topics)
            topics.append(queue)
    light_ids = np.array([numbers[queue] for queue in lmq.queues], np.int64)
    entries = np.concatenate((own, lmq.records[light]))
    topic_ids = np.concatenate((records.topic_ids[own], light_ids[lmq.numbers[light]]))
    queue_ids = np.concatenate(
        (records.queue_ids[own], np.full(len(light), LMQ_QUEUE_ID, np.int64))
    )
    queue_offsets = np.concatenate((records.queue_offsets[own], lmq.queue_offsets[light]))
    by_queue = np.lexsort((entries, queue_ids, topic_ids))
    topic_ids, queue_ids = topic_ids[by_queue], queue_ids[by_queue]
    if not len(by_queue):
        return
    is_other = (topic_ids[1:] != topic_ids[:-1]) | (queue_ids[1:] != queue_ids[:-1])
    starts = np.flatnonzero(np.concatenate(([True], is_other)))
    yield from _runs(
        records, entries[by_queue], starts, topics, topic_ids, queue_ids, queue_offsets[by_queue]
    )


def _runs(
    records: RecordArrays,
    order: NDArray[np.int64],
    starts: NDArray[np.intp],
    topics: list[bytes],
    topic_ids: Int64Array,
    queue_ids: Int64Array,
    queue_offsets: Int64Array,
) -> Iterator[UnitRun]:
    """The units of the records `order`, of which each queue begins at one of `starts`; the other
    arrays say for each where its unit belongs."""
    phy_offsets = records.phy_offsets[order]
    sizes = records.sizes[order]
    ends = phy_offsets + sizes
    units = np.empty(len(order), CQ_UNIT_DTYPE)
    units["phy_offset"] = phy_offsets
    units["size"] = sizes
    units["tags_code"] = records.tags_codes[order]
    data = memoryview(units.tobytes())
    # A run ends with its queue, and where queue offsets are not consecutive.
    begins = np.concatenate(([True], queue_offsets[1:] - queue_offsets[:-1] != 1))
    begins[starts] = True
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(order)) - 1
    names = [str(topic, "utf-8", "replace") for topic in topics]
    for topic_id, queue_id, queue_offset, first, last, first_end, last_end in zip(
        topic_ids[firsts].tolist(),
        queue_ids[firsts].tolist(),
        queue_offsets[firsts].tolist(),
        firsts.tolist(),
        lasts.tolist(),
        ends[firsts].tolist(),
        ends[lasts].tolist(),
        strict=True,
    ):
        run = data[first * CQ_UNIT_SIZE : (last + 1) * CQ_UNIT_SIZE]
        yield UnitRun(names[topic_id], queue_id, queue_offset, run, first_end, last_end)


def _sort_by_queue(records: RecordArrays) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the records that get units, by queue and in log order within each, and where
    in that order each queue begins."""
    rows = records.unit_records()
    topic_ids: Int64Array = records.topic_ids if rows is None else records.topic_ids[rows]
    queue_ids: Int64Array = records.queue_ids if rows is None else records.queue_ids[rows]
    if not len(queue_ids):
        return np.empty(0, np.intp), np.empty(0, np.intp)
    lowest = int(queue_ids.min())
    span = int(queue_ids.max()) - lowest + 1
    keys = topic_ids * span + (queue_ids - lowest)
    if len(records.topics) * span <= _RADIX_LIMIT:
        order = np.argsort(keys.astype(np.uint16), kind="stable")
    else:
        order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return (order if rows is None else rows[order]), starts
