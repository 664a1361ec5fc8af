"""SetTransferService: in controller mode, which replicas there are and how near they are.

GroupTransferService without its two offsets: up to where enough replicas have the log depends on
the SyncStateSet there, so that the member of the group says it (slot 16). Slot 22 stays 0: a send
that waits for a disk waits for the set's reports, which then mean "on disk".

Tested by tests/ha/test_autoswitch_ha_service.py.
"""

from __future__ import annotations

from ha.control_slots import REPLICA_COUNT
from ha.group_transfer_service import GroupTransferService
from store.control_slots import MAX_PHY_OFFSET


class SetTransferService(GroupTransferService):
    """See the module. Sole writer of REPLICA_COUNT in controller mode."""

    def _withdraw(self) -> None:
        self._counters[REPLICA_COUNT] = 0

    def _publish(self) -> None:
        if self._closed:
            return
        near = self._counters[MAX_PHY_OFFSET] - self._fallbehind_max
        count = sum(progress.position > near for progress in self._registry.counted)
        if count != self._count:
            self._counters[REPLICA_COUNT] = self._count = count
            self._ring()
