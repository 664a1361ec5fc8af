"""Writers: the format `rocketmq` for df.write and df.writeStream.

Made on the driver, `write` runs in a task of an executor, `commit` and `abort` on the driver again.
At least once: a task that fails is run again by Spark, a stream that is started again repeats its
last batch; rows that had been sent are sent once more, with the same SPARK_ROW_ID (outgoing.py).
Nothing that was sent can be taken back: an aborted write says what stays.

Tested by tests/spark/sources/test_write.py.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark.sources.cluster import Cluster
from spark.sources.data_source import Shipped
from spark.sources.errors import NoTopicError, OptionError, SourceError
from spark.sources.options import CONNECTION_OPTIONS, Connection, Options
from spark.sources.outgoing import ROW_ID, RowRules, row_id
from spark.sources.queue_sender import MOST_SEND_BYTES, SEND_BYTES, QueueSender, SendRules

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

WRITE_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    *("topic", "shardColumn", "group", "writeId", "sendBytes", "acceptDegraded"),
)
_OF_SPARK: Final = ("path", "checkpointLocation", "queryName")
"""Spark hands them over, too. The path, save(...)'s argument, is the topic."""
GROUP: Final = "SPARK_WRITER"
_LONGEST_ID: Final = 200
_NO_TOPIC: Final = "; a write makes no topic: mqadmin updateTopic does"
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
"""What Spark tells tasks of a stream."""


@dataclass
class Stored(WriterCommitMessage):
    """What a task has stored; `degraded`: of it, not as safely as its broker's settings ask."""

    count: int
    degraded: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What the options of a write say. Picklable. write_id: in front of each row's id."""

    connection: Connection
    rows: RowRules
    sending: SendRules
    write_id: str

    @classmethod
    def of(
        cls, given: Mapping[str, str], options: Options, schema: StructType, write_id: str
    ) -> WritePlan:
        """given: the option names as they came. OptionError."""
        for name in given:
            if name.lower().startswith("transaction"):
                raise OptionError(
                    f"option {name}: transactions are not offered: Spark may run a task twice and "
                    f"repeat a stream's batch; readers tell such rows by their {ROW_ID}"
                )
        options.check_names((*WRITE_OPTIONS, *_OF_SPARK), "rocketmq, written,")
        rows = RowRules(options.text("topic", options.text("path")), options.text("shardColumn"))
        rows.check(schema)
        sending = SendRules(
            group=options.text("group", GROUP) or GROUP,
            send_bytes=options.whole("sendBytes", SEND_BYTES, least=1, most=MOST_SEND_BYTES),
            accept_degraded=options.flag("acceptDegraded", default=False),
        )
        write_id = options.text("writeId", write_id) or write_id
        if not write_id.isprintable() or len(write_id) > _LONGEST_ID:
            raise OptionError(
                f"option writeId: {write_id[:_LONGEST_ID]!r} becomes a property: at most "
                f"{_LONGEST_ID} characters, and no control characters"
            )
        return cls(options.connection(), rows, sending, write_id)


def refuse_overwrite(overwrite: bool) -> None:
    """A topic cannot be replaced. OptionError."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten: write with mode('append')")


class _Writer(Shipped):
    """What both writers share. Picklable."""

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    def send(self, batches: Iterator[pa.RecordBatch], write_id: str, partition: int) -> Stored:
        """All rows of a task, in their order. SourceError, which names the row."""
        count = 0
        first = next(batches, None)
        if first is None:
            return Stored(0, 0)
        with Cluster(self.plan.connection) as cluster:
            sender = QueueSender(cluster, self.plan.sending)
            try:
                for batch in itertools.chain((first,), batches):
                    for row in self.plan.rows.messages(batch, count):
                        row.properties[ROW_ID] = row_id(write_id, partition, row)
                        sender.put(row)
                    count += batch.num_rows
                sender.flush()
            except SourceError as error:
                stored = f"{sender.sent} rows of this try are stored, and stay"
                way_out = _NO_TOPIC if isinstance(error, NoTopicError) else ""
                raise type(error)(f"task {partition}: {error}{way_out}; {stored}") from None
        return Stored(sender.sent, sender.degraded)

    def told_commit(self, messages: Sequence[Any], what: str) -> None:
        """Warns of what is less safe than it should be."""
        degraded = sum(message.degraded for message in messages if message is not None)
        if degraded:
            log.warning(
                "%s: %s messages were stored by a master alone or not yet on disk (acceptDegraded)",
                what,
                degraded,
            )

    def told_abort(self, messages: Sequence[Any], what: str) -> None:
        """Warns of what stays."""
        done = [message for message in messages if message is not None]
        log.warning(
            "%s was aborted: %s messages of %s of %s tasks are stored and stay, beside those that "
            "the failed tasks had sent; written again with the same writeId they have the same %s",
            what,
            sum(message.count for message in done),
            len(done),
            len(messages),
            ROW_ID,
        )


class BatchWriter(_Writer, DataSourceArrowWriter):
    """df.write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        """A task's rows."""
        return self.send(iterator, self.plan.write_id, _partition())

    def commit(self, messages: list[Any]) -> None:
        """All tasks have sent all rows."""
        self.told_commit(messages, "write")

    def abort(self, messages: list[Any]) -> None:
        """A task failed for good."""
        self.told_abort(messages, f"write {self.plan.write_id}")


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """df.writeStream."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        """A task's rows of a batch."""
        return self.send(iterator, f"{self.plan.write_id}{self._batch()}", _partition())

    def _batch(self) -> str:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        batch = None if context is None else context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise SourceError("the task is of no micro-batch: continuous processing is not offered")
        return f"{query}-{batch}"

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """All tasks have sent all rows of a batch."""
        self.told_commit(messages, f"batch {batchId}")

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """A task failed for good: the stream ends, and repeats the batch when it is started."""
        self.told_abort(messages, f"batch {batchId}")


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
