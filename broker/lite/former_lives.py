"""FormerLives: whether a group's offset in a light queue is of a lite topic that has ended since.

A lite topic that begins again begins at offset 0. Who takes a table of offsets over, from its file
after a kill or from its master, may have one of before: the group would never be given what comes
in the place of what it has got. A table is known to be as new as some position in the log
(ConsumerOffsetManager.known_to): offsets of a light queue whose first message lies before it are of
its present life, since the old ones went with the old queue; of others nobody can tell, and they
do not count. Each is looked at once, when it is first asked for. Used by LiteQueues, any thread.

Tested by tests/broker/lite/test_former_lives.py.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR
from store.errors import QueueDamagedError


class FormerLives:
    """See the module."""

    def __init__(self, first_place: Callable[[str], int | None]) -> None:
        """first_place: where the first message of a light queue lies in the log; None, or
        QueueDamagedError: it cannot be read now."""
        self._first_place = first_place
        self._doubtful: set[str] = set()
        self._known_to = 0

    def begin(self, keys: set[str], known_to: int | None, log_end: int) -> None:
        """The offsets with these keys were taken over, of a table that is as new as `known_to`;
        None: nobody knows, and they are believed. log_end: now; the log may have lost its end, and
        others come in its place."""
        self._doubtful = set() if known_to is None else keys
        self._known_to = 0 if known_to is None else min(known_to, log_end)

    def settle(self, group: str, lmq: str) -> None:
        """The offset was set."""
        if self._doubtful:
            self._doubtful.discard(f"{lmq}{TOPIC_GROUP_SEPARATOR}{group}")

    def is_former(self, group: str, lmq: str) -> bool:
        """Whether the offset does not count: it is to be set."""
        if not self._doubtful:
            return False
        if f"{lmq}{TOPIC_GROUP_SEPARATOR}{group}" not in self._doubtful:
            return False
        try:
            place = self._first_place(lmq)
        except QueueDamagedError:  # It is being rebuilt.
            place = None
        if place is None:
            return False  # It cannot be read now.
        self.settle(group, lmq)
        return place >= self._known_to
