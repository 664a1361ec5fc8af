"""Rows of a DataFrame as messages to send: which columns may be written, and what each row becomes.

The driver checks the columns, executors make the messages. A row that can be no message is an error
that names it and the way out. Knows no broker.

Tested by tests/spark/sources/test_outgoing.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from spark.sources.errors import OptionError, SourceError
from spark.sources.rows import KEYS, TAGS
from store.message_properties import PROPERTIES_LIMIT, format_properties
from store.reserved_properties import RESERVED

if TYPE_CHECKING:
    import pyarrow as pa

ROW_ID: Final = "SPARK_ROW_ID"
"""The property that tells readers a message sent twice: see `row_id`."""
DELAY: Final = "DELAY"
DELIVER_MS: Final = "TIMER_DELIVER_MS"
RETRY_PREFIX: Final = "%RETRY%"

_TEXT: Final = (StringType,)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
COLUMNS: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "topic": _TEXT,
    "body": (BinaryType, StringType),
    "keys": (StringType, ArrayType),
    "tags": _TEXT,
    "properties": (MapType,),
    "flag": _WHOLE,
    "delay_level": _WHOLE,
    "deliver_timestamp": (TimestampType,),
}
"""What may be written, and the types that each may have."""
_OWN: Final = frozenset(
    {
        *("KEYS", "TAGS", "WAIT", "UNIQ_KEY", "DELAY", "CLUSTER", "INSTANCE_ID", "MSG_REGION"),
        *("TRACE_ON", "TRAN_MSG", "PGROUP", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME"),
        *("MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID"),
        *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "MSG_TYPE", "CORRELATION_ID"),
        *("REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "DLQ_ORIGIN_TOPIC"),
        *("DLQ_ORIGIN_MESSAGE_ID", "__SHARDINGKEY", "__TRANSACTIONID__", ROW_ID),
        *("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "__STARTDELIVERTIME"),
        *RESERVED,
    }
)
"""Property names that RocketMQ's clients and brokers use themselves; its own clients refuse them
as a user's properties, too (MessageConst.STRING_HASH_SET)."""
_INT32: Final = 1 << 31


class RowError(SourceError):
    """A row that cannot be sent; the text names it and the cause."""


class OutgoingRow(msgspec.Struct, gc=False):
    """A row as a message. number: of its task, from 0. shard: rows of one stay in order."""

    number: int
    topic: str
    shard: str | None
    body: bytes
    properties: dict[str, str]
    flag: int
    is_delayed: bool

    def __str__(self) -> str:
        keys = self.properties.get(KEYS)
        return f"row {self.number} (topic {self.topic}{f', keys {keys}' if keys else ''})"


@dataclass(frozen=True, slots=True)
class RowRules:
    """How rows become messages. Picklable. shard_column: may be any column."""

    topic: str | None
    shard_column: str | None

    def check(self, schema: StructType) -> None:
        """OptionError for columns that cannot be written, or are missing."""
        for field in schema.fields:
            if field.name == self.shard_column and field.name not in COLUMNS:
                continue
            kinds = COLUMNS.get(field.name)
            if kinds is None:
                raise OptionError(
                    f"column {field.name} cannot be written: select only {', '.join(COLUMNS)}, and "
                    "the column that the option shardColumn names"
                )
            if not isinstance(field.dataType, kinds) or not _holds_text(field.dataType):
                wanted = " or ".join(kind.typeName() for kind in kinds)
                raise OptionError(
                    f"column {field.name} is {field.dataType.simpleString()}: cast it to {wanted}"
                    f"{' of strings' if {ArrayType, MapType} & set(kinds) else ''}"
                )
        names = schema.fieldNames()
        for name in names:
            if names.count(name) > 1:
                raise OptionError(f"column {name} is there {names.count(name)} times: select one")
        if "body" not in names:
            raise OptionError("no column body: it holds each message's bytes or text")
        if self.topic is None and "topic" not in names:
            raise OptionError("no topic: give the option topic, or a column topic")
        if self.shard_column is not None and self.shard_column not in names:
            raise OptionError(f"option shardColumn: there is no column {self.shard_column}")

    def messages(self, batch: pa.RecordBatch, first: int) -> Iterator[OutgoingRow]:
        """The rows of a batch; its first is row `first` of the task. RowError."""
        columns = {name: batch.column(at).to_pylist() for at, name in enumerate(batch.schema.names)}
        count = batch.num_rows
        nothing: Sequence[Any] = [None] * count
        read = [columns.get(name, nothing) for name in COLUMNS]
        shards = nothing if self.shard_column is None else columns[self.shard_column]
        for number, (shard, *values) in enumerate(zip(shards, *read, strict=True), first):
            yield self._message(number, shard, values)

    def _message(self, number: int, shard: Any, values: Sequence[Any]) -> OutgoingRow:
        topic, body, keys, tags, properties, flag, level, deliver = values
        topic = self.topic if topic is None else topic
        if not topic:
            raise RowError(f"row {number}: no topic, and there is no option topic")
        if body is None:
            raise RowError(f"row {number} (topic {topic}): the body is null")
        found = dict(properties or {})
        _check_properties(number, found)
        if isinstance(keys, list):
            if None in keys:
                raise RowError(f"row {number}: keys has a null: array_compact(keys) takes it out")
            keys = " ".join(keys)
        _put(found, KEYS, keys, number)
        _put(found, TAGS, tags, number)
        is_delayed = bool(level) or deliver is not None
        if level:
            found[DELAY] = str(level)
        if deliver is not None:
            found[DELIVER_MS] = str(int(deliver.timestamp() * 1000))
        if level and deliver is not None:
            raise RowError(f"row {number}: give delay_level or deliver_timestamp, not both")
        flag = flag or 0
        if not -_INT32 <= flag < _INT32 or not 0 <= (level or 0) < _INT32:
            raise RowError(f"row {number}: flag {flag} or delay_level {level} is out of range")
        return OutgoingRow(
            number=number,
            topic=topic,
            shard=None if shard is None else str(shard),
            body=body.encode() if isinstance(body, str) else body,
            properties=found,
            flag=flag,
            is_delayed=is_delayed,
        )


def _holds_text(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return isinstance(kind.elementType, StringType)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    return True


def _check_properties(number: int, properties: Mapping[str, str | None]) -> None:
    for name, value in properties.items():
        if name in _OWN:
            raise RowError(
                f"row {number}: the property {name} is RocketMQ's own: columns give keys, tags and "
                "delays, transactions are not offered; map_filter(properties, ...) takes it out"
            )
        _check_text(number, name, "a property's name")
        _check_text(number, value, f"the property {name}")


def _put(properties: dict[str, str], name: str, value: str | None, number: int) -> None:
    if value:
        _check_text(number, value, name.lower())
        properties[name] = value


def _check_text(number: int, text: str | None, what: str) -> None:
    """RocketMQ separates properties by two control characters, and has no empty ones."""
    if not text or "\x01" in text or "\x02" in text:
        raise RowError(
            f"row {number}: {what} is {text!r}: it cannot be null, empty or hold \\x01 or \\x02"
        )


def check_size(row: OutgoingRow) -> bytes:
    """The properties as they are sent. RowError: they are too long."""
    raw = format_properties(row.properties).encode("utf-8", "surrogatepass")
    if len(raw) > PROPERTIES_LIMIT:
        raise RowError(f"{row}: {len(raw)} bytes of properties, {PROPERTIES_LIMIT} are possible")
    return raw


def row_id(job: str, partition: int, row: OutgoingRow) -> str:
    """The same for a row that a task, or a stream that was started again, sends once more; another
    for every other row. The CRC of its content is in it: where rows come in another order at the
    second time, a message may be there twice, and none is taken for another one."""
    parts: Iterable[str] = (row.topic, *sorted(f"{k}\x01{v}" for k, v in row.properties.items()))
    crc = zlib.crc32(row.body, zlib.crc32("\x02".join(parts).encode("utf-8", "surrogatepass")))
    return f"{job}-{partition}-{row.number}-{crc:08x}"
