"""The bodies of trace messages: what producers and consumers wrote about one message.

Pure functions. The bytes come from clients: malformed traces are counted, never raised.
(Java: TraceDataEncoder, TraceView.)

    trace \\x02 trace \\x02 ...; a trace is fields separated by \\x01, by its first field:
    Pub             1 time, 3 group, 5 message id, 8 store host, 10 cost, 12 or 13 success
    SubBefore       1 time, 3 group, 4 request id, 5 message id, 6 retries
    SubAfter        1 request id, 2 message id, 3 cost, 4 success, 6 result, 7 time, 8 group
                    (7 and 8 since 4.8)
    EndTransaction  1 time, 3 group, 5 message id, 8 store host, 11 state, 12 it was a check
    Recall          1 time, 3 group, 5 message id, 6 success

Tested by tests/tools/test_message_trace.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tools.message_decoder import MessageExt

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Where clients write traces by default, with the message's unique key as a key."""
PUB: Final = "Pub"
SUB: Final = "Sub"
SUB_BEFORE: Final = "SubBefore"
SUB_AFTER: Final = "SubAfter"
END_TRANSACTION: Final = "EndTransaction"
RECALL: Final = "Recall"
TRACE_SEPARATOR: Final = "\x02"
FIELD_SEPARATOR: Final = "\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """One trace as its client wrote it; times in milliseconds, timestamp 0: not given."""

    kind: str
    group: str
    client_host: str
    timestamp_ms: int
    request_id: str = ""
    """Of a call of a listener: its begin and its end have the same."""
    cost_ms: int | None = None
    success: bool | None = None
    is_check: bool = False
    """Of the end of a transaction: its producer was asked for it."""
    detail: str = ""
    """The broker that a producer spoke to, and how its transaction ended; the retry of a begun
    consumption, the result of one that ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """One client's part in a message's life, as RocketMQ's tool shows it."""

    kind: str
    group: str
    client_host: str
    timestamp_ms: int
    cost_ms: int
    success: bool


def decode_traces(message_id: str, message: MessageExt) -> tuple[list[TraceView], int]:
    """What RocketMQ's tool shows of a trace message about one message id: sends and ends of
    consumptions; and the number of malformed traces."""
    records, damaged = decode_records(message_id, message)
    kinds = {PUB: PUB, SUB_AFTER: SUB}
    views = [
        TraceView(
            kind=kinds[record.kind],
            group=record.group or "null",
            client_host=record.client_host,
            timestamp_ms=record.timestamp_ms,
            cost_ms=record.cost_ms or 0,
            success=bool(record.success),
        )
        for record in records
        if record.kind in kinds
    ]
    return views, damaged


def decode_records(message_id: str, message: MessageExt) -> tuple[list[TraceRecord], int]:
    """The traces of one message id in a trace message, and the number of malformed ones."""
    records, damaged = [], 0
    host = message.born_host.rpartition(":")[0]
    for trace in message.body.decode(errors="replace").split(TRACE_SEPARATOR):
        fields = trace.rstrip(FIELD_SEPARATOR).split(FIELD_SEPARATOR)
        try:
            record = _decode(message_id, fields, host)
        except (IndexError, ValueError):
            damaged += 1
            continue
        if record is not None:
            records.append(record)
    return records, damaged


def _decode(message_id: str, fields: list[str], host: str) -> TraceRecord | None:
    """None for another message's or another kind of trace. IndexError, ValueError: damaged."""
    kind = fields[0]
    if kind == SUB_AFTER:
        return _ended_consumption(fields, host) if fields[2] == message_id else None
    if kind not in (PUB, SUB_BEFORE, END_TRANSACTION, RECALL) or fields[5] != message_id:
        return None
    record = TraceRecord(kind=kind, group=fields[3], client_host=host, timestamp_ms=int(fields[1]))
    if kind == PUB:
        success = fields[12 if len(fields) == 13 else 13] == "true"
        return replace(record, cost_ms=int(fields[10]), success=success, detail=fields[8])
    if kind == SUB_BEFORE:
        retries = int(fields[6])
        detail = f"retry {retries}" if retries else ""
        return replace(record, request_id=fields[4], detail=detail)
    if kind == END_TRANSACTION:
        is_check = len(fields) > 12 and fields[12] == "true"
        detail = f"{fields[11]} to {fields[8]}"
        return replace(record, is_check=is_check, detail=detail)
    return replace(record, success=fields[6] == "true")


def _ended_consumption(fields: list[str], host: str) -> TraceRecord:
    told = len(fields) >= 9
    return TraceRecord(
        kind=SUB_AFTER,
        group=fields[8] if told else "",
        client_host=host,
        timestamp_ms=int(fields[7]) if told else 0,
        request_id=fields[1],
        cost_ms=int(fields[3]),
        success=fields[4] == "true",
        detail=fields[6] if len(fields) > 6 else "",
    )
