"""The shape of a metrics dump's line, and the date and window that are reported on.

Driver only: plain descriptions, no session is needed to import them. docs/metrics_dump.md tells
what the fields mean, docs/sla_report.md what is computed from them. Must not know where dumps
lie (spark/dump_lines.py) or what the figures are (spark/figures.py).
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark.dump_words import DAY_MS, HOUR_MS, STATES, SYNC_RESULTS

PREDECESSOR_MS: Final = 2 * HOUR_MS
"""Samples this long before the window tell what its first samples follow: two lines of the longest
interval, and as far as files of the day before are read (spark/dump_lines.py)."""


class InputError(Exception):
    """What the report was given cannot be read; the text names it and the way out."""


@dataclass(frozen=True, slots=True)
class Day:
    """A date (UTC) and the part of it that is reported on: [w0_ms, w1_ms), epoch ms."""

    date: datetime.date
    w0_ms: int
    w1_ms: int

    def __post_init__(self) -> None:
        if not self.start_ms <= self.w0_ms < self.w1_ms <= self.start_ms + DAY_MS:
            raise ValueError(f"no window of {self.date}: [{self.w0_ms}, {self.w1_ms})")

    @property
    def start_ms(self) -> int:
        """Midnight (UTC) at which the date begins."""
        midnight = datetime.datetime.combine(self.date, datetime.time(), datetime.UTC)
        return int(midnight.timestamp()) * 1000

    @property
    def window_ms(self) -> int:
        return self.w1_ms - self.w0_ms

    @classmethod
    def whole(cls, date: datetime.date) -> Day:
        """All 24 hours of `date`."""
        midnight = datetime.datetime.combine(date, datetime.time(), datetime.UTC)
        w0_ms = int(midnight.timestamp()) * 1000
        return cls(date, w0_ms, w0_ms + DAY_MS)


def _struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


_INT: Final = LongType()
_TEXT: Final = StringType()
_FLAG: Final = BooleanType()

STATE_MS: Final = _struct(**dict.fromkeys(STATES, _INT))
SYNC: Final = _struct(**dict.fromkeys(SYNC_RESULTS, _INT))
ACK_LATENCY: Final = _struct(
    le=ArrayType(DoubleType()), counts=ArrayType(LongType()), sum=DoubleType()
)
PROCESS: Final = _struct(name=_TEXT, up=_FLAG, restarts=_INT)
METADATA: Final = _struct(kind=_TEXT, age_ms=_INT, failures=_INT)
REPLICA_ROW: Final = _struct(
    id=_TEXT,
    connected=_FLAG,
    in_sync=_FLAG,
    state=_TEXT,
    ack_offset=_INT,
    lag_bytes=_INT,
    lag_ms=_INT,
    lag_exact=_FLAG,
    transferred=_INT,
    reconnects=_INT,
    rejected_acks=_INT,
    state_ms=STATE_MS,
)

LINE: Final = _struct(
    v=_INT,
    ts=_INT,
    mono=_INT,
    boot=_TEXT,
    boot_ts=_INT,
    seq=_INT,
    prev_boot=_TEXT,
    prev_seq=_INT,
    interval_ms=_INT,
    final=_FLAG,
    cluster=_TEXT,
    broker=_TEXT,
    broker_id=_INT,
    role=_TEXT,
    version=_TEXT,
    config=_TEXT,
    ready=_FLAG,
    min_offset=_INT,
    max_offset=_INT,
    replicated_offset=_INT,
    msgs_in=_INT,
    bytes_in=_INT,
    sync=SYNC,
    ack_latency=ACK_LATENCY,
    unreplicated_bytes=_INT,
    oldest_unreplicated_ms=_INT,
    processes=ArrayType(PROCESS),
    replicas=ArrayType(REPLICA_ROW),
    metadata=ArrayType(METADATA),
)
"""One line, all fields nullable: what a line lacks is found by spark/dump_lines.py."""

NULLABLE: Final = frozenset(
    {
        "prev_boot",
        "prev_seq",
        "replicas",
        "metadata",
        "unreplicated_bytes",
        "oldest_unreplicated_ms",
    }
)
"""Fields of a good line that may be null or absent."""

NULLABLE_NESTED: Final = frozenset({"age_ms"})
"""The same inside `replicas`, `processes` and `metadata`."""
