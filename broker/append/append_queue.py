"""AppendQueue: the queue of appends to the commit log, for all but the send fast path.

Runs on the loop thread of `remoting`, the log's only writer. Sends of the general path, messages
sent back by consumers, due delayed messages and transactions are appended here in FIFO order. While
the next commit log file is being created, appends queue up in order. Those that wait too long are
rejected. Requests that a client can retry fail fast, as decided by BrokerFastFailure, with
RocketMQ's remarks: `[TIMEOUT_CLEAN_QUEUE]` for one that timed out, `[PCBUSY_CLEAN_QUEUE]` for all
queued ones when the log is blocked, `[REJECTREQUEST]` for those that arrive while it is blocked,
`[OVERLOAD]` when the queue is full. All others, and all of them while `store` is down, are rejected
after five seconds. Publishing is not done here but by CommitLog.commit at the end of the turn.
Knows no request and no feature.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.latency.broker_fast_failure import BrokerFastFailure
from ipc.clock import Clock
from remoting.request_dispatcher import OVERLOAD
from remoting.request_executor import cleaned_remark
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog, NextFileNotReadyError, TopicLog
from store.errors import MessageIllegalError, QueueTableFullError, StoreError
from store.lmq_dispatch import named_queues
from store.put_aside import is_of_record
from store.record import Record

log = logging.getLogger(__name__)

_FILE_WAIT_MS: Final = 5_000
"""Long enough for a killed `store` process to be restarted without clients noticing. RocketMQ waits
as long for a file."""
REJECTED: Final = "[REJECTREQUEST]system busy, start flow control for a while"


Refusal = tuple[ResponseCode, str]
"""What a request is answered when nothing is stored: the code, and the reason in words."""


class Append(Protocol):
    """Records of one topic to be appended together, and the callbacks for the result (loop
    thread)."""

    @property
    def topic(self) -> TopicLog:
        """Where they are stored."""

    @property
    def records(self) -> Sequence[Record]:
        """At least one."""

    def placed(self, places: list[tuple[int, int]]) -> None:
        """The records were appended at these (phy_offset, queue_offset) pairs; not durable yet."""

    def refused(self, code: ResponseCode, remark: str) -> None:
        """None of them was stored."""


@dataclass(frozen=True, slots=True)
class OneRecord:
    """An Append of one record, with a function for each result."""

    topic: TopicLog
    record: Record
    on_placed: Callable[[int, int], None]
    """Takes phy_offset and queue_offset."""
    on_refused: Callable[[ResponseCode, str], None]

    @property
    def records(self) -> tuple[Record]:
        """See Append."""
        return (self.record,)

    def placed(self, places: list[tuple[int, int]]) -> None:
        """See Append."""
        self.on_placed(*places[0])

    def refused(self, code: ResponseCode, remark: str) -> None:
        """See Append."""
        self.on_refused(code, remark)


class Held(NamedTuple):
    """An append that waits for the next file; queued_ms is monotonic."""

    append: Append
    queued_ms: int
    fails_fast: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendQueueParts:
    """The collaborators of an AppendQueue, whatever the broker's role."""

    commit_log: CommitLog
    clock: Clock
    fast_failure: BrokerFastFailure
    why_not_writable: Callable[[], str]
    """In words, for the answer."""
    capacity: int
    """Queue length from which appends with `fails_fast` are rejected."""


class AppendQueue:
    """See the module. Owned by: the loop thread."""

    def __init__(self, parts: AppendQueueParts) -> None:
        self._log = parts.commit_log
        self._clock = parts.clock
        self._fast_failure = parts.fast_failure
        self._why_not_writable = parts.why_not_writable
        self._capacity = parts.capacity
        self._refused = 0
        """Number of early rejections since the log last had room."""
        self.held: Final[deque[Held]] = deque()
        """Appends that wait for the next file, in FIFO order."""
        self.blocked: Final[dict[str, Refusal]] = {}
        """Topics that take no append while their queues are deleted, and what they are answered."""

    @property
    def role_refusal(self) -> Refusal | None:
        """Why this broker's role lets it store nothing now. None: it may, or its role is for life
        and those who ask know it."""
        return None

    def find_refusal(self, topic: str) -> Refusal | None:
        """Why no record may be stored in `topic` now, whoever makes it: the one rule of the broker
        for that. None: it may, perhaps once the next file is there."""
        if self.blocked and (refusal := self.blocked.get(topic)) is not None:
            return refusal
        return self._find_refusal_of_all()

    def _find_refusal_of_all(self) -> Refusal | None:
        """The same, whatever the topic."""
        if not self._log.writable:
            return ResponseCode.SERVICE_NOT_AVAILABLE, self._why_not_writable()
        return None

    @property
    def is_writable(self) -> bool:
        """Whether anything at all may be stored now: for services that would only be refused."""
        return self._find_refusal_of_all() is None

    def is_open(self) -> bool:
        """`may_store` for the hot loops of sends, which know no topic that is blocked."""
        return not self.held and self._find_refusal_of_all() is None

    def may_store(self, topic: str) -> bool:
        """Whether a record of `topic` may be stored now, before any that waits: for fast paths."""
        return not self.held and self.find_refusal(topic) is None

    def append(self, append: Append, *, fails_fast: bool = False) -> None:
        """Append now, or queue behind the waiting ones. The callback runs now or later.

        fails_fast: a client is waiting and can send to another broker.
        """
        if self.blocked and (blocked := self._find_blocked(append)) is not None:
            append.refused(*self.blocked[blocked])
            return
        if not self.held and self._place(append):
            return
        self._fast_failure.note_blocked()
        if fails_fast and self._fast_failure.is_busy():
            self._refuse_early(append, REJECTED)
        elif fails_fast and len(self.held) >= self._capacity:
            self._refuse_early(append, OVERLOAD)
        else:
            self.held.append(Held(append, self._clock.monotonic_ms(), fails_fast))

    def retry(self) -> None:
        """Called once a turn while the queue is not empty: append if the next file exists, reject
        what timed out."""
        held = self.held
        while held and self._place(held[0].append):
            held.popleft()
        now_ms = self._clock.monotonic_ms()
        while held and now_ms - held[0].queued_ms > _FILE_WAIT_MS:
            remark = "the next commit log file could not be created in time; see store.log"
            held.popleft().append.refused(ResponseCode.SYSTEM_ERROR, remark)
        if held:
            self._fast_failure.note_blocked()
            self._refuse_late(now_ms)

    def look(self) -> bool:
        """A watch of the loop, so that the state of `store` is known before anything waits. True:
        something does."""
        self._fast_failure.look()
        if self.held or self._fast_failure.blocked_ms():
            return True
        self._note_room()
        return False

    def block_topic(self, topic: str, code: ResponseCode, remark: str) -> None:
        """Reject the waiting appends to `topic` and all that come, until `unblock_topic`: a record
        would make one of its queues again, at an offset that the next ones do not go on from."""
        self.blocked[topic] = code, remark
        for gone in self._take_out(lambda held: self._find_blocked(held.append) == topic):
            gone.append.refused(code, remark)

    def _find_blocked(self, append: Append) -> str | None:
        """The blocked topic or light queue that an append would go to."""
        if append.topic.name in self.blocked:
            return append.topic.name
        if self._log.lmq is None:
            return None
        names = (name for record in append.records for name in named_queues(record.properties))
        return next((name for name in names if name in self.blocked), None)

    def unblock_topic(self, topic: str) -> None:
        """Accept appends to `topic` again."""
        self.blocked.pop(topic, None)

    def head_wait_ms(self) -> int:
        """How long the head of the queue has waited; 0 if the queue is empty. Any thread."""
        try:
            queued_ms = self.held[0].queued_ms
        except IndexError:
            return 0
        return self._clock.monotonic_ms() - queued_ms

    def blocked_ms(self) -> int:
        """How long the log has had no room; 0 if it has room. Any thread."""
        return self._fast_failure.blocked_ms()

    def _refuse_late(self, now_ms: int) -> None:
        """Reject fail-fast appends that waited too long, or all of them when the log is busy."""
        fast_failure = self._fast_failure
        oldest = next((held for held in self.held if held.fails_fast), None)
        is_busy = fast_failure.is_busy()
        if oldest is None or not (is_busy or fast_failure.is_late(oldest.queued_ms)):
            return
        late = self._take_out(
            lambda held: held.fails_fast and (is_busy or fast_failure.is_late(held.queued_ms))
        )
        left = len(self.held) + len(late)
        for held in late:
            left -= 1
            remark = cleaned_remark(
                "PCBUSY" if is_busy else "TIMEOUT", now_ms - held.queued_ms, left
            )
            self._refuse_early(held.append, remark)

    def _refuse_early(self, append: Append, remark: str) -> None:
        if not self._refused:
            log.warning("the next commit log file is late, rejecting sends: %s", remark)
        self._refused += 1
        append.refused(ResponseCode.SYSTEM_BUSY, remark)

    def _take_out(self, condition: Callable[[Held], bool]) -> list[Held]:
        """Remove and return the queued appends that satisfy `condition`, in order."""
        waiting = list(self.held)
        self.held.clear()
        taken: list[Held] = []
        for held in waiting:
            (taken if condition(held) else self.held).append(held)
        return taken

    def _place(self, append: Append) -> bool:
        """Append to the log; False while the next file is not ready."""
        if (refusal := self.find_refusal(append.topic.name)) is not None:
            append.refused(*refusal)
            return True
        try:
            places = self._log.append(append.topic, append.records)
        except NextFileNotReadyError:
            return False
        except MessageIllegalError as error:
            append.refused(ResponseCode.MESSAGE_ILLEGAL, str(error))
        except QueueTableFullError as error:
            append.refused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
        except StoreError as error:
            log.error("topic %s: append failed: %s", append.topic.name, error)
            append.refused(ResponseCode.SYSTEM_ERROR, str(error))
        except Exception as error:
            # A single record that raises has changed nothing. Of several the first may have their
            # places: that is a bug's end, as ever.
            if len(append.records) > 1 or not is_of_record(error):
                raise
            log.exception("topic %s: a record cannot be stored", append.topic.name)
            remark = f"the record cannot be stored: {type(error).__name__}: {error}"
            append.refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        else:
            self._note_room()
            append.placed(places)
        return True

    def _note_room(self) -> None:
        """The log accepts records (again)."""
        if self._refused:
            log.info("accepting appends again; %s were rejected early", self._refused)
            self._refused = 0
        self._fast_failure.note_room()
