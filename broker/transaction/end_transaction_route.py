"""EndTransactionRoute: request code 37 that commits a half message which was stored a moment ago.

Runs on the loop thread, as a fast route, with what YoungHalves keeps. Rollbacks, ends that come
again, halves of which there are copies, older ones, and whatever is refused are
EndTransactionProcessor's, in its pool: there and back takes 110 us of processor time, this 15. Both
store the same bytes under the same rules, the op right behind its commit
(tests/broker/test_twins.py compares them). With access control this route
is not used, since it does not ask for the rights on the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from broker.append.send_properties import record_asks_to_wait
from broker.append.writable_log import WritableLog
from broker.metrics.path_stats import PathStats
from broker.metrics.transaction_metrics import COMMIT
from broker.topic.system_topics import TRANS_OP_HALF_TOPIC
from broker.topic.table_protocols import FindTopic
from broker.transaction.end_transaction_frame import (
    COMMITTED,
    END_TRANSACTION,
    SUCCESS,
    EndFrame,
    EndHeader,
    SafeCommit,
    decode_end_frame,
)
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.transaction_records import PRODUCER_GROUP, op_record
from broker.transaction.young_half import YoungHalf
from broker.transaction.young_halves import YoungHalves
from remoting.connection import Connection
from remoting.remoting_command import ONEWAY_FLAG
from store.errors import StoreError
from store.message_codec import TRANSACTION_COMMIT
from store.message_properties import find_property
from store.record import Record

END_TRANSACTION_PREFIX: Final = b'{"code":37,'
_COMMIT: Final = str(TRANSACTION_COMMIT)
_FLAGS: Final = (0, ONEWAY_FLAG)
_GROUP: Final = PRODUCER_GROUP.encode()
_NUMBER_DIGITS: Final = 18


class EndTransactionRoute:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        log: WritableLog,
        young_halves: YoungHalves,
        halves: HalfMessageStates,
        find_topic: FindTopic,
        stats: PathStats,
        append_op: Callable[[int], None],
    ) -> None:
        """append_op: appends the op of a committed half later, or again
        (EndTransactionProcessor)."""
        self._log = log.commit_log
        self._may_store = log.append_queue.may_store
        self._waiters = log.waiters
        self._young = young_halves
        self._halves = halves
        self._find_topic = find_topic
        self._stats = stats
        self._sends = stats.sends
        self._metrics = stats.transactions
        self._append_op = append_op

    def process_fast(self, connection: Connection, header: bytes, _body: memoryview) -> bool:
        """FastHandler for JSON frames of code 37; False hands the frame to the general path."""
        try:
            frame = decode_end_frame(header)
        except (msgspec.DecodeError, UnicodeError):
            return False
        fields = frame.extFields
        if fields.commitOrRollback != _COMMIT or frame.flag not in _FLAGS:
            return False
        place = _number(fields.tranStateTableOffset)
        half = self._find_half(fields, place)
        if half is None or not self._may_store(half.topic):
            return False
        end = self._commit(half)
        if end is None:
            return False
        self._halves.mark_stored(place)
        self._young.drop(place)
        self._metrics.ended((place,), half.topic, COMMIT, self._log.now_ms, None)
        self._put_op(place)
        self._answer(connection, frame, half.committed, end)
        return True

    def _find_half(self, fields: EndHeader, place: int) -> YoungHalf | None:
        """The half that a request names, which is at `place` of its queue: if it is young, not
        ended, and can be committed by its record alone."""
        half = self._young.find(place)
        if half is None or str(half.phy_offset) != fields.commitLogOffset:
            return None
        if not self._halves.known.is_set() or not self._halves.is_single(place):
            return None
        group = find_property(half.committed.properties, _GROUP)
        return half if group == fields.producerGroup.encode() else None

    def _commit(self, half: YoungHalf) -> int | None:
        """Put the committed message into the log; where it ends, None if the general path does
        that."""
        log, name = self._log, half.topic
        if self._find_topic(name) is None:
            return None
        try:
            log.check_room(log.topic(TRANS_OP_HALF_TOPIC), 0)
            [(phy_offset, _)] = log.append(log.topic(name), (half.committed,))
        except StoreError:
            return None
        end = log.position
        sends = self._sends
        sends.add(sends.transactions, name, 1, end - phy_offset)
        return end

    def _put_op(self, half: int) -> None:
        log = self._log
        record = op_record(half, log.now_ms, log.store_host, log.store_host_flag)
        try:
            [(_, queue_offset)] = log.append(log.topic(TRANS_OP_HALF_TOPIC), (record,))
        except StoreError:
            self._append_op(half)
        else:
            self._halves.add_op(queue_offset, half)

    def _answer(self, connection: Connection, frame: EndFrame, half: Record, end: int) -> None:
        """Now, or when the committed message, which ends at `end`, is safe."""
        stats, oneway = self._stats, bool(frame.flag)
        if self._waiters.active and record_asks_to_wait(half.properties):
            safe = SafeCommit(stats, connection, frame.opaque, oneway, stats.now_ns())
            self._waiters.add(end, safe, None)
        elif oneway:
            stats.add_oneway(END_TRANSACTION, SUCCESS)
        else:
            stats.add_answers(END_TRANSACTION, SUCCESS)
            connection.write(COMMITTED.render((SUCCESS, frame.opaque)))


def _number(text: str) -> int:
    """An offset of a request; -1, where nothing is, for anything but a few decimal digits."""
    if len(text) > _NUMBER_DIGITS or not (text.isascii() and text.isdecimal()):
        return -1
    return int(text)
