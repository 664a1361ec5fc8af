"""What process `ha` and process `remoting` say to each other of a slave's connection that is lent.

Pure. A SYNC_MASTER's answer waits for the slave's report: through `ha` that are two more wake-ups
of a process than if the loop of `remoting` sends the frame and reads the report itself. So `ha`
lends it the connection (LinkLender): a packet with a duplicate of the socket. Who has it is the
only one to read and to write. It comes back (LinkBorrower) with the state in which the other goes
on, in the middle of a frame or of a report; and each side may end a loan at any time.

    ha -> remoting   Lent, with the descriptor; Recall
    remoting -> ha   Returned

How far a lent connection was sent the log, and has acknowledged it, is on the control page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ha.control_slots import LENT_ACKED, LENT_NUMBER, LOAN, REPLICATED_OFFSET

MAX_PACKET: Final = 64 << 10


class Lent(msgspec.Struct, frozen=True, kw_only=True):
    """A connection is lent; offsets are positions in the log."""

    number: int
    """Of the loan; never used again."""
    remote: str
    """The slave, "ip:port"."""
    next_offset: int
    """The first byte of the next frame."""
    ack_offset: int
    """The last report."""
    is_checked: bool
    """The form of the frames (frame.py)."""
    report_key: str | None
    """In hex digits; None: reports are not sealed (reports.py)."""
    rest: str
    """In hex digits: the part of a report that has come."""
    read_ms: int
    """Monotonic: when something was received last."""
    sent_ms: int
    """Monotonic: when a frame was sent last."""

    def unused(self) -> Returned:
        """It is back, and nobody has read or written it."""
        return Returned(
            number=self.number,
            frame_at=self.next_offset,
            frame_left=0,
            next_offset=self.next_offset,
            ack_offset=self.ack_offset,
            rest=self.rest,
            read_ms=self.read_ms,
            sent_ms=self.sent_ms,
        )


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """The loan is over, give the connection back."""

    number: int


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """The connection is back, and no process has its descriptor but `ha`."""

    number: int
    frame_at: int
    """Where the last frame begins in the log; it ends at `next_offset`."""
    frame_left: int
    """Bytes of it, its header's included, that the socket has not taken yet."""
    next_offset: int
    ack_offset: int
    rest: str
    read_ms: int
    sent_ms: int
    reason: str | None = None
    """Name of the RefusalReason for which the connection has to be closed; None: it is good."""
    text: str = ""


def replicated_offset(counters: Sequence[int]) -> int:
    """Enough replicas have acknowledged up to here: what `ha` says, and what has come over the
    connection that it lends, as long as it says that this one alone is enough."""
    published, loan = counters[REPLICATED_OFFSET], counters[LOAN]
    if loan and counters[LENT_NUMBER] == loan:
        return max(published, counters[LENT_ACKED])
    return published
