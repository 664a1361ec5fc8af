"""LinkLender: lends a slave's connection to process `remoting`, and takes it back (link_loan.py).

Process `ha`, one for all connections; any thread, one lock. One connection at most is lent, that of
the only replica that counts: then what it reports is what enough replicas have, and nothing has to
be counted by who has borrowed it. WriteSocketService of that connection decides when, and waits for
it; others only ask for what has come meanwhile. It knows neither frames nor sleeps.

Tested by tests/ha/test_link_lender.py.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from ha.control_slots import (
    LENT_ACKED,
    LENT_AT_RISK,
    LENT_NUMBER,
    LENT_SENT,
    LOAN,
    LOAN_LOOKS,
)
from ha.link_loan import MAX_PACKET, Lent, Recall, Returned
from ha.reader_pause import ReadState
from ha.replica_registry import ReplicaRegistry
from ha.slave_progress import SlaveProgress
from ha.transport import PlainTransport
from ipc.clock import Clock
from ipc.control_page import ENDS, STARTS, ControlPage, ProcessIndex

_read_returned: Final = msgspec.json.Decoder(Returned).decode


class LentReports(Protocol):
    """Who is told of what a lent connection acknowledges: GroupTransferService."""

    def notify_lent(self, progress: SlaveProgress, at_risk: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Lendable:
    """One connection, as far as a borrower has to know it."""

    transport: PlainTransport
    progress: SlaveProgress
    is_checked: bool
    report_key: bytes | None
    """As in Lent."""
    sent: Callable[[str, int], None]
    """Told up to where the slave's ip was sent the log: ReportCeiling."""


class LinkLender:
    """See the module."""

    def __init__(
        self,
        channel: socket.socket,
        page: ControlPage,
        clock: Clock,
        registry: ReplicaRegistry,
        in_sync_replicas: int,
        group_transfer: LentReports,
    ) -> None:
        """channel: to process `remoting`."""
        channel.setblocking(False)
        self._channel = channel
        self._counters = counters = page.counters
        self._clock = clock
        self._registry = registry
        self._one_is_enough: Final = in_sync_replicas == 2
        self._group_transfer = group_transfer
        self._lock: Final = threading.Lock()
        self._out: Lendable | None = None
        """What is lent."""
        self._lent: Lent | None = None
        """How it was lent last."""
        self._number = 0
        self._borrower = (0, 0)
        counters[LOAN] = 0  # A predecessor's.
        self._tell(Recall(number=0))

    def fileno(self) -> int:
        """For the selector of who has lent: what came back."""
        return self._channel.fileno()

    def may_lend(self, progress: SlaveProgress) -> bool:
        """Whether this connection's reports alone make the log replicated."""
        return self._one_is_enough and self._registry.counted == (progress,)

    def lend(self, link: Lendable, state: ReadState, sent_ms: int) -> bool:
        """Whether it is lent now: nobody reads or writes it here until `take_back` gives it.
        sent_ms: as in Lent."""
        counters, progress, key = self._counters, link.progress, link.report_key
        with self._lock:
            if self._out is not None or not self.may_lend(progress):
                return False
            # Never used again, by a successor of this process either.
            number = max(time.monotonic_ns(), self._number + 1)
            lent = Lent(
                number=number,
                remote=progress.remote,
                next_offset=progress.sent_offset,
                ack_offset=progress.ack_offset,
                is_checked=link.is_checked,
                report_key=None if key is None else key.hex(),
                rest=state.rest.hex(),
                read_ms=state.read_ms,
                sent_ms=sent_ms,
            )
            self._borrower = self._borrower_now()
            counters[LOAN] = number
            if not self._tell(lent, link.transport.fileno()):
                counters[LOAN] = 0
                return False
            self._number, self._out, self._lent = number, link, lent
            return True

    def recall(self) -> None:
        """Ask for it; what is reported meanwhile counts when it is back."""
        self.refresh()
        self._counters[LOAN] = 0
        self._tell(Recall(number=self._number))

    def take_back(self) -> Returned | None:
        """What came back; None: nothing yet. Raises OSError: the borrower has ended, so that nobody
        knows where in a frame the connection is."""
        try:
            packet = self._channel.recv(MAX_PACKET)
        except BlockingIOError:
            packet = b""
        if packet:
            found = _read_returned(packet)
            if found.number == self._number:
                self._end(found)
                return found
        elif self._borrower_now() != self._borrower:
            raise OSError("process remoting has ended while it had the connection")
        return None

    @property
    def is_taken(self) -> bool:
        """Whether the borrower has taken up what was lent last."""
        return self._counters[LENT_NUMBER] == self._number

    def take_untaken(self) -> Returned | None:
        """Some time after a recall: what is lent, if nobody has taken it up; nobody will, as a
        borrower gives back unused what it finds recalled. None: somebody has it."""
        # In this order: the borrower's successor begins with another LENT_NUMBER.
        if self.is_taken or self._borrower_now() != self._borrower or self._lent is None:
            return None
        back = self._lent.unused()
        self._end(back)
        return back

    def refresh(self) -> None:
        """Take up what was sent and acknowledged since the last call. Any thread, at any time."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        if self._out is not None and self.is_taken:
            # In this order: what is acknowledged was sent before.
            acked = self._counters[LENT_ACKED]
            self._take_up(self._out, self._counters[LENT_SENT], acked)

    def drop(self) -> None:
        """The connection ends here, whoever has it."""
        with self._lock:
            if self._counters[LOAN] == self._number:
                self._counters[LOAN] = 0
            # After that: nothing that was counted is forgotten of a replica that leaves.
            self._refresh()
            self._out = None

    def _end(self, returned: Returned) -> None:
        with self._lock:
            if self._out is not None:
                self._take_up(self._out, returned.next_offset, returned.ack_offset)
            self._out = None
            self._counters[LOAN] = 0

    def _take_up(self, link: Lendable, sent: int, acked: int) -> None:
        """Under the lock."""
        progress = link.progress
        if sent > progress.sent_offset:
            size = sent - progress.sent_offset
            progress.transferred += size
            progress.sent(sent, size, self._clock.monotonic_ms())
            link.sent(progress.ip, sent)
        if acked > progress.ack_offset:
            refusal = progress.report(acked)
            assert refusal is None, refusal
            looks = self._counters[LOAN_LOOKS]
            self._counters[LOAN_LOOKS] = looks + 1
            at_risk = self._counters[LENT_AT_RISK + looks % 2]
            self._group_transfer.notify_lent(progress, at_risk)

    def _borrower_now(self) -> tuple[int, int]:
        counters = self._counters
        index = ProcessIndex.REMOTING
        return counters[STARTS + index], counters[ENDS + index]

    def _tell(self, message: Lent | Recall, fd: int | None = None) -> bool:
        packet = msgspec.json.encode(message)
        try:
            if fd is None:
                self._channel.send(packet)
            else:
                socket.send_fds(self._channel, [packet], [fd])
        except OSError:
            return False
        return True
