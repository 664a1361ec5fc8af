"""UnwritableQueues: light queues whose files cannot be written, while all others go on.

In process `store`, part of ConsumeQueueFiles, under the lock of ConsumeQueueTable. There are as
many light queues as clients: one whose directory is a file, or whose blocks are bad, must not hold
up the others, which share the memory of unwritten units with it. Such a queue keeps there what
it has (MOST_OF_QUEUE units), gets no further ones, and is tried again
(RebuildConsumeQueueService), which then looks for the others in the log. As long as there is one,
the checkpoint stays where it is, so that a recovery looks as far back. Of more than a few
queues, and of a full disk, it is not the queue that is to blame. It knows no units.

Tested by tests/store/test_unwritable_queues.py.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from store.errors import DiskFullError, FlushFailedError, StoreError
from store.mapped_file import NO_SPACE

log = logging.getLogger(__name__)

_SOME_ROOM: Final = 64 << 20
"""A disk with so much room is not full, whatever a single write says."""
_OF_PROCESS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

QueueName = tuple[str, int]
"""Topic, queue id."""


class UnwritableQueue:
    """What is known of one. Owned by: UnwritableQueues."""

    __slots__ = ("first_entry", "following", "left_out_end")

    def __init__(self) -> None:
        self.first_entry = 0
        """Number of the first of its entries that count (UnwrittenUnits.move_to_end)."""
        self.left_out_end = 0
        """End in the log of the last record that got no unit; 0: none was left out."""
        self.following = 0
        """The queue offset behind those that were left out."""

    def leave_out(self, following: int, end: int) -> None:
        """Records before the queue offset `following` get no unit; the last one ends at `end`."""
        self.following = max(self.following, following)
        self.left_out_end = max(self.left_out_end, end)


class UnwritableQueues:
    """See the module."""

    def __init__(self, root: Path, most: int) -> None:
        """root: <storePathRootDir>/consumequeue. most: so many at the same time."""
        self._root: Final = root
        self._most: Final = most
        self._queues: Final[dict[QueueName, UnwritableQueue]] = {}
        self.is_light: Callable[[str], bool] = lambda _topic: False
        """Whether a topic's queues are light ones."""
        self.on_change: Callable[[int], None] = lambda _count: None
        """Hears how many there are."""

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[QueueName]:
        return iter(list(self._queues))

    def __contains__(self, name: object) -> bool:
        return name in self._queues

    def find(self, name: QueueName) -> UnwritableQueue | None:
        """None: the queue can be written, as far as is known."""
        return self._queues.get(name)

    def add(self, name: QueueName, error: Exception) -> UnwritableQueue:
        """The queue could not be written. Raises `error`: that is not the queue's fault."""
        is_many = name not in self._queues and len(self._queues) >= self._most
        if is_many or isinstance(error, FlushFailedError) or not self._is_of_queue(error):
            raise error
        log.error(
            "light queue %s/%s cannot be written, others go on: %s; what does not fit into memory "
            "is looked for in the log once it can; until then the checkpoint stays where it is",
            *name,
            error,
        )
        state = self._queues.setdefault(name, UnwritableQueue())
        self.on_change(len(self._queues))
        return state

    @contextmanager
    def passing_by(self, name: QueueName) -> Iterator[None]:
        """For what writes to the files of any queue, under the lock: goes on without a light queue
        whose files cannot be written."""
        try:
            yield
        except (StoreError, OSError) as error:
            if not self.is_light(name[0]):
                raise
            self.add(name, error)

    def remove(self, name: QueueName) -> None:
        """It can be written again, and lacks nothing; or it is deleted."""
        if self._queues.pop(name, None) is not None:
            self.on_change(len(self._queues))

    def _is_of_queue(self, error: Exception) -> bool:
        cause = error if isinstance(error, OSError) else error.__cause__
        number = cause.errno if isinstance(cause, OSError) else None
        if number in _OF_PROCESS:
            return False
        is_full = isinstance(error, DiskFullError) or number in NO_SPACE
        return not is_full or self._has_room()

    def _has_room(self) -> bool:
        try:
            found = os.statvfs(self._root)
        except OSError:
            return False
        has_names = not found.f_files or found.f_favail > 0
        return has_names and found.f_bavail * found.f_frsize >= _SOME_ROOM
