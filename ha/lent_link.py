"""LentLink: a slave's connection while process `remoting` has it (link_loan.py).

On the loop's thread, which is the only one to read and to write the connection meanwhile. The loop
sends what it has just published in one frame, and reads the reports. Whatever is more than that
ends the loan: a batch that `ha` sends better, another file of the log, a socket that takes no more,
an error, a wrong report. `ha` then goes on, or closes the connection. It knows neither who waits
for the reports nor which replicas count.

Tested by tests/ha/test_link_borrower.py.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from ha.control_slots import LENT_ACKED, LENT_AT_RISK, LENT_NUMBER, LENT_SENT, LOAN_LOOKS
from ha.frame import header_size, pack_header
from ha.link_loan import Lent, Returned
from ha.refusals import RefusalReason
from ha.report_intake import ReportIntake
from ha.reports import Reports
from ha.slave_progress import SlaveProgress
from ha.source_files import LogSource, SourceFiles
from ipc.clock import Clock
from store.control_slots import MAX_PHY_OFFSET
from store.errors import StoreError

MOST_AT_ONCE: Final = 16 << 10
"""Where more is published in one turn, messages come by the dozen: then `ha` sends while the loop
goes on with the next ones."""
_READ_SIZE: Final = 4096
"""A slave that has reported as much as this at once has no sends to answer one by one."""


class LentLink:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        sock: socket.socket,
        lent: Lent,
        source: LogSource,
        clock: Clock,
        give_back: Callable[[], None],
    ) -> None:
        """Takes over the socket. give_back: called when the loan has to end; `close` follows."""
        self._sock = sock
        self._counters = counters = source.page.counters
        self._clock = clock
        self._give_back = give_back
        self.number: Final = lent.number
        self._files = SourceFiles(source)
        self._header = bytearray(header_size(is_checked=lent.is_checked))
        now_ms = clock.monotonic_ms()
        self._progress = SlaveProgress(
            lent.remote, lent.ack_offset, lent.next_offset, now_ms=now_ms, wall_ms=clock.now_ms()
        )
        key = None if lent.report_key is None else bytes.fromhex(lent.report_key)
        self._intake = ReportIntake(Reports(key), self._progress, bytes.fromhex(lent.rest))
        self._frame_at = self._next = lent.next_offset
        self._frame_left = 0
        self._read_ms, self._sent_ms = lent.read_ms, lent.sent_ms
        self._reason: RefusalReason | None = None
        self._text = ""
        self._looks = counters[LOAN_LOOKS]
        self._at_risk = 0
        counters[LENT_AT_RISK + self._looks % 2] = 0
        counters[LENT_SENT], counters[LENT_ACKED] = lent.next_offset, lent.ack_offset
        counters[LENT_NUMBER] = lent.number  # Last: from here on these count.

    def fileno(self) -> int:
        """For the loop's selector."""
        return self._sock.fileno()

    # -- frames --------------------------------------------------------------------------------

    @property
    def has_new(self) -> bool:
        """Whether something was published since the last frame."""
        return self._next != self._counters[MAX_PHY_OFFSET]

    def send_new(self) -> None:
        """Send what was published since the last frame; cheap when there is nothing."""
        begin, end = self._next, self._counters[MAX_PHY_OFFSET]
        if begin == end:
            return
        size, files = end - begin, self._files
        if not 0 < size <= MOST_AT_ONCE or not self._reach(begin) or end > files.end:
            self._give_back()
            return
        body, header = files.slice(begin, end), self._header
        pack_header(header, begin, body)
        self._sent_ms = self._clock.monotonic_ms()
        # Before the first byte leaves, as in WriteSocketService.
        self._counters[LENT_SENT] = end
        self._progress.sent(end, size, self._sent_ms)
        self._frame_at, self._next = begin, end
        try:
            taken = self._sock.sendmsg((header, body))
        except BlockingIOError:
            taken = 0
        except OSError as error:
            taken = 0
            self._note(RefusalReason.NETWORK, f"sending failed: {error.strerror or error}")
        self._frame_left = len(header) + size - taken
        if self._frame_left:
            self._give_back()

    def _reach(self, offset: int) -> bool:
        try:
            return self._files.reach(offset)
        except (OSError, StoreError):
            return False  # No descriptors or no memory here: `ha` has its own.

    # -- reports -------------------------------------------------------------------------------

    def read(self) -> bool:
        """Take up what has come; whether it acknowledges more."""
        try:
            data = self._sock.recv(_READ_SIZE)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end(RefusalReason.NETWORK, f"reading failed: {error.strerror or error}")
            return False
        if not data:
            self._end(RefusalReason.NETWORK, "the slave closed the connection")
            return False
        self._read_ms = self._clock.monotonic_ms()
        before = self._progress.ack_offset
        has_reported = self._intake.take(data)
        if self._intake.reason is not None:
            self._end(self._intake.reason, self._intake.text)
            return False
        if has_reported:
            self._note_at_risk(self._counters[MAX_PHY_OFFSET] - before)
            self._counters[LENT_ACKED] = self._progress.ack_offset
        if len(data) == _READ_SIZE:
            self._give_back()
        return self._progress.ack_offset > before

    def _note_at_risk(self, size: int) -> None:
        """So many bytes no replica had acknowledged before this report: the most of them since
        `ha` looked last, in the slot that it reads after the next look."""
        counters = self._counters
        looks = counters[LOAN_LOOKS]
        self._at_risk = max(size, self._at_risk) if looks == self._looks else size
        self._looks = looks
        counters[LENT_AT_RISK + looks % 2] = self._at_risk
        if counters[LOAN_LOOKS] != looks:
            self._note_at_risk(size)

    # -- the end -------------------------------------------------------------------------------

    def _note(self, reason: RefusalReason, text: str) -> None:
        self._reason, self._text = reason, text

    def _end(self, reason: RefusalReason, text: str) -> None:
        self._note(reason, text)
        self._give_back()

    def close(self) -> Returned:
        """Give the descriptor back; the state in which `ha` goes on."""
        self._sock.close()
        self._files.close()
        return Returned(
            number=self.number,
            frame_at=self._frame_at,
            frame_left=self._frame_left,
            next_offset=self._next,
            ack_offset=self._progress.ack_offset,
            rest=self._intake.rest.hex(),
            read_ms=self._read_ms,
            sent_ms=self._sent_ms,
            reason=None if self._reason is None else self._reason.name,
            text=self._text,
        )
