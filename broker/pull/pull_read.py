"""PullRead: what one look at a queue gave a pull.

Data of the loop thread, made by PullMessageProcessor, BatchPull and CompactionPull.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from broker.pull.pull_settings import PullSettings
from remoting.connection import Buffer
from remoting.response_code import ResponseCode
from store.get_message_status import Outside


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
    """They were taken at once, all or those with some tags, from a block of units which holds the
    next, too: the pull that follows can have them from KnownPulls."""


def read_outside(
    outside: Outside, queue_offset: int, low: int, high: int, settings: PullSettings
) -> PullRead:
    """The answer to a pull at `queue_offset`, where a queue that holds [low, high) has nothing. A
    slave that does not check offsets sends nobody elsewhere: its master may know more."""
    code = ResponseCode.PULL_OFFSET_MOVED if outside.moved else ResponseCode.PULL_NOT_FOUND
    if not settings.is_slave or settings.offset_check_in_slave:
        return PullRead(code, outside.status, outside.following, low, high)
    if outside.moved:
        code = ResponseCode.PULL_RETRY_IMMEDIATELY
    return PullRead(code, outside.status, queue_offset, low, high)
