"""EndTransactionProcessor: commits or rolls back half messages (37), and resumes checks (323).

Validates the request and reads the half in a pool (it may be an old one on disk), then passes it to
the loop, which appends and responds. A commit appends the message to its real topic, directly
followed by the op that ends the half. After a crash there is never an op without its commit, and a
commit without its op only if the crash happened between the two. A commit whose topic was deleted
meanwhile is rejected and its half is kept (RocketMQ stores the message where it cannot be pulled).
The response waits for flush and replicas like that of a send, but their timeout still counts as
success (as in RocketMQ's EndTransactionProcessor). A rollback appends the op only. A repeated end
has no effect if the first one is known (HalfMessageStates). Java's producers end transactions
oneway; the code of the response that they do not get is still counted. Most commits never come
here: EndTransactionRoute serves those of young halves on the loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.append.append_queue import OneRecord
from broker.append.diverted_messages import home_of
from broker.append.send_properties import record_asks_to_wait
from broker.append.writable_log import WritableLog
from broker.metrics.hot_path_stats import HotPathStats
from broker.metrics.transaction_metrics import COMMIT, ROLLBACK
from broker.processor.stored_rights import StoredRights, everybody, to_end
from broker.processor.table_processor import TableProcessor
from broker.store_access.store_access import StoreAccess
from broker.timer.timer_hook import TimerHook
from broker.topic.lost_topics import PutBackTopic
from broker.topic.system_topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from broker.transaction.earlier_ends import EarlierEnds
from broker.transaction.half_message_states import HalfMessageStates, family_of
from broker.transaction.resumed_half import resumed_half
from broker.transaction.transaction_records import (
    HALF_QUEUE_ID,
    PRODUCER_GROUP,
    commit_record,
    op_record,
    real_topic_of,
)
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.errors import MessageIllegalError, QueueDamagedError, QueueTableFullError, StoreError
from store.message import Message
from store.message_codec import (
    TRANSACTION_COMMIT,
    TRANSACTION_NOT,
    TRANSACTION_ROLLBACK,
    decode_message_id,
    decode_record,
)
from store.record import Record

log = logging.getLogger(__name__)

_KNOWN_WAIT_S: Final = 5.0
"""How long an end request waits after a start until earlier ends have been read."""
OP_RETRY_MS: Final = 1_000
_QUEUED_WAIT_MS: Final = 5_000
"""How long an end request waits for the store to enter its half into the half queue."""
_QUEUED_LOOK_MS: Final = 2
_ENDED: Final = "the transaction has already ended; request ignored"
_STILL_READING: Final = "the broker is still reading which transactions have ended; try again soon"
_NOT_FOUND: Final = "Find prepared transaction message failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionParts:
    """The collaborators of the processor."""

    log: WritableLog
    reader: StoreAccess
    halves: HalfMessageStates
    earlier: EarlierEnds
    timers: TimerHook
    put_back_topic: PutBackTopic
    stats: HotPathStats
    on_loop: Callable[[Callable[[], None]], None]
    """Runs a function on the loop's thread (call_soon_threadsafe)."""
    later: Callable[[int, Callable[[], None]], object]
    """Runs a function on the loop after a delay in ms (call_later)."""
    is_slave: Callable[[], bool]
    """Whether this broker does not write its log now."""
    rights: StoredRights = everybody


@dataclass(frozen=True, slots=True)
class _Request:
    """A request and the connection for its response."""

    connection: ConnectionLike
    command: RemotingCommand


@dataclass(frozen=True, slots=True)
class _End(_Request):
    """One that ends a half."""

    half: Message


class EndTransactionProcessor(TableProcessor):
    """Codes 37 and 323. Pool threads validate and read; `_on_…` and `_answer` run on the loop."""

    def __init__(self, parts: EndTransactionParts) -> None:
        super().__init__(
            {
                RequestCode.END_TRANSACTION: self.end_transaction,
                RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check_half_message,
            }
        )
        self._parts = parts
        self._log = parts.log.commit_log
        self._append_queue = parts.log.append_queue
        self._waiters = parts.log.waiters
        self._halves = parts.halves
        self._metrics = parts.stats.transactions
        self._pause = threading.Event()
        """Never set."""

    # -- the requests (pool threads) -----------------------------------------------------------

    def end_transaction(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """37: commit or roll back. For 0 (not decided yet) there is no response."""
        header = decode_header(EndTransactionRequestHeader, request.ext_fields)
        self._refuse_on_slave(ResponseCode.SLAVE_NOT_AVAILABLE)
        decision = header.commit_or_rollback
        if decision not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            _log_undecided(connection, request, header)
            if decision == TRANSACTION_NOT:
                return None
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"commitOrRollback is {decision}, expected {TRANSACTION_COMMIT} (commit), "
                f"{TRANSACTION_ROLLBACK} (rollback) or {TRANSACTION_NOT} (not decided yet)",
            )
        if refusal := self._append_queue.role_refusal:  # Isolated: nothing is read before the end.
            raise RequestError(*refusal)
        if not self._halves.known.wait(_KNOWN_WAIT_S):
            raise RequestError(ResponseCode.SYSTEM_BUSY, _STILL_READING)
        half = self._find_half(header)
        asked = _End(connection, request, half)
        self._parts.rights(connection, request, to_end(half))
        if self._ended_earlier(half):
            self._parts.on_loop(lambda: self._answer_ended(asked, half.queue_offset))
            return None
        if decision == TRANSACTION_ROLLBACK:
            self._parts.on_loop(lambda: self._roll_back(asked))
            return None
        home = home_of(half.properties)
        if home is None:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the half message at {half.phy_offset} does not say which topic and queue it "
                "belongs to (REAL_TOPIC, REAL_QID); it cannot be committed, roll it back",
            )
        record = commit_record(half, home[1], self._log.store_host_flag)
        topic, record = self._parts.timers.divert_record(home[0], record)
        self._parts.on_loop(lambda: self._commit(asked, home, topic, record))
        return None

    def resume_check_half_message(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """323: put a half that exceeded the number of checks back, to be checked again."""
        asked = _Request(connection, request)
        header = decode_header(ResumeCheckHalfMessageRequestHeader, request.ext_fields)
        self._refuse_on_slave(ResponseCode.SYSTEM_ERROR)
        try:
            phy_offset = decode_message_id(header.msg_id or "")[1]
        except StoreError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        half = self._find_message(phy_offset)
        if (
            half is None
            or half.topic not in (TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC)
            or not self._is_queued(half)
        ):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"Put message back to {TRANS_HALF_TOPIC} failed. There is no half message with "
                f"the id {header.msg_id}; those that exceeded the number of checks are in "
                f"{TRANS_CHECK_MAX_TIME_TOPIC}",
            )
        named = request.ext_fields.get("topic", "")
        record = resumed_half(half, named, self._log.store_host_flag)
        self._parts.on_loop(lambda: self._resume(asked, record))
        return None

    def _refuse_on_slave(self, code: ResponseCode) -> None:
        if self._parts.is_slave():
            raise RequestError(code, "this broker is a slave: end the transaction on its master")

    def _find_message(self, phy_offset: int) -> Message | None:
        raw = self._parts.reader.record_at(phy_offset)
        return None if raw is None else decode_record(raw, 0)[0]

    def _find_half(self, header: EndTransactionRequestHeader) -> Message:
        """The half named by a request, with RocketMQ's checks and remarks."""
        half = self._find_message(header.commit_log_offset)
        if half is None or half.topic != TRANS_HALF_TOPIC:
            raise RequestError(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        if half.find_property(PRODUCER_GROUP) != header.producer_group:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
            )
        if not self._is_queued(half):
            log.warning("no half message at %s: it is in the body of another one", half.phy_offset)
            raise RequestError(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        return half

    def _ended_earlier(self, half: Message) -> bool:
        """Whether it had ended before the start. Raises RequestError(SYSTEM_BUSY)."""
        try:
            ended = self._parts.earlier.has_ended(half)
        except QueueDamagedError as error:
            raise RequestError(ResponseCode.SYSTEM_BUSY, f"{error}; try again") from error
        if ended is None:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"the half message {half.queue_offset} is older than the broker's start, and the "
                "broker is still reading which of those have ended; try again",
            )
        return ended

    def _is_queued(self, half: Message) -> bool:
        """Whether its topic's queue has this record at the place that it names: the log may hold
        one in a client's body, made to end the half at that place. Raises
        RequestError(SYSTEM_BUSY) while the store has not entered it yet; it is some ms behind the
        log."""
        reader, place, topic = self._parts.reader, half.queue_offset, half.topic
        if place >= (self._log.next_offset(topic, HALF_QUEUE_ID) or 0):
            return False
        try:
            for _ in range(_QUEUED_WAIT_MS // _QUEUED_LOOK_MS):
                if place < reader.offsets(topic, HALF_QUEUE_ID)[1]:
                    unit = reader.unit_at(topic, HALF_QUEUE_ID, place)
                    return unit is not None and unit[0] == half.phy_offset
                self._pause.wait(_QUEUED_LOOK_MS / 1000)
        except QueueDamagedError as error:
            raise RequestError(ResponseCode.SYSTEM_BUSY, f"{error}; try again") from error
        raise RequestError(
            ResponseCode.SYSTEM_BUSY,
            f"the half message at {half.phy_offset} is not in its queue yet; try again",
        )

    # -- on the loop ---------------------------------------------------------------------------

    def _commit(self, asked: _End, home: tuple[str, int], stored_in: str, record: Record) -> None:
        half = asked.half
        try:
            entry = self._log.topic(stored_in)
        except MessageIllegalError as error:
            self._answer(asked, ResponseCode.MESSAGE_ILLEGAL, str(error))
            return
        if not self._begin(asked, half.queue_offset):
            return
        if not self._parts.put_back_topic(*home, half.phy_offset):
            # Its queues are deleted now or were: the record would make one of them again, at the
            # old offset, where nobody may pull it.
            remark = (
                f"topic[{home[0]}] not exist: create it again and repeat the commit, or roll back"
            )
            self._on_end_refused(asked, half.queue_offset, ResponseCode.TOPIC_NOT_EXIST, remark)
            return
        try:
            self._log.check_room(self._log.topic(TRANS_OP_HALF_TOPIC), 0)
        except QueueTableFullError as error:
            # Without its op the half could be ended twice, since room comes with a restart.
            code = ResponseCode.SERVICE_NOT_AVAILABLE
            self._on_end_refused(asked, half.queue_offset, code, str(error))
            return
        placed = partial(self._on_committed, asked, stored_in)
        refused = partial(self._on_end_refused, asked, half.queue_offset)
        self._append_queue.append(OneRecord(entry, record, placed, refused))

    def _roll_back(self, asked: _End) -> None:
        if self._begin(asked, asked.half.queue_offset):
            self.append_op(asked.half.queue_offset, asked)

    def _resume(self, asked: _Request, record: Record) -> None:
        def placed(_phy_offset: int, queue_offset: int) -> None:
            real, now_ms = real_topic_of(record.properties), self._log.now_ms
            self._metrics.stored(queue_offset, real, record.properties, now_ms)
            if self._waiters.is_safe_mode:
                # Nobody asks about it again where the next leader lacks it.
                self._waiters.add(self._log.position, answer, None)
            else:
                answer(ResponseCode.SUCCESS)

        def answer(code: ResponseCode, remark: str | None = None) -> None:
            if code is ResponseCode.SUCCESS:
                self._answer(asked, code, None)
                return
            remark = f"Put message back to {TRANS_HALF_TOPIC} failed. {remark or code.name}"
            self._answer(asked, ResponseCode.SYSTEM_ERROR, remark)

        topic = self._log.topic(TRANS_HALF_TOPIC)
        self._append_queue.append(OneRecord(topic, record, placed, answer))

    def _begin(self, asked: _Request, half: int) -> bool:
        """Start ending the half. False, with a response sent, if it has ended or another request is
        ending it."""
        if self._halves.begin_end(half):
            return True
        if self._halves.is_ended(half):
            self._answer_ended(asked, half)
        else:
            address = asked.connection.remote_address
            log.info("half %s: being ended by another request, rejecting %s", half, address)
            remark = "the transaction is being ended by another request"
            self._answer(asked, ResponseCode.SYSTEM_ERROR, remark)
        return False

    def _answer_ended(self, asked: _Request, half: int) -> None:
        log.info("half %s: already ended, ignoring %s", half, asked.connection.remote_address)
        self._answer(asked, ResponseCode.SUCCESS, _ENDED)

    def append_op(self, half: int, asked: _End | None = None, *, again: bool = False) -> None:
        """Append the op of a half: `asked` is its rollback, None: it was committed. again: it was
        rejected before, which was logged."""
        record = op_record(half, self._log.now_ms, self._log.store_host, self._log.store_host_flag)
        topic = self._log.topic(TRANS_OP_HALF_TOPIC)
        placed = partial(self._on_op_placed, half, asked, again)
        refused = partial(self._on_op_refused, half, again)
        if asked is not None:
            refused = partial(self._on_end_refused, asked, half)
        self._append_queue.append(OneRecord(topic, record, placed, refused))

    def _on_committed(
        self, asked: _End, stored_in: str, phy_offset: int, _queue_offset: int
    ) -> None:
        """A committed message was appended: its half has ended."""
        end = self._log.position
        self._parts.stats.add_put(stored_in, 1, end - phy_offset, "transaction")
        self._count_end(asked.half, COMMIT)
        for ended in self._halves.end(asked.half.queue_offset):
            self.append_op(ended)
        if self._waiters.active and record_asks_to_wait(asked.half.properties):
            # The message is stored; a timeout of flush or replicas is not a failure.
            success = ResponseCode.SUCCESS
            self._waiters.add(end, lambda _code: self._answer(asked, success, None), None)
        else:
            self._answer(asked, ResponseCode.SUCCESS, None)

    def _on_op_placed(
        self, half: int, asked: _End | None, again: bool, _phy_offset: int, queue_offset: int
    ) -> None:
        """An op was appended. The op of a rollback ends its half and the copies of it."""
        self._halves.add_op(queue_offset, half)
        if again:
            log.info("half %s: op stored", half)
        if asked is not None:
            self._count_end(asked.half, ROLLBACK)
            for ended in self._halves.end(half):
                if ended != half:
                    self.append_op(ended)
            self._answer(asked, ResponseCode.SUCCESS, None)

    def _count_end(self, half: Message, result: str) -> None:
        family, topic = family_of(half.queue_offset, self._halves), real_topic_of(half.properties)
        self._metrics.ended(family, topic, result, self._log.now_ms, half.store_timestamp)

    def _on_op_refused(self, half: int, again: bool, code: ResponseCode, remark: str) -> None:
        """The op of a commit was not stored: it is retried until the broker stops."""
        if not again:
            log.error(
                "half %s: could not store its op (retrying every %s ms; if the broker stops before "
                "that, the half may be ended twice): %s: %s",
                half,
                OP_RETRY_MS,
                code.name,
                remark,
            )
        self._parts.later(OP_RETRY_MS, lambda: self.append_op(half, again=True))

    def _on_end_refused(self, asked: _Request, half: int, code: ResponseCode, remark: str) -> None:
        """Neither commit nor op was appended: the half is kept, and its producer will be asked
        again."""
        self._halves.cancel_end(half)
        log.warning("half %s: could not store its end, keeping the half: %s", half, remark)
        self._answer(asked, code, remark)

    def _answer(self, asked: _Request, code: ResponseCode, remark: str | None) -> None:
        """Send the response, unless the request was oneway."""
        command = asked.command
        if not command.is_oneway:
            asked.connection.send_command(command.response(code, remark))
        self._parts.stats.add_timed_answer(
            command.code, code, command.came_ns, oneway=command.is_oneway
        )


def _log_undecided(
    connection: ConnectionLike, request: RemotingCommand, header: EndTransactionRequestHeader
) -> None:
    log.info(
        "half %s: producer %s of group %s returned %s, neither commit nor rollback%s%s",
        header.tran_state_table_offset,
        connection.remote_address,
        header.producer_group,
        header.commit_or_rollback,
        ", after a check" if header.from_transaction_check else "",
        f": {request.remark}" if request.remark else "",
    )
