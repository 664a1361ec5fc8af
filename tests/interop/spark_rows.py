"""What the Spark format `rocketmq` reads of a topic, as a Java consumer's ledger would have it.

Without Spark: a reader plans its ranges and reads them in this process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import Filter

from spark.sources.rocketmq import PushingReader, RocketmqSource
from spark.sources.rows import SCHEMA
from tests.interop.driver import Entry


def read_rows(
    namesrv: str, topic: str, filters: list[Filter] | None = None, **options: str
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


def read_entries(
    namesrv: str, topic: str, filters: list[Filter] | None = None, **options: str
) -> list[Entry]:
    """The same as entries of a consumer's ledger."""
    return [_entry(row) for row in read_rows(namesrv, topic, filters, **options)]


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
