"""GetMessageStatus: what a look at a queue gives, by RocketMQ's names, and where an offset lies.

Pure, any thread; the one rule for pulls, pops, peeks and inner batches. Corresponds to
GetMessageStatus and the beginning of DefaultMessageStore.getMessage of RocketMQ.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FOUND: Final = b"FOUND"
NO_MATCHED_MESSAGE: Final = b"NO_MATCHED_MESSAGE"
"""Messages were looked at, and the filter wanted none."""
MESSAGE_WAS_REMOVING: Final = b"MESSAGE_WAS_REMOVING"
"""Their records are no longer there, or damaged."""
OFFSET_FOUND_NULL: Final = b"OFFSET_FOUND_NULL"
"""The queue says that there are messages, and its file that there are none."""
NO_MESSAGE_IN_QUEUE: Final = b"NO_MESSAGE_IN_QUEUE"
OFFSET_OVERFLOW_ONE: Final = b"OFFSET_OVERFLOW_ONE"
"""The offset of the next message to come."""
OFFSET_OVERFLOW_BADLY: Final = b"OFFSET_OVERFLOW_BADLY"
OFFSET_TOO_SMALL: Final = b"OFFSET_TOO_SMALL"


class Outside(NamedTuple):
    """Why there is nothing at an offset of a queue, and where there will be something."""

    status: bytes
    following: int
    """The offset to go on from."""
    moved: bool
    """Whether whoever asked has to go there; otherwise it is at the end and waits."""


def find_outside(low: int, high: int, queue_offset: int) -> Outside | None:
    """What an offset is in a queue that holds [low, high); None: it is within."""
    if low <= queue_offset < high:
        return None
    if high == 0:
        return Outside(NO_MESSAGE_IN_QUEUE, 0, queue_offset != 0)
    if queue_offset == high:
        return Outside(OFFSET_OVERFLOW_ONE, high, False)
    if queue_offset > high:
        return Outside(OFFSET_OVERFLOW_BADLY, high, True)
    return Outside(OFFSET_TOO_SMALL, low, True)
