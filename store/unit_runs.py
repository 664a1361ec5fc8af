"""Units of records, sorted by queue: what dispatch appends and a rebuild writes again.

Pure functions over a batch of records; any thread. It must not know files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.record_arrays import Int64Array, RecordArrays
from store.stored_units import CQ_UNIT_DTYPE, CQ_UNIT_SIZE

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


def runs_of_units(records: RecordArrays) -> Iterator[UnitRun]:
    """The units of `records`, by queue and in log order within each."""
    order, starts = _sort_by_queue(records)
    if not len(order):
        return
    phy_offsets = records.phy_offsets[order]
    sizes = records.sizes[order]
    queue_offsets = records.queue_offsets[order]
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
    topics = [str(topic, "utf-8", "replace") for topic in records.topics]
    for topic_id, queue_id, queue_offset, first, last, first_end, last_end in zip(
        records.topic_ids[order[firsts]].tolist(),
        records.queue_ids[order[firsts]].tolist(),
        queue_offsets[firsts].tolist(),
        firsts.tolist(),
        lasts.tolist(),
        ends[firsts].tolist(),
        ends[lasts].tolist(),
        strict=True,
    ):
        run = data[first * CQ_UNIT_SIZE : (last + 1) * CQ_UNIT_SIZE]
        yield UnitRun(topics[topic_id], queue_id, queue_offset, run, first_end, last_end)


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
