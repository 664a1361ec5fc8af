"""TimerTakeBack: a returning master adopts up to where a slave delivered timers in its place (60).

Asked at the slave's VIP port, as RocketMQ does. That a slave has no check point of timers, or no
such port, says that it delivered none; RocketMQ's master would stay offline. A read time is taken
from a slave that held every timer that this master's log holds: one that lacks the last of them
may say that a time has passed though their slots were never delivered, and then they come twice
rather than never. A clock that is ahead there has read what is due there: all that is due here.
Timers that producers have sent to this life of the master, and the slave does not hold, are due
after its start: then no later time counts. What is taken is in a slot of the control page, and the
delivery begins behind it. Owned by: ReturningMaster, under its lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.out.broker_outer_api import BrokerAnswerError
from broker.slave.topic_group_synchronize import vip_address
from broker.topic.system_topics import TIMER_TOPIC
from remoting.errors import RemotingError
from store.timer.timer_checkpoint import TimerCheckpoint
from store.timer.timer_slots import TIMER_TAKEN_BACK_MS

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI
    from broker.slave.ends_at_start import EndsAtStart

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000


class TimerTakeBack:
    """See the module."""

    def __init__(
        self,
        api: BrokerOuterAPI,
        counters: memoryview[int],
        timer_end: Callable[[], int],
        at_start: EndsAtStart,
        now_ms: Callable[[], int],
    ) -> None:
        """counters: of the control page. timer_end: of the timer topic's queue here, now. now_ms:
        wall clock."""
        self._api = api
        self._counters = counters
        self._timer_end = timer_end
        self._at_start = at_start
        self._now_ms = now_ms

    def fetch(self, slave: str) -> TimerCheckpoint | None:
        """What the slave at "ip:port" says; None: there is nothing to take."""
        address = vip_address(slave)
        if address is None:
            return None
        try:
            answer = self._api.get_timer_check_point(address, TIMEOUT_MS)
            return TimerCheckpoint.decode(answer.body)
        except (RemotingError, BrokerAnswerError, ValueError) as error:
            log.info("slave %s: no check point of timers to take back: %s", slave, error)
            return None

    def take(self, slave: str, found: TimerCheckpoint | None) -> None:
        """Begin behind its read time, if that is to be believed."""
        if found is None or found.last_read_time_ms <= self._counters[TIMER_TAKEN_BACK_MS]:
            return
        held, end = found.last_timer_queue_offset, self._at_start.end(TIMER_TOPIC, 0)
        if held < end:
            log.warning(
                "slave %s: it held %s of %s timers: those that it delivered come again",
                slave,
                held,
                end,
            )
            return
        limit_ms = self._now_ms() if held == self._timer_end() else self._at_start.began_ms
        read_ms = min(found.last_read_time_ms, limit_ms)
        if read_ms > self._counters[TIMER_TAKEN_BACK_MS]:
            self._counters[TIMER_TAKEN_BACK_MS] = read_ms
            log.info("slave %s: delivered timers up to %s ms", slave, read_ms)
