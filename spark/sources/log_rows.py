"""LogRows: the records of a log's file as Arrow batches, and as rows of the table of damage.

Executors. Ordinary records become columns at once (log_columns.py). The others, with a host of
IPv6, a compressed body or a batch inside, are read one by one as the format `rocketmq` reads them
(rows.py), which gives the same columns.

Tested by tests/spark/sources/test_log_rows.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark.sources.log_columns import (
    MAKERS,
    NO_PROPERTIES,
    WITH_PROPERTIES,
    Ordinary,
    read_heads,
    read_properties,
)
from spark.sources.log_filter import LogFilter
from spark.sources.log_scan import LOST_REASON, Damage, Run
from spark.sources.rows import (
    PAIR_END,
    PAIR_SIZE,
    ROW_SIZE,
    BatchMaker,
    StoredMessage,
    messages_of,
)
from store.inner_batch import INNER_BATCH_FLAG
from store.lost_range import LOST_MARK
from store.message_codec import (
    HOSTS_V6_FLAGS,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    read_checked,
)
from store.record_arrays import Int64Array
from tools.message_decoder import COMPRESSED

ODD_FLAGS: Final = HOSTS_V6_FLAGS | COMPRESSED | INNER_BATCH_FLAG
"""Records with one of these are read one by one."""
DAMAGE_SCHEMA: Final = StructType(
    [
        StructField("kind", StringType()),
        StructField("start_offset", LongType()),
        StructField("end_offset", LongType()),
        StructField("reason", StringType()),
        StructField("file", StringType()),
        StructField("topic", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue_offset", LongType()),
    ]
)
"""docs/spark_sources.md says what each holds."""
DamageRow = tuple[str, int, int, str, str | None, str | None, int | None, int | None]


def damage_row(damage: Damage, path: str | None) -> DamageRow:
    """A row of the table of damage."""
    kind, start, end, reason, message = damage
    if message is None:
        return kind, start, end, reason, path, None, None, None
    place = (message.topic, message.queue_id, message.queue_offset)
    return kind, start, end, reason, path, *place


def lost_records(run: Run) -> Iterator[Damage]:
    """The records that a broker put in the place of a range which its whole group had lost."""
    records = Ordinary(run.view, run.parts, read_heads(run.view, run.parts))
    for row in np.flatnonzero(_lost(records)).tolist():
        start, end = run.start + int(run.parts.at[row]), run.start + int(run.parts.end[row])
        yield Damage("lost", start, end, LOST_REASON)


def _lost(records: Ordinary) -> NDArray[np.bool_]:
    kinds = records.heads["sys_flag"] & TRANSACTION_MASK
    found: NDArray[np.bool_] = kinds == TRANSACTION_ROLLBACK
    for row in np.flatnonzero(found).tolist():
        at = int(records.parts.body_at[row])
        found[row] = bytes(records.view[at : at + len(LOST_MARK)]) == LOST_MARK
    return found


class LogRows:
    """Makes batches of the columns of a schema."""

    def __init__(
        self, schema: StructType, broker_name: str | None, chosen: LogFilter, batch_bytes: int
    ) -> None:
        """broker_name: of all rows. batch_bytes: about the most bytes of a batch."""
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")
        self._odd = BatchMaker(schema)
        self._broker_name = broker_name
        self._chosen = chosen
        self._batch_bytes = batch_bytes
        self._with_properties = not WITH_PROPERTIES.isdisjoint(self._schema.names)

    def batches(self, run: Run) -> Iterator[pa.RecordBatch]:
        """The messages of `run` that are chosen."""
        records = Ordinary(run.view, run.parts, read_heads(run.view, run.parts))
        chosen = self._choose(records)
        if not chosen.all():
            records = records.rows(chosen)
        odd = (records.heads["sys_flag"] & ODD_FLAGS) != 0
        if odd.any():
            yield from self._odd_batches(run, records.parts.at[odd])
            records = records.rows(~odd)
        for piece in self._pieces(records):
            yield self._batch(piece)

    def _choose(self, records: Ordinary) -> NDArray[np.bool_]:
        found = ~_lost(records)
        numbers: dict[str, Any] = {
            "queue_id": records.heads["queue_id"],
            "physical_offset": records.heads["phy_offset"],
            "store_timestamp": records.parts.timestamps,
        }
        for name, column in numbers.items():
            bounds = self._chosen.of(name)
            if not bounds.is_open:
                found &= bounds.mask(column)
        if self._chosen.topics is not None and len(found):
            topics = records.topics
            wanted = [name in self._chosen.topics for name in topics.dictionary.to_pylist()]
            found &= np.array(wanted, np.bool_)[topics.indices.to_numpy()]
        return found

    def _pieces(self, records: Ordinary) -> Iterator[Ordinary]:
        """Of about batch_bytes each, at least one record, as BatchMaker counts them; properties are
        taken as spread evenly over the records."""
        if not len(records.heads):
            return
        sizes = np.cumsum(records.parts.end - records.parts.at)
        size = int(sizes[-1])
        weight = size + ROW_SIZE * len(sizes)
        if self._with_properties:
            data = np.frombuffer(records.view, np.uint8)
            weight += PAIR_SIZE * int(np.count_nonzero(data == PAIR_END[0]))
        most = max(self._batch_bytes * size // weight, 1)
        if size <= most:
            yield records
            return
        numbers = (sizes - 1) // most
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, end in itertools.pairwise(starts):
            yield records.rows(np.arange(start, end))

    def _batch(self, records: Ordinary) -> pa.RecordBatch:
        properties = read_properties(records) if self._with_properties else NO_PROPERTIES
        arrays = []
        for each in self._schema:
            if each.name == "broker_name":
                array = pa.repeat(pa.scalar(self._broker_name, pa.string()), len(records.heads))
            else:
                array = MAKERS[each.name](records, properties)
            arrays.append(array if array.type == each.type else array.cast(each.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _odd_batches(self, run: Run, at: Int64Array) -> Iterator[pa.RecordBatch]:
        yield from self._odd.batches(self._odd_messages(run, at.tolist()), self._batch_bytes)

    def _odd_messages(self, run: Run, places: list[int]) -> Iterator[StoredMessage]:
        for at in places:
            record = read_checked(run.view, at, len(run.view), run.start + at)
            assert record is not None, "the walk and read_checked judge alike"
            yield from messages_of(record, self._broker_name)
