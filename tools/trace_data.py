"""The bodies of trace messages: what producers and consumers wrote about one message.

Pure functions. The bytes come from clients: malformed traces are counted, never raised.
(Java: TraceDataEncoder, TraceView.)

    trace \\x02 trace \\x02 ...; a trace is fields separated by \\x01, by its first field:
    Pub       1 time, 3 group, 5 message id, 10 cost, 12 or 13 success
    SubAfter  2 message id, 3 cost, 4 success, 7 time, 8 group (7 and 8 since 4.8)
    other kinds are left out, as RocketMQ leaves them out of its output
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tools.message_decoder import MessageExt

PUB: Final = "Pub"
SUB: Final = "Sub"
TRACE_SEPARATOR: Final = "\x02"
FIELD_SEPARATOR: Final = "\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """One client's part in a message's life; times in milliseconds, timestamp 0: not given."""

    kind: str
    group: str
    client_host: str
    timestamp_ms: int
    cost_ms: int
    success: bool


def decode_traces(message_id: str, message: MessageExt) -> tuple[list[TraceView], int]:
    """The traces of one message id in a trace message, and the number of malformed ones."""
    views, damaged = [], 0
    host = message.born_host.rpartition(":")[0]
    for trace in message.body.decode(errors="replace").split(TRACE_SEPARATOR):
        fields = trace.rstrip(FIELD_SEPARATOR).split(FIELD_SEPARATOR)
        try:
            view = _decode(message_id, fields, host)
        except (IndexError, ValueError):
            damaged += 1
            continue
        if view is not None:
            views.append(view)
    return views, damaged


def _decode(message_id: str, fields: list[str], host: str) -> TraceView | None:
    """None for another message's or another kind of trace. IndexError, ValueError: damaged."""
    if fields[0] == "Pub" and fields[5] == message_id:
        return TraceView(
            kind=PUB,
            group=fields[3],
            client_host=host,
            timestamp_ms=int(fields[1]),
            cost_ms=int(fields[10]),
            success=fields[12 if len(fields) == 13 else 13] == "true",
        )
    if fields[0] == "SubAfter" and fields[2] == message_id:
        told = len(fields) >= 9
        return TraceView(
            kind=SUB,
            group=fields[8] if told else "null",
            client_host=host,
            timestamp_ms=int(fields[7]) if told else 0,
            cost_ms=int(fields[3]),
            success=fields[4] == "true",
        )
    return None
