"""HAClientInfo: a snapshot of the slave's client, for HA status and metrics.

Pure data, made by HAClient.snapshot on any thread. It knows no socket and no JSON.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ha.last_error import SeenError
from ha.master_hello import MasterHello


class HAClientState(enum.Enum):
    """What the client is doing."""

    WAITING_FOR_ADDRESS = "waiting_for_address"
    INSPECTING = "inspecting"
    CONNECTING = "connecting"
    TRANSFER = "transfer"
    REFUSED = "refused"
    """Our log is not a prefix of the master's: see last_error; inspected again periodically."""
    RESTING = "resting"
    """After a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HAClientInfo:
    """The client at one moment. Times are wall clock ms, addresses "ip:port"."""

    state: HAClientState
    master_address: str | None
    """The master's HA port; None while it is unknown."""
    local_address: str | None
    """Our end of the open link."""
    master_hello: MasterHello | None
    """What the master of the open link says of itself; None without a link."""
    max_offset: int
    """The end of our log."""
    last_read_ms: int
    """Last bytes from the master; 0 never."""
    last_write_ms: int
    """Last report to it; 0 never."""
    bytes_per_second: int
    """Log bytes received lately."""
    received: int
    """Log bytes over all links of this process."""
    connected_since_ms: int | None
    """None without a link."""
    last_error: SeenError | None
    """Why the last link was closed or could not be opened, or why the open one is stalled."""
    last_inspection: str | None
    """Result of the last comparison of our log with the master's."""
    last_inspection_ms: int | None
    """None: never."""
