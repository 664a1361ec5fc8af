"""TransactionalMessageService: check rounds, in which producers are asked about undecided halves.

Runs on the thread of TransactionalMessageCheckService, on masters only. A round scans the half
queue from where the last one stopped. Ended halves (see HalfMessageStates) are skipped. A half that
is old enough is appended again with an incremented check count, and one producer of its group is
asked (39). A half that was checked too often or is too old is moved to TRANS_CHECK_MAX_TIME_TOPIC.
A half that is too young ends the round. Progress is stored once the log is flushed up to it: after
a crash a half may be checked twice, but none is lost. Knows no thread. Follows
TransactionalMessageServiceImpl and AbstractTransactionalMessageCheckListener of RocketMQ.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from broker.append.diverted_messages import home_of
from broker.client.broker2client import Broker2Client
from broker.metrics.transaction_metrics import TransactionMetrics
from broker.topic.system_topics import (
    PERM_READ_WRITE,
    ROCKSDB_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
)
from broker.topic.topic_config_manager import TopicConfigManager
from broker.transaction.askable_producers import AskableProducers
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.recovered_halves import waiting_of
from broker.transaction.transaction_records import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    check_body,
    check_header,
    half_copy,
    is_copy,
    number_in,
    real_topic_of,
    with_number,
)
from broker.transaction.transactional_message_bridge import Rewrite, TransactionalMessageBridge
from ipc.clock import Clock
from store.errors import MessageIllegalError, StoreError
from store.message import Message
from store.message_properties import PROPERTIES_LIMIT
from store.put_aside import ReadBy, RecordGuard
from store.retention_clock import RetentionClock

log = logging.getLogger(__name__)

_ROUND_MS: Final = 60_000
_BLOCK: Final = 64
"""Halves appended again in one batch, so that the loop can do other work in between."""
_LOOKED_AT: Final = 4_096
"""Halves processed between checks of the clock and of the stop flag."""
_UNSAFE_ROUNDS: Final = 64
"""Maximum rounds with unstored progress; further rounds are merged."""
_MAX_TIME_QUEUES: Final = 1
_MS_PER_HOUR: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The settings of the checks."""

    time_out_ms: int
    check_max: int
    check_interval_ms: int
    file_reserved_time_hours: int
    retention_time_path: Path | None = None
    """The time by which files age: by it, and not by a clock that jumps, halves are given up."""
    store_host: bytes
    store_host_flag: int


class _Verdict(enum.Enum):
    PASS = enum.auto()
    """It needs no further processing."""
    LATER = enum.auto()
    """It is too young: the round ends."""
    RENEW = enum.auto()
    """Its producer does not want to be asked yet: store it again at the end of the queue."""
    CHECK = enum.auto()
    DISCARD = enum.auto()


class _Step(NamedTuple):
    """A half and the verdict on it."""

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
        halves: HalfMessageStates,
        topics: TopicConfigManager,
        producers: AskableProducers,
        calls: Broker2Client,
        metrics: TransactionMetrics,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._bridge = bridge
        self._halves = halves
        self._topics = topics
        self._producers = producers
        self._calls = calls
        self._metrics = metrics
        self._clock = clock
        self._aging = RetentionClock(clock, settings.retention_time_path)
        self._aging.begin_at(0)
        self._aged_ms = self._aging.now_ms()
        """The time of this round by which halves are given up."""
        self._guard = RecordGuard(ReadBy.TRANSACTION_CHECK)
        self._position = 0
        """Queue offset of the first half of the next round."""
        self._unsafe: deque[tuple[int, int]] = deque()
        """Log end and position after each round with unstored progress; it can be stored once the
        log is flushed up to that end."""

    def forget(self) -> None:
        """What was known of ends before is not to be believed."""
        self._halves.forget_all()

    def recover(self, is_stopped: Callable[[], bool] = lambda: False) -> bool:
        """Read which halves have ended, then which wait; False if the store is not ready yet, then
        call it again."""
        if self._halves.known.is_set():
            return True
        if not self._bridge.read_ops():
            return False
        self._position = self._bridge.half_offset()
        self._warn_of_others()
        try:
            self._find_waiting(is_stopped)
        except StoreError as error:
            log.error("transactions: it is not known which halves wait: %s", error)
        return True

    def _warn_of_others(self) -> None:
        """Halves that a 5.5 broker kept in RocksDB: which of them have ended is known only there.
        (Without transRocksDBEnable, its default, there is none.)"""
        low, high = self._bridge.offsets(ROCKSDB_HALF_TOPIC)
        if high > low:
            log.warning(
                "transactions: %s half messages in %s, stored by a RocketMQ broker with "
                "transRocksDBEnable=true, are not checked here: one that was not committed before "
                "never will be. To have them ended, let that broker finish them first",
                high - low,
                ROCKSDB_HALF_TOPIC,
            )

    def _find_waiting(self, is_stopped: Callable[[], bool]) -> None:
        bridge = self._bridge
        found = waiting_of(
            bridge.halves_without_end(is_stopped),
            lambda place: bridge.find_message(TRANS_HALF_TOPIC, place),
            self._settings.check_interval_ms,
        )
        bridge.recovered(found)

    def settle(self, *, at_once: bool = False) -> bool:
        """Store the progress that is durable; False if there is more to store."""
        position = None
        while self._unsafe and (at_once or self._bridge.is_flushed(self._unsafe[0][0])):
            position = self._unsafe.popleft()[1]
        if position is not None:
            self._bridge.store_progress(position, self._halves.advance_ops(position))
        return not self._unsafe

    def check(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Run one round. An error of the store ends it and is logged."""
        self._aged_ms = self._aging.now_ms()
        began_ms = self._clock.monotonic_ms()
        low, high = self._bridge.offsets(TRANS_HALF_TOPIC)
        self._bridge.forget_ends_before(low)
        # A slave that acted in this broker's place may have come further (ReturningMaster).
        begin = self._position = min(max(self._position, self._bridge.half_offset(), low), high)
        self._producers.begin_round()
        try:
            while (
                self._position < high
                and not is_stopped()
                and self._clock.monotonic_ms() - began_ms <= _ROUND_MS
                and self._check_block(high)
            ):
                pass
        except StoreError as error:
            log.error(
                "half %s: check round ended, the next one continues here: %s", self._position, error
            )
        if self._position != begin:
            if len(self._unsafe) >= _UNSAFE_ROUNDS:
                self._unsafe.pop()
            self._unsafe.append((self._bridge.log_end(), self._position))
            self._bridge.passed(self._position)
        self._log_unasked()

    def _log_unasked(self) -> None:
        for group, count in self._producers.nobody.items():
            log.warning(
                "producer group %s: no producer is connected, %s undecided half message(s)",
                group,
                count,
            )
        for (group, topic), count in self._producers.no_rights.items():
            log.warning(
                "producer group %s: none of its connected producers may publish to topic %s, %s "
                "undecided half message(s)",
                group,
                topic,
                count,
            )

    # -- a block of halves ---------------------------------------------------------------------

    def _check_block(self, high: int) -> bool:
        """Process some of the halves up to `high`; False if the round is over."""
        now_ms = self._clock.now_ms()
        high = min(high, self._position + _LOOKED_AT)
        steps: list[tuple[_Step, Rewrite]] = []
        position, missing, go_on = self._position, 0, True
        while position < high and len(steps) < _BLOCK:
            if self._halves.is_ended(position):
                position += 1
                continue
            step, rewrite = None, None
            with self._guard.of(self._bridge.phy_offset_at(TRANS_HALF_TOPIC, position)):
                half = self._bridge.find_message(TRANS_HALF_TOPIC, position)
                if half is None:
                    missing += 1
                else:
                    step = self._judge(half, now_ms)
                    rewrite = self._rewrite(position, step)
            if step is None or rewrite is None:
                position += 1
                continue
            if step.verdict is _Verdict.LATER:
                go_on = False
                break
            if step.verdict is not _Verdict.PASS:
                steps.append((step, rewrite))
            position += 1
        if missing:
            log.warning(
                "half %s: %s half message(s) up to %s missing in the log",
                self._position,
                missing,
                position,
            )
        refused_at = self._carry_out(steps)
        self._position = position if refused_at is None else refused_at
        return go_on and refused_at is None

    def _judge(self, half: Message, now_ms: int) -> _Step:
        original = self._find_original(half)
        if original is not None and self._halves.is_ended(original):
            return _Step(_Verdict.PASS, half, half.properties, original)
        age_ms = now_ms - half.born_timestamp
        times = number_in(half, CHECK_TIMES)
        properties = with_number(half, CHECK_TIMES, 1 if times is None else times + 1)
        if (times is not None and times >= self._settings.check_max) or (
            self._aged_ms - half.born_timestamp
            > self._settings.file_reserved_time_hours * _MS_PER_HOUR
        ):
            return _Step(_Verdict.DISCARD, half, half.properties, original)
        immunity_s = number_in(half, CHECK_IMMUNITY)
        if immunity_s is not None and age_ms <= self._immunity_ms(immunity_s):
            first = half.queue_offset if original is None else original
            renewed = with_number(half, PREPARED_QUEUE_OFFSET, first)
            return _fitting(_Step(_Verdict.RENEW, half, renewed, original))
        if immunity_s is None and 0 <= age_ms <= self._settings.time_out_ms:
            return _Step(_Verdict.LATER, half, half.properties, original)
        return _fitting(_Step(_Verdict.CHECK, half, properties, original))

    def _find_original(self, half: Message) -> int | None:
        """The half of which this one is a copy that a broker has made; None: of none.

        Its property says so, and its sender may have written that: only what this life has made
        itself, or what agrees with the record that it names, is believed. Where that is gone from
        the log, nobody can tell; then it counts as a copy of a half that has ended, if that is so,
        rather than being committed twice. Raises StoreError.
        """
        number = number_in(half, PREPARED_QUEUE_OFFSET)
        if number is None or not 0 <= number < half.queue_offset:
            return None
        if self._halves.are_copies(half.queue_offset, number):
            return number
        original = self._bridge.find_message(TRANS_HALF_TOPIC, number)
        if original is None:
            return number if self._halves.is_ended(number) else None
        return number if is_copy(half, original) else None

    def _immunity_ms(self, immunity_s: int) -> int:
        return self._settings.time_out_ms if immunity_s == -1 else immunity_s * 1000

    def _carry_out(self, steps: list[tuple[_Step, Rewrite]]) -> int | None:
        """Append the copies and ask the producers; returns the first rejected half, if any."""
        if not steps:
            return None
        if any(step.verdict is _Verdict.DISCARD for step, _ in steps):
            self._topics.create(TRANS_CHECK_MAX_TIME_TOPIC, _MAX_TIME_QUEUES, PERM_READ_WRITE)
        results = self._bridge.rewrite([rewrite for _, rewrite in steps])
        for (step, rewrite), result in zip(steps, results, strict=True):
            half = rewrite.half
            if result.refusal:
                log.warning("half %s: could not be stored again: %s", half, result.refusal)
                return half
            if result.place is None:
                continue
            if step.verdict is _Verdict.DISCARD:
                _log_discarded(half, step.half, result.place)
                self._metrics.given_up(real_topic_of(step.half.properties))
            elif step.verdict is _Verdict.CHECK:
                with self._guard.of(step.half.phy_offset):
                    self._ask(step, result.place)
        return None

    def _rewrite(self, half: int, step: _Step) -> Rewrite:
        discarded = step.verdict is _Verdict.DISCARD
        topic = TRANS_CHECK_MAX_TIME_TOPIC if discarded else TRANS_HALF_TOPIC
        record = half_copy(step.half, step.properties, self._settings.store_host_flag)
        asks = step.verdict is not _Verdict.RENEW
        return Rewrite(half, topic, record, step.original, step.half.phy_offset, asks)

    # -- checking --------------------------------------------------------------------------------

    def _ask(self, step: _Step, place: tuple[int, int]) -> None:
        """Send 39 to one producer of the half's group; it responds with a separate request (37)."""
        half = step.half
        home = home_of(half.properties)
        if home is None:
            log.error("half at %s: its real topic is missing", half.phy_offset)
            return
        group = half.find_property(PRODUCER_GROUP) or ""
        connection = self._producers.find(group, home[0], half)
        if connection is None:
            return
        header = check_header(half, *place, self._settings.store_host)
        try:
            body = check_body(half, step.properties, home, *place)
        except MessageIllegalError as error:
            log.error("half at %s: cannot be checked: %s", half.phy_offset, error)
            return
        self._calls.check_producer_transaction_state(connection, header, body)
        self._metrics.asked(home[0])


def _fitting(step: _Step) -> _Step:
    """The step, or a discard if the copy's properties would be too long to be stored."""
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
