"""One line of a metrics dump, typed: what docs/metrics_dump.md says, and what makes a line bad.

Versions 1 and 2; the fields that version 2 added are None in a line of version 1. Runs in the
executors (msgspec and the standard library). A good line is what docs/sla_report.md ("Samples")
calls so; must not know what lines are used for.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from spark.vocabulary import DAY_MS, HOUR_MS, LARGEST

_NEWEST: Final = 2
"""The newest version that is read."""
_BAD_TEXT: Final = 1000
_Any = Annotated[int, Meta(ge=-(2**63), le=LARGEST)]
_Count = Annotated[int, Meta(ge=0, le=LARGEST)]
_Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
_Moment = Annotated[int, Meta(ge=0, lt=253_402_300_800_000)]
"""Epoch ms, before the year 10000."""
_Digest = Annotated[str, Meta(min_length=64, max_length=64)]
"""SHA-256 in hexadecimal digits."""
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


class Latency(msgspec.Struct, gc=False):
    """`counts` has one more than `le` (upper bounds, seconds), not cumulative; `sum` in seconds."""

    le: list[_Seconds]
    counts: list[_Count]
    sum: _Seconds


class Sends(msgspec.Struct, gc=False):
    """Counters of all answers to sends, by their result; `latency` from request to answer."""

    ok: _Count
    flush_disk_timeout: _Count
    flush_slave_timeout: _Count
    slave_not_available: _Count
    refused: _Count
    latency: Latency


class Ended(msgspec.Struct, gc=False):
    """What the life `boot` had counted when it ended, but for what it answered `ok` in its last
    `uncounted_ms` of turns."""

    boot: str
    uncounted_ms: _Count
    sync: SyncResults
    sends: Sends


class Exposure(msgspec.Struct, gc=False):
    """High-water marks, since the line's `since`, of what no replica had acknowledged. `counts`
    counts looks by bytes since the boot: one more than `le`, not cumulative over buckets."""

    bytes_at_least: _Count
    bytes_at_most: _Count
    ms_at_least: _Count
    ms_at_most: _Count
    le: list[_Count]
    counts: list[_Count]


class LastError(msgspec.Struct, gc=False):
    """Why a replica's last connection ended, in the words of haStatus, and when (epoch ms)."""

    reason: str
    ts: _Moment


class Process(msgspec.Struct, gc=False):
    """One of the broker's processes."""

    name: str
    up: bool
    restarts: _Count


class Metadata(msgspec.Struct, gc=False):
    """How old a slave's copy of one kind of metadata is, and was at most since the line's `since`;
    null before the first success."""

    kind: str
    failures: _Count
    age_ms: _Count | None = None
    age_ms_max: _Count | None = None


class ReplicaRow(msgspec.Struct, gc=False):
    """What the master says of one replica. From version 2 on: `lag_ms_max`, the largest lag since
    the line's `since`; `lag_time`, counters (ms) of the time in sync by lag, one more than the
    line's `lag_le`, not cumulative over buckets."""

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
    lag_ms_max: _Count | None = None
    lag_time: list[_Count] | None = None
    remote: str | None = None
    last_error: LastError | None = None


class Member(msgspec.Struct, gc=False):
    """What a member of a group with a controller says of its role; `since`: the monotonic ms at
    which it took it."""

    leads: bool
    epoch: _Count
    since: _Count
    master: _Count | None = None


class TakenRole(msgspec.Struct, gc=False):
    """A role that a member took, as it kept it; offsets in bytes of its log."""

    number: _Positive
    ts: _Moment
    mono: _Count
    role: Literal["FENCED", "FOLLOW", "LEAD"]
    cause: str
    id: _Count
    epoch: _Count
    old_epoch: _Count
    confirm_offset: _Any
    log_end: _Any
    members: list[_Count]
    master: _Count | None = None
    old_master: _Count | None = None
    without_master_ms: _Count | None = None


_NOTHING: Final = msgspec.Raw(b"null")


class GroupRow(msgspec.Struct, gc=False):
    """A consumer group in a topic: what it had not consumed at the last look, `looked_ms` before
    the line, and counters (ms) of the time certainly within, and beyond, each bound."""

    group: str
    topic: str
    looked_ms: _Count
    messages: _Count
    age_within: list[_Count]
    age_beyond: list[_Count]
    messages_within: list[_Count]
    messages_beyond: list[_Count]
    age_ms: _Count | None = None


class Groups(msgspec.Struct, gc=False):
    """Consumer groups in topics; `left_out`: so many more have no row."""

    age_le: list[_Positive]
    messages_le: list[_Positive]
    left_out: _Count
    rows: list[GroupRow]


class Line(msgspec.Struct, gc=False):
    """All that a line must have; those from `prev_boot` to `metadata` may be null or absent. Of
    version 2's, `prev_digest`, `exposure`, `ended` and the three of the machine's clocks may, also
    in a line of version 2; `member` and `roles` are there in controller mode only. `groups` is text
    of the line until somebody asks (`decode_groups`): a day of it would fill the memory."""

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
    ack_latency: Latency
    processes: list[Process]
    prev_boot: str | None = None
    prev_seq: _Count | None = None
    unreplicated_bytes: _Count | None = None
    oldest_unreplicated_ms: _Count | None = None
    replicas: list[ReplicaRow] | None = None
    metadata: list[Metadata] | None = None
    prev_digest: _Digest | None = None
    machine_boot: str | None = None
    uptime: _Count | None = None
    clock_error_ms: _Count | None = None
    since: _Count | None = None
    host: str | None = None
    exposure: Exposure | None = None
    sends: Sends | None = None
    lag_le: list[_Positive] | None = None
    ended: Ended | None = None
    member: Member | None = None
    roles: list[TakenRole] | None = None
    groups: msgspec.Raw = _NOTHING


class _Version(msgspec.Struct):
    v: int


class BadLineError(ValueError):
    """A line that is not good; the text is the reason."""


_DECODER: Final = msgspec.json.Decoder(Line)
_GROUPS: Final = msgspec.json.Decoder(Groups | None)
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
    if line.v == _NEWEST:
        _check_version_2(line)
    elif line.v == 1:
        _forget_version_2(line)
    else:
        raise BadLineError(_other_version(line.v))
    if len(line.ack_latency.counts) != len(line.ack_latency.le) + 1:
        raise BadLineError("ack_latency: needs one count more than bounds")
    if not midnight - HOUR_MS <= line.ts < midnight + DAY_MS + HOUR_MS:
        raise BadLineError("ts: more than an hour away from the date of the directory")
    return line


def _check_version_2(line: Line) -> None:
    """Raises BadLineError for what the decoder could not see: version 1 has none of it."""
    since, lag_le, sends, exposure = line.since, line.lag_le, line.sends, line.exposure
    if since is None:
        raise _missing("since")
    if line.host is None:
        raise _missing("host")
    if sends is None:
        raise _missing("sends")
    if lag_le is None:
        raise _missing("lag_le")
    if since > line.mono:
        raise BadLineError("since: after mono")
    if len(sends.latency.counts) != len(sends.latency.le) + 1:
        raise BadLineError("sends: latency needs one count more than bounds")
    ended = line.ended
    if ended is not None and len(ended.sends.latency.counts) != len(ended.sends.latency.le) + 1:
        raise BadLineError("ended: latency needs one count more than bounds")
    if exposure is not None:
        if len(exposure.counts) != len(exposure.le) + 1:
            raise BadLineError("exposure: needs one count more than bounds")
        if (
            exposure.bytes_at_least > exposure.bytes_at_most
            or exposure.ms_at_least > exposure.ms_at_most
        ):
            raise BadLineError("exposure: at_least is above at_most")
    if line.groups is not _NOTHING:
        _check_groups(line)
    for replica in line.replicas or ():
        if replica.lag_ms_max is None:
            raise _missing("lag_ms_max")
        if replica.lag_time is None:
            raise _missing("lag_time")
        if len(replica.lag_time) != len(lag_le) + 1:
            raise BadLineError("lag_time: needs one counter more than lag_le has bounds")


def _check_groups(line: Line) -> None:
    """Raises BadLineError."""
    try:
        groups = decode_groups(line)
    except msgspec.ValidationError as error:
        raise BadLineError(f"groups: {error}") from None
    if groups is None:
        return
    for row in groups.rows:
        ages, messages = len(groups.age_le), len(groups.messages_le)
        if (len(row.age_within), len(row.age_beyond)) != (ages, ages):
            raise BadLineError("groups: needs as many counters of ages as bounds")
        if (len(row.messages_within), len(row.messages_beyond)) != (messages, messages):
            raise BadLineError("groups: needs as many counters of messages as bounds")


def decode_groups(line: Line) -> Groups | None:
    """The consumer groups of a good line; None where it does not tell of any."""
    return None if line.groups is _NOTHING else _GROUPS.decode(line.groups)


def _forget_version_2(line: Line) -> None:
    """Version 1 did not know these names: whatever stands there means nothing."""
    line.prev_digest = line.since = line.host = line.exposure = line.sends = line.lag_le = None
    line.machine_boot = line.uptime = line.clock_error_ms = line.ended = None
    line.member = line.roles = None
    line.groups = _NOTHING
    for replica in line.replicas or ():
        replica.lag_ms_max = replica.lag_time = replica.remote = replica.last_error = None
    for row in line.metadata or ():
        row.age_ms_max = None


def _missing(field: str) -> BadLineError:
    return BadLineError(f"{field}: missing, incomplete or of a wrong type")


def _other_version(version: int) -> str:
    return f"version {version}, this report reads 1 and {_NEWEST}"


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
    if not 1 <= version <= _NEWEST:
        return _other_version(version)
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
