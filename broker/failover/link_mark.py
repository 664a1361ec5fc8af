"""LinkMark: notes in the control page whether frames of the master are being taken (slot 23), and
how long this broker has been without a master (slots 180, 181).

A thread of process `ha`. While the mark stands, process `remoting` copies the master's tables. A
broker has a master while it leads, and while it is linked with the one that it follows.

Tested by tests/broker/failover/test_link_mark.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ha.control_slots import MASTER_LINKED, MASTER_SEEN_MS, WITHOUT_MASTER_MS, leads
from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread

LOOK_MS: Final = 200


class LinkMark(ServiceThread):
    """See the module. Sole writer of the slots."""

    def __init__(
        self,
        counters: memoryview[int],
        is_linked: Callable[[], bool],
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        super().__init__("LinkMark", on_failure=on_failure)
        self._counters = counters
        self._is_linked = is_linked
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()

    def step(self) -> None:
        """One look."""
        self._look(is_linked=self._is_linked())
        self.wait_for_running(LOOK_MS)

    def _look(self, *, is_linked: bool) -> None:
        counters, now_ms = self._counters, self._clock.monotonic_ms()
        counters[MASTER_LINKED] = int(is_linked)
        if is_linked or leads(counters):
            counters[MASTER_SEEN_MS] = now_ms
        else:
            counters[WITHOUT_MASTER_MS] += now_ms - self._looked_ms
        self._looked_ms = now_ms

    def finish(self) -> None:
        """There is no link any more."""
        self._counters[MASTER_LINKED] = 0
