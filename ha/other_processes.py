"""OtherProcesses: what process `ha` asks the other processes of its broker to do.

A Protocol, implemented by broker/processes/ha.py over command channels. Called on threads of the
services that need an answer; each call may block for seconds. It knows no channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ha.inspection import Inspection


class OtherProcesses(Protocol):
    """`remoting` for questions about other brokers, `store` for changes of the log."""

    def fetch_members(self) -> Mapping[int, str] | None:
        """Broker id to IP of the registered brokers of this group; None: unknown. Never raises."""

    def verify_replica(self, ip: str, offset: int) -> bool | None:
        """Whether the registered slave at `ip` holds our bytes up to `offset`; None: it could not
        be asked. Never raises."""

    def inspect_master(self, max_phy_offset: int, min_phy_offset: int) -> Inspection:
        """Find the master and compare its log with ours, which is [min_phy_offset, max_phy_offset).
        Raises StoreError: the comparison could not be requested."""
        ...

    def begin_log(self, phy_offset: int) -> None:
        """Tell process `store` where our empty log starts, at the start of a file
        (store/log_start.py). Raises StoreError."""

    def request_resync(self, action: str, offset: int, reason: str) -> None:
        """Have our log changed in a way that only a closed store allows (store/replica_resync.py).
        action: "start_over" (all files are moved aside; offset: the master's minimum) or
        "truncate" (back to offset). Ends this process soon. Raises StoreError."""
