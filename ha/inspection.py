"""What the slave side asks of the rest of the broker before it follows a master.

Pure data and Protocols: the answers come from the processes `remoting` (is this our master's log?)
and `store` (begin the log, prepare a new start); the composition root wires the channels. Any
thread of process `ha`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """What a slave shall do, after its log was compared with its master's."""

    WAIT = "wait"
    """The master's address is unknown, or it does not answer; the text says what is missing."""
    GO = "go"
    """Connect, and go on where our log ends."""
    START_AT = "start_at"
    """Our log is empty: it begins at start_offset, where the master's history begins."""
    AHEAD = "ahead"
    """We hold more than the master."""
    DIVERGED = "diverged"
    """We hold something else than the master."""
    BELOW_MIN = "below_min"
    """What comes next for us is gone on the master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """One comparison. Offsets are positions in the commit log, -1 where they are not known;
    addresses "ip:port"."""

    verdict: Verdict
    text: str = ""
    """For people: why, and what was compared."""
    ha_address: str | None = None
    """The master's HA port."""
    master_address: str | None = None
    """The master's remoting port."""
    start_offset: int = 0
    """START_AT: where the log begins."""
    master_min: int = -1
    master_max: int = -1
    common_offset: int = -1
    """AHEAD and DIVERGED: the end of the last record that both have; -1: there is none."""
    ha_protocol: int = 0
    """The version of our handshake that the master speaks (handshake.py); 0: none, or unknown."""
