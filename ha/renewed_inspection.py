"""RenewedInspection: looks at the master again while a link to it is open.

A master whose log begins behind our end sends nothing but heartbeats (a Java one for ever), and a
first inspection that could compare nothing has let us follow blindly. So every two heartbeat
intervals the master is inspected again if no byte of the log came since the last look, or if the
last inspection was no comparison. The question has a thread of its own: the transfer goes on.
Owned by HAClient's thread, one for each link; what follows from an answer is HAClient's business.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.async_call import AsyncCall
from ha.inspection import Inspection, Verdict
from ipc.clock import Clock
from store.errors import StoreError


class RenewedInspection:
    """See the module."""

    def __init__(
        self,
        first: Inspection,
        position: int,
        interval_ms: int,
        clock: Clock,
        ask: Callable[[], AsyncCall[Inspection]],
    ) -> None:
        """first: what was found before the link was made, at our end `position`. ask: begins an
        inspection; may raise StoreError."""
        self._interval_ms = interval_ms
        self._clock = clock
        self._ask = ask
        self._seen = position
        self._call: AsyncCall[Inspection] | None = None
        self._has_compared = False
        self._next_ms = 0
        self._note(first)

    @property
    def has_result(self) -> bool:
        """Whether `step` has something to give."""
        return self._call is not None and self._call.is_done

    def wait_ms(self) -> int:
        """How long there is nothing to do, but for an answer."""
        if self._call is not None:
            return self._interval_ms
        return max(self._next_ms - self._clock.monotonic_ms(), 0)

    def has_moved(self, position: int) -> bool:
        """Whether our end has moved since the last question: its answer may be out of date."""
        return position != self._seen

    def ask_again(self) -> None:
        """The last answer was about one place of several: the next is asked about at once."""
        self._has_compared = False
        self._next_ms = self._clock.monotonic_ms()

    def step(self, position: int) -> Inspection | None:
        """Ask when it is due; an answer, once: WAIT, with the reason, when nobody could be asked.

        position: our end now.
        """
        call = self._call
        try:
            if call is None:
                if self._is_due(position):
                    self._call = self._ask()
                return None
            if not call.is_done:
                return None
            self._call = None
            found = call.result()
        except StoreError as error:
            found = Inspection(verdict=Verdict.WAIT, text=str(error))
        self._note(found)
        return found

    def _is_due(self, position: int) -> bool:
        if self._clock.monotonic_ms() < self._next_ms:
            return False
        moved, self._seen = self.has_moved(position), position
        if moved and self._has_compared:
            self._next_ms = self._clock.monotonic_ms() + self._interval_ms
            return False
        return True

    def _note(self, found: Inspection) -> None:
        self._has_compared = found.master_max >= 0
        self._next_ms = self._clock.monotonic_ms() + self._interval_ms
