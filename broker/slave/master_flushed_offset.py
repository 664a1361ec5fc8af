"""MasterFlushedOffset: how far its master's log was on disk, as a slave was told (906, 908).

A number of RocketMQ 5.x that is kept in the checkpoint, shown (907), and used by nothing else,
there and here. It lives in a slot of the control page: set by process `remoting`, any thread,
written down by `store`.
"""

from __future__ import annotations

import logging

from store.control_slots import MASTER_FLUSHED_OFFSET

log = logging.getLogger(__name__)


class MasterFlushedOffset:
    """The slot. Bytes of the commit log; 0: nothing was told."""

    def __init__(self, counters: memoryview[int], *, taken_at_startup: bool) -> None:
        """taken_at_startup: syncMasterFlushOffsetWhenStartup."""
        self._counters = counters
        self._taken_at_startup = taken_at_startup

    @property
    def value(self) -> int:
        """As it was set last."""
        return self._counters[MASTER_FLUSHED_OFFSET]

    def reset(self, offset: int, requester: str) -> None:
        """An operator sets it (908)."""
        log.warning("masterFlushedOffset: %s, was %s, set by %s", offset, self.value, requester)
        self._counters[MASTER_FLUSHED_OFFSET] = offset

    def offer(self, offset: int | None) -> None:
        """The master said it (906): taken if nothing is known yet and the settings say so."""
        if self._taken_at_startup and offset is not None and offset > 0 and not self.value:
            log.info("masterFlushedOffset: %s, from the master", offset)
            self._counters[MASTER_FLUSHED_OFFSET] = offset
