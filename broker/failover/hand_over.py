"""HandOver: a leader that cannot go on has another member of its set elected. Pure. One thread.

It refuses puts from then on, so that its log grows no more. A moment later, when what was being put
is in the log, too, it waits until one of the set has all of it, and asks the controller to elect
that one (1002, designated): nothing is lost in any mode, and nobody waits for a timeout. Should
that not do, the controllers find it dead, since a leader that is to be replaced sends no
heartbeats. Without anybody else of the set it does none of this: it waits for its process, as
nobody could stand in for it. Nor does it ask for one who has led a moment ago: a record that ends
each member's `store` would have them elected one after the other without end.
"""

from __future__ import annotations

from typing import Final

from broker.failover.messages import LogEnds
from broker.failover.sync_state import SyncState

SETTLE_MS: Final = 100
"""Process `remoting` may have found puts allowed just before they were refused."""


class HandOver:
    """Owned by the member."""

    def __init__(self, rest_ms: int) -> None:
        """rest_ms: for how long nobody is asked for who has led."""
        self._rest_ms = rest_ms
        self.lacking = ""
        """Why this broker could not lead (Fitness); empty: it could."""
        self.ticket: int | None = None
        """Of the last request; an answer may be under way."""
        self.may_ask = True
        """Once between two ticks, whatever the answers are."""
        self.is_on = False
        """Whether another one may lead at any moment, as this one has asked for that."""
        self._since_ms: int | None = None
        self._led: dict[int, int] = {}
        """Who has led lately, and until when that counts."""

    def turn(self, now_ms: int, *, on: bool) -> bool:
        """Puts are refused, or not any more; whether the latter is new."""
        was_on, self.is_on = self._since_ms is not None, on
        if not on:
            self._since_ms = None
        elif not was_on:
            self._since_ms = now_ms
        return was_on and not on

    def ticked(self, now_ms: int) -> None:
        """Some time has passed."""
        self.may_ask = True
        self._led = {one: until_ms for one, until_ms in self._led.items() if now_ms < until_ms}

    def led(self, broker_id: int | None, now_ms: int) -> None:
        """This one was the master until now; None: there was none."""
        if broker_id is not None:
            self._led[broker_id] = now_ms + self._rest_ms

    def is_wanted(self, state: SyncState | None) -> bool:
        """state: of a leader. Whether it has to be replaced, and somebody could do so."""
        return bool(self.lacking) and state is not None and bool(self._heirs(state))

    def find_heir(self, state: SyncState, log: LogEnds, now_ms: int) -> int | None:
        """Who has all of the leader's log, if it is to be replaced; None before the log is known to
        grow no more."""
        if not self.lacking or self._since_ms is None or now_ms - self._since_ms < SETTLE_MS:
            return None
        complete = [one for one, ack_offset in self._heirs(state).items() if ack_offset >= log.end]
        return min(complete, default=None)

    def _heirs(self, state: SyncState) -> dict[int, int]:
        return {one: ack for one, ack in state.heirs().items() if one not in self._led}
