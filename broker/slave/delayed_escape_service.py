"""DelayedEscapeService: an acting slave delivers delayed messages to the cluster's other brokers.

With enableSlaveActingMaster and enableRemoteEscape. While this slave stands in for its master, it
reads the queues of the delay levels that it has replicated, and sends what is due to another master
that has the topic (EscapeBridge). A level's progress, in the table of delay offsets, moves past a
message once that broker has stored it; until then the level waits and tries again. It also waits
before a record that is lost or damaged here, since the master may have it. The master that returns
takes the progress over before it delivers anything itself (ReturningMaster). Messages may be
delivered twice: what the master has delivered since this slave last copied its progress, and one
whose answer is lost.

A thread of its own in process `remoting`, on slaves only. Corresponds to what
ScheduleMessageService does with EscapeBridge in RocketMQ 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker.out.escape_bridge import EscapeBridge, EscapeError
from broker.schedule.due_message import read_due_message
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.store_access.store_access import StoreAccess
from broker.topic.system_topics import SCHEDULE_TOPIC
from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread
from store.errors import QueueDamagedError
from store.put_aside import ReadBy, RecordGuard

log = logging.getLogger(__name__)

LOOK_MS: Final = 100
RETRY_MS: Final = 1_000
_PER_LEVEL: Final = 64
"""Messages of one level before the next one has its turn."""


class DelayedEscapeService(ServiceThread):
    """See the module. Owned by: its thread."""

    def __init__(
        self,
        may_deliver: Callable[[], bool],
        delay_level_ms: Mapping[int, int],
        messages: StoreAccess,
        progress: ScheduleOffsetManager,
        bridge: EscapeBridge,
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """may_deliver: ActingMaster. progress: as it came from the master; moved on here."""
        super().__init__("DelayedEscapeService", on_failure=on_failure)
        self._may_deliver = may_deliver
        self._delay_level_ms = delay_level_ms
        self._messages = messages
        self._progress = progress
        self._bridge = bridge
        self._clock = clock
        self._retry_at_ms: dict[int, int] = {}
        """Level to the monotonic ms of its next attempt, after a failure."""
        self._guard = RecordGuard(ReadBy.DELAY_ESCAPE)
        self._delivered = 0
        """Since this slave began to act."""

    def step(self) -> None:
        """One turn over all levels."""
        if not self._may_deliver():
            self._end_of_acting()
            self.wait_for_running(LOOK_MS)
            return
        more = [level for level in self._delay_level_ms if self._deliver(level)]
        if not more:
            self.wait_for_running(LOOK_MS)

    def _end_of_acting(self) -> None:
        if self._delivered:
            log.info("%s delayed messages were delivered to other brokers", self._delivered)
            self._delivered = 0
        self._retry_at_ms.clear()

    def _deliver(self, level: int) -> bool:
        """Deliver what is due; True if there may be more."""
        if self._retry_at_ms.get(level, 0) > self._clock.monotonic_ms():
            return False
        queue_id = level - 1
        low, high = self._messages.offsets(SCHEDULE_TOPIC, queue_id)
        first = max(self._progress.find_offset(level) or 0, low)
        for offset in range(first, min(high, first + _PER_LEVEL)):
            if self.stopped or not self._may_deliver():
                return False
            try:
                if not self._deliver_one(level, queue_id, offset):
                    return False
            except (EscapeError, QueueDamagedError) as error:
                if level not in self._retry_at_ms:
                    log.warning("delay level %s: offset %s waits: %s", level, offset, error)
                self._retry_at_ms[level] = self._clock.monotonic_ms() + RETRY_MS
                return False
            self._retry_at_ms.pop(level, None)
            self._progress.update_own(level, offset + 1)
        return first + _PER_LEVEL < high

    def _deliver_one(self, level: int, queue_id: int, offset: int) -> bool:
        """False: it is not due yet. Raises EscapeError, QueueDamagedError."""
        unit = self._messages.unit_at(SCHEDULE_TOPIC, queue_id, offset)
        if unit is None:
            raise EscapeError("its record is lost here")
        phy_offset, _size, deliver_ms = unit
        # Further ahead than the level allows: the level's delay or the clock was changed.
        if 0 < deliver_ms - self._clock.now_ms() <= self._delay_level_ms[level]:
            return False
        record = self._messages.record_at(phy_offset)
        if record is None:
            raise EscapeError(f"its record at {phy_offset} cannot be read here")
        message = None
        with self._guard.of(phy_offset):
            message = read_due_message(record)
        if message is None:
            log.error("delay level %s: skipped offset %s: no delayed message", level, offset)
            return True
        self._bridge.put(message)
        self._delivered += 1
        return True
