"""LinkMark: notes in the control page whether frames of the master are being taken (slot 23).

A thread of process `ha`. While the mark stands, process `remoting` copies the master's tables.

Tested by tests/broker/failover/test_link_mark.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ha.control_slots import MASTER_LINKED
from ipc.service_thread import FailureHandler, ServiceThread

_LOOK_MS: Final = 200


class LinkMark(ServiceThread):
    """See the module. Sole writer of the slot."""

    def __init__(
        self,
        counters: memoryview[int],
        is_linked: Callable[[], bool],
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        super().__init__("LinkMark", on_failure=on_failure)
        self._counters = counters
        self._is_linked = is_linked

    def step(self) -> None:
        """One look."""
        self._counters[MASTER_LINKED] = int(self._is_linked())
        self.wait_for_running(_LOOK_MS)

    def finish(self) -> None:
        """There is no link any more."""
        self._counters[MASTER_LINKED] = 0
