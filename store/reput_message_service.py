"""ReputMessageService: follows the commit log and has everything derived from it built.

The dispatch thread of process `store`: when it dispatches (LogDispatch) and when it sleeps, and
what it does while the disk is full. Corresponds to RocketMQ's
DefaultMessageStore.ReputMessageService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ipc.service_thread import FailureHandler, ServiceThread
from ipc.short_slice import ask_for_short_slice
from store.dispatch_pace import DispatchPace
from store.errors import DiskFullError
from store.log_dispatch import LogDispatch
from store.running_flags import RunningFlag, RunningFlags
from store.store_sleeper import StoreSleeper

log = logging.getLogger(__name__)

DEFAULT_IDLE_MS: Final = 250.0
"""The longest sleep, though the bell wakes it: every turn is a beat of its process."""
_DISK_FULL_RETRY_MS: Final = 1_000


class ReputMessageService(ServiceThread):
    """The service. Owned by: its own thread."""

    def __init__(
        self,
        dispatch: LogDispatch,
        sleeper: StoreSleeper,
        *,
        idle_ms: float = DEFAULT_IDLE_MS,
        pace: DispatchPace | None = None,
        on_failure: FailureHandler | None = None,
        flags: RunningFlags | None = None,
        make_room: Callable[[str], bool] = lambda why: False,
    ) -> None:
        """pace: None for no rest between chunks. flags: told when a derived file finds no room;
        dispatch goes on when there is some again. make_room(why): when the disk is full; True:
        there is room now."""
        super().__init__("ReputMessageService", on_failure=on_failure)
        self._log = dispatch
        self._sleeper = sleeper
        self._idle_ms = idle_ms
        self._pace = pace
        self._make_room = make_room
        self._flags = flags

    def begin(self) -> None:
        """Consumers wait for this thread."""
        ask_for_short_slice()

    def step(self) -> None:
        """Dispatch what there is, else sleep until the bell or `idle_ms`."""
        try:
            self._step()
        except DiskFullError as error:
            if self._flags is None:
                raise
            self._sleeper.announce_awake()
            if self._make_room(str(error)):
                return
            self._flags.set(RunningFlag.DISK_FULL, str(error), by=self.name)
            self.wait_for_running(_DISK_FULL_RETRY_MS)

    def _step(self) -> None:
        if self._pace is not None:
            left_ms = self._pace.left_ms(has_work=self._log.behind_bytes > 0)
            if left_ms > 0:
                self.wait_for_running(left_ms)
        if self._log.dispatch_once():
            if self._flags is not None:
                self._flags.clear(RunningFlag.DISK_FULL, "dispatch resumed", by=self.name)
            return
        self._sleeper.announce_sleep()
        if self.stopped or self._log.dispatch_once():
            self._sleeper.announce_awake()
            return
        self._sleeper.wait(self._idle_ms)

    def interrupt(self) -> None:
        """It sleeps on the bell."""
        self._sleeper.ring()

    def finish(self) -> None:
        """Catch up before an orderly stop; without room on the disk the next start does."""
        while self._catch_up():
            pass

    def _catch_up(self) -> bool:
        try:
            return self._log.dispatch_once()
        except DiskFullError as error:
            if self._make_room(str(error)):
                return True
            log.error("dispatch ends %s bytes before the log: %s", self._log.behind_bytes, error)
            return False
