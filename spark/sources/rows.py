"""The columns of the format `rocketmq`: stored records to messages, messages to Arrow batches.

Executors. Records are bytes of a broker and, inside, of any client: a record that contradicts
itself is an error that names its place, a body or batch that cannot be unpacked is a row whose
`body_problem` says why. (Java: MessageDecoder, PullAPIWrapper.processPullResult.)

Tested by tests/spark/sources/test_rows.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.sources.bodies import read_body
from spark.sources.errors import DamagedMessageError
from store.batch_codec import count_batch, iterate_batch
from store.errors import MessageIllegalError, StoreError
from store.inner_batch import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG, inner_num
from store.message_codec import (
    RECORD_PLACE,
    CheckedRecord,
    decode_host,
    encode_message_id,
    read_checked,
)
from store.message_properties import parse_properties

UNIQ_KEY: Final = "UNIQ_KEY"
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
FIRST_MS: Final = -62_135_596_800_000
END_MS: Final = 253_402_300_800_000
"""The years 1 to 9999, as Spark and Python have them; a time outside, from a client, is null."""
_UNPACKED: Final = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
_HOSTS: Final = 10_000


class StoredMessage(msgspec.Struct, gc=False):
    """One message as a consumer gets it. Times in ms."""

    topic: str
    broker_name: str | None
    queue_id: int
    queue_offset: int
    physical_offset: int
    properties: dict[str, str]
    body: bytes
    body_problem: str
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    flag: int
    sys_flag: int


# -- records to messages -----------------------------------------------------------------------


def split_records(records: bytes) -> Iterator[CheckedRecord | str]:
    """The records of a pull; for one that is damaged a sentence. Stops where a record's size is
    impossible."""
    view = memoryview(records)
    position, end = 0, len(records)
    while position < end:
        try:
            size, _, offset, phy_offset = RECORD_PLACE.unpack_from(view, position)
        except struct.error:
            yield f"{end - position} bytes behind the last record"
            return
        if not RECORD_PLACE.size < size <= end - position:
            yield f"a record of {size} bytes where {end - position} are left"
            return
        record = read_checked(view[position : position + size], 0, size, phy_offset)
        yield (
            record
            if record is not None
            else (f"the record at queue offset {offset}, physical offset {phy_offset} is damaged")
        )
        position += size


def messages_of(
    record: CheckedRecord, broker_name: str | None, offset_delta: int = 0
) -> list[StoredMessage]:
    """The message of a record; of an inner batch all its messages."""
    body, problem = read_body(record.body, record.sys_flag)
    message = StoredMessage(
        str(record.topic, "utf-8", "replace"),
        broker_name,
        record.queue_id,
        record.queue_offset + offset_delta,
        record.phy_offset,
        parse_properties(str(record.properties, "utf-8", "replace")),
        body,
        problem,
        record.born_timestamp,
        record.born_host,
        record.store_timestamp,
        record.store_host,
        record.reconsume_times,
        record.flag,
        record.sys_flag,
    )
    if record.sys_flag & _UNPACKED != _UNPACKED or problem:
        return [message]
    try:
        return _unpacked(message, inner_num(record.sys_flag, record.properties))
    except MessageIllegalError as error:
        message.body_problem = f"an inner batch that cannot be unpacked: {error}"
        return [message]


def _unpacked(batch: StoredMessage, number: int) -> list[StoredMessage]:
    """Its `number` messages: it has so many offsets. One that holds more would take those of its
    neighbours, and a memory: few bytes inflate to millions of messages."""
    if (held := count_batch(batch.body)) != number:
        raise MessageIllegalError(f"it says that it holds {number} messages, and has {held}")
    return [
        msgspec.structs.replace(
            batch,
            queue_offset=batch.queue_offset + number,
            flag=item.flag,
            body=bytes(item.body),
            properties=parse_properties(str(item.properties, "utf-8", "replace")),
        )
        for number, item in enumerate(iterate_batch(batch.body))
    ]


# -- messages to columns -----------------------------------------------------------------------


class Column(NamedTuple):
    """A column: its type, and what makes its array of an Arrow type from messages."""

    type: DataType
    make: Callable[[Sequence[StoredMessage], pa.DataType], pa.Array]


def _each(get: Callable[[StoredMessage], Any]) -> Callable[..., pa.Array]:
    return lambda messages, kind: pa.array([get(message) for message in messages], kind)


def _time(get: Callable[[StoredMessage], int]) -> Callable[..., pa.Array]:
    def make(messages: Sequence[StoredMessage], kind: pa.DataType) -> pa.Array:
        times = np.fromiter((get(message) for message in messages), np.int64, len(messages))
        outside = (times < FIRST_MS) | (times >= END_MS)
        times[outside] = 0
        return pa.array(times * 1000, pa.int64(), mask=outside).cast(kind)

    return make


def _properties(messages: Sequence[StoredMessage], kind: pa.DataType) -> pa.Array:
    names: list[str] = []
    values: list[str] = []
    starts = [0]
    for message in messages:
        names.extend(message.properties)
        values.extend(message.properties.values())
        starts.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(starts, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    ).cast(kind)


def host_text(host: bytes) -> str:
    """host:port as people write it; [..] around an IPv6 address."""
    found = _host_texts.get(host)
    if found is None:
        try:
            address, port = decode_host(host)
            found = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        except StoreError:
            found = host.hex()
        if len(_host_texts) >= _HOSTS:
            _host_texts.clear()
        _host_texts[host] = found
    return found


_host_texts: Final[dict[bytes, str]] = {}


def offset_message_id(message: StoredMessage) -> str:
    """Of its record: the messages of an inner batch share it."""
    return encode_message_id(message.store_host, message.physical_offset)


def _message_id(message: StoredMessage) -> str:
    return message.properties.get(UNIQ_KEY) or offset_message_id(message)


COLUMNS: Final[dict[str, Column]] = {
    "topic": Column(StringType(), _each(lambda each: each.topic)),
    "broker_name": Column(StringType(), _each(lambda each: each.broker_name)),
    "queue_id": Column(IntegerType(), _each(lambda each: each.queue_id)),
    "queue_offset": Column(LongType(), _each(lambda each: each.queue_offset)),
    "message_id": Column(StringType(), _each(_message_id)),
    "offset_message_id": Column(StringType(), _each(offset_message_id)),
    "keys": Column(StringType(), _each(lambda each: each.properties.get(KEYS))),
    "tags": Column(StringType(), _each(lambda each: each.properties.get(TAGS))),
    "properties": Column(MapType(StringType(), StringType()), _properties),
    "body": Column(BinaryType(), _each(lambda each: each.body)),
    "body_problem": Column(StringType(), _each(lambda each: each.body_problem or None)),
    "born_timestamp": Column(TimestampType(), _time(lambda each: each.born_timestamp)),
    "born_host": Column(StringType(), _each(lambda each: host_text(each.born_host))),
    "store_timestamp": Column(TimestampType(), _time(lambda each: each.store_timestamp)),
    "store_host": Column(StringType(), _each(lambda each: host_text(each.store_host))),
    "reconsume_times": Column(IntegerType(), _each(lambda each: each.reconsume_times)),
    "flag": Column(IntegerType(), _each(lambda each: each.flag)),
    "sys_flag": Column(IntegerType(), _each(lambda each: each.sys_flag)),
    "physical_offset": Column(LongType(), _each(lambda each: each.physical_offset)),
}
"""In the order of the table. docs/spark_sources.md says what each holds."""
SCHEMA: Final = StructType([StructField(name, each.type) for name, each in COLUMNS.items()])


class BatchMaker:
    """Messages to Arrow record batches of the columns of a schema."""

    def __init__(self, schema: StructType) -> None:
        self.arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self._makers = [(COLUMNS[each.name].make, each.type) for each in self.arrow_schema]

    def batch(self, messages: Sequence[StoredMessage]) -> pa.RecordBatch:
        """One batch."""
        arrays = [make(messages, kind) for make, kind in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def batches(
        self, messages: Iterable[StoredMessage], most_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Batches whose bodies and properties have about `most_bytes` together, at least one
        message each."""
        kept: list[StoredMessage] = []
        size = 0
        for message in messages:
            kept.append(message)
            size += _size(message)
            if size >= most_bytes:
                yield self.batch(kept)
                kept, size = [], 0
        if kept:
            yield self.batch(kept)


PAIR_SIZE: Final = 100
"""Bytes of a property beside its texts: a client may send thousands of tiny ones."""
ROW_SIZE: Final = 300
"""Bytes of a row beside its body and properties."""
PAIR_END: Final = b"\x02"
"""Behind a property, wherever properties are stored."""


def _size(message: StoredMessage) -> int:
    pairs = message.properties.items()
    return len(message.body) + ROW_SIZE + sum(PAIR_SIZE + len(k) + len(v) for k, v in pairs)


def damage(broker_name: str, queue_id: int, reason: str) -> DamagedMessageError:
    """The error of a record that cannot be read."""
    return DamagedMessageError(f"broker {broker_name}, queue {queue_id}: {reason}")
