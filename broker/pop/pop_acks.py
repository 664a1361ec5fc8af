"""PopAcks: acknowledges messages in the buffer or, if their check point is not there, in the log.

Runs on the loop thread of `remoting`. Who acknowledges hears it when the ack is in the journal or
in the log; unlike RocketMQ, also if neither was possible. Follows AckMessageProcessor.appendAck.
Knows no request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from broker.pop.ack_msg import AckMsg, BatchAckMsg
from broker.pop.pop_buffer_merge_service import PopBufferMergeService
from broker.pop.pop_inflight_message_counter import PopInflightMessageCounter
from broker.pop.revive_records import ReviveRecords
from remoting.headers.extra_info_util import ExtraInfo

Done = Callable[[str], None]
"""The ack is safe (""), or why it could not be stored."""


class PoppedMessages(NamedTuple):
    """Messages of one pop of one queue; times in ms."""

    topic: str
    """Where they are: a retry topic, if they came from there."""
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    invisible_time_ms: int
    revive_queue_id: int
    broker_name: str
    offsets: list[int]


def popped_messages(
    topic: str, group: str, queue_id: int, info: ExtraInfo, offsets: list[int]
) -> PoppedMessages:
    """Those of a handle."""
    start_offset, pop_ms, invisible_ms, revive_queue_id, _retry, broker_name = info
    return PoppedMessages(
        topic,
        group,
        queue_id,
        start_offset,
        pop_ms,
        invisible_ms,
        revive_queue_id,
        broker_name,
        offsets,
    )


class PopAcks:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        buffer: PopBufferMergeService,
        records: ReviveRecords,
        inflight: PopInflightMessageCounter,
        broker_name: str,
    ) -> None:
        self._buffer = buffer
        self._records = records
        self._inflight = inflight
        self._broker_name = broker_name

    def ack(self, messages: PoppedMessages, done: Done) -> None:
        """Acknowledge them; `done` may run before this returns."""
        topic, group, queue_id, start_offset, pop_time_ms, _, _, broker_name, offsets = messages
        self._inflight.decrement(topic, group, queue_id, pop_time_ms, len(offsets))
        if broker_name == self._broker_name and self._buffer.ack(
            (topic, group, queue_id, start_offset, pop_time_ms), offsets
        ):
            done("")
        else:
            self.store(messages, done)

    def store(self, messages: PoppedMessages, done: Done) -> None:
        """Acknowledge them in the log, as one record."""
        self._records.put_ack(
            _ack_of(messages),
            messages.pop_time_ms + messages.invisible_time_ms,
            messages.revive_queue_id,
            lambda _end: done(""),
            done,
        )


def _ack_of(messages: PoppedMessages) -> AckMsg:
    of: dict[str, Any] = {
        "start_offset": messages.start_offset,
        "consumer_group": messages.group,
        "topic": messages.topic,
        "queue_id": messages.queue_id,
        "pop_time": messages.pop_time_ms,
        "broker_name": messages.broker_name,
    }
    if len(messages.offsets) == 1:
        return AckMsg(ack_offset=messages.offsets[0], **of)
    return BatchAckMsg(ack_offset_list=messages.offsets, **of)
