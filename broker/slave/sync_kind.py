"""SyncKind: the kinds of metadata that a slave takes over from its master.

Process `remoting` counts by it (SlaveSynchronize), the supervisor shows it (metrics, dumps). Knows
nothing of how a kind is fetched.
"""

from __future__ import annotations

import enum


class SyncKind(enum.IntEnum):
    """What is taken over; the number is its slot on the control page."""

    TOPICS = 0
    CONSUMER_OFFSETS = 1
    DELAY_OFFSETS = 2
    SUBSCRIPTION_GROUPS = 3

    @property
    def label(self) -> str:
        """Its name in metrics and dumps."""
        return self.name.lower()
