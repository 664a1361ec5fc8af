"""ExposureMarks: the most log bytes that no replica had acknowledged, between two looks.

Process `ha`: each report tells it what was at risk just before it counted (the thread of the
connection, under the lock of GroupTransferService), and the thread that observes takes the marks
and begins new ones. So what was at risk for a moment between two looks is not missed. Pure but for
its lock; knows neither sockets nor metrics.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ha.slave_progress import SlaveProgress


@dataclass(frozen=True, slots=True)
class AtRisk:
    """Bytes: some moment had `at_least`, and no moment more than `at_most`."""

    at_least: int
    at_most: int


class ExposureMarks:
    """See the module. Any thread; one lock guards everything."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._furthest = 0
        """Some replica has the log up to here, at least."""
        self._may_reach = 0
        """No replica can have more than this, unless it acknowledges it."""
        self._at_least = 0
        self._at_most = 0
        self._is_known = False
        """Whether there was a look: before it nobody knows where the replicas stand."""

    def acknowledged(
        self, counted: Collection[SlaveProgress], end_before: int, end_now: int
    ) -> None:
        """A report counts. `end_before`: of the log, read before it was taken; `end_now`: read
        after that."""
        furthest = max((progress.position for progress in counted), default=0)
        with self._lock:
            if furthest <= self._furthest or not self._is_known:
                return
            most, least = end_now - self._furthest, end_before - self._may_reach
            if most > self._at_most:
                self._at_most = most
            if least > self._at_least:
                self._at_least = least
            self._furthest = furthest
            if furthest > self._may_reach:
                self._may_reach = furthest

    def lent(self, counted: Collection[SlaveProgress], at_risk: int) -> None:
        """Reports count that came over a connection that is lent (link_loan.py). `at_risk`: the
        most bytes that were at risk just before one of them."""
        furthest = max((progress.position for progress in counted), default=0)
        with self._lock:
            if furthest <= self._furthest or not self._is_known:
                return
            self._at_most = max(self._at_most, at_risk)
            self._at_least = max(self._at_least, at_risk)
            self._furthest = furthest
            self._may_reach = max(self._may_reach, furthest)

    def take(self, furthest: int, may_reach: int, end_before: int, end_now: int) -> AtRisk:
        """The marks since the last call, this moment included; new ones begin. `furthest`: some
        replica, live or gone, has the log up to here; `may_reach`: none can have more. `end_before`
        and `end_now`: of the log, read before and after these."""
        with self._lock:
            may_reach = max(may_reach, furthest)
            at_most = max(self._at_most, end_now - furthest)
            at_least = max(self._at_least, end_before - may_reach)
            self._furthest, self._may_reach = furthest, may_reach
            self._at_least = self._at_most = 0
            self._is_known = True
        return AtRisk(min(at_least, at_most), at_most)
