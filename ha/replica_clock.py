"""ReplicaClock: how long a replica was in each state.

Pure: the time is an argument. `observe` is called with the state a few times a second; the time
until the next call counts for that state. A long gap means that this process was not running, so
the replica was not served either: it counts as disconnected. The numbers only grow, and their sum
is the time since the beginning. It knows no connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ha.slave_progress import ReplicaState

GAP_MS: Final = 2_000
"""A longer gap is disconnected time (broker/metrics/replica_view.py shows it so, too)."""


class ReplicaClock:
    """Ms in each state. Owned by: whoever tells it the states, under that one's lock."""

    def __init__(
        self,
        since_ms: int,
        state: ReplicaState = ReplicaState.disconnected,
        spent_ms: Mapping[ReplicaState, int] | None = None,
    ) -> None:
        """In `state` from `since_ms` (monotonic) on; `spent_ms` was counted before that."""
        self._told_ms = since_ms
        self._state = state
        self._spent_ms = dict.fromkeys(ReplicaState, 0) | dict(spent_ms or {})

    def observe(self, state: ReplicaState, now_ms: int) -> None:
        """It is in `state` at `now_ms` (monotonic); what was before that is counted."""
        elapsed_ms = now_ms - self._told_ms
        if elapsed_ms > 0:
            before = self._state if elapsed_ms <= GAP_MS else ReplicaState.disconnected
            self._spent_ms[before] += elapsed_ms
            self._told_ms = now_ms
        self._state = state

    def spent_ms(self) -> dict[ReplicaState, int]:
        """Ms in each state, up to the last `observe`; a copy."""
        return dict(self._spent_ms)
