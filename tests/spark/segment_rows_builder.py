"""Segments by hand for tests: rows as spark/segments.py gives them, without any dump.

    Timeline("b:1").good(10).bad(5, state="disconnected").unknown(60).rows

Times are seconds; each row begins where the last one ended, the first at T0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.dump_lines_builder import T0

COLUMNS = {
    "cluster": "string",
    "broker": "string",
    "replica": "string",
    "objective": "int",
    "start_ms": "bigint",
    "end_ms": "bigint",
    "kind": "string",
    "quality": "string",
    "state": "string",
    "lag_ms": "bigint",
    "lag_bytes": "bigint",
    "ack_offset": "bigint",
    "boot": "string",
    "boot_ts": "bigint",
    "seq": "bigint",
    "ts": "bigint",
    "in_head": "boolean",
    "stuck": "boolean",
    "ha_restarted": "boolean",
    "boot_unproved": "boolean",
    "written": "boolean",
    "msgs_in": "bigint",
}
Row = dict[str, Any]


class Timeline:
    """One replica's segments, appended one after the other."""

    def __init__(self, replica: str = "b:1", *, start_ms: int = T0, broker: str = "b") -> None:
        self.rows: list[Row] = []
        self.at_ms = start_ms
        self._key = {"cluster": "c", "broker": broker, "replica": replica}

    def good(self, seconds: float, **fields: Any) -> Timeline:
        """A sample's segment, in sync."""
        return self._add(seconds, "sample", "good", {"state": "in_sync", "lag_ms": 0} | fields)

    def bad(self, seconds: float, **fields: Any) -> Timeline:
        """A sample's segment; in sync with 20 s of lag unless told otherwise."""
        lagging = {"state": "in_sync", "lag_ms": 20_000, "lag_bytes": 500}
        return self._add(seconds, "sample", "bad", lagging | fields)

    def down(self, seconds: float) -> Timeline:
        """Between two lives of the broker."""
        return self._add(seconds, "down", "bad", {})

    def unknown(self, seconds: float) -> Timeline:
        """Nobody says anything."""
        return self._add(seconds, "unknown", "unknown", {})

    def _add(self, seconds: float, kind: str, quality: str, fields: Row) -> Timeline:
        end_ms = self.at_ms + round(seconds * 1000)
        flags = ("in_head", "stuck", "ha_restarted", "boot_unproved", "written")
        row = dict.fromkeys(COLUMNS) | dict.fromkeys(flags, False) | self._key
        row |= {"objective": 0, "start_ms": self.at_ms, "end_ms": end_ms, "ts": end_ms}
        row |= {"kind": kind, "quality": quality, "msgs_in": 0} | fields
        self.rows.append(row)
        self.at_ms = end_ms
        return self


def frame(spark: SparkSession, *timelines: Timeline) -> DataFrame:
    """All of them as one DataFrame, in no helpful order."""
    rows = [row for timeline in timelines for row in timeline.rows]
    return rows_frame(spark, reversed(rows), COLUMNS)


def rows_frame(spark: SparkSession, rows: Iterable[Row], columns: dict[str, str]) -> DataFrame:
    """Rows with these columns and types; what a row lacks is null."""
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return spark.createDataFrame([tuple(row.get(name) for name in columns) for row in rows], schema)
