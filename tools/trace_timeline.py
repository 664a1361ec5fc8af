"""The life of one message as a list of steps: sent, stored, delivered, consumed, its transaction.

Pure. Put together from what clients wrote about it into the trace topic (tools/trace_data.py) and,
if it was found, the stored message. Each client's clock is its own: a step may seem to come before
its cause. That a message was consumed means that its listener said so: what brokers know of acks
and offsets is not in traces.

Tested by tests/tools/test_trace_timeline.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tools.message_decoder import MessageExt
from tools.trace_data import END_TRANSACTION, PUB, RECALL, SUB_BEFORE, TraceRecord, decode_records

What = Literal["sent", "stored", "checked", "ended", "recalled", "delivered", "consumed"]
_ORDER: Final[tuple[What, ...]] = (
    "sent",
    "stored",
    "checked",
    "ended",
    "recalled",
    "delivered",
    "consumed",
)
"""Of steps of the same millisecond."""
CONSUME_RESULTS: Final = {
    "0": "success",
    "1": "timed out",
    "2": "exception",
    "3": "returned null",
    "4": "failed",
}
"""Java's ConsumeReturnType, by its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStep:
    """One thing that happened to the message.

    sent       a producer's send, from its begin
    stored     the broker that answers for it has it since then
    checked    a producer was asked how its transaction ended; ended: it said so itself
    recalled   a timer message was called back
    delivered  a consumer's listener was called, and nothing was heard of it since
    consumed   the listener came back, from its call
    """

    what: What
    time_ms: int
    """0: nobody says when."""
    who: str
    """The group; of a stored message its topic."""
    where: str
    """The client's address, or the broker's."""
    duration_ms: int | None = None
    success: bool | None = None
    """None: it says nothing about that."""
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """The step for programs."""
        return {
            "what": self.what,
            "timestamp": self.time_ms,
            "who": self.who,
            "where": self.where,
            "durationMs": self.duration_ms,
            "success": self.success,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps in the order of their times, and how many traces could not be read."""

    steps: list[TimelineStep] = field(default_factory=list)
    damaged: int = 0


def timeline(
    message_id: str, traces: Iterable[MessageExt], stored: MessageExt | None = None
) -> Timeline:
    """The life of the message with this unique key. traces: messages of the trace topic."""
    records: list[TraceRecord] = []
    damaged = 0
    for message in traces:
        found, wrong = decode_records(message_id, message)
        records += found
        damaged += wrong
    steps = [_producer_step(record) for record in records if record.kind in _PRODUCERS]
    steps += _consumer_steps([record for record in records if record.kind not in _PRODUCERS])
    if stored is not None:
        steps.append(_stored_step(stored))
    steps.sort(key=lambda step: (step.time_ms, _ORDER.index(step.what)))
    return Timeline(steps, damaged)


_PRODUCERS: Final[dict[str, What]] = {PUB: "sent", END_TRANSACTION: "ended", RECALL: "recalled"}


def _producer_step(record: TraceRecord) -> TimelineStep:
    return TimelineStep(
        what="checked" if record.is_check else _PRODUCERS[record.kind],
        time_ms=record.timestamp_ms,
        who=record.group,
        where=record.client_host,
        duration_ms=record.cost_ms,
        success=record.success,
        detail=record.detail,
    )


def _consumer_steps(records: list[TraceRecord]) -> list[TimelineStep]:
    """A step for each call of a listener: its begin and its end have one request id."""
    begun = {record.request_id: record for record in records if record.kind == SUB_BEFORE}
    steps = []
    for record in records:
        if record.kind != SUB_BEFORE:
            steps.append(_consumed_step(record, begun.pop(record.request_id, None)))
    return steps + [_delivered_step(record) for record in begun.values()]


def _consumed_step(end: TraceRecord, begin: TraceRecord | None) -> TimelineStep:
    cost_ms = end.cost_ms or 0
    time_ms = begin.timestamp_ms if begin is not None else max(end.timestamp_ms - cost_ms, 0)
    retry = "" if begin is None else begin.detail
    result = CONSUME_RESULTS.get(end.detail, "success" if end.success else "failed")
    return TimelineStep(
        what="consumed",
        time_ms=time_ms,
        who=end.group or (begin.group if begin is not None else ""),
        where=end.client_host,
        duration_ms=cost_ms,
        success=end.success,
        detail=", ".join(part for part in (retry, result) if part),
    )


def _delivered_step(begin: TraceRecord) -> TimelineStep:
    return TimelineStep(
        what="delivered",
        time_ms=begin.timestamp_ms,
        who=begin.group,
        where=begin.client_host,
        detail=begin.detail,
    )


def _stored_step(message: MessageExt) -> TimelineStep:
    queue = f"queue {message.queue_id}, offset {message.queue_offset}"
    return TimelineStep(
        what="stored",
        time_ms=message.store_timestamp,
        who=message.topic,
        where=message.store_host,
        success=True,
        detail=queue if not message.broker_name else f"{message.broker_name} {queue}",
    )
