"""PopEscape: an acting slave revives what its master handed out and nobody acknowledged.

With enableRemoteEscape. Check points and acks that have come out of the timer are read from the
revive topic, from where the master had handled it; those that are due while this slave acts come
from its timer wheel (TimerEscapeService), since it writes no log. A check point is settled when all
acks that can come in time were seen, as by PopReviveService; what is left of it is copied to the
group's retry topic at another master of the cluster (EscapeBridge), and the offset of the revive
group, which the returning master takes over (43), passes it then. What waits here from the wheel
keeps the timers' read time back. Copies come twice if the slave stops between a copy and the next
save of its offsets.

Thread of TimerEscapeService. Corresponds to what PopReviveService of RocketMQ 5.3.3 does by its
EscapeBridge.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.out.escape_bridge import EscapeBridge, EscapedMessage, EscapeError
from broker.pop.ack_msg import AckMsg, BatchAckMsg
from broker.pop.check_point import CheckPoint
from broker.pop.pop_names import ACK_TAG, BATCH_ACK_TAG, CK_TAG, REVIVE_GROUP
from broker.pop.revive_points import RevivePoint, read_point
from broker.pop.revive_queue import ReviveQueue
from broker.pop.revived_record import revived_record
from broker.schedule.due_message import escaped_message
from broker.store_access.store_access import StoreAccess
from broker.topic.table_protocols import FindGroup, FindTopic
from remoting.key_builder import RETRY_PREFIX, parse_normal_topic, pop_retry_topic
from store.message import Message
from store.message_codec import decode_record
from store.put_aside import ReadBy, RecordGuard

log = logging.getLogger(__name__)

_MOST_BODY: Final = 65_536
_NO_HOST: Final = bytes(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopEscapeParts:
    """The collaborators of PopEscape."""

    topic: str
    """The revive topic of this cluster."""
    messages: StoreAccess
    offsets: ConsumerOffsetManager
    find_topic: FindTopic
    find_group: FindGroup
    bridge: EscapeBridge
    broker_name: str
    uses_retry_topic_v2: bool


class PopEscape:
    """See the module. Owned by: the thread of TimerEscapeService."""

    def __init__(self, parts: PopEscapeParts) -> None:
        self.topic: Final = parts.topic
        self._parts = parts
        self._guard = RecordGuard(ReadBy.POP_REVIVAL)
        self._queues: dict[int, ReviveQueue] = {}
        self._ends: dict[int, int] = {}
        """By queue: where it ended when this slave began to act. Records from the wheel have the
        numbers behind."""
        self._from_wheel: dict[int, deque[tuple[int, int]]] = {}
        """By queue: number and slot of the check points that came from the wheel, those that are
        done with perhaps too."""
        self._point: tuple[ReviveQueue, RevivePoint] | None = None
        """The one that is being copied."""
        self._revived = 0

    def forget(self) -> None:
        """This slave acts no more; the master revives what is not done."""
        if self._revived:
            log.info("pop: %s messages were revived at other brokers", self._revived)
        self._queues.clear()
        self._ends.clear()
        self._from_wheel.clear()
        self._point, self._revived = None, 0

    def take(self, message: Message, slot_ms: int) -> None:
        """A record of the revive topic is due, in this slot of the wheel. message: as it would be
        stored there now. Raises EscapeError, StoreError."""
        queue = self._queue(message.queue_id)
        number = queue.next_read
        with self._guard.of(message.phy_offset):
            if self._read(queue, number, message):
                waiting = self._from_wheel.setdefault(queue.queue_id, deque())
                waiting.append((number, slot_ms))
        queue.has_read(number + 1)

    def settle(self, read_ms: int) -> None:
        """All of the wheel before `read_ms` was seen. Raises EscapeError, StoreError: call it
        again."""
        if not self._queues:
            for queue_id in self._parts.messages.known_queues(self.topic):
                self._queue(queue_id)
        self._finish_point()
        for queue in self._queues.values():
            queue.begin_reading(queue.next_read, read_ms)
            while (point := queue.next_due()) is not None:
                self._point = queue, point
                point.again = self._open_offsets(point)
                point.left = len(point.again)
                self._finish_point()

    def waits_from(self) -> int | None:
        """The oldest slot of the wheel with a check point that is not done with."""
        found: list[int] = []
        for queue_id, waiting in self._from_wheel.items():
            first_open = self._queues[queue_id].first_open
            while waiting and waiting[0][0] < first_open:
                waiting.popleft()
            if waiting:
                found.append(waiting[0][1])
        return min(found, default=None)

    # -- reading ---------------------------------------------------------------------------------

    def _queue(self, queue_id: int) -> ReviveQueue:
        """With all that the revive topic holds behind what was handled. Raises StoreError."""
        queue = self._queues.get(queue_id)
        if queue is not None:
            return queue
        messages, topic = self._parts.messages, self.topic
        handled = self._parts.offsets.query_offset(REVIVE_GROUP, topic, queue_id)
        low, high = messages.offsets(topic, queue_id)
        queue = ReviveQueue(queue_id, max(-1 if handled is None else handled, low - 1))
        for number in range(queue.next_read, high):
            unit = messages.unit_at(topic, queue_id, number)
            record = None if unit is None else messages.record_at(unit[0])
            if unit is None or record is None:
                raise EscapeError(f"revive queue {queue_id}: the record at {number} is lost here")
            with self._guard.of(unit[0]):
                self._read(queue, number, decode_record(record, 0)[0])
        queue.has_read(max(high, queue.next_read))
        self._queues[queue_id], self._ends[queue_id] = queue, high
        return queue

    def _read(self, queue: ReviveQueue, number: int, message: Message) -> bool:
        """Whether it is a check point. Raises what is wrong with it."""
        tag = message.find_property("TAGS")
        if len(message.body) > _MOST_BODY:
            return False
        if tag == CK_TAG:
            queue.take(read_point(message, number))
            return True
        if tag == ACK_TAG:
            ack = AckMsg.from_json_bytes(message.body)
            queue.acknowledge(ack.key, self._broker_of(ack), [ack.ack_offset])
        elif tag == BATCH_ACK_TAG:
            batch = BatchAckMsg.from_json_bytes(message.body)
            queue.acknowledge(batch.key, self._broker_of(batch), batch.ack_offset_list)
        return False

    def _broker_of(self, ack: AckMsg) -> str:
        return ack.broker_name or self._parts.broker_name

    # -- reviving --------------------------------------------------------------------------------

    def _finish_point(self) -> None:
        """Copy what is left of the check point of now."""
        if self._point is None:
            return
        queue, point = self._point
        while point.again:
            self._revive(point, point.again[0])
            del point.again[0]
            point.left -= 1
        self._point = None
        queue.note(0)
        done = queue.save(None)
        queue_id = queue.queue_id
        if done is not None and done < self._ends[queue_id]:
            self._parts.offsets.commit_own_offset(
                "PopEscape", REVIVE_GROUP, self.topic, queue_id, done
            )

    def _open_offsets(self, point: RevivePoint) -> list[int]:
        """What is to be revived; nothing of a topic or group that no longer exists."""
        topic, group = point.point[:2]
        parts = self._parts
        if parts.find_topic(parse_normal_topic(topic, group)) is None:
            return []
        return [] if parts.find_group(group) is None else point.open_offsets()

    def _revive(self, point: RevivePoint, offset: int) -> None:
        topic, _group, queue_id = point.point[:3]
        messages = self._parts.messages
        low, high = messages.offsets(topic, queue_id)
        if not low <= offset < high:
            return
        unit = messages.unit_at(topic, queue_id, offset)
        record = None if unit is None else messages.record_at(unit[0])
        if unit is None or record is None:
            raise EscapeError(f"message {offset} of {topic}/{queue_id} cannot be read here")
        copy: EscapedMessage | None = None
        with self._guard.of(unit[0]):
            copy = _copy_of(decode_record(record, 0)[0], point.point, self._retry(point))
        if copy is not None:
            self._parts.bridge.put(copy, like=parse_normal_topic(topic, point.point.group))
            self._revived += 1

    def _retry(self, point: RevivePoint) -> str:
        topic, group = point.point[:2]
        if topic.startswith(RETRY_PREFIX):
            return topic
        return pop_retry_topic(topic, group, self._parts.uses_retry_topic_v2)


def _copy_of(message: Message, point: CheckPoint, topic: str) -> EscapedMessage:
    revived = revived_record(message, point, _NO_HOST, 0)
    again = replace(message, properties=revived.properties, reconsume_times=revived.reconsume_times)
    return escaped_message(again, topic)
