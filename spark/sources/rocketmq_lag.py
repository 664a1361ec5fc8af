"""The format `rocketmq_lag`: how far consumer groups are behind, a row for each group and queue.

    spark.read.format("rocketmq_lag").option("nameServers", "ns1:9876").load()

Driver: options, which brokers there are; executors: a broker name each. A scan is of one moment at
each broker: read it again for another one. What brokers are asked is `group_lag`'s.

Tested by tests/spark/sources/test_rocketmq_lag.py.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.sources.cluster import Cluster
from spark.sources.data_source import ConfiguredSource, Shipped, check_columns
from spark.sources.group_lag import (
    RETRY_PREFIX,
    BrokerName,
    BrokerScan,
    GroupQueue,
    Wanted,
    broker_names,
)
from spark.sources.options import CONNECTION_OPTIONS, Connection
from spark.sources.rows import END_MS

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Column:
    """Its type, and its value of a row."""

    type: DataType
    value: Callable[[BrokerName, GroupQueue], Any]


def _time(ms: int) -> datetime.datetime | None:
    """None for what no calendar has, which a broker may say."""
    return _EPOCH + datetime.timedelta(milliseconds=ms) if 0 < ms < END_MS else None


def _lag_seconds(_: BrokerName, row: GroupQueue) -> float | None:
    if row.lag <= 0:
        return 0.0
    return max(0.0, (row.scanned_ms - row.unread_ms) / 1000) if row.unread_ms else None


COLUMNS: Final[dict[str, Column]] = {
    "cluster": Column(StringType(), lambda broker, _: broker.cluster),
    "broker_name": Column(StringType(), lambda broker, _: broker.name),
    "consumer_group": Column(StringType(), lambda _, row: row.group),
    "topic": Column(StringType(), lambda _, row: row.queue.topic),
    "queue_id": Column(IntegerType(), lambda _, row: row.queue.queue_id),
    "is_retry": Column(BooleanType(), lambda _, row: row.queue.topic.startswith(RETRY_PREFIX)),
    "broker_offset": Column(LongType(), lambda _, row: row.offsets.broker_offset),
    "consumer_offset": Column(LongType(), lambda _, row: row.offsets.consumer_offset),
    "lag": Column(LongType(), lambda _, row: row.lag),
    "lag_seconds": Column(DoubleType(), _lag_seconds),
    "next_stored_at": Column(TimestampType(), lambda _, row: _time(row.unread_ms)),
    "age_problem": Column(StringType(), lambda _, row: row.problem),
    "last_consumed_at": Column(TimestampType(), lambda _, row: _time(row.offsets.last_timestamp)),
    "members": Column(IntegerType(), lambda _, row: row.members),
    "scanned_at": Column(TimestampType(), lambda _, row: _time(row.scanned_ms)),
}
"""In the order of the table. docs/spark_sources.md says what each holds."""
SCHEMA: Final = StructType([StructField(name, each.type) for name, each in COLUMNS.items()])
_OF_AGES: Final = {"lag_seconds", "next_stored_at", "age_problem"}


@dataclass
class BrokerPartition(InputPartition):
    """A broker name."""

    broker: BrokerName


class RocketmqLagSource(ConfiguredSource):
    """See the module."""

    KNOWN: ClassVar[tuple[str, ...]] = (*CONNECTION_OPTIONS, "cluster", "groups", "topics")

    @classmethod
    def name(cls) -> str:
        """Of the format."""
        return "rocketmq_lag"

    def schema(self) -> StructType:
        """All columns. Wrong options are told here, when the DataFrame is made."""
        self.checked_options().connection()
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OptionError."""
        options = self.checked_options()
        check_columns(schema, SCHEMA)
        names = {each.name for each in schema.fields}
        wanted = Wanted(
            options.names("groups"),
            options.names("topics"),
            ages=bool(names & _OF_AGES),
            members="members" in names,
        )
        return LagReader(options.connection(), options.text("cluster"), wanted, schema)


class LagReader(Shipped, DataSourceReader):
    """Reads the table."""

    def __init__(
        self, connection: Connection, cluster: str | None, wanted: Wanted, schema: StructType
    ) -> None:
        self.connection = connection
        self.cluster = cluster
        self.wanted = wanted
        self.names = [each.name for each in schema.fields]

    def partitions(self) -> list[InputPartition]:
        """A broker name each. SourceError."""
        with Cluster(self.connection) as cluster:
            return [BrokerPartition(each) for each in broker_names(cluster, self.cluster)]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """Rows. SourceError."""
        broker: BrokerName = partition.broker
        values = [COLUMNS[name].value for name in self.names]
        with Cluster(self.connection) as cluster:
            for row in BrokerScan(cluster, broker, self.wanted).rows():
                yield tuple(value(broker, row) for value in values)
