"""ReplicaTotals: what is counted for one replica over all of its connections.

Pure: plain numbers. ReplicaRegistry keeps one for each replica and tells it what happens; a
process `ha` that is started again begins with what its predecessor had counted. It knows neither
ids nor sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ha.refusals import RefusalReason
from ha.replica_clock import ReplicaClock
from ha.slave_progress import ReplicaState


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsNow:
    """A moment of ReplicaTotals. None of the numbers ever falls."""

    transferred: int
    """Log bytes that were sent to it."""
    reconnects: int
    """Connections after its first."""
    rejected_acks: Mapping[RefusalReason, int]
    """Reports that could not be true; each of them ended a connection."""
    state_ms: Mapping[ReplicaState, int]
    """Time in each state, up to the last look."""

    @property
    def connected_ms(self) -> int:
        """Time in all states but disconnected."""
        return sum(self.state_ms.values()) - self.state_ms[ReplicaState.disconnected]


class ReplicaTotals:
    """See the module. Guarded by: the lock of ReplicaRegistry."""

    def __init__(self, clock: ReplicaClock, before: TotalsNow | None = None) -> None:
        """`before`: what a predecessor of this process had counted; its state_ms are in `clock`."""
        self.clock = clock
        self.transferred = 0 if before is None else before.transferred
        self._reconnects = 0 if before is None else before.reconnects
        self._rejected_acks = {} if before is None else dict(before.rejected_acks)
        self._was_connected = before is not None and before.connected_ms > 0

    def connect(self) -> None:
        """It has one more connection."""
        if self._was_connected:
            self._reconnects += 1
        self._was_connected = True

    def reject_ack(self, reason: RefusalReason) -> None:
        """A report of it could not be true."""
        self._rejected_acks[reason] = self._rejected_acks.get(reason, 0) + 1

    def absorb(self, other: ReplicaTotals) -> None:
        """`other` was the same replica, known by a worse id at the same time as this: what it
        counted belongs here, but not its time, which was counted here, too."""
        self.transferred += other.transferred
        self._reconnects += other._reconnects + (self._was_connected and other._was_connected)
        self._was_connected |= other._was_connected
        for reason, count in other._rejected_acks.items():
            self._rejected_acks[reason] = self._rejected_acks.get(reason, 0) + count

    def now(self) -> TotalsNow:
        """A copy."""
        return TotalsNow(
            transferred=self.transferred,
            reconnects=self._reconnects,
            rejected_acks=dict(self._rejected_acks),
            state_ms=self.clock.spent_ms(),
        )
