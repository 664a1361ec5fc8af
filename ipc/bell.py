"""Bell: wakes one sleeping process; an eventfd that is rung only while its owner sleeps.

Any thread of any process may ring; one thread of the owner sleeps on it. The control page (slot
SLEEPS + process) says whether the owner sleeps. It must not know what the wake-up is for.
"""

from __future__ import annotations

import os
import select
import threading
from typing import Final

from ipc.control_page import SLEEPS, ControlPage, ProcessIndex

_SLEEPS_FOR_ALL: Final = 1
_SLEEPS_FOR_ANSWERS: Final = 2


class Fence:
    """A full memory fence: an uncontended lock, taken and released (an atomic exchange on x86)."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> None:
        """Orders every store before the call before every load after it."""
        with self._lock:
            pass


class Bell:
    """Wakes one sleeping process. Many ring it; only its owner sleeps on it.

    "Publish, then check whether it sleeps" (ring) against "announce the sleep, then check for
    work" (the owner) needs a full fence on both sides; and no sleep is unbounded.
    """

    def __init__(self, page: ControlPage, owner: ProcessIndex, event_fd: int) -> None:
        """`event_fd` is a non-blocking eventfd that the supervisor made."""
        self.event_fd = event_fd
        self._counters = page.counters
        self._slot = SLEEPS + owner
        self._fence = Fence()
        self._poll = select.poll()
        self._poll.register(event_fd, select.POLLIN)

    @staticmethod
    def create() -> int:
        """An eventfd for a bell; children inherit it."""
        return os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """The descriptor that becomes readable when the bell rings, for a selector."""
        return self.event_fd

    def ring(self) -> None:
        """Wake the owner if it sleeps. Publish what it should see before calling this."""
        self._fence()
        if self._counters[self._slot]:
            os.eventfd_write(self.event_fd, 1)

    def ring_for_moves(self) -> None:
        """Wake the owner if it sleeps and waits for queues to move."""
        self._fence()
        if self._counters[self._slot] == _SLEEPS_FOR_ALL:
            os.eventfd_write(self.event_fd, 1)

    def announce_sleep(self, *, for_moves: bool = True) -> None:
        """Owner: announce a sleep. Check for work again after this, then wait.

        for_moves False: a queue that moves is no work for the owner now.
        """
        self._counters[self._slot] = _SLEEPS_FOR_ALL if for_moves else _SLEEPS_FOR_ANSWERS
        self._fence()

    def announce_awake(self) -> None:
        """Owner: announce being awake."""
        self._counters[self._slot] = 0

    def drain(self) -> None:
        """Owner: forget the rings so far."""
        try:
            os.eventfd_read(self.event_fd)
        except BlockingIOError:
            return

    def wait(self, timeout_ms: float) -> None:
        """Owner without a selector: sleep until rung or `timeout_ms`; since announce_sleep the
        owner has looked for work and found none."""
        if self._poll.poll(timeout_ms):
            self.drain()
        self.announce_awake()
