"""ConfirmedLogReader: the log as clients may see it where a controller chooses the master.

What no other member of the group has may still be cut off, and was answered to nobody: consumers
must not see it (slot 15, confirm_offset). Queues end there, since process `store` does not dispatch
further; this is for reads that name a position of the log (33, 11 and the like), which no queue
bounds.
"""

from __future__ import annotations

from store.commit_log_reader import CommitLogReader
from store.control_slots import CONFIRM_OFFSET


class ConfirmedLogReader(CommitLogReader):
    """See the module. Owned by: the thread that uses it."""

    def record_at(self, phy_offset: int) -> bytes | None:
        """A copy of the validated record at `phy_offset`; None for one that is not confirmed as a
        whole."""
        record = super().record_at(phy_offset)
        if record is None or phy_offset + len(record) > self._counters[CONFIRM_OFFSET]:
            return None
        return record

    def store_timestamp_at(self, phy_offset: int) -> int:
        """Wall clock ms at which the record was stored; -1 for one that nobody may see."""
        return -1 if self.record_at(phy_offset) is None else super().store_timestamp_at(phy_offset)
