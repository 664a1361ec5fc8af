"""LogWatch: tells the member of a group that the own log has grown, or was flushed.

Thread of process `ha` in controller mode, which sleeps on the process' bell. While nobody wants to
know it does not sleep on the bell, so that appends wake nobody for it.

Tested by tests/ha/test_autoswitch_ha_service.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ha.ha_environment import HaEnvironment
from ha.wait_notify_object import WaitNotifyObject
from ipc.control_page import ControlPage
from ipc.service_thread import ServiceThread
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET

_LOOK_AGAIN_MS: Final = 1_000


class LogWatch(ServiceThread):
    """See the module. Any thread sets `is_wanted`, then calls `wake`."""

    def __init__(
        self,
        environment: HaEnvironment,
        page: ControlPage,
        wait_notify: WaitNotifyObject,
        log_grew: Callable[[], None],
    ) -> None:
        super().__init__("LogWatch", on_failure=environment.on_failure)
        self._counters = page.counters
        self._log_grew = log_grew
        self._seen = (0, 0)
        self._is_wanted = False
        self._selector = environment.new_selector()
        self._waiter = wait_notify.new_waiter()
        self._waiter.register(self._selector)

    def watch(self, *, is_wanted: bool) -> None:
        """Whether growth is to be told from now on. Any thread."""
        self._is_wanted = is_wanted
        self.interrupt()

    def interrupt(self) -> None:
        """It sleeps in its selector, or on its condition."""
        self._waiter.wake()
        self.wakeup()

    def step(self) -> None:
        """Tell what has changed, or one sleep."""
        if not self._is_wanted:
            self.wait_for_running(_LOOK_AGAIN_MS)
            return
        ends = self._ends()
        if ends != self._seen:
            self._seen = ends
            self._log_grew()
            return
        self._waiter.announce_sleep()
        awake = self.stopped or not self._is_wanted or self._ends() != ends
        events = [] if awake else self._selector.select(_LOOK_AGAIN_MS / 1000)
        self._waiter.announce_awake(events)

    def finish(self) -> None:
        """Give the descriptors back."""
        self._selector.close()
        self._waiter.close()

    def _ends(self) -> tuple[int, int]:
        return self._counters[MAX_PHY_OFFSET], self._counters[FLUSHED_OFFSET]
