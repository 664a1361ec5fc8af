"""ClientSelector: every sleep of HAClient's thread, and what ends it early.

One selector watches the link's socket, the bell of process `ha` and a waiter of its own, so that
new bytes, a stop and a changed master address are noticed at once. A call that may block for
seconds runs on a thread of its own (AsyncCall) while this thread sleeps here. It knows neither
the log nor what is called.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Final, TypeVar

from ha.async_call import AsyncCall
from ha.link_errors import LinkClosedError
from ha.refusals import RefusalReason
from ha.selector_factory import SelectorFactory
from ha.wait_notify_object import WaitNotifyObject
from ipc.clock import Clock

Result = TypeVar("Result")

_IDLE_MS: Final = 60_000
"""Upper limit of a sleep that the waiter always ends earlier."""


class ClientSelector:
    """See the module. Owned by: HAClient's thread; `wake` and `note_master_moved` by any."""

    def __init__(
        self,
        wait_notify: WaitNotifyObject,
        clock: Clock,
        *,
        new_selector: SelectorFactory,
        is_stopping: Callable[[], bool],
    ) -> None:
        """wait_notify: the one of the process. is_stopping: whether a stop was requested; `wake`
        follows the request."""
        self._clock = clock
        self._is_stopping = is_stopping
        self._selector = new_selector()
        self._waiter = wait_notify.new_waiter()
        self._waiter.register(self._selector)
        self._watched: tuple[int, int] | None = None
        """File descriptor and events of the link's socket."""
        self.master_moved = False
        """The master's address changed since the owner last cleared this."""

    # -- for other threads ---------------------------------------------------------------------

    def wake(self) -> None:
        """End the current or the next sleep."""
        self._waiter.wake()

    def note_master_moved(self) -> None:
        """The master's address has changed: connecting, receiving and resting end early."""
        self.master_moved = True
        self._waiter.wake()

    # -- for the owner -------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._is_stopping()

    @property
    def is_interrupted(self) -> bool:
        """Whether a stop was requested or the master has moved."""
        return self._is_stopping() or self.master_moved

    def sleep(
        self,
        timeout_ms: int,
        has_work: Callable[[], bool] = lambda: False,
        *,
        ignore_move: bool = False,
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """Until the link, the bell or the waiter wakes the thread, has_work holds, or the time is
        over; not at all when stopping, or (unless ignore_move) when the master has moved."""
        waiter = self._waiter
        waiter.announce_sleep()
        # Every reason to stay awake is checked after announce_sleep, which drops earlier wakes.
        awake = self._is_stopping() or (self.master_moved and not ignore_move) or has_work()
        events = [] if awake else self._selector.select(timeout_ms / 1000)
        waiter.announce_awake(events)
        return events

    def rest(self, duration_ms: int) -> None:
        """Sleep for the whole time unless interrupted."""
        deadline_ms = self._clock.monotonic_ms() + duration_ms
        while not self.is_interrupted and (left_ms := self.left_ms(deadline_ms)) > 0:
            self.sleep(left_ms)

    def left_ms(self, deadline_ms: int) -> int:
        """Time until a monotonic deadline; zero or negative when it has passed."""
        return deadline_ms - self._clock.monotonic_ms()

    def call(self, function: Callable[[], Result]) -> Result | None:
        """`function`'s result, from a thread of its own, so that a stop need not wait for it.
        None: a stop was requested. Raises what the function raises, StoreError without a thread."""
        pending = AsyncCall(function, self._waiter.wake)
        while not pending.is_done:
            if self._is_stopping():
                return None
            self.sleep(_IDLE_MS, lambda: pending.is_done, ignore_move=True)
        return pending.result()

    def wait_for(self, fd: int, event: int, timeout_text: str, deadline_ms: int) -> None:
        """Sleep until `event` on `fd`. Raises LinkClosedError: interrupted, or timeout_text."""
        self._selector.register(fd, event)
        ready = False
        try:
            while not ready:
                left_ms = self.left_ms(deadline_ms)
                if self.is_interrupted:
                    raise LinkClosedError(None, "abandoned: stopping, or the address has changed")
                if left_ms <= 0:
                    raise LinkClosedError(RefusalReason.NETWORK, timeout_text)
                ready = any(key.fd == fd for key, _ in self.sleep(left_ms))
        finally:
            self._selector.unregister(fd)

    def watch(self, fd: int, events: int) -> None:
        """Let `events` of the link's socket end a sleep; 0: ignore the socket."""
        wanted = (fd, events) if events else None
        if wanted == self._watched:
            return
        if self._watched is not None:
            watched_fd, _ = self._watched
            self._watched = None
            self._selector.unregister(watched_fd)
        if events:
            self._selector.register(fd, events)
            self._watched = wanted

    def close(self) -> None:
        """Return the descriptors."""
        self._selector.close()
        self._waiter.close()
