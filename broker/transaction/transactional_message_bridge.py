"""TransactionalMessageBridge: the transaction checks' access to the store.

Used by the thread of TransactionalMessageCheckService, one call at a time. Reads go through
StoreAccess; appends are passed to the loop, the log's only writer, and awaited. Follows
TransactionalMessageBridge of RocketMQ. Makes no decisions.

Tested by tests/broker/transaction/test_transactional_message_service.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from broker.append.append_queue import Append, OneRecord
from broker.metrics.waiting_halves import WaitingHalf, WaitingHalves
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.store_access.store_access import StoreAccess
from broker.topic.system_topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from broker.transaction.earlier_ends import EarlierEnds, queued_message
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.transaction_records import HALF_QUEUE_ID, TRANSACTION_GROUP, halves_of_op
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog
from store.errors import MessageIllegalError, QueueDamagedError, StoreError
from store.message import Message
from store.message_codec import decode_host
from store.put_aside import ReadBy, RecordGuard
from store.record import Record

log = logging.getLogger(__name__)

APPEND_TIMEOUT_MS: Final = 10_000
"""Longer than an append waits for the next log file."""


class AppendTimeoutError(StoreError):
    """The loop did not append in time; it may still do so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeParts:
    """The collaborators of the bridge."""

    commit_log: CommitLog
    append: Callable[[Append], None]
    """AppendQueue.append; on the loop's thread."""
    reader: StoreAccess
    halves: HalfMessageStates
    waiting: WaitingHalves
    """Of the loop's thread."""
    earlier: EarlierEnds
    offsets: ConsumerOffsetManager
    on_loop: Callable[[Callable[[], None]], None]
    """Runs a function on the loop's thread (call_soon_threadsafe)."""
    flushed_offset: Callable[[], int]
    """The flushed offset of the log."""
    append_timeout_ms: int = APPEND_TIMEOUT_MS


class Rewrite(NamedTuple):
    """A half to be stored again: in the half queue, or in the discard topic."""

    half: int
    topic: str
    record: Record
    original: int | None = None
    """The half of which it is a copy."""
    phy_offset: int = -1
    """Of the half that is stored again."""
    asks: bool = True
    """Whether a producer is asked about the copy; if not, it takes the place of this one."""


class Rewritten(NamedTuple):
    """The result of a Rewrite. One of the two is set, neither if the half has ended meanwhile, or
    was put aside."""

    place: tuple[int, int] | None = None
    """phy_offset and queue_offset of the copy."""
    refusal: str = ""


_ENDED: Final = Rewritten()


class TransactionalMessageBridge:
    """See the module. Owned by: the thread of the check service."""

    def __init__(self, parts: BridgeParts) -> None:
        self._parts = parts
        self._known = parts.halves.known
        """Of this life of the checks: the next one, of another lead, has another."""
        self._awaited: dict[str, int] | None = None
        self._forgotten_before = 0
        self._halves_end = 0
        self._guard = RecordGuard(ReadBy.TRANSACTION_OP)
        self._half_guard = RecordGuard(ReadBy.TRANSACTION_CHECK)

    # -- progress ------------------------------------------------------------------------------

    def half_offset(self) -> int:
        """Where the next round starts: the stored offset, else the start of the queue."""
        return self._stored_offset(TRANS_HALF_TOPIC)

    def store_progress(self, half_offset: int, op_offset: int) -> None:
        """Store that everything before these offsets of the half and op queues is done."""
        host, port = decode_host(self._parts.commit_log.store_host)
        for topic, offset in (TRANS_HALF_TOPIC, half_offset), (TRANS_OP_HALF_TOPIC, op_offset):
            if offset != self._stored_offset(topic):
                self._parts.offsets.commit_own_offset(
                    f"{host}:{port}", TRANSACTION_GROUP, topic, HALF_QUEUE_ID, offset
                )

    def log_end(self) -> int:
        """The log's end, including unpublished data."""
        return self._parts.commit_log.position

    def is_flushed(self, phy_offset: int) -> bool:
        """Whether the log is flushed up to this offset."""
        return self._parts.flushed_offset() >= phy_offset

    def _stored_offset(self, topic: str) -> int:
        low, high = self.offsets(topic)
        stored = self._parts.offsets.query_offset(TRANSACTION_GROUP, topic, HALF_QUEUE_ID)
        return low if stored is None else min(max(stored, low), high)

    # -- reading -------------------------------------------------------------------------------

    def offsets(self, topic: str) -> tuple[int, int]:
        """(min, max) of the half queue or the op queue."""
        return self._parts.reader.offsets(topic, HALF_QUEUE_ID)

    def find_message(self, topic: str, queue_offset: int) -> Message | None:
        """A half or an op; None if it was deleted from the log."""
        return queued_message(self._parts.reader, topic, queue_offset)

    def phy_offset_at(self, topic: str, queue_offset: int) -> int:
        """Of a half or an op; -1 without it."""
        unit = self._parts.reader.unit_at(topic, HALF_QUEUE_ID, queue_offset)
        return -1 if unit is None else unit[0]

    def read_ops(self) -> bool:
        """Fill HalfMessageStates from the op queue, once after a start.

        False while the store has not dispatched what is in the log now, or rebuilds one of the
        queues; then call it again. An op only ends halves that were stored before it, in case the
        half queue was recreated.
        """
        if not all(self.offsets(topic)[1] >= end for topic, end in self._ends_to_read().items()):
            return False
        try:
            self._read_ops()
        except QueueDamagedError as error:
            log.error("transactions: %s", error)
            return False
        self._halves_end = (self._awaited or {}).get(TRANS_HALF_TOPIC, 0)
        self._awaited = None
        self._known.set()
        return True

    def halves_without_end(self, is_stopped: Callable[[], bool]) -> Iterator[Message]:
        """Those that were there when `read_ops` began, from the stored progress on; what cannot be
        read is left out."""
        for place in range(self.half_offset(), self._halves_end):
            if is_stopped():
                return
            if not self._parts.halves.is_ended(place):
                half = None
                with self._half_guard.of(self.phy_offset_at(TRANS_HALF_TOPIC, place)):
                    half = self.find_message(TRANS_HALF_TOPIC, place)
                if half is not None:
                    yield half

    def recovered(self, found: Sequence[WaitingHalf]) -> None:
        """These wait, as this start has found; some may have ended since."""
        parts, known = self._parts, self._known

        def on_loop() -> None:
            if parts.halves.known is known:
                parts.waiting.recovered(one for one in found if not parts.halves.is_ended(one.half))

        parts.on_loop(on_loop)

    def _read_ops(self) -> None:
        parts = self._parts
        high = self.offsets(TRANS_OP_HALF_TOPIC)[1]
        begin = self._stored_offset(TRANS_OP_HALF_TOPIC)
        parts.halves.start_ops(begin)
        parts.earlier.begin(begin, self.half_offset())
        for op_offset in range(begin, high):
            op, halves = None, []
            with self._guard.of(self.phy_offset_at(TRANS_OP_HALF_TOPIC, op_offset)):
                op = self.find_message(TRANS_OP_HALF_TOPIC, op_offset)
                halves = [] if op is None else halves_of_op(op)
            parts.halves.add_stored_op(halves)
            for half in halves:
                unit = parts.reader.unit_at(TRANS_HALF_TOPIC, HALF_QUEUE_ID, half)
                if op is not None and unit is not None and unit[0] < op.phy_offset:
                    parts.halves.mark_stored(half)
        log.info("transactions: %s ops read, from offset %s on", high - begin, begin)

    def _ends_to_read(self) -> dict[str, int]:
        """Where both queues ended at the first look. Nobody ends a half before its op can be told
        from none; and of the halves of a leader that waits for its replicas there are always some
        that are not dispatched yet."""
        if self._awaited is None:
            next_offset = self._parts.commit_log.next_offset
            topics = (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
            self._awaited = {topic: next_offset(topic, HALF_QUEUE_ID) or 0 for topic in topics}
        return self._awaited

    def forget_ends_before(self, half: int) -> None:
        """The halves before are no longer in the log."""
        if half > self._forgotten_before:
            self._forgotten_before = half
            self._parts.on_loop(lambda: self._parts.halves.forget_before(half))

    def passed(self, half: int) -> None:
        """The checks have nothing more to do with the halves before this one."""
        parts, known = self._parts, self._known

        def on_loop() -> None:
            if parts.halves.known is known:
                parts.waiting.forget_before(half)

        parts.on_loop(on_loop)

    # -- appending -----------------------------------------------------------------------------

    def rewrite(self, rewrites: Sequence[Rewrite]) -> list[Rewritten]:
        """Append the copies of halves that have not ended yet; returns the result of each.

        Raises AppendTimeoutError.
        """
        parts = self._parts
        batch = _Batch(parts, rewrites)
        parts.on_loop(batch.begin)
        try:
            return batch.done.result(parts.append_timeout_ms / 1000)
        except TimeoutError as error:
            raise AppendTimeoutError(
                f"{len(rewrites)} half messages were not stored again within "
                f"{parts.append_timeout_ms} ms"
            ) from error


class _Batch:
    """Copies passed to the loop together. Owned by: the loop thread."""

    def __init__(self, parts: BridgeParts, rewrites: Sequence[Rewrite]) -> None:
        self.done: Future[list[Rewritten]] = Future()
        self._parts = parts
        self._rewrites = rewrites
        self._results: dict[int, Rewritten] = {}
        self._guard = RecordGuard(ReadBy.TRANSACTION_CHECK)

    def begin(self) -> None:
        """Append them in order."""
        halves = self._parts.halves
        for index, rewrite in enumerate(self._rewrites):
            half, original = rewrite.half, rewrite.original
            if halves.is_ended(half) or (original is not None and halves.is_ended(original)):
                self.settle(index, _ENDED)
                continue
            if original is not None:
                halves.link(half, original)
            if halves.is_ending(half):
                self.settle(index, Rewritten(refusal="its end is being stored"))
                continue
            with self._guard.of(rewrite.phy_offset):
                topic = self._parts.commit_log.topic(rewrite.topic)
                placed = partial(self._on_placed, index, rewrite)
                refused = partial(self._on_refused, index, rewrite)
                copy = OneRecord(topic, rewrite.record, placed, refused)
                self._parts.append(copy)
            if self._guard.failed and index not in self._results:
                self.settle(index, _ENDED)

    def _on_placed(self, index: int, rewrite: Rewrite, phy_offset: int, queue_offset: int) -> None:
        """A copy was appended."""
        halves = self._parts.halves
        if rewrite.topic == TRANS_HALF_TOPIC:
            (halves.add_copy if rewrite.asks else halves.replace_copy)(rewrite.half, queue_offset)
            self._parts.waiting.move(rewrite.half, queue_offset)
        else:
            halves.forget(rewrite.half)  # It waits until the round has passed it.
        self.settle(index, Rewritten((phy_offset, queue_offset)))

    def _on_refused(self, index: int, rewrite: Rewrite, code: ResponseCode, remark: str) -> None:
        """Nothing was stored. A half that never can be is not in the way of those behind it."""
        if code is ResponseCode.MESSAGE_ILLEGAL:
            self._guard.put(rewrite.phy_offset, MessageIllegalError(remark))
            self.settle(index, _ENDED)
        else:
            self.settle(index, Rewritten(refusal=remark))

    def settle(self, index: int, result: Rewritten) -> None:
        """Set one result; the last one wakes the waiting thread."""
        self._results[index] = result
        if len(self._results) == len(self._rewrites):
            self.done.set_result([self._results[i] for i in range(len(self._rewrites))])
