"""HandOver: a leader that cannot go on has another member of its set elected. Pure. One thread.

It refuses puts from then on, so that its log grows no more, waits until one of the set has all of
it, a moment later, and asks the controller to elect that one (1002, designated): nothing is lost in
any mode, and nobody waits for a timeout. Should that not do, the controllers find it dead, since a
leader that is to be replaced sends no heartbeats. Without anybody else of the set it does none of
this: it waits for its process, as nobody could stand in for it.
"""

from __future__ import annotations

from broker.failover.messages import LogEnds
from broker.failover.sync_state import SyncState


class HandOver:
    """Owned by the member."""

    def __init__(self) -> None:
        self.lacking = ""
        """Why this broker could not lead (Fitness); empty: it could."""
        self.ticket: int | None = None
        """Of the last request; an answer may be under way."""
        self.may_ask = True
        """Once between two ticks, whatever the answers are."""
        self.is_on = False
        """Whether another one may lead at any moment, as this one has asked for that."""

    def is_wanted(self, state: SyncState | None) -> bool:
        """state: of a leader. Whether it has to be replaced, and somebody could do so."""
        return bool(self.lacking) and state is not None and bool(state.heirs())

    def find_heir(self, state: SyncState, log: LogEnds) -> int | None:
        """Who has all of the leader's log, if it is to be replaced."""
        if not self.lacking:
            return None
        complete = [one for one, ack_offset in state.heirs().items() if ack_offset >= log.end]
        return min(complete, default=None)
