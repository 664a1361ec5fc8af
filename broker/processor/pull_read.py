"""PullRead: what one look at a queue gave a pull.

Pure data of the loop thread, made by PullMessageProcessor, BatchPull and CompactionPull.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remoting.connection import Buffer


class PullRead(msgspec.Struct, frozen=True, gc=False):
    """The answer's code and numbers, and the records, not copied yet."""

    code: int
    status: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    slow: bool = False
    """The consumer is so far behind that it reads from the disk."""
    pieces: Sequence[Buffer] = ()
    """The records, of `size` bytes together; neighbours in the log are one piece."""
    size: int = 0
    count: int = 0
    more_at_hand: bool = False
    """They were taken at once, without a filter, from a block of units which holds the next, too:
    the pull that follows can have them from KnownPulls."""
