"""TakenRole: a role that a member of a group with a controller took, and the file that keeps it.

Plain data; any thread. Process `ha` writes the file (broker/failover/role_log.py), the supervisor
reads it for the metrics and the dump.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

FILE_NAME: Final = "memberRoles.json"
"""In the store's directory."""


class TakenRole(msgspec.Struct, frozen=True, kw_only=True):
    """One role; named as in the metrics dump (docs/metrics_dump.md). Offsets in bytes."""

    number: int
    """1, 2, 3 … over all lives of this store."""
    ts: int
    """Wall clock ms at which it was taken; of a leader: from then on it takes messages."""
    mono: int
    """The same by the monotonic clock, ms."""
    machine_boot: str
    """16 hexadecimal digits: this boot of the machine, to which `uptime` belongs."""
    uptime: int
    """ms since the machine has booted, sleep included."""
    role: str
    """LEAD, FOLLOW, FENCED."""
    cause: str
    id: int
    """The own id; 0: none yet."""
    epoch: int
    master: int | None
    old_epoch: int
    """0: none in this life of process `ha`."""
    old_master: int | None
    without_master_ms: int | None
    """How long before this moment this broker last led, or was linked with its master (200 ms too
    long at most); None: not since it was started."""
    members: list[int]
    """The SyncStateSet as the controller told it with the epoch."""
    confirm_offset: int
    log_end: int


class TakenRoles(msgspec.Struct):
    """The file."""

    roles: list[TakenRole]


_read: Final = msgspec.json.Decoder(TakenRoles).decode
"""Made at import, by one thread: remoting/shared_decoders.py says why."""


def read_roles(path: Path) -> list[TakenRole]:
    """Those that are kept, the oldest first; none where there is no file. Raises OSError,
    msgspec.DecodeError for a file that is damaged."""
    try:
        return _read(path.read_bytes()).roles
    except FileNotFoundError:
        return []
