"""The format `rocketmq`: topics of a RocketMQ cluster as a table.

RocketmqSource and the planning of a BatchReader run in Python workers of the driver, `read` in
those of executors. A read is what the queues held when it was planned.

Tested by tests/spark/sources/test_rocketmq.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from remoting.body.message_queue import MessageQueue
from spark.sources.cluster import Cluster
from spark.sources.data_source import ConfiguredSource, RefusedStream, Shipped, check_columns
from spark.sources.errors import OptionError
from spark.sources.limits import Limits, find_ends
from spark.sources.losses import LossRule
from spark.sources.options import CONNECTION_OPTIONS, Connection, Options
from spark.sources.positions import EARLIEST, LATEST, Position, offset_at, parse_position, resolve
from spark.sources.pushed_filters import Pushed, push
from spark.sources.queue_reader import ALL, RangeReader, ReadRules
from spark.sources.ranges import Range, TaskRanges, cut, range_of, tasks_of
from spark.sources.rows import SCHEMA, BatchMaker
from spark.sources.topic_kind import selects_tags
from tools.message_puller import TOOLS_GROUP

if TYPE_CHECKING:
    import pyarrow as pa

    from spark.sources.write import WritePlan

BATCH_BYTES: Final = 8 << 20
MOST_BATCH_BYTES: Final = 512 << 20
MESSAGES_PER_PARTITION: Final = 1_000_000
READ_OPTIONS: Final = (
    *("topic", "topics", "start", "group", "failOnDataLoss", "batchBytes"),
    *("maxMessagesPerPartition", "minPartitions", "acceptSlaveEnd"),
)
STREAM_OPTIONS: Final = ("maxMessagesPerTrigger", "commitGroup")


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What the options of a read say. Picklable."""

    connection: Connection
    topics: tuple[str, ...]
    rules: ReadRules
    batch_bytes: int
    messages_per_partition: int
    min_partitions: int
    accept_slave_end: bool = False

    @classmethod
    def of(cls, options: Options) -> ReadPlan:
        """OptionError."""
        topics = options.names("topics", "topic", "path")
        if not topics:
            raise OptionError(
                "no topic: give load(...) or the option topic one, or topics as a,b,c"
            )
        group = options.text("group", TOOLS_GROUP) or TOOLS_GROUP
        return cls(
            connection=options.connection(),
            topics=topics,
            rules=ReadRules(LossRule(options.flag("failOnDataLoss", default=True)), group),
            batch_bytes=options.whole("batchBytes", BATCH_BYTES, least=1, most=MOST_BATCH_BYTES),
            messages_per_partition=options.whole(
                "maxMessagesPerPartition", MESSAGES_PER_PARTITION, least=1
            ),
            min_partitions=options.whole("minPartitions", 1, least=1, most=100_000),
            accept_slave_end=options.flag("acceptSlaveEnd", default=False),
        )


class RocketmqSource(ConfiguredSource):
    """The format."""

    KNOWN: ClassVar[tuple[str, ...]] = (
        *CONNECTION_OPTIONS,
        *READ_OPTIONS,
        "path",  # load(...)'s argument, a topic, as save(...)'s is
        *("end", *STREAM_OPTIONS),
    )

    @classmethod
    def name(cls) -> str:
        """Of the format."""
        return "rocketmq"

    def schema(self) -> StructType:
        """All columns. Wrong options are told here, when the DataFrame is made."""
        from spark.sources.stream import StreamRules

        options = self.checked_options()
        ReadPlan.of(options)
        StreamRules.of(options)
        for name in ("start", "end"):
            parse_position(options.text(name) or LATEST, name)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        options = self.checked_options()
        for name in STREAM_OPTIONS:
            if options.text(name) is not None:
                raise OptionError(f"option {name}: of streams alone")
        start = parse_position(options.text("start") or EARLIEST, "start")
        end = parse_position(options.text("end") or LATEST, "end")
        kind = PushingReader if self.DEFAULTS.pushes_filters else BatchReader
        return kind(ReadPlan.of(options), schema, start, end)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A stream."""
        try:
            return self._stream_reader(schema)
        except OptionError as error:
            return RefusedStream(str(error))

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        from spark.sources.stream import StreamReader, StreamRules

        options = self.checked_options()
        if options.text("end") is not None:
            raise OptionError(
                "option end: a stream has no end; Trigger.AvailableNow stops by itself"
            )
        start = parse_position(options.text("start") or LATEST, "start")
        return StreamReader(ReadPlan.of(options), schema, start, StreamRules.of(options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from spark.sources.write import BatchWriter, refuse_overwrite

        refuse_overwrite(overwrite)
        return BatchWriter(self._write_plan(schema, uuid.uuid4().hex))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """A stream's writes; output mode complete would overwrite."""
        from spark.sources.write import StreamWriter, refuse_overwrite

        refuse_overwrite(overwrite)
        return StreamWriter(self._write_plan(schema, ""))

    def _write_plan(self, schema: StructType, write_id: str) -> WritePlan:
        from spark.sources.write import WritePlan

        options = Options(self.options, self.DEFAULTS.values)
        return WritePlan.of(self.options, options, schema, write_id)


class RangeTask(Shipped):
    """The part of a reader that tasks run. Picklable."""

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        check_columns(schema, SCHEMA)
        self.plan = plan
        self.schema = schema
        self.pushed = Pushed({})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's ranges."""
        if not isinstance(partition, TaskRanges):  # Spark's own, where there are no ranges
            return
        maker = BatchMaker(self.schema)
        wants = self.pushed.wants if self.pushed.needs_a_look() else None
        with Cluster(self.plan.connection) as cluster:
            for each in partition.ranges:
                reader = RangeReader(cluster, each, self.plan.rules, wants)
                yield from reader.batches(maker, self.plan.batch_bytes)

    def tasks(self, ranges: Iterable[Range]) -> list[TaskRanges]:
        """What tasks read of these."""
        least = self.plan.min_partitions
        return tasks_of(cut(ranges, self.plan.messages_per_partition, least), least)


class BatchReader(RangeTask, DataSourceReader):
    """Reads what is there when it is planned."""

    def __init__(self, plan: ReadPlan, schema: StructType, start: Position, end: Position) -> None:
        super().__init__(plan, schema)
        self.start = start
        self.end = end

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each range of each queue, unless there are many small ones."""
        plan = self.plan
        with Cluster(plan.connection) as cluster:
            ranges = [each for topic in plan.topics for each in self._ranges(cluster, topic)]
            self._choose_tags(cluster)
        return self.tasks(ranges)

    def _ranges(self, cluster: Cluster, topic: str) -> Iterator[Range]:
        limits = find_ends(
            cluster,
            topic,
            accept_slaves=self.plan.accept_slave_end,
            used=lambda limits: self._open_ends(cluster, limits),
        )
        starts = resolve(cluster, self.start, limits, "start", self.plan.topics)
        ends = resolve(cluster, self.end, limits, "end", self.plan.topics)
        for queue, each in limits.items():
            if not self.pushed.chooses(queue.topic, queue.broker_name, queue.queue_id):
                continue
            begin, end = within(self.plan.rules.losses, queue, starts[queue], ends[queue], each)
            begin, end = self._in_time(cluster, queue, begin, end)
            yield range_of(queue, *self.pushed.offsets(begin, end))

    def _open_ends(
        self, cluster: Cluster, limits: Mapping[MessageQueue, Limits]
    ) -> list[MessageQueue]:
        """The queues that are read up to their ends."""
        ends = resolve(cluster, self.end, limits, "end", self.plan.topics)
        return [
            queue
            for queue, each in limits.items()
            if ends[queue] >= each.end
            and not self.end.says_offset(queue)
            and self.pushed.chooses(queue.topic, queue.broker_name, queue.queue_id)
        ]

    def _in_time(
        self, cluster: Cluster, queue: MessageQueue, begin: int, end: int
    ) -> tuple[int, int]:
        """The part that may be of the times that the query asks for."""
        limits = Limits(begin, end)
        if self.pushed.end_ms is not None:
            end = offset_at(cluster, queue, self.pushed.end_ms, limits)
        if self.pushed.begin_ms is not None:
            begin = offset_at(cluster, queue, self.pushed.begin_ms, limits)
        return begin, max(begin, end)

    def _choose_tags(self, cluster: Cluster) -> None:
        """Have the brokers select tags, where their selection leaves out nothing that is wanted."""
        expression = self.pushed.expression()
        if expression != ALL and all(selects_tags(cluster, topic) for topic in self.plan.topics):
            self.plan = replace(self.plan, rules=replace(self.plan.rules, expression=expression))


class PushingReader(BatchReader):
    """A BatchReader for sessions in which Spark hands over filters; a reader that has this method
    is refused in others."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Those that Spark must evaluate, too."""
        self.pushed, left = push(filters)
        return left


def within(
    losses: LossRule, queue: MessageQueue, start: int, end: int, limits: Limits
) -> tuple[int, int]:
    """The part of what is wanted that is there; DataLossError or a warning for the rest. What a
    slave does not have yet stays wanted: its tasks wait."""
    if start < min(limits.begin, end):
        losses.retention(queue, start, min(limits.begin, end))
    if limits.is_certain and max(start, end) > limits.end:
        losses.shorter(queue, max(start, end), limits.end)
    begin = max(start, limits.begin)
    return begin, max(min(end, limits.end) if limits.is_certain else end, begin)
