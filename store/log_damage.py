"""LogDamage: what follows from damage in the commit log for everything that is built from it.

Process `store`: at recovery the main thread, afterwards the dispatch thread. The units of records
that cannot be read become blank ones, so that a pull steps over them; their queue offsets are used
up, and are not given to other messages; the fence is noted (FenceKeeper). It finds no damage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from store.commit_log_reader import CommitLogReader
from store.consume_queue_table import ConsumeQueueTable
from store.errors import StoreError
from store.fence_keeper import FenceKeeper
from store.log_fences import FARTHEST_GUESS, Fence, new_fence
from store.message_codec import SIZE_AND_MAGIC
from store.record_arrays import MIN_RECORD_SIZE
from store.record_search import guess_queue


class LogDamage:
    """See the module."""

    def __init__(
        self, keeper: FenceKeeper, queues: ConsumeQueueTable, source: CommitLogReader
    ) -> None:
        """source: of the thread that uses this object."""
        self.keeper: Final = keeper
        self._queues = queues
        self._source = source

    def fence_off(self, start: int, end: int, reason: str, dispatched: int = 0) -> None:
        """[start, end) of the log is damage; everything before is dispatched, and of the rest what
        is before `dispatched`. Raises StoreError, OSError.

        Of zeros at its end nobody but a living writer can say which records they were: for one that
        starts anew the fence says of queues that had some lately how far they may have come. All is
        noted before the fence is seen, which such a writer waits for.
        """
        fence = self._with_queues(new_fence(start, end, reason))
        self._reserve(fence)
        unseen = max(start, dispatched)
        if unseen < end and self._ends_in_zeros(end):
            most = min((end - unseen) // MIN_RECORD_SIZE, FARTHEST_GUESS)
            lately = self._queues.ends_behind(start - self._source.file_size)
            farthest = ((topic, queue_id, at + most) for topic, queue_id, at in lately)
            fence = replace(fence, queues=tuple(sorted({*fence.queues, *farthest})))
        self.keeper.add(fence)

    def _ends_in_zeros(self, end: int) -> bool:
        """Whether what lies before `end` cannot be a record's end: a file was truncated there. (A
        damaged record still has its topic or properties.)"""
        try:
            view = self._source.view_of_file(end - 1)
        except StoreError:
            return False
        if view is None:
            return False
        with view:
            at = (end - 1) % self._source.file_size + 1
            return not any(view[max(at - SIZE_AND_MAGIC.size, 0) : at])

    def blank_out(self) -> None:
        """Before a recovery's dispatch: no unit names a record inside of any fence. Raises
        StoreError, OSError."""
        for fence in self.keeper.fences:
            found = self._with_queues(fence)
            if found != fence:
                self.keeper.add(found)

    def reserve(self, dispatched: int) -> None:
        """After a recovery's dispatch up to `dispatched`: no queue offset of a record inside of a
        fence is given to another message. Raises StoreError.

        What lies behind is left to the writer: its queues have records to come before it."""
        for fence in self.keeper.fences:
            if fence.start < dispatched:
                self._reserve(fence)

    def _with_queues(self, fence: Fence) -> Fence:
        """With all queues that are known to have records inside, whose units are blank now."""
        return replace(fence, queues=tuple(sorted({*fence.queues, *self._inside(fence)})))

    def _inside(self, fence: Fence) -> Iterable[tuple[str, int, int]]:
        yield from self._queues.blank_out(fence.start, fence.end)
        try:
            view = self._source.view_of_file(fence.start)
        except StoreError:
            return
        if view is None:
            return
        with view:
            position = fence.start % self._source.file_size
            guess = guess_queue(view, position, len(view))
        if guess is not None:
            yield guess

    def _reserve(self, fence: Fence) -> None:
        for topic, queue_id, following in fence.queues:
            queue = self._queues.find(topic, queue_id)
            if queue is not None and following - queue.max_offset <= FARTHEST_GUESS:
                self._queues.reserve(topic, queue_id, following)
