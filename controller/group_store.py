"""What a store of groups is to the controller, and how it says that it cannot be used.

Any thread; no store. Kept by controller/embedded_store.py (a file) and controller/etcd_store.py
(etcd).
"""

from __future__ import annotations

from typing import Protocol

from controller.events import Stored, Swap, SwapEnded


class ControllerStoreError(Exception):
    """The store cannot be used now; the message names it, the reason, and what to do."""


class UnreadableGroupError(ControllerStoreError):
    """The store is there, and what it holds of one group is nothing that a controller writes."""


class GroupStore(Protocol):
    """Where the groups are kept. All calls are made by one thread."""

    def swap(self, swap: Swap) -> SwapEnded:
        """Write a group. Raises OSError, ControllerStoreError: it is not known whether it is
        written, or will be yet."""

    def load(self, broker_name: str) -> Stored:
        """A group as stored now. Raises OSError, ControllerStoreError; of the latter
        UnreadableGroupError, if asking again is of no use."""

    def close(self) -> None:
        """Give back what it holds. Idempotent."""
