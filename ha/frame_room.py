"""FrameRoom: where the frames of a slave's link go in its log, and the wait for the next file.

Runs on the thread that follows the master, for one link. Both HA protocols take the room for a
frame here (master_link.py, autoswitch_link.py). It knows no bytes.

Tested by tests/ha/test_ha_client.py.
"""

from __future__ import annotations

from ha.link_errors import LinkClosedError
from ha.refusals import RefusalReason
from ipc.clock import Clock
from store.control_slots import RUNNING_FLAGS
from store.log_end import NextFileNotReadyError
from store.mapped_file import file_name
from store.replica_log import ReplicaLog
from store.running_flags import RunningFlag

_POLL_MS = 5
_POLL_LONG_MS = 100
_LONG_MS = 1_000


class FrameRoom:
    """See the module. Owned by: the thread that follows the master."""

    def __init__(self, log: ReplicaLog, clock: Clock) -> None:
        self.is_awaited = False
        """Frames wait until the `store` process has created the next file."""
        self._log = log
        self._clock = clock
        self._since_ms = 0
        """Since when; 0: nothing waits. It stays while the wait is only interrupted by a try."""

    def take(self, offset: int, size: int) -> bool:
        """The next `size` bytes, from the log's position `offset` on, are going to be written.
        False: their file is not there yet. Raises LinkClosedError: they cross a file's end;
        StoreError: the file cannot be opened."""
        log = self._log
        left = log.left_in_file(offset)
        if size > left:
            raise LinkClosedError(
                RefusalReason.BAD_FRAME,
                f"a frame of {size} bytes for offset {offset} crosses the end of our file after "
                f"{left}: probably mappedFileSizeCommitLog is {log.file_size} here and differs on "
                "the master; make them the same and replicate this slave from scratch",
            )
        try:
            log.make_room(size)
        except NextFileNotReadyError:
            self.is_awaited = True
            self._since_ms = self._since_ms or self._clock.monotonic_ms()
            return False
        return True

    def end_wait(self) -> None:
        """What waited has its room."""
        self.is_awaited, self._since_ms = False, 0

    def poll_ms(self, now_ms: int) -> int:
        """How long to sleep while the file is awaited."""
        return _POLL_MS if now_ms - self._since_ms < _LONG_MS else _POLL_LONG_MS

    def find_stall(self) -> str | None:
        """What has kept frames waiting for long; None when nothing has."""
        if not self.is_awaited or self._clock.monotonic_ms() < self._since_ms + _LONG_MS:
            return None
        log = self._log
        full = bool(log.page.counters[RUNNING_FLAGS] & RunningFlag.DISK_FULL)
        return (
            f"commit log file {file_name(log.position)} is not allocated: "
            + ("the disk is full; free space on the store's partition" if full else "see store.log")
            + "; replication resumes once it exists"
        )
