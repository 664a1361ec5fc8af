"""TransactionalMessageService: rounds in which producers are asked about halves without an end.

Runs on the thread of TransactionalMessageCheckService, on masters only. A round goes through the
half queue from where the last one stopped. What has ended is passed (HalfTable knows); a half that
is old enough is appended again, its number of checks one higher, and one producer of its group is
asked (39); what was checked too often, or is too old, goes to TRANS_CHECK_MAX_TIME_TOPIC. A half
that is too young ends the round. Its progress is stored when the log is on disk so far: after a
crash a half may be asked about twice, it is never forgotten. Knows no thread. Follows
TransactionalMessageServiceImpl and AbstractTransactionalMessageCheckListener of the original.
"""

from __future__ import annotations

import enum
import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.append.diverted_messages import home_of
from broker.topic.system_topics import PERM_READ_WRITE, TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from broker.transaction.half_table import HalfTable
from broker.transaction.transaction_records import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    check_body,
    check_header,
    half_copy,
    number_in,
    with_number,
)
from broker.transaction.transactional_message_bridge import Rewrite, TransactionalMessageBridge
from ipc.clock import Clock
from remoting.body.topic_config import TopicConfig
from remoting.headers.transaction import CheckTransactionStateRequestHeader
from remoting.request_processor import ConnectionLike
from store.errors import MessageIllegalError, StoreError
from store.message import Message
from store.message_properties import PROPERTIES_LIMIT

log = logging.getLogger(__name__)

_ROUND_MS: Final = 60_000
_BLOCK: Final = 64
"""Halves that are appended again in one go: the loop's other work comes in between."""
_LOOKED_AT: Final = 4_096
"""Halves that are looked at before the clock and the stop are."""
_UNSAFE_ROUNDS: Final = 64
"""Beyond, the progress of rounds is joined until the log is on disk."""
_MAX_TIME_QUEUES: Final = 1
_MS_PER_HOUR: Final = 3_600_000


class CheckTopics(Protocol):
    """What is needed of TopicConfigManager."""

    def create(
        self, topic: str, queue_nums: int, perm: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Create a topic of the broker's own, or find it; None when that takes too long."""


class LiveProducers(Protocol):
    """What is needed of ProducerManager."""

    def find_group(self, group: str) -> object | None:
        """None when nobody of the group is connected."""

    def find_available(self, group: str) -> ConnectionLike | None:
        """An open connection of the group, in turn, or None."""


class ProducerCalls(Protocol):
    """What is needed of Broker2Client."""

    def check_producer_transaction_state(
        self,
        connection: ConnectionLike,
        header: CheckTransactionStateRequestHeader,
        half_message: bytes,
    ) -> None:
        """39, oneway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The settings of the checks."""

    time_out_ms: int
    check_max: int
    file_reserved_time_hours: int
    store_host: bytes
    store_host_flag: int


class _Verdict(enum.Enum):
    PASS = enum.auto()
    """It needs nothing any more."""
    LATER = enum.auto()
    """It is too young: the round is over."""
    RENEW = enum.auto()
    """Its producer wants not to be asked yet: store it again, further behind."""
    CHECK = enum.auto()
    DISCARD = enum.auto()


class _Step(NamedTuple):
    """A half that is to be stored again."""

    verdict: _Verdict
    half: Message
    properties: bytes
    original: int | None


class TransactionalMessageService:
    """See the module. Owned by: the thread of the check service."""

    def __init__(
        self,
        settings: CheckSettings,
        bridge: TransactionalMessageBridge,
        halves: HalfTable,
        topics: CheckTopics,
        producers: LiveProducers,
        calls: ProducerCalls,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._bridge = bridge
        self._halves = halves
        self._topics = topics
        self._producers = producers
        self._calls = calls
        self._clock = clock
        self._position = 0
        """Queue offset of the first half that the next round looks at."""
        self._unsafe: deque[tuple[int, int]] = deque()
        """Log end and position after each round whose progress is not stored yet: it may be once
        the log is on disk so far."""
        self._nobody: Counter[str] = Counter()
        """Halves of this round that nobody could be asked about, by producer group."""

    def recover(self) -> bool:
        """Learn what has ended; False: the store is not ready for that, ask again."""
        if self._halves.known.is_set():
            return True
        if not self._bridge.read_ops():
            return False
        self._position = self._bridge.half_offset()
        return True

    def settle(self, *, at_once: bool = False) -> bool:
        """Store the progress that the log on disk allows; False: there is more to store."""
        position = None
        while self._unsafe and (at_once or self._bridge.is_flushed(self._unsafe[0][0])):
            position = self._unsafe.popleft()[1]
        if position is not None:
            self._bridge.store_progress(position, self._halves.pass_ops(position))
        return not self._unsafe

    def check(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """One round. What the store refuses ends it with an error in the log."""
        began_ms = self._clock.monotonic_ms()
        low, high = self._bridge.offsets(TRANS_HALF_TOPIC)
        begin = self._position = min(max(self._position, low), high)
        self._nobody.clear()
        try:
            while (
                self._position < high
                and not is_stopped()
                and self._clock.monotonic_ms() - began_ms <= _ROUND_MS
                and self._check_block(high)
            ):
                pass
        except StoreError as error:
            log.error("half %s: the round ends, the next one goes on: %s", self._position, error)
        if self._position != begin:
            if len(self._unsafe) >= _UNSAFE_ROUNDS:
                self._unsafe.pop()
            self._unsafe.append((self._bridge.log_end(), self._position))
        for group, count in self._nobody.items():
            log.warning(
                "producer group %s: nobody is connected, %s half message(s) wait for an answer",
                group,
                count,
            )

    # -- a block of halves ---------------------------------------------------------------------

    def _check_block(self, high: int) -> bool:
        """Look at some of the halves up to `high`; False: the round is over."""
        now_ms = self._clock.now_ms()
        high = min(high, self._position + _LOOKED_AT)
        steps: list[tuple[int, _Step]] = []
        position, missing, go_on = self._position, 0, True
        while position < high and len(steps) < _BLOCK:
            if self._halves.is_ended(position):
                position += 1
                continue
            half = self._bridge.find_message(TRANS_HALF_TOPIC, position)
            if half is None:
                missing += 1
                position += 1
                continue
            step = self._judge(half, now_ms)
            if step.verdict is _Verdict.LATER:
                go_on = False
                break
            if step.verdict is not _Verdict.PASS:
                steps.append((position, step))
            position += 1
        if missing:
            log.warning("half %s: the log lacks %s up to %s", self._position, missing, position)
        refused_at = self._carry_out(steps)
        self._position = position if refused_at is None else refused_at
        return go_on and refused_at is None

    def _judge(self, half: Message, now_ms: int) -> _Step:
        original = number_in(half, PREPARED_QUEUE_OFFSET)
        original = None if original is None or original < 0 else original
        if original is not None and self._halves.is_ended(original):
            return _Step(_Verdict.PASS, half, half.properties, original)
        age_ms = now_ms - half.born_timestamp
        times = number_in(half, CHECK_TIMES)
        properties = with_number(half, CHECK_TIMES, 1 if times is None else times + 1)
        if (times is not None and times >= self._settings.check_max) or (
            age_ms > self._settings.file_reserved_time_hours * _MS_PER_HOUR
        ):
            return _Step(_Verdict.DISCARD, half, half.properties, original)
        immunity_s = number_in(half, CHECK_IMMUNITY)
        if immunity_s is not None and age_ms < self._immunity_ms(immunity_s):
            first = half.queue_offset if original is None else original
            renewed = with_number(half, PREPARED_QUEUE_OFFSET, first)
            return _fitting(_Step(_Verdict.RENEW, half, renewed, original))
        if immunity_s is None and 0 <= age_ms < self._settings.time_out_ms:
            return _Step(_Verdict.LATER, half, half.properties, original)
        return _fitting(_Step(_Verdict.CHECK, half, properties, original))

    def _immunity_ms(self, immunity_s: int) -> int:
        return self._settings.time_out_ms if immunity_s == -1 else immunity_s * 1000

    def _carry_out(self, steps: list[tuple[int, _Step]]) -> int | None:
        """Append the copies, ask the producers; the first half that was refused, if any."""
        if not steps:
            return None
        if any(step.verdict is _Verdict.DISCARD for _, step in steps):
            self._topics.create(TRANS_CHECK_MAX_TIME_TOPIC, _MAX_TIME_QUEUES, PERM_READ_WRITE)
        results = self._bridge.rewrite([self._rewrite(half, step) for half, step in steps])
        for (half, step), result in zip(steps, results, strict=True):
            if result.refusal:
                log.warning("half %s: could not be stored again: %s", half, result.refusal)
                return half
            if result.place is None:
                continue
            if step.verdict is _Verdict.DISCARD:
                _log_discarded(half, step.half, result.place)
            elif step.verdict is _Verdict.CHECK:
                self._ask(step, result.place)
        return None

    def _rewrite(self, half: int, step: _Step) -> Rewrite:
        discarded = step.verdict is _Verdict.DISCARD
        topic = TRANS_CHECK_MAX_TIME_TOPIC if discarded else TRANS_HALF_TOPIC
        record = half_copy(step.half, step.properties, self._settings.store_host_flag)
        return Rewrite(half, topic, record, step.original)

    # -- asking --------------------------------------------------------------------------------

    def _ask(self, step: _Step, place: tuple[int, int]) -> None:
        """Send 39 to one producer of the half's group; it answers with a request of its own."""
        half = step.half
        home = home_of(half.properties)
        if home is None:
            log.error("half at %s: it does not say which topic it belongs to", half.phy_offset)
            return
        group = half.find_property(PRODUCER_GROUP) or ""
        known = self._producers.find_group(group) is not None
        connection = self._producers.find_available(group) if known else None
        if connection is None:
            self._nobody[group] += 1
            return
        header = check_header(half, *place, self._settings.store_host)
        try:
            body = check_body(half, step.properties, home, *place)
        except MessageIllegalError as error:
            log.error("half at %s: nobody can be asked about it: %s", half.phy_offset, error)
            return
        self._calls.check_producer_transaction_state(connection, header, body)


def _fitting(step: _Step) -> _Step:
    """The step, or a discard where the copy's properties would be too long to be stored."""
    if len(step.properties) <= PROPERTIES_LIMIT:
        return step
    return step._replace(verdict=_Verdict.DISCARD, properties=step.half.properties)


def _log_discarded(offset: int, half: Message, place: tuple[int, int]) -> None:
    log.error(
        "half %s: topic %s, key %s: checked too often or too old, moved to %s at offset %s; "
        "RESUME_CHECK_HALF_MESSAGE (323) puts it back",
        offset,
        half.find_property("REAL_TOPIC"),
        half.find_property("UNIQ_KEY"),
        TRANS_CHECK_MAX_TIME_TOPIC,
        place[1],
    )
