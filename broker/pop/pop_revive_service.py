"""PopReviveService: copies what was popped and not acknowledged in time to the group's retry topic.

Runs on the loop thread of `remoting`, on masters only. Check points and acks come out of the timer
into the revive topic. Each of its queues is read in order; acks are matched with their check point;
when all acks that can come in time are there, the messages left are appended to the retry topic,
with reconsumeTimes + 1 (as it is, if the message was given back unread). The offset of
CID_RMQ_SYS_REVIVE_GROUP is that of the last handled check point.

When that is: the timer says up to which time all it held is appended (its read time); once the
queue is read up to where it ended at that moment, every ack due by that time was seen. So a check
point is settled about a second (the timer's precision) after its messages became visible, whether
or not anything follows it. (RocketMQ waits for a later record, or until nothing has come for 3 s.)

A message that cannot be read now, or whose retry queue has no room, gets a check point of its own,
due later (RocketMQ's intervals). Revival pauses while the log rejects appends. The offset is saved
once the copies are flushed, and noted once they are published (revive_progress.py). Formats follow
PopReviveService of RocketMQ 5.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from broker.pop.ack_msg import AckMsg, BatchAckMsg
from broker.pop.pop_names import ACK, ACK_TAG, BATCH_ACK_TAG, CK, CK_TAG, REVIVE_GROUP
from broker.pop.retry_queues import RetryQueues
from broker.pop.revive_parts import ReviveParts
from broker.pop.revive_points import RevivePoint, read_point
from broker.pop.revive_queue import ReviveQueue
from broker.pop.revived_record import revived_record
from broker.settings.broker_config import BrokerConfig
from remoting.errors import BodyError, RequestError
from remoting.key_builder import RETRY_PREFIX, parse_normal_topic, pop_retry_topic
from remoting.response_code import ResponseCode
from remoting.selector_loop import SelectorLoop
from store.commit_log import TopicLog
from store.control_slots import PutOffBy
from store.errors import MessageIllegalError, QueueTableFullError
from store.message import Message
from store.message_codec import decode_record, read_store_timestamp
from store.put_aside import ReadBy, RecordGuard
from store.record import Record
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE

log = logging.getLogger(__name__)

PUT_AGAIN_S: Final = (
    *(10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200),
)
_READ_COUNT: Final = 32
_MAX_PER_PASS: Final = 128
"""Records read, and messages copied, of all queues in one pass."""
_MOST_BODY: Final = 65_536
"""Bytes of a check point or ack. Each names 32 messages at most, in less than 3 KiB."""
_BUSY_MS: Final = 5
_IDLE_MS: Final = 1_000
"""A pass that finds nothing comes this often while nothing happens on the loop."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A message on its way into the retry topic (Append)."""

    service: PopReviveService
    queue: ReviveQueue
    point: RevivePoint
    offset: int
    phy_offset: int
    topic: TopicLog
    records: tuple[Record]

    def placed(self, places: list[tuple[int, int]]) -> None:
        """See Append."""
        self.service.on_placed(self, places[0][0])

    def refused(self, code: ResponseCode, remark: str) -> None:
        """See Append."""
        self.service.on_refused(self, code, remark)


class PopReviveService:
    """All queues of the revive topic. Owned by: the loop thread."""

    def __init__(
        self, settings: BrokerConfig, parts: ReviveParts, revive_topic: str, queue_num: int
    ) -> None:
        self._settings = settings
        self._parts = parts
        self._retry_queues = RetryQueues(parts.topics, parts.find_topic, parts.offsets)
        self._topic = revive_topic
        self.queue_num = queue_num
        """How many revive queues `start` opens."""
        self._queues: list[ReviveQueue] = []
        # For records of the revive topic, for their messages, for statistics.
        guards = (RecordGuard(ReadBy.POP_REVIVAL) for _ in range(3))
        self._guard, self._reviving, self._counting = guards
        self._loop: SelectorLoop | None = None
        self._running = False
        self.damaged = 0
        """Records of the revive topic that were no check point and no ack that a broker can have
        written, since the start: they are passed over."""
        self._left = 0
        """Remaining budget of this pass."""

    def use(self, settings: BrokerConfig) -> None:
        """Apply changed settings."""
        self._settings = settings

    # -- life ----------------------------------------------------------------------------------

    def start(self, loop: SelectorLoop) -> None:
        """Begin behind the last handled check points; the log is open."""
        parts = self._parts
        for queue_id in range(self.queue_num):
            stored = parts.offsets.query_offset(REVIVE_GROUP, self._topic, queue_id)
            offset = max(-1 if stored is None else stored, parts.progress.find(queue_id))
            end = self._end_of(self._topic, queue_id)
            self._queues.append(ReviveQueue(queue_id, min(offset, end - 1)))
        self._loop = loop
        self._running = True
        loop.call_at_multiple(self._settings.revive_interval, self._run_when_due)

    def stop(self) -> None:
        """Begin nothing new; idempotent."""
        self._running = False

    def finish(self) -> None:
        """After the last commit of an orderly stop: what is appended is on disk."""
        for queue in self._queues:
            self._save(queue, all_is_flushed=True)

    def _run_when_due(self) -> None:
        if not self._running or self._loop is None:
            return
        wait_ms = self.run_pass()
        ends = (self._end_of(self._topic, queue.queue_id) for queue in self._queues)
        if wait_ms < _IDLE_MS and all(map(ReviveQueue.is_idle_at, self._queues, ends)):
            # Records come in a turn of the loop only.
            self._loop.watches.call_once(self._run_when_due)
        else:
            self._loop.call_at_multiple(wait_ms, self._run_when_due)

    def run_pass(self) -> int:
        """Read and revive within the limits of a turn; returns the ms until the next pass."""
        self._left = _MAX_PER_PASS
        for queue in self._queues:
            end = self._parts.table.offsets(self._topic, queue.queue_id)[1]
            if queue.is_idle_at(end):
                continue  # As most queues are in most passes.
            self._note(queue)
            self._save(queue)
            if self._parts.append_queue.is_writable:
                self._read(queue)
                self._retry(queue)
                self._revive_due(queue)
        if self._left <= 0:
            # The queue that used up the turn comes last in the next one.
            self._queues.append(self._queues.pop(0))
            return _BUSY_MS
        return self._settings.revive_interval

    def behind(self, now_ms: int) -> list[tuple[int, int, int]]:
        """Of each queue: its id, the records that are not handled yet, and the age (ms) of the
        oldest of them. Loop thread."""
        return [(queue.queue_id, *self._behind(queue, now_ms)) for queue in self._queues]

    def _behind(self, queue: ReviveQueue, now_ms: int) -> tuple[int, int]:
        first = queue.first_open
        high = self._parts.table.offsets(self._topic, queue.queue_id)[1]
        if first >= high:
            return 0, 0
        raw = self._parts.units.read(self._topic, queue.queue_id, first, 1, high)
        phy_offset, size, _tags = CQ_UNIT.unpack(raw) if raw else (0, PRE_BLANK_SIZE, 0)
        record = None if size == PRE_BLANK_SIZE else self._parts.reader.record_at(phy_offset)
        stored_ms = now_ms if record is None else read_store_timestamp(record, 0)
        return high - first, max(now_ms - stored_ms, 0)

    # -- reading -------------------------------------------------------------------------------

    def _end_of(self, topic: str, queue_id: int) -> int:
        """Of a queue; the log knows it before the queue table does."""
        end = self._parts.commit_log.next_offset(topic, queue_id)
        return self._parts.table.offsets(topic, queue_id)[1] if end is None else end

    def _read(self, queue: ReviveQueue) -> None:
        """Read what is dispatched, up to the limits."""
        low, high = self._parts.table.offsets(self._topic, queue.queue_id)
        if queue.next_read < low:
            log.error(
                "revive queue %s: records %s to %s expired before they were handled",
                queue.queue_id, queue.next_read, low,
            )  # fmt: skip
            queue.has_read(low)
        if queue.needs_target:
            # In this order: what the timer has appended is below the end.
            settled_ms = self._parts.timer_read_time_ms()
            queue.begin_reading(self._end_of(self._topic, queue.queue_id), settled_ms)
        while queue.next_read < high and self._left > 0:
            if not self._read_units(queue, high):
                break

    def _read_units(self, queue: ReviveQueue, high: int) -> bool:
        """False: the next unit is being rebuilt."""
        offset, parts = queue.next_read, self._parts
        count = min(_READ_COUNT, high - offset)
        raw = parts.units.read(self._topic, queue.queue_id, offset, count, high)
        for phy_offset, size, _tags in CQ_UNIT.iter_unpack(raw):
            record = None if size == PRE_BLANK_SIZE else parts.reader.record_at(phy_offset)
            if record is None:
                log.error("revive queue %s: the record at %s is lost", queue.queue_id, offset)
            else:
                with self._guard.of(phy_offset):
                    self._take(queue, offset, decode_record(record, 0)[0])
                self.damaged += self._guard.failed
            offset += 1
            self._left -= 1
        queue.has_read(offset)
        return bool(raw)

    def _take(self, queue: ReviveQueue, offset: int, message: Message) -> None:
        """Raises BodyError, and whatever else is wrong with it: neither an error of the broker's
        nor a wait for the records behind it."""
        tag = message.find_property("TAGS")
        if len(message.body) > _MOST_BODY:
            raise BodyError(f"record of tag {tag!r}", f"{len(message.body)} bytes")
        if tag == CK_TAG:
            self._take_point(queue, read_point(message, offset))
        elif tag == ACK_TAG:
            ack = AckMsg.from_json_bytes(message.body)
            self._take_acks(queue, ack, [ack.ack_offset])
        elif tag == BATCH_ACK_TAG:
            batch = BatchAckMsg.from_json_bytes(message.body)
            self._take_acks(queue, batch, batch.ack_offset_list)

    def _take_point(self, queue: ReviveQueue, found: RevivePoint) -> None:
        point = found.point
        self._parts.counts.taken(point.group, point.topic, queue.queue_id, CK)
        queue.take(found)

    def _take_acks(self, queue: ReviveQueue, ack: AckMsg, offsets: list[int]) -> None:
        self._parts.counts.taken(ack.consumer_group or "", ack.topic or "", queue.queue_id, ACK)
        queue.acknowledge(ack.key, ack.broker_name or self._settings.broker_name, offsets)

    # -- reviving ------------------------------------------------------------------------------

    def _revive_due(self, queue: ReviveQueue) -> None:
        """In the queue's order, up to the first that is not due."""
        while self._left > 0 and (point := queue.next_due()) is not None:
            with self._guard.of(point.phy_offset):
                self._revive(queue, point)

    def _revive(self, queue: ReviveQueue, point: RevivePoint) -> None:
        topic, group = point.point[:2]
        open_offsets = point.open_offsets()
        if not open_offsets:
            return
        if (
            self._parts.find_topic(parse_normal_topic(topic, group)) is None
            or self._parts.find_group(group) is None
        ):
            log.info(
                "pop: not reviving %s: topic %s or group %s no longer exists",
                point.point, topic, group,
            )  # fmt: skip
            return
        point.left = len(open_offsets)
        self._left -= point.left
        for offset in open_offsets:
            self._revive_guarded(queue, point, offset)

    def _retry(self, queue: ReviveQueue) -> None:
        """Try again what the log did not take."""
        for point in queue.handled:
            offsets, point.again = point.again, []
            for offset in offsets:
                self._revive_guarded(queue, point, offset)

    def _revive_guarded(self, queue: ReviveQueue, point: RevivePoint, offset: int) -> None:
        left = point.left
        with self._reviving.of(point.phy_offset):
            self._revive_message(queue, point, offset)
        if self._reviving.failed and point.left == left and offset not in point.again:
            self._settled(point)

    def _revive_message(self, queue: ReviveQueue, point: RevivePoint, offset: int) -> None:
        topic, _group, queue_id = point.point[:3]
        low, high = self._parts.table.offsets(topic, queue_id)
        if high <= offset < self._end_of(topic, queue_id):
            # The queue is being built again: the message is there, and not yet to be found.
            self._put_again(queue, point, offset, may_give_up=False)
            return
        if not low <= offset < high:
            log.info(
                "pop: not reviving message %s of %s/%s: it no longer exists",
                offset, topic, queue_id,
            )  # fmt: skip
            self._settled(point)
            return
        raw = self._parts.units.read(topic, queue_id, offset, 1, high)
        if len(raw) < CQ_UNIT.size:
            self._put_again(queue, point, offset)
            return
        phy_offset, size, _tags = CQ_UNIT.unpack(raw)
        self._reviving.note(phy_offset)
        record = None if size == PRE_BLANK_SIZE else self._parts.reader.record_at(phy_offset)
        if record is None:
            log.error("pop: not reviving message %s of %s/%s: it is lost", offset, topic, queue_id)
            self._settled(point)
            return
        self._copy(queue, point, offset, decode_record(record, 0)[0])

    def _copy(self, queue: ReviveQueue, point: RevivePoint, offset: int, message: Message) -> None:
        name, group = point.point[:2]
        if not name.startswith(RETRY_PREFIX):
            name = pop_retry_topic(name, group, self._settings.enable_retry_topic_v2)
        topic, queue_id = None, None
        try:
            queue_id = self._retry_queues.find_or_create(
                name, group, message.queue_id, separate=self._settings.use_separate_retry_queue
            )
            topic = None if queue_id is None else self._parts.commit_log.topic(name)
        except (RequestError, MessageIllegalError) as error:
            log.error(
                "pop: message %s of %s: cannot use retry topic %s: %s",
                offset,
                point.point,
                name,
                error,
            )
        if topic is None or queue_id is None:
            self._put_again(queue, point, offset)
            return
        commit_log = self._parts.commit_log
        revived = revived_record(
            message, point.point, commit_log.store_host, commit_log.store_host_flag
        )
        record = replace(revived, queue_id=queue_id)
        try:
            commit_log.check_room(topic, record.queue_id)
        except QueueTableFullError as error:
            self._parts.room_waits.put_off(PutOffBy.POP_REVIVAL, message.phy_offset, error)
            self._put_again(queue, point, offset, may_give_up=False)
            return
        copy = _Copy(self, queue, point, offset, message.phy_offset, topic, (record,))
        self._parts.append_queue.append(copy)

    # -- results -------------------------------------------------------------------------------

    def on_placed(self, copy: _Copy, phy_offset: int) -> None:
        """A copy was appended."""
        end = self._parts.commit_log.position
        point = copy.point.point
        self._settled(copy.point, end)
        with self._counting.of(copy.phy_offset):
            self._parts.stats.add_put(copy.topic.name, 1, end - phy_offset)
            self._parts.counts.copied(point.group, point.topic, ResponseCode.SUCCESS)
            self._parts.inflight.decrement(*point[:3], point.pop_time_ms, 1)

    def on_refused(self, copy: _Copy, code: ResponseCode, remark: str) -> None:
        """The log took nothing: try again, unless it never will."""
        point = copy.point.point
        self._parts.counts.copied(point.group, point.topic, code)
        log.warning("pop: could not revive %s: %s: %s", point, code, remark)
        if code is ResponseCode.MESSAGE_ILLEGAL:
            self._guard.put(copy.phy_offset, MessageIllegalError(remark))
            self._settled(copy.point)
        else:
            copy.point.again.append(copy.offset)

    def _settled(self, point: RevivePoint, end: int = 0) -> None:
        """A message is copied, or given up."""
        point.left -= 1
        point.end = max(point.end, end)
        if not point.left and self._loop is not None:
            # In the next turn it is published: nobody has popped the copy before.
            self._loop.call_soon_threadsafe(self._note_all)

    def _put_again(
        self, queue: ReviveQueue, point: RevivePoint, offset: int, *, may_give_up: bool = True
    ) -> None:
        """The message gets a check point of its own, which is due later."""
        old, times = point.point, point.put_again_times
        gives_up = may_give_up and self._settings.skip_when_ck_re_put_reach_max_times
        if gives_up and times >= len(PUT_AGAIN_S):
            log.error("pop: giving up on message %s of %s after %s attempts", offset, old, times)
            self._settled(point)
            return
        later, now_ms = old.invisible_time_ms, self._parts.commit_log.now_ms
        if old.revive_time_ms <= now_ms:
            wait_ms = PUT_AGAIN_S[min(times, len(PUT_AGAIN_S) - 1)] * 1_000
            later = now_ms - old.pop_time_ms + wait_ms
        new = point.put_again(offset, later)
        log.warning("pop: message %s of %s cannot be revived now, will retry", offset, old)

        def stored(end: int) -> None:
            self._settled(point, end)

        def refused(remark: str) -> None:
            log.warning("pop: could not store %s: %s", new, remark)
            point.again.append(offset)

        self._parts.records.put_check_point(new, queue.queue_id, stored, refused)

    # -- progress ------------------------------------------------------------------------------

    def _note_all(self) -> None:
        for queue in self._queues:
            self._note(queue)

    def _note(self, queue: ReviveQueue) -> None:
        """Note what is published, in order."""
        last = queue.note(self._parts.published_offset())
        if last is not None:
            self._parts.progress.store(queue.queue_id, last)

    def _save(self, queue: ReviveQueue, *, all_is_flushed: bool = False) -> None:
        """The consumer offset follows what is noted and flushed, in order."""
        last = queue.save(None if all_is_flushed else self._parts.flushed_offset())
        if last is not None:
            self._parts.offsets.commit_own_offset(
                "PopReviveService", REVIVE_GROUP, self._topic, queue.queue_id, last
            )
