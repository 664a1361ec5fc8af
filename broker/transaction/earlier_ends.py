"""EarlierEnds: which of the halves had ended that were done before this start.

A start reads the ops from the stored progress on; what lies before it is looked at only when
somebody ends one of those halves, which is rare: a commit that comes again, or very late. Then the
op queue is read backwards, down to the half, once for all: at most so many ops for one request, the
next one goes on. Threads of the pool of ends: one of them reads, no other one waits for it, so that
the ends of younger halves are served meanwhile. In memory: a bit for each half.
"""

from __future__ import annotations

import threading
from typing import Final

from broker.store_access.store_access import StoreAccess
from broker.topic.system_topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.transaction_records import HALF_QUEUE_ID, halves_of_op
from store.message import Message
from store.message_codec import decode_record
from store.put_aside import ReadBy, RecordGuard

MOST_OPS: Final = 20_000
"""That one request reads: 0.3 to 1 s of its thread."""


def queued_message(reader: StoreAccess, topic: str, queue_offset: int) -> Message | None:
    """A half or an op by its place; None if it was deleted from the log. Raises StoreError."""
    unit = reader.unit_at(topic, HALF_QUEUE_ID, queue_offset)
    raw = None if unit is None else reader.record_at(unit[0])
    message = None if raw is None else decode_record(raw, 0)[0]
    return message if message is not None and message.topic == topic else None


class EarlierEnds:
    """See the module. Owned by: its lock."""

    def __init__(self, reader: StoreAccess, most_ops: int = MOST_OPS) -> None:
        self._reader = reader
        self._most_ops = most_ops
        self._lock = threading.Lock()
        self._halves_end = 0
        self._ops_from = 0
        """The ops from there on were read."""
        self._ended = HalfMessageStates()
        self._guard = RecordGuard(ReadBy.TRANSACTION_OP)

    def begin(self, op_offset: int, half_offset: int) -> None:
        """A start has read the ops from `op_offset` on, which are all of the halves from
        `half_offset` on."""
        with self._lock:
            self._ops_from, self._halves_end = op_offset, half_offset
            self._ended = HalfMessageStates()

    def has_ended(self, half: Message) -> bool | None:
        """Whether a half of an earlier life was ended in one; None: not known yet, ask again.
        Raises StoreError."""
        if half.queue_offset >= self._halves_end:
            return False
        if self._ended.is_ended(half.queue_offset):
            return True
        if not self._lock.acquire(blocking=False):
            return None
        try:
            first = self._first_behind(half.phy_offset)
            stop = max(first, self._ops_from - self._most_ops)
            for op_offset in range(self._ops_from - 1, stop - 1, -1):
                self._read(op_offset)
                self._ops_from = op_offset
            if self._ended.is_ended(half.queue_offset):
                return True
            return None if first < self._ops_from else False
        finally:
            self._lock.release()

    def _first_behind(self, phy_offset: int) -> int:
        """The first op that may lie behind `phy_offset`: its half's is there."""
        low = min(self._reader.offsets(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID)[0], self._ops_from)
        high = self._ops_from
        while low < high:
            middle = (low + high) // 2
            unit = self._reader.unit_at(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID, middle)
            if unit is not None and unit[0] < phy_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _read(self, op_offset: int) -> None:
        """As at a start, an op ends only halves that were stored before it, in case the half queue
        was made anew."""
        unit = self._reader.unit_at(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID, op_offset)
        op, halves = None, []
        with self._guard.of(-1 if unit is None else unit[0]):
            op = queued_message(self._reader, TRANS_OP_HALF_TOPIC, op_offset)
            halves = [] if op is None else halves_of_op(op)
        for half in halves:
            unit = self._reader.unit_at(TRANS_HALF_TOPIC, HALF_QUEUE_ID, half)
            if op is not None and unit is not None and unit[0] < op.phy_offset:
                self._ended.mark_stored(half)
