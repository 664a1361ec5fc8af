"""SyncKind: the kinds of metadata that a slave copies from its master.

Process `remoting` counts by it (SlaveSynchronize), the supervisor shows it (metrics, dumps). Knows
nothing of how a kind is fetched. Its slots of the control page, written by `remoting`:

    slot   meaning
    96+k   wall clock ms of the last success of kind k
    100+k  failures of kind k
"""

from __future__ import annotations

import enum
from typing import Final

from ipc.control_page import claim_slots

SLAVE_SYNC_SUCCESS: Final = claim_slots("slave_sync_success", 96, 4)
SLAVE_SYNC_FAILURES: Final = claim_slots("slave_sync_failures", 100, 4)


class SyncKind(enum.IntEnum):
    """What is taken over; the number is what is added to its slots."""

    TOPICS = 0
    CONSUMER_OFFSETS = 1
    DELAY_OFFSETS = 2
    SUBSCRIPTION_GROUPS = 3

    @property
    def label(self) -> str:
        """Its name in metrics and dumps."""
        return self.name.lower()
