"""ReaderPause: the connection's two services hand its reading over and back.

ReadSocketService rests while another process reads its connection (link_loan.py).
WriteSocketService asks for that, and ends it. Any thread; one lock.

Tested by tests/ha/test_reader_pause.py.
"""

from __future__ import annotations

import os
import threading
from typing import Final, NamedTuple


class ReadState(NamedTuple):
    """Where reading stands."""

    rest: bytes
    """The part of a report that has come."""
    read_ms: int
    """Monotonic: when something was received last."""


class ReaderPause:
    """See the module."""

    def __init__(self) -> None:
        self.event_fd: Final = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """For the reader's selector."""
        self._changed: Final = threading.Condition()
        self._wanted = False
        self._state: ReadState | None = None
        """While the reader rests."""
        self._closed = False

    @property
    def is_wanted(self) -> bool:
        """Whether the reader is to rest."""
        return self._wanted

    def begin(self, timeout_ms: float) -> ReadState | None:
        """The writer: let the reader rest; None: it does not in time, and goes on. `end` follows
        in either case."""
        with self._changed:
            if self._closed:
                return None
            self._wanted = True
            os.eventfd_write(self.event_fd, 1)
            self._changed.wait_for(
                lambda: self._state is not None or self._closed, timeout_ms / 1e3
            )
            return self._state

    def end(self, state: ReadState | None = None) -> None:
        """The writer: the reader goes on, from `state` if that is given. Idempotent."""
        with self._changed:
            if state is not None:
                self._state = state
            self._wanted = False
            self._changed.notify_all()

    def rest(self, state: ReadState) -> ReadState:
        """The reader: rest until the writer ends it; where to go on."""
        with self._changed:
            os.eventfd_read(self.event_fd)
            if not self._wanted:
                return state
            self._state = state
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._wanted)
            found, self._state = self._state, None
            assert found is not None
            return found

    def close(self) -> None:
        """The reader has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            os.close(self.event_fd)
