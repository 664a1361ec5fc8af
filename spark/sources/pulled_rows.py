"""pulled_batch: the records of some pulls as one Arrow batch, when all of them are ordinary.

Executors. The arrays are those of log_columns.py, which takes 1.5 us a message where rows.py takes
11. Whatever is not ordinary (a compressed body, a batch inside, a host of IPv6, an offset that is
missing, a record that is damaged or of another topic or queue) is left to queue_reader.py and
rows.py: a test compares both.

Tested by tests/spark/sources/test_pulled_rows.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark.sources.cluster import Pulled
from spark.sources.log_columns import (
    MAKERS,
    NO_PROPERTIES,
    WITH_PROPERTIES,
    Ordinary,
    read_heads,
    read_properties,
)
from spark.sources.log_rows import ODD_FLAGS
from spark.sources.ranges import Range
from store.record_walk import good_parts

LEAST: Final = 16
"""Fewer records are read faster one by one."""


def pulled_batch(
    part: Range, pulls: Sequence[tuple[int, Pulled]], schema: Any, *, is_static: bool = False
) -> pa.RecordBatch | None:
    """The messages of consecutive pulls, each with the offset that was asked for; None when one of
    them must be looked at on its own. schema: Arrow's, of some columns of rows.COLUMNS. is_static:
    the records have other queue ids."""
    records = _ordinary(b"".join(pulled.records for _, pulled in pulls))
    if records is None or records.topics.dictionary.to_pylist() != [part.topic]:
        return None
    if not is_static and (records.heads["queue_id"] != part.queue_id).any():
        return None
    begin, end = pulls[0][0], min(pulls[-1][1].next_offset, part.end)
    deltas = {pulled.offset_delta for _, pulled in pulls}
    offsets = records.heads["queue_offset"].astype(np.int64) + deltas.pop()
    if deltas or not np.array_equal(offsets, np.arange(begin, end)):
        return None
    return _batch(part, records, offsets, schema)


def _ordinary(data: bytes) -> Ordinary | None:
    """The records in `data`, if there is nothing else."""
    view = memoryview(data)
    parts = good_parts(view, None, check_crc=True)
    if len(parts.at) < LEAST or int(parts.end[-1]) != len(data):
        return None
    heads = read_heads(view, parts)
    return None if (heads["sys_flag"] & ODD_FLAGS).any() else Ordinary(view, parts, heads)


def _batch(part: Range, records: Ordinary, offsets: Any, schema: Any) -> pa.RecordBatch:
    properties = NO_PROPERTIES
    if not WITH_PROPERTIES.isdisjoint(schema.names):
        properties = read_properties(records)
    own = {
        "topic": lambda: pa.repeat(part.topic, len(offsets)),
        "broker_name": lambda: pa.repeat(part.broker_name, len(offsets)),
        "queue_id": lambda: pa.repeat(pa.scalar(part.queue_id, pa.int32()), len(offsets)),
        "queue_offset": lambda: pa.array(offsets),
    }
    arrays = []
    for each in schema:
        made = own.get(each.name)
        array = MAKERS[each.name](records, properties) if made is None else made()
        arrays.append(array if array.type == each.type else array.cast(each.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
