"""The format `rocketmq_log`: commit-log files as a table of messages, and one of their damage.

    spark.read.format("rocketmq_log").load("/backup/commitlog")
    spark.read.format("rocketmq_log").option("table", "damage").load("/backup/commitlog")

Driver: options, files, filters; executors: a file each. No broker is asked, nothing is written.
Which messages there are is `log_scan`'s, how they become columns `log_rows`'.

Tested by tests/spark/sources/test_rocketmq_log.py.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from spark.sources.data_source import ConfiguredSource, Shipped, check_columns
from spark.sources.errors import OptionError, SourceError
from spark.sources.log_files import plan_log
from spark.sources.log_filter import LogFilter, read_filters
from spark.sources.log_rows import DAMAGE_SCHEMA, DamageRow, LogRows, damage_row, lost_records
from spark.sources.log_scan import LONGEST_RECORD, Damage, LogFile, LogFileScan
from spark.sources.log_window import WINDOW, FileWindow
from spark.sources.rocketmq import BATCH_BYTES, MOST_BATCH_BYTES
from spark.sources.rows import SCHEMA

MESSAGES: Final = "messages"
DAMAGE: Final = "damage"


@dataclass
class LogPartition(InputPartition):
    """One file; for the table of damage, `gaps` come with the first."""

    file: LogFile | None
    gaps: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Checked. Picklable."""

    paths: tuple[str, ...]
    is_live: bool
    broker_name: str | None
    batch_bytes: int
    longest_record: int


class RocketmqLogSource(ConfiguredSource):
    """See the module."""

    KNOWN = ("path", "paths", "table", "live", "brokerName", "batchBytes", "maxRecordBytes")

    @classmethod
    def name(cls) -> str:
        """Of the format."""
        return "rocketmq_log"

    def schema(self) -> StructType:
        """Of the table that is asked for."""
        return DAMAGE_SCHEMA if self._table() == DAMAGE else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OptionError."""
        if self._table() == DAMAGE:
            if schema != DAMAGE_SCHEMA:
                raise OptionError("the table of damage has its own schema: give none")
            return DamageReader(self._read_options())
        check_columns(schema, SCHEMA)
        kind = PushingReader if self.DEFAULTS.pushes_filters else MessagesReader
        return kind(self._read_options(), schema)

    def _table(self) -> str:
        table = self.checked_options().text("table", MESSAGES)
        if table not in (MESSAGES, DAMAGE):
            raise OptionError(f"option table: {table!r} is neither {MESSAGES} nor {DAMAGE}")
        return table

    def _read_options(self) -> LogOptions:
        options = self.checked_options()
        return LogOptions(
            paths=options.names("path", "paths"),
            is_live=options.flag("live", default=False),
            broker_name=options.text("brokerName"),
            batch_bytes=options.whole("batchBytes", BATCH_BYTES, least=1, most=MOST_BATCH_BYTES),
            longest_record=options.whole(
                "maxRecordBytes", LONGEST_RECORD, least=WINDOW, most=(1 << 31) - 1
            ),
        )


class MessagesReader(Shipped, DataSourceReader):
    """Reads the table of messages."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.chosen = LogFilter()

    def partitions(self) -> list[InputPartition]:
        """A file each. Raises OptionError, SourceError."""
        plan = plan_log(self.options.paths, is_written=self.options.is_live)
        return [LogPartition(file) for file in plan.wanted(self.chosen)] or [LogPartition(None)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow batches. Raises SourceError: the file is not there, or cannot be read at all."""
        rows = LogRows(self.schema, self.options.broker_name, self.chosen, self.options.batch_bytes)
        for each in scan(partition.file, self.options):
            if not isinstance(each, Damage):
                yield from rows.batches(each)


class PushingReader(MessagesReader):
    """A MessagesReader for sessions in which Spark hands over filters; a reader that has this
    method is refused in others."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """What is of use here is kept; Spark applies all of them again."""
        self.chosen = read_filters(filters)
        return filters


class DamageReader(Shipped, DataSourceReader):
    """Reads the table of damage."""

    def __init__(self, options: LogOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        """A file each, and one for the gaps. Raises OptionError, SourceError."""
        plan = plan_log(self.options.paths, is_written=self.options.is_live)
        return [LogPartition(None, plan.gaps), *(LogPartition(each.file) for each in plan.files)]

    def read(self, partition: Any) -> Iterator[DamageRow]:
        """Rows. Raises SourceError, as the messages' reader."""
        for gap in partition.gaps:
            yield damage_row(gap, None)
        for each in scan(partition.file, self.options):
            for damage in (each,) if isinstance(each, Damage) else lost_records(each):
                yield damage_row(damage, partition.file.path)


def scan(file: LogFile | None, options: LogOptions) -> Iterator[Any]:
    """The runs and the damage of a file; of no file none. Raises SourceError."""
    if file is None:
        return
    try:
        window = FileWindow(file.path)
    except FileNotFoundError:
        raise SourceError(
            f"{file.path} is not there on {socket.gethostname()}: it was removed after the query "
            "was planned (a live store's retention?), or this executor does not have the directory "
            "at the same path as the driver"
        ) from None
    except OSError as error:
        raise SourceError(f"{file.path} on {socket.gethostname()}: {error.strerror}") from None
    with window:
        now_ms = time.time_ns() // 1_000_000
        found = LogFileScan(file, window, now_ms=now_ms, longest_record=options.longest_record)
        yield from found.run()
