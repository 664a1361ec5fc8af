"""WaitNotifyObject: many WriteSocketServices sleep on the one bell of process `ha`.

The bell's sleep flag (ipc/control_page.py) belongs to the process, its eventfd wakes every
selector that watches it, but one reader empties it for all: a thread that is on its way out of
its selector could find it empty and sleep on. So each waiter has an eventfd of its own, and who
empties the bell first wakes all who still count as asleep. The flag is 1 exactly while a waiter
counts as asleep. The kin of WaitNotifyObject of the original. It knows no sockets and no work.

A waiter's round, the work looked for after lie_down, as with the bell itself:

    waiter.lie_down(); events = [] if there is work else selector.select(timeout)
    waiter.get_up(events); ... work ...
"""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Iterable
from typing import Final

from ipc.bell import Bell

from ha.selector_factory import EVENT_READ

Events = Iterable[tuple[selectors.SelectorKey, int]]


class WaitNotifyObject:
    """The waiters of one bell. Guarded by: its lock, which is the fence inside the process."""

    def __init__(self, bell: Bell) -> None:
        """`bell`: the one of process `ha`; nobody else in the process may sleep on it."""
        self.bell: Final = bell
        self.lock: Final = threading.Lock()
        self.asleep: Final[set[Waiter]] = set()

    def new_waiter(self) -> Waiter:
        """One for each thread; its owner closes it."""
        return Waiter(self)


class Waiter:
    """One sleeper. Owned by: its thread; `wake` may come from any."""

    def __init__(self, shared: WaitNotifyObject) -> None:
        self._bell = shared.bell
        self._bell_fd = shared.bell.fileno()
        self._lock = shared.lock
        self._asleep = shared.asleep
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._bell_rang = False
        self._woken = False
        self._closed = False

    def register(self, selector: selectors.BaseSelector, *, bell: bool = True) -> None:
        """Let `selector` watch this waiter's eventfd and the bell. A selector in which the thread
        waits for something else, work or none, goes without the `bell`."""
        selector.register(self._event_fd, EVENT_READ)
        if bell:
            selector.register(self._bell_fd, EVENT_READ)

    def lie_down(self) -> None:
        """Count as asleep from here on. Look at every reason to be awake after this (work, a stop:
        the wakes before it are over), then select."""
        if self._woken:
            self._woken = False
            os.eventfd_read(self._event_fd)
        with self._lock:
            if self._bell_rang:
                # Emptied here and not on waking: off the way of the record that was rung for.
                self._bell_rang = False
                for other in self._asleep:
                    os.eventfd_write(other._event_fd, 1)
                self._bell.drain()
            self._asleep.add(self)
            self._bell.lie_down()

    def get_up(self, events: Events) -> None:
        """Awake again; `events`: what the selector gave."""
        with self._lock:
            self._asleep.discard(self)
            if not self._asleep:
                self._bell.get_up()
        for key, _mask in events:
            if key.fd == self._bell_fd:
                self._bell_rang = True
            elif key.fd == self._event_fd:
                self._woken = True

    def note(self, events: Events) -> None:
        """Take notice of a sleep in a selector without the bell: look at every reason to be awake
        after this. The wakes so far are over, or each such sleep would end at once."""
        for key, _mask in events:
            if key.fd == self._event_fd:
                self._woken = False
                os.eventfd_read(self._event_fd)

    def wake(self) -> None:
        """End the current or the next sleep. Any thread; nothing after `close`."""
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._event_fd, 1)

    def close(self) -> None:
        """Give the eventfd back, awake; the selectors were closed before. Idempotent.

        A ring that this waiter saw stays in the bell, so that the others see it too."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._asleep.discard(self)
            if not self._asleep:
                self._bell.get_up()
            os.close(self._event_fd)
