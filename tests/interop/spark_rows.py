"""What the Spark format `rocketmq` reads of a topic, as a Java consumer's ledger would have it, and
writes for one.

Without Spark: a reader plans its ranges and reads them in this process, a writer is a task here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, Filter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from spark.sources import rocketmq_log as log
from spark.sources.log_rows import DAMAGE_SCHEMA
from spark.sources.rocketmq import PushingReader, RocketmqSource
from spark.sources.rocketmq_lag import SCHEMA as LAG_SCHEMA
from spark.sources.rocketmq_lag import RocketmqLagSource
from spark.sources.rocketmq_log import RocketmqLogSource
from spark.sources.rows import SCHEMA
from tests.interop.driver import Entry


def read_rows(
    namesrv: str, topic: str, filters: list[Filter] | None = None, /, **options: str
) -> list[dict[str, Any]]:
    """The rows of a topic; `filters` that the reader does not take over are an error."""
    source = RocketmqSource({"nameServers": namesrv, "topic": topic, **options})
    first: Any = source.reader(SCHEMA)
    reader = PushingReader(first.plan, SCHEMA, first.start, first.end)
    assert reader.pushFilters(filters or []) == []
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def read_lags(namesrv: str, group: str = "", **options: str) -> list[dict[str, Any]]:
    """Rows of the format `rocketmq_lag`: of one group, or of all."""
    named = {"groups": group} if group else {}
    source = RocketmqLagSource({"nameServers": namesrv, **named, **options})
    reader: Any = source.reader(LAG_SCHEMA)
    rows = [row for part in reader.partitions() for row in reader.read(part)]
    return [dict(zip(LAG_SCHEMA.names, row, strict=True)) for row in rows]


def read_entries(
    namesrv: str, topic: str, filters: list[Filter] | None = None, /, **options: str
) -> list[Entry]:
    """The same as entries of a consumer's ledger."""
    return [_entry(row) for row in read_rows(namesrv, topic, filters, **options)]


def read_log_entries(store: Path, broker_name: str, topic: str) -> list[Entry]:
    """The same of the store's commit log, which a broker may be writing; it has no damage."""
    options = {"path": str(store), "live": "true", "brokerName": broker_name}
    plain: Any = RocketmqLogSource(options).reader(SCHEMA)
    reader = log.PushingReader(plain.options, SCHEMA)
    reader.pushFilters([EqualTo(("topic",), topic)])
    damage: Any = RocketmqLogSource(options | {"table": "damage"}).reader(DAMAGE_SCHEMA)
    assert [row for part in damage.partitions() for row in damage.read(part)] == []
    return [
        _entry(row)
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def write_rows(namesrv: str, topic: str, count: int) -> None:
    """Rows that name themselves as a ledger wants it (u_seq): 7 shards, and one row in 50 that is
    delayed."""
    fields = {
        "body": BinaryType(),
        "keys": StringType(),
        "tags": StringType(),
        "properties": MapType(StringType(), StringType()),
        "delay_level": IntegerType(),
        "customer": LongType(),
    }
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    source = RocketmqSource({"nameServers": namesrv, "topic": topic, "shardColumn": "customer"})
    arrow: Any = to_arrow_schema(schema, timezone="UTC")
    rows = [
        {
            "body": b"row %d " % number * 20,
            "keys": f"key-{number}",
            "tags": "TagS",
            "properties": {"u_seq": str(number), "u_text": "日本"},
            "delay_level": 1 if number % 50 == 49 else None,
            "customer": number % 7,
        }
        for number in range(count)
    ]
    batches = [
        pa.RecordBatch.from_pylist(rows[first : first + 64], schema=arrow)
        for first in range(0, count, 64)
    ]
    writer: Any = source.writer(schema, False)
    assert writer.write(iter(batches)).count == count


def _entry(row: Mapping[str, Any]) -> Entry:
    assert row["body_problem"] is None
    properties = dict(row["properties"])
    return Entry(
        seq=int(properties["u_seq"]),
        digest=_digest(row, properties),
        broker=row["broker_name"],
        queue_id=row["queue_id"],
        queue_offset=row["queue_offset"],
        msg_id=row["message_id"],
        offset_msg_id=row["offset_message_id"],
        note=_text(row["tags"]),
    )


def _text(value: str | None) -> str:
    """As Java's String.valueOf."""
    return "null" if value is None else value


def _digest(row: Mapping[str, Any], properties: Mapping[str, str]) -> str:
    """As Plan.java: its names come in Java's order, of UTF-16 units."""
    sha = hashlib.sha256()
    texts = [_text(row["tags"]), _text(row["keys"])]
    for name in sorted(properties, key=lambda each: each.encode("utf-16-be")):
        if name.startswith("u_"):
            texts += [name, properties[name]]
    for text in texts:
        data = text.encode()
        sha.update(b"%d:" % len(data) + data)
    sha.update(row["body"])
    return sha.digest()[:12].hex()
