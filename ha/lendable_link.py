"""LendableLink: when one slave's connection is lent to process `remoting`, and until when.

Owned by the connection's WriteSocketService, on whose thread it runs and sleeps. It is lent once
the slave has been sent everything, so that sends that come one by one are answered sooner; taken
back for a heartbeat, for a slave that is silent, and when its reports alone are no longer enough.
After a loan the connection stays here for a second: what ended it may go on.

Tested by tests/ha/test_link_lender.py.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Final

from ha.link_lender import Lendable, LinkLender
from ha.link_loan import Returned
from ha.reader_pause import ReaderPause, ReadState
from ha.selector_factory import EVENT_READ, SelectorFactory
from ipc.clock import Clock

_LOOK_MS: Final = 100
"""How often to take up what the other process did."""
_REST_MS: Final = 1_000
"""How long it is not lent after a loan."""
_MOST_BEHIND: Final = 64 << 10
"""A slave that has not acknowledged this much is busy."""
_UNANSWERED_MS: Final = 1_000
"""A slave that acknowledges nothing for so long, though it was sent something, is looked after by
`ha`."""
_UNTAKEN_MS: Final = 1_000
"""How long the other process may take to receive it: it may be starting."""
_PAUSE_MS: Final = 1_000
_RETURN_MS: Final = 5_000
"""How long to wait for it after a recall: a turn of the other process's loop."""

Events = list[tuple[selectors.SelectorKey, int]]


class LendableLink:
    """See the module."""

    def __init__(
        self,
        lender: LinkLender,
        link: Lendable,
        pause: ReaderPause,
        clock: Clock,
        new_selector: SelectorFactory,
        heartbeat_ms: int,
    ) -> None:
        """heartbeat_ms: after so much silence a frame has to leave."""
        self._lender = lender
        self._link = link
        self._pause = pause
        self._clock = clock
        self.selector: Final = new_selector()
        """For the waiter of the thread."""
        self.selector.register(lender.fileno(), EVENT_READ)
        self.is_out = False
        """Whether another process has the connection."""
        self._heartbeat_ms: Final = heartbeat_ms
        self._not_before_ms = clock.monotonic_ms() + _REST_MS
        self._lent_ms = 0
        self._recalled_ms: int | None = None
        self._sent = self._sent_ms = 0
        """Up to where, and when, something was sent last, as far as was seen."""
        self._acked = self._acked_ms = 0
        """Likewise acknowledged; when it was last known that nothing was missing."""

    def begin(self, now_ms: int, *, sent_ms: int, is_in_file: Callable[[], bool]) -> bool:
        """Lend it, if that is worth it; the slave was sent everything. sent_ms: when its last frame
        left. is_in_file: whether the next byte lies in the file that is being sent."""
        progress = self._link.progress
        if now_ms < self._not_before_ms:
            return False
        if progress.sent_offset - progress.ack_offset > _MOST_BEHIND:
            return False
        if not self._lender.may_lend(progress) or not is_in_file():
            return False
        state = self._pause.begin(_PAUSE_MS)
        if state is not None:
            self.is_out = self._lender.lend(self._link, state, sent_ms)
        if not self.is_out:
            self._pause.end()
            self._not_before_ms = now_ms + _REST_MS
            return False
        self._lent_ms, self._recalled_ms = now_ms, None
        self._sent, self._sent_ms = progress.sent_offset, sent_ms
        self._acked, self._acked_ms = progress.ack_offset, now_ms
        return True

    def wait(self) -> tuple[Events, Returned | None]:
        """Sleep a while, take up what was done, see to the end of the loan. The events are the
        waiter's. After a loan with a `reason` the reader goes on resting: nothing counts any more
        that comes behind a wrong report. Raises OSError: it does not come back."""
        events = self.selector.select(_LOOK_MS / 1000)
        back = self._lender.take_back()
        now_ms = self._clock.monotonic_ms()
        if back is None:
            self._lender.refresh()
            back = self._see_to_its_end(now_ms)
        if back is not None and back.reason is None:
            self._is_back(ReadState(bytes.fromhex(back.rest), back.read_ms), now_ms)
        return events, back

    def _see_to_its_end(self, now_ms: int) -> Returned | None:
        if self._recalled_ms is None:
            if self._is_over(now_ms):
                self._recalled_ms = now_ms
                self._lender.recall()
            return None
        recalled_for_ms = now_ms - self._recalled_ms
        if recalled_for_ms > _RETURN_MS:
            raise OSError("process remoting does not give the connection back")
        # Not at once: the other process looks for the recall after it has said that it took it.
        return self._lender.take_untaken() if recalled_for_ms >= _LOOK_MS else None

    def _is_over(self, now_ms: int) -> bool:
        progress = self._link.progress
        if progress.sent_offset != self._sent:
            self._sent, self._sent_ms = progress.sent_offset, now_ms
        if progress.ack_offset == self._sent or progress.ack_offset != self._acked:
            self._acked, self._acked_ms = progress.ack_offset, now_ms
        return (
            now_ms >= self._sent_ms + self._heartbeat_ms
            or now_ms >= self._acked_ms + _UNANSWERED_MS
            or (now_ms >= self._lent_ms + _UNTAKEN_MS and not self._lender.is_taken)
            or not self._lender.may_lend(progress)
        )

    def _is_back(self, state: ReadState | None, now_ms: int) -> None:
        self.is_out = False
        self._not_before_ms = now_ms + _REST_MS
        self._pause.end(state)

    def close(self) -> None:
        """The connection ends: whoever has it learns that from the socket, which is shut."""
        if self.is_out:
            self._lender.drop()
        self._is_back(None, self._clock.monotonic_ms())
        self.selector.close()
