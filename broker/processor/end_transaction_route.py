"""EndTransactionRoute: request code 37 that commits a half message which was stored a moment ago.

Runs on the loop thread, as a fast route. Rollbacks, ends that come again, halves further back than
64 MiB (which may be on disk only), messages with timers, and whatever is refused are
EndTransactionProcessor's, in its pool: there and back takes 120 us of processor time. Both store the
same bytes, commit and op right behind it, under the same rules
(tests/broker/processor/test_end_transaction_route.py compares them). With access control this route
is not used, since the rights on a half are known only once it was read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

import msgspec

from broker.append.diverted_messages import TIMER_MARK, home_of
from broker.append.durability_waiters import DurabilityWaiters
from broker.metrics.hot_path_stats import SendCounts
from broker.topic.system_topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from broker.topic.table_protocols import FindTopic
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.transaction_records import PRODUCER_GROUP, commit_record, op_record
from remoting.connection import Connection
from remoting.frame import JsonAnswer
from remoting.remoting_command import ONEWAY_FLAG
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog
from store.errors import StoreError
from store.inner_batch import INNER_BATCH_FLAG
from store.lmq_dispatch import MULTI_DISPATCH
from store.message_codec import TRANSACTION_COMMIT, CheckedRecord
from store.message_properties import find_property

END_TRANSACTION_PREFIX: Final = b'{"code":37,'
_CODE: Final = int(RequestCode.END_TRANSACTION)
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_ANSWER: Final = JsonAnswer(None)
_COMMIT: Final = str(TRANSACTION_COMMIT)
_FLAGS: Final = (0, ONEWAY_FLAG)
_YOUNG_BYTES: Final = 64 << 20
"""Behind the log's end: in memory unless there is hardly any (PagesAhead)."""
_HALF_TOPIC: Final = TRANS_HALF_TOPIC.encode()
_GROUP: Final = PRODUCER_GROUP.encode()
_TIMER_MARK: Final = TIMER_MARK.encode()
_WAIT: Final = b"WAIT"
_NUMBER_DIGITS: Final = 18
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Header(msgspec.Struct, gc=False):
    """EndTransactionRequestHeader; wire names. All text: numbers are read as Java reads them."""

    producerGroup: str  # noqa: N815
    tranStateTableOffset: str  # noqa: N815
    commitLogOffset: str  # noqa: N815
    commitOrRollback: str  # noqa: N815
    msgId: str  # noqa: N815


class _Frame(msgspec.Struct, gc=False):
    """The JSON header of an end."""

    code: int
    opaque: _Int32
    extFields: _Header  # noqa: N815
    flag: int = 0


_decode_frame: Final = msgspec.json.Decoder(_Frame).decode


class HalfReader(Protocol):
    """The part of the loop's CommitLogReader used here."""

    @property
    def max_phy_offset(self) -> int:
        """The end of the last published record."""

    def checked_at(self, phy_offset: int) -> CheckedRecord | None:
        """The checked record at `phy_offset`."""


class EndStats(Protocol):
    """Where commits and their answers are counted."""

    @property
    def sends(self) -> SendCounts:
        """Where messages are counted."""

    def now_ns(self) -> int:
        """Monotonic, as `add_timed_answer` takes it."""

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        """`count` requests of this turn were answered with `code`."""

    def add_oneway(self, request_code: int, code: int) -> None:
        """A oneway request of this turn, which would have been answered with `code`."""

    def add_timed_answer(
        self, request_code: int, code: int, came_ns: int, *, oneway: bool = False
    ) -> None:
        """A request received at `came_ns` is answered now, or dropped if it was oneway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRouteParts:
    """The collaborators of the route."""

    commit_log: CommitLog
    held: Sized
    """The appends that wait for the next file of the log."""
    reader: HalfReader
    halves: HalfMessageStates
    find_topic: FindTopic
    waiters: DurabilityWaiters
    stats: EndStats
    append_op: Callable[[int], None]
    """Appends the op of a committed half later, or again (EndTransactionProcessor)."""


class _SafeCommit(msgspec.Struct, frozen=True, gc=False):
    """The answer to a commit that waits for flush or replicas: an Answer. Their timeouts are no
    failures."""

    stats: EndStats
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

    def __init__(self, parts: EndRouteParts) -> None:
        self._parts = parts
        self._log = parts.commit_log
        self._held = parts.held
        self._halves = parts.halves
        self._reader = parts.reader
        self._sends = parts.stats.sends

    def process_fast(self, connection: Connection, header: bytes, _body: memoryview) -> bool:
        """FastHandler for JSON frames of code 37; False hands the frame to the general path."""
        try:
            frame = _decode_frame(header)
        except (msgspec.DecodeError, UnicodeError):
            return False
        fields = frame.extFields
        if fields.commitOrRollback != _COMMIT or frame.flag not in _FLAGS:
            return False
        if self._held or not self._log.writable or not self._halves.known.is_set():
            return False
        half = self._find_half(fields)
        if half is None:
            return False
        end = self._commit(half)
        if end is None:
            return False
        for ended in self._halves.end(half.queue_offset):
            self._put_op(ended)
        self._answer(connection, frame, half, end)
        return True

    def _find_half(self, fields: _Header) -> CheckedRecord | None:
        """The half that a request names, if it is young, whole and not ended."""
        phy_offset, queue_offset = fields.commitLogOffset, fields.tranStateTableOffset
        for text in (phy_offset, queue_offset):
            if len(text) > _NUMBER_DIGITS or not (text.isascii() and text.isdecimal()):
                return None
        place = int(phy_offset)
        if self._reader.max_phy_offset - place > _YOUNG_BYTES:
            return None
        half = self._reader.checked_at(place)
        if half is None or half.topic != _HALF_TOPIC or half.queue_offset != int(queue_offset):
            return None
        if self._halves.is_ended(half.queue_offset) or self._halves.is_ending(half.queue_offset):
            return None
        group = find_property(half.properties, _GROUP)
        return half if group == fields.producerGroup.encode() else None

    def _commit(self, half: CheckedRecord) -> int | None:
        """Put the committed message into the log; where it ends, None if that is not done here."""
        properties, log = half.properties, self._log
        if _TIMER_MARK in properties or half.sys_flag & INNER_BATCH_FLAG:
            return None
        if log.lmq is not None and MULTI_DISPATCH in properties:
            return None
        home = home_of(properties)
        if home is None or self._parts.find_topic(home[0]) is None:
            return None
        name, queue_id = home
        try:
            record = commit_record(half, queue_id, log.store_host_flag)
            phy_offset, _ = log.put(log.topic(name), record)
        except (StoreError, struct.error):
            return None
        end = log.position
        sends = self._sends
        counted = sends.transactions.get(name)
        if counted is None:
            counted = sends.transactions[name] = [0, 0]
        counted[0] += 1
        counted[1] += end - phy_offset
        sends.messages += 1
        sends.size += end - phy_offset
        return end

    def _put_op(self, half: int) -> None:
        log = self._log
        record = op_record(half, log.now_ms, log.store_host, log.store_host_flag)
        try:
            _, queue_offset = log.put(log.topic(TRANS_OP_HALF_TOPIC), record)
        except StoreError:
            self._parts.append_op(half)
        else:
            self._halves.add_op(queue_offset, half)

    def _answer(self, connection: Connection, frame: _Frame, half: CheckedRecord, end: int) -> None:
        """Now, or when the committed message, which ends at `end`, is safe."""
        stats, oneway = self._parts.stats, bool(frame.flag)
        if self._parts.waiters.active and find_property(half.properties, _WAIT) != b"false":
            safe = _SafeCommit(stats, connection, frame.opaque, oneway, stats.now_ns())
            self._parts.waiters.add(end, safe, None)
        elif oneway:
            stats.add_oneway(_CODE, _SUCCESS)
        else:
            stats.add_answers(_CODE, _SUCCESS)
            connection.write(_ANSWER.render((_SUCCESS, frame.opaque)))
