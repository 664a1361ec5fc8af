"""ReviveRecords: check points and acks on their way into the revive topic.

Runs on the loop thread. Each is a timer message for the revive topic; one that is due already is
stored there at once. Follows PopMessageProcessor.buildCkMsg and AckMessageProcessor.appendAck.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.append.admitted_properties import as_value
from broker.pop.ack_msg import AckMsg, BatchAckMsg
from broker.pop.pop_check_point import PopCheckPoint
from broker.pop.pop_names import ACK, ACK_TAG, BATCH_ACK_TAG, CK, CK_TAG
from broker.pop.pop_stats import CountsRecords
from broker.timer.timer_put import TimerPut
from remoting.response_code import ResponseCode

Stored = Callable[[int], None]
"""The record was appended; the log's end behind it."""
Refused = Callable[[str], None]
"""Nothing was stored: why."""


class ReviveRecords:
    """See the module. Owned by: the loop thread."""

    def __init__(self, timers: TimerPut, revive_topic: str, counts: CountsRecords) -> None:
        self._timers = timers
        self._counts = counts
        self._revive_topic = revive_topic
        self.stored = 0
        """Records stored here since the start."""

    def put_check_point(
        self, point: PopCheckPoint, revive_queue_id: int, stored: Stored, refused: Refused
    ) -> None:
        """Store a check point. The callback may run before this returns."""
        properties = _properties(point.deliver_ms, point.unique_key, CK_TAG)
        of = (point.group or "", point.topic or "", CK)
        self._put(of, revive_queue_id, point.to_json_bytes(), properties, stored, refused)

    def put_ack(
        self,
        ack: AckMsg,
        revive_time_ms: int,
        revive_queue_id: int,
        stored: Stored,
        refused: Refused,
    ) -> None:
        """Store an ack or a batch of them. The callback may run before this returns."""
        tag = BATCH_ACK_TAG if isinstance(ack, BatchAckMsg) else ACK_TAG
        properties = _properties(revive_time_ms, ack.unique_key, tag)
        of = (ack.consumer_group or "", ack.topic or "", ACK)
        self._put(of, revive_queue_id, ack.to_json_bytes(), properties, stored, refused)

    def _put(
        self,
        of: tuple[str, str, str],
        revive_queue_id: int,
        body: bytes,
        properties: str,
        stored: Stored,
        refused: Refused,
    ) -> None:
        """of: group, topic and kind of the record."""

        def done(code: ResponseCode, end: int) -> None:
            self._counts.stored(*of, code)
            if code is ResponseCode.SUCCESS:
                self.stored += 1
                stored(end)
            else:
                refused(f"code {code} ({code.name})")

        self._timers.put(self._revive_topic, revive_queue_id, body, properties, done)


def _properties(deliver_ms: int, unique_key: str, tag: str) -> str:
    # Parts of the key come from handles, which clients send back: no separators.
    key = as_value(unique_key)
    return f"TIMER_DELIVER_MS\x01{deliver_ms}\x02UNIQ_KEY\x01{key}\x02TAGS\x01{tag}"
