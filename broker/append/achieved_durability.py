"""AchievedDurability: how safe the log is up to an offset, now.

Read from the control page when a send that asks for it is answered (loop thread of `remoting`). It
waits for nothing and knows no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ha.control_slots import REPLICA_FLUSHED_OFFSET
from ha.link_loan import replicated_offset
from remoting.headers.durability import Durability, durability_fields
from store.control_slots import FLUSHED_OFFSET

_BY_SLOT: Final = (
    (FLUSHED_OFFSET, Durability.FLUSHED),
    (REPLICA_FLUSHED_OFFSET, Durability.REPLICA_FLUSHED),
)


class AchievedDurability:
    """See the module."""

    def __init__(self, counters: Sequence[int], in_sync_replicas: int) -> None:
        """counters: of the control page."""
        self._counters = counters
        self._replicas = max(in_sync_replicas - 1, 1)

    def fields(self, end_offset: int) -> dict[str, str]:
        """The ext fields of the answer to a send whose last record ends at `end_offset`."""
        found = Durability.MEMORY
        for slot, achieved in _BY_SLOT:
            if end_offset <= self._counters[slot]:
                found |= achieved
        if end_offset <= replicated_offset(self._counters):
            found |= Durability.REPLICATED
        return durability_fields(found, self._replicas)
