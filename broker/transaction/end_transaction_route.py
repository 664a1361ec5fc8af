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
from typing import Final, Literal

import msgspec

from broker.append.send_properties import record_asks_to_wait
from broker.append.writable_log import WritableLog
from broker.metrics.hot_path_stats import HotPathStats
from broker.metrics.transaction_metrics import COMMIT
from broker.topic.system_topics import TRANS_OP_HALF_TOPIC
from broker.topic.table_protocols import FindTopic
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.transaction_records import PRODUCER_GROUP, op_record
from broker.transaction.young_halves import YoungHalf, YoungHalves
from remoting.connection import Connection
from remoting.frame import JsonAnswer
from remoting.remoting_command import ONEWAY_FLAG
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.typed_numbers import Int32
from store.errors import StoreError
from store.message_codec import TRANSACTION_COMMIT
from store.message_properties import find_property
from store.record import Record

END_TRANSACTION_PREFIX: Final = b'{"code":37,'
_CODE: Final = int(RequestCode.END_TRANSACTION)
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_ANSWER: Final = JsonAnswer(None)
_COMMIT: Final = str(TRANSACTION_COMMIT)
_FLAGS: Final = (0, ONEWAY_FLAG)
_GROUP: Final = PRODUCER_GROUP.encode()
_NUMBER_DIGITS: Final = 18


class _Header(msgspec.Struct, gc=False):
    """EndTransactionRequestHeader; wire names. All text: numbers are read as Java reads them."""

    producerGroup: str  # noqa: N815
    tranStateTableOffset: str  # noqa: N815
    commitLogOffset: str  # noqa: N815
    commitOrRollback: str  # noqa: N815
    msgId: str  # noqa: N815


class _Frame(msgspec.Struct, gc=False):
    """The JSON header of an end."""

    code: Literal[37]
    opaque: Int32
    extFields: _Header  # noqa: N815
    flag: Int32 = 0


_decode_frame: Final = msgspec.json.Decoder(_Frame).decode


class _SafeCommit(msgspec.Struct, frozen=True, gc=False):
    """The answer to a commit that waits for flush or replicas: an Answer. Their timeouts are no
    failures."""

    stats: HotPathStats
    connection: Connection
    opaque: int
    oneway: bool
    came_ns: int

    def __call__(self, _code: ResponseCode) -> None:
        if not self.oneway:
            self.connection.write(_ANSWER.render((_SUCCESS, self.opaque)))
        self.stats.add_timed_answer(_CODE, _SUCCESS, self.came_ns, oneway=self.oneway)


class EndTransactionRoute:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        log: WritableLog,
        young_halves: YoungHalves,
        halves: HalfMessageStates,
        find_topic: FindTopic,
        stats: HotPathStats,
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
            frame = _decode_frame(header)
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

    def _find_half(self, fields: _Header, place: int) -> YoungHalf | None:
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

    def _answer(self, connection: Connection, frame: _Frame, half: Record, end: int) -> None:
        """Now, or when the committed message, which ends at `end`, is safe."""
        stats, oneway = self._stats, bool(frame.flag)
        if self._waiters.active and record_asks_to_wait(half.properties):
            safe = _SafeCommit(stats, connection, frame.opaque, oneway, stats.now_ns())
            self._waiters.add(end, safe, None)
        elif oneway:
            stats.add_oneway(_CODE, _SUCCESS)
        else:
            stats.add_answers(_CODE, _SUCCESS)
            connection.write(_ANSWER.render((_SUCCESS, frame.opaque)))


def _number(text: str) -> int:
    """An offset of a request; -1, where nothing is, for anything but a few decimal digits."""
    if len(text) > _NUMBER_DIGITS or not (text.isascii() and text.isdecimal()):
        return -1
    return int(text)
