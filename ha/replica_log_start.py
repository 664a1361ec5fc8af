"""ReplicaLogStart: gives a slave's empty log its first offset, together with process `store`.

Runs on HAClient's thread, between frames. The log's start is agreed in three steps: the writer
resets its end (ReplicaLog.reset_start), `store` makes the first file, the writer goes there. It
knows no frames and no master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ha.client_selector import ClientSelector
from ha.inspection import Inspection
from ha.link_errors import LinkClosedError
from ha.master_hello import MasterHello
from ha.refusals import RefusalReason
from ipc.clock import Clock
from store.errors import StoreError
from store.replica_log import ReplicaLog

log = logging.getLogger(__name__)

_FIRST_FILE_MS: Final = 5_000
_POLL_MS: Final = 5


def as_master_says(found: Inspection, hello: MasterHello) -> Inspection:
    """The inspection with the log's ends that the master of the link told, if it did: those of the
    inspection are the word of whoever is registered."""
    if hello.min_phy_offset < 0:
        return found
    return replace(found, start_offset=hello.min_phy_offset, master_max=hello.max_phy_offset)


class ReplicaLogStart:
    """See the module. Owned by: HAClient's thread."""

    def __init__(
        self,
        replica_log: ReplicaLog,
        selector: ClientSelector,
        clock: Clock,
        start_in_store: Callable[[int], None],
    ) -> None:
        """start_in_store: tells process `store`; runs on a thread of its own."""
        self._log = replica_log
        self._selector = selector
        self._clock = clock
        self._start_in_store = start_in_store

    def start_like(self, found: Inspection) -> None:
        """Start the empty log where the master's starts.

        A report of 0 would make a Java master send from its newest file only; 1 does not, and the
        byte before it is always zero, since records are smaller than 16 MiB. A master without a
        record does not know offset 1: for it 0 is right. Raises LinkClosedError.
        """
        start = found.start_offset
        if start > 0:
            self.start_at(start)
        elif found.master_max > 1:
            self.start_at(0)
            self._log.make_room(1)
            self._log.write(0, bytes(1))
            self._log.advance(1)
            self._log.publish(1)
            self._log.ring()

    def start_at(self, phy_offset: int) -> None:
        """Start the empty log there; its first file is allocated when this returns. Raises
        LinkClosedError."""
        size = self._log.file_size
        if phy_offset % size:
            raise LinkClosedError(
                RefusalReason.BAD_FRAME,
                f"the master's log starts at {phy_offset}, which is not the start of a file here: "
                f"mappedFileSizeCommitLog is {size} here and differs on the master; make them "
                "the same",
            )
        self._log.reset_start()
        try:
            self._selector.call(lambda: self._start_in_store(phy_offset))
            if self._selector.is_stopping:
                raise LinkClosedError(None, "stopping")
            self._log.begin(phy_offset)
        except StoreError as error:
            raise LinkClosedError(None, f"the log cannot start at {phy_offset}: {error}") from error
        log.info("the log starts at %s", phy_offset)
        self._wait_for_first_file(phy_offset)

    def _wait_for_first_file(self, phy_offset: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + _FIRST_FILE_MS
        while not self._log.has_room:
            if self._selector.is_stopping or self._selector.left_ms(deadline_ms) <= 0:
                raise LinkClosedError(
                    None,
                    f"process store did not create the commit log file for offset {phy_offset} "
                    f"within {_FIRST_FILE_MS} ms: is the disk full? See store.log",
                )
            self._selector.sleep(_POLL_MS, lambda: self._log.has_room, ignore_move=True)
