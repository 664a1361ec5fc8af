"""One line of a metrics dump, typed: what docs/metrics_dump.md says, and what makes a line bad.

Runs in the executors (msgspec and the standard library). A good line is what docs/sla_report.md
("Samples") calls so; must not know what lines are used for.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from spark.vocabulary import DAY_MS, HOUR_MS, LARGEST

_BAD_TEXT: Final = 1000
_Any = Annotated[int, Meta(ge=-(2**63), le=LARGEST)]
_Count = Annotated[int, Meta(ge=0, le=LARGEST)]
_Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
_Moment = Annotated[int, Meta(ge=0, lt=253_402_300_800_000)]
"""Epoch ms, before the year 10000."""
_Seconds = Annotated[float, Meta(ge=0, le=LARGEST)]
State = Literal["in_sync", "catching_up", "disconnected"]


class StateMs(msgspec.Struct, gc=False):
    """Counters of the time in each state, ms."""

    in_sync: _Count
    catching_up: _Count
    disconnected: _Count


class SyncResults(msgspec.Struct, gc=False):
    """Counters of sends that had to wait, by their answer."""

    ok: _Count
    flush_slave_timeout: _Count
    slave_not_available: _Count
    flush_disk_timeout: _Count


class AckLatency(msgspec.Struct, gc=False):
    """`counts` has one more than `le` (upper bounds, seconds), not cumulative; `sum` in seconds."""

    le: list[_Seconds]
    counts: list[_Count]
    sum: _Seconds


class Process(msgspec.Struct, gc=False):
    """One of the broker's processes."""

    name: str
    up: bool
    restarts: _Count


class Metadata(msgspec.Struct, gc=False):
    """How old a slave's copy of one kind of metadata is; null before the first success."""

    kind: str
    failures: _Count
    age_ms: _Count | None = None


class ReplicaRow(msgspec.Struct, gc=False):
    """What the master says of one replica."""

    id: str
    connected: bool
    in_sync: bool
    state: State
    ack_offset: _Any
    lag_bytes: _Count
    lag_ms: _Count
    lag_exact: bool
    transferred: _Count
    reconnects: _Count
    rejected_acks: _Count
    state_ms: StateMs


class Line(msgspec.Struct, gc=False):
    """All that a line must have; the last ones may be null or absent."""

    v: int
    ts: _Moment
    mono: _Count
    boot: str
    boot_ts: _Moment
    seq: _Positive
    interval_ms: _Positive
    final: bool
    cluster: str
    broker: str
    broker_id: _Count
    role: str
    version: str
    config: str
    ready: bool
    min_offset: _Any
    max_offset: _Any
    replicated_offset: _Any
    msgs_in: _Count
    bytes_in: _Count
    sync: SyncResults
    ack_latency: AckLatency
    processes: list[Process]
    prev_boot: str | None = None
    prev_seq: _Count | None = None
    unreplicated_bytes: _Count | None = None
    oldest_unreplicated_ms: _Count | None = None
    replicas: list[ReplicaRow] | None = None
    metadata: list[Metadata] | None = None


class _Version(msgspec.Struct):
    v: int


class BadLineError(ValueError):
    """A line that is not good; the text is the reason."""


_DECODER: Final = msgspec.json.Decoder(Line)
_VERSION: Final = msgspec.json.Decoder(_Version)
_PATH: Final = re.compile(r"at `\$\.(\w+)")
_MISSING: Final = re.compile(r"missing required field `(\w+)`")


def decode_line(text: bytes, midnight: int) -> Line:
    """A good line of the directory whose date begins at `midnight` (epoch ms). Raises
    BadLineError."""
    try:
        line = _DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise BadLineError(_reason(text, str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadLineError("not one JSON object") from None
    if line.v != 1:
        raise BadLineError(f"version {line.v}, this report reads 1")
    if len(line.ack_latency.counts) != len(line.ack_latency.le) + 1:
        raise BadLineError("ack_latency: needs one count more than bounds")
    if not midnight - HOUR_MS <= line.ts < midnight + DAY_MS + HOUR_MS:
        raise BadLineError("ts: more than an hour away from the date of the directory")
    return line


def _reason(text: bytes, message: str) -> str:
    """In the words of the field that is wrong; another version is the first thing to tell."""
    try:
        version = _VERSION.decode(text).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # The line may be no JSON at all behind the field that ended the first reading.
        if not isinstance(error, msgspec.ValidationError):
            return "not one JSON object"
        if message.startswith("Expected `object`"):
            return "not one JSON object"
        return "v: missing or of a wrong type"
    if version != 1:
        return f"version {version}, this report reads 1"
    place = _PATH.search(message) or _MISSING.search(message)
    field = place[1] if place else "a field"
    if ">= 1" in message:
        return f"{field}: below 1"
    if ">= 0" in message:
        return f"{field}: negative"
    return f"{field}: missing, incomplete or of a wrong type"


@dataclass(frozen=True, slots=True)
class FileLines:
    """The lines of one file that belong to one group; `date` is the `dt` of its directory."""

    file: str
    date: datetime.date
    lines: list[bytes]


def shown_text(text: bytes) -> str:
    """Of a bad line: what table `bad_lines` shows of it."""
    return text[: 4 * _BAD_TEXT].decode("utf-8", errors="replace")[:_BAD_TEXT]
