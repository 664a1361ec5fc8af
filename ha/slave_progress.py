"""SlaveProgress: what one connected slave was sent and acknowledged; detects false reports.

Pure: plain numbers, no socket, no file, no clock. One object lives as long as one connection;
process `ha` makes it when the first report is good. Everything that is read by other threads is
one word. The decisions about several slaves are in group_transfer_service.py.
"""

from __future__ import annotations

import enum
from typing import Final

from ha.refusals import RefusalReason

REPORT_REFUSALS: Final = frozenset(
    {RefusalReason.NEGATIVE, RefusalReason.DECREASING, RefusalReason.BEYOND_SENT}
)
"""Why a later report is rejected (SlaveProgress.report)."""
_BUCKETS: Final = 8
_RATE_SECONDS: Final = 4
"""Whole seconds before the current one over which the rate is taken."""


class ReplicaState(enum.StrEnum):
    """How a replica follows, as operators see it."""

    in_sync = "in_sync"
    """It held everything at some moment since it connected, and is near enough since."""
    catching_up = "catching_up"
    """Connected, but it was never level, or fell behind by haSlaveFallbehindMax."""
    disconnected = "disconnected"


def first_report_objection(
    offset: int, min_phy_offset: int, max_phy_offset: int
) -> RefusalReason | None:
    """Why a connection's first report cannot be a slave of this log; None when it can.

    0 is an empty slave and never below min: it is served from there (start_offset_for).
    """
    if offset < 0:
        return RefusalReason.NEGATIVE
    if offset > max_phy_offset:
        return RefusalReason.BEYOND_MAX
    if 0 < offset < min_phy_offset:
        return RefusalReason.BELOW_MIN
    return None


def start_offset_for(first_report: int, min_phy_offset: int) -> int:
    """Where sending starts: an empty slave gets the whole history, not the newest file only."""
    return first_report or min_phy_offset


class SlaveProgress:
    """What one connected slave has acknowledged. Thread-safe by single-word reads.

    `report` is called by its ReadSocketService only, `sent` by its WriteSocketService only, which
    also writes `transferred`; `judge` is called under the lock of GroupTransferService.
    """

    def __init__(
        self,
        remote: str,
        first_report: int,
        start_offset: int,
        *,
        now_ms: int,
        wall_ms: int,
        reports_flushed: bool = False,
    ) -> None:
        """`remote`: "ip:port". `first_report` was found good; `start_offset`: where sending
        starts. `now_ms` is monotonic, `wall_ms` the wall clock."""
        self.remote: Final = remote
        self.ip: Final = remote.rpartition(":")[0]
        self.connected_since_ms: Final = wall_ms
        self.start_offset: Final = start_offset
        self.ack_offset = first_report
        """The last report: the slave holds everything below."""
        self.position = start_offset
        """Where the slave stands in this log: as ack_offset, but what was deleted before an
        empty slave came is no lag of it."""
        self.sent_offset = start_offset
        """The next offset that will be sent."""
        self.transferred = 0
        """Log bytes that the kernel has taken."""
        self.reports_flushed: Final = reports_flushed
        """Whether what it reports is on its disk."""
        self.state = ReplicaState.catching_up
        self._level_at: int | None = None
        self._since_ms: Final = now_ms
        self._buckets: Final = [(0, 0)] * _BUCKETS

    def report(self, offset: int) -> RefusalReason | None:
        """Take a later report; None when it is taken, else why the connection must be closed."""
        if offset < self.ack_offset:
            return RefusalReason.NEGATIVE if offset < 0 else RefusalReason.DECREASING
        if offset > self.sent_offset:
            return RefusalReason.BEYOND_SENT
        self.ack_offset = offset
        if offset > self.position:
            self.position = offset
        return None

    def sent(self, end_offset: int, size: int, now_ms: int) -> None:
        """A frame with `size` log bytes that ends at `end_offset` goes out.

        Call it BEFORE the first byte of the frame is passed to the kernel: on a fast link the
        acknowledgement arrives before the system call returns, and must not look false.
        """
        self.sent_offset = end_offset
        second = now_ms // 1000
        at = second % _BUCKETS
        of, count = self._buckets[at]
        self._buckets[at] = (second, count + size if of == second else size)

    def bytes_per_second(self, now_ms: int) -> int:
        """Log bytes a second over the last four seconds and the current one's part. Any thread."""
        first = now_ms // 1000 - _RATE_SECONDS
        count = sum(size for second, size in self._buckets if second >= first)
        span_ms = now_ms - max(first * 1000, self._since_ms)
        return count * 1000 // max(span_ms, 1000)

    def lag_bytes(self, max_phy_offset: int) -> int:
        """Log bytes that the slave has not acknowledged."""
        return max(max_phy_offset - self.position, 0)

    def judge(self, max_phy_offset: int, fallbehind_max: int) -> ReplicaState:
        """The state now, for a log that ends at `max_phy_offset`; kept in `state`.

        In sync once it has acknowledged what the log held at an earlier call since it connected
        or fell behind, and from then on while its lag stays below `fallbehind_max`.
        """
        if max_phy_offset - self.position >= fallbehind_max:
            self.state = ReplicaState.catching_up
            self._level_at = max_phy_offset
        elif self.state is ReplicaState.catching_up:
            if self._level_at is None:
                self._level_at = max_phy_offset
            if self.position >= self._level_at:
                self.state = ReplicaState.in_sync
        return self.state
