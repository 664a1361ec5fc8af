"""CheckPoint: what one pop took from a queue, and the key by which its acks find it.

Pure data, any thread. The one shape of it in memory: the pop makes it, the buffer keeps it, the
journal mirrors it, the revival gets it back. Its codecs are at the edges: a row of PopJournal, and
PopCheckPoint, the JSON of the revive topic.
"""

from __future__ import annotations

from typing import NamedTuple

CheckPointKey = tuple[str, str, int, int, int]
"""Topic, group, queue id, start offset, pop time. (RocketMQ's is a text without separators, in
which queue 1 at 12 and queue 11 at 2 are one.)"""


class CheckPoint(NamedTuple):
    """See the module. Times in ms of the wall clock."""

    topic: str
    """Where the messages are: a retry topic, if they came from there."""
    group: str
    queue_id: int
    start_offset: int
    diffs: tuple[int, ...]
    """Of the messages' queue offsets to the start offset; none: nothing matched."""
    pop_time_ms: int
    invisible_time_ms: int
    revive_queue_id: int
    next_offset: int = -1
    """Where the next pop begins; -1: no offset waits for it (a changed invisible time, or it is
    back from the timer)."""
    suspends: bool = False
    """The message was given back unread: it comes again without counting as an attempt (200053
    with `suspend`, of 5.5)."""

    @property
    def key(self) -> CheckPointKey:
        """By which acks find it."""
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time_ms

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of its messages."""
        return [self.start_offset + diff for diff in self.diffs]

    @property
    def revive_time_ms(self) -> int:
        """When its messages become visible again."""
        return self.pop_time_ms + self.invisible_time_ms
