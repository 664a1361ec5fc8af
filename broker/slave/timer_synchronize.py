"""TimerSynchronize: a slave learns how far its master has delivered the timers (60).

Runs at the end of SlaveSynchronize's rounds. The slave's own `store` enters the timers that it
replicates; what is delivered it knows from here only, and a promoted slave goes on from there. A
read time counts once our log holds what the master's held when it said it, or, from a master that
does not say where its log ended (Java), what it held after that (28): so a slave that is promoted
before it has received the last deliveries makes them itself. (RocketMQ takes it over at once and
may lose them.) The metrics (61) are counted by our own `store`. Corresponds to
SlaveSynchronize.syncTimerCheckPoint of RocketMQ.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from broker.out.broker_outer_api import BrokerAnswerError
from broker.slave.remote_log import fetch_log_end
from remoting.errors import RemotingError
from store.control_slots import MAX_PHY_OFFSET
from store.timer.timer_checkpoint import TimerCheckpoint
from store.timer.timer_slots import (
    TIMER_MASTER_QUEUE_OFFSET,
    TIMER_READ_TIME_MS,
    TIMER_TAKEN_BACK_MS,
)

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI

log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 3_000
_MOST_WAITING: Final = 100


class TimerSynchronize:
    """Owned by: the thread that runs the synchronization round."""

    def __init__(self, api: BrokerOuterAPI, counters: memoryview[int]) -> None:
        """counters: of the control page."""
        self._api = api
        self._counters = counters
        self._followed: str | None = None
        self._waiting: deque[tuple[int, int]] = deque(maxlen=_MOST_WAITING)
        """The master's log end, and its read time then."""
        self._last_problem = ""

    def sync(self, master: str) -> None:
        """Ask the master at "ip:port". A failure is logged once, and asked again in the next
        round."""
        if master != self._followed:
            self._followed = master
            self._waiting.clear()
        try:
            answer = self._api.get_timer_check_point(master, _TIMEOUT_MS)
            found = TimerCheckpoint.decode(answer.body)
            log_end = answer.log_end or fetch_log_end(self._api, master, _TIMEOUT_MS)
        except (RemotingError, BrokerAnswerError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
            again, self._last_problem = problem == self._last_problem, problem
            level = logging.DEBUG if again else logging.WARNING
            log.log(level, "master %s: no check point of timers: %s", master, problem)
            return
        self._last_problem = ""
        self._counters[TIMER_MASTER_QUEUE_OFFSET] = max(found.master_timer_queue_offset, 0)
        if len(self._waiting) == _MOST_WAITING:
            self._waiting.pop()
        self._waiting.append((log_end, max(found.last_read_time_ms, 0)))
        while self._waiting and self._waiting[0][0] <= self._counters[MAX_PHY_OFFSET]:
            # What this slave delivered in the master's place, that may not know yet.
            own_ms = self._counters[TIMER_TAKEN_BACK_MS]
            self._counters[TIMER_READ_TIME_MS] = max(self._waiting.popleft()[1], own_ms)
