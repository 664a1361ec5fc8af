"""Why a replication link was refused or closed, and how often: one counter for each reason.

The counters live on the control page, so that metrics and HA status show them and they outlive a
restart of process `ha`, their only writer. Any thread of that process may count (a lock guards).
"""

from __future__ import annotations

import enum
import threading
from typing import Final

from ha.control_slots import HA_REFUSALS
from ipc.control_page import ControlPage


class RefusalReason(enum.IntEnum):
    """The number is the slot behind HA_REFUSALS: only ever append, at most 32."""

    UNKNOWN_PEER = 0
    """Either side: its address is not trusted, and it cannot prove itself (no secret here)."""
    TOO_MANY_CONNECTIONS = 1
    """Master: haMaxConnections, or too many pending connections."""
    SILENT = 2
    """Either side: nothing came for haHousekeepingInterval."""
    NEGATIVE = 3
    """Master: a report below 0."""
    BEYOND_MAX = 4
    """Master: the first report is beyond the log's end: the slave is ahead, or not a slave."""
    BELOW_MIN = 5
    """Master: the first report is before the log's start, where nothing is left to send."""
    BEYOND_SENT = 6
    """Master: a later report is beyond what was sent."""
    DECREASING = 7
    """Master: a report below an earlier one."""
    TLS = 8
    """Either side: no TLS, or no valid certificate."""
    NETWORK = 9
    """Either side: the connection broke."""
    OFFSET_MISMATCH = 10
    """Slave: a frame that does not continue the log."""
    BAD_FRAME = 11
    """Slave: an impossible header, or a frame that crosses a file's end."""
    BAD_RECORD = 12
    """Slave: bytes that are no records, or (validated, flushed) whose body's CRC is wrong."""
    AHEAD = 13
    """Slave: it holds more than its master."""
    DIVERGED = 14
    """Slave: its bytes differ from its master's."""
    BEHIND_MASTER_MIN = 15
    """Slave: the master no longer has the next bytes: it starts over."""
    NOT_PROVED = 16
    """Either side: the peer did not prove haSharedSecretFile's secret."""
    BAD_HANDSHAKE = 17
    """Either side: a hello that cannot be read."""
    BAD_CHECKSUM = 18
    """Either side: a frame, a report or a hello was damaged on its way."""
    UNEXPECTED_RECORD = 19
    """Slave: a record that cannot be the next one, by its queue offset or another field."""
    NOT_MASTER = 20
    """In controller mode: who was asked for its log does not lead its group now."""


class RefusalCounters:
    """The counters. Any thread of process `ha`."""

    def __init__(self, page: ControlPage) -> None:
        self._counters = page.counters
        self._lock: Final = threading.Lock()

    def count(self, reason: RefusalReason) -> None:
        """One more link was refused or closed for `reason`."""
        with self._lock:
            self._counters[HA_REFUSALS + reason] += 1

    def snapshot(self) -> dict[str, int]:
        """Reason (lower case) to count, those that occurred."""
        found = {r.name.lower(): self._counters[HA_REFUSALS + r] for r in RefusalReason}
        return {name: count for name, count in found.items() if count}
