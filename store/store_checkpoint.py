"""StoreCheckpoint: up to which store time the derived files and the log are on disk.

Written by the `store` process: each service sets its timestamp, `flush` writes the file. It only
tells recovery where to begin, so a missing or short file means "begin at the first file".
Corresponds to RocketMQ's StoreCheckpoint.

    offset  size  field (int64 big-endian, ms)
    0       8     physicMsgTimestamp: commit log
    8       8     logicsMsgTimestamp: consumequeue
    16      8     indexMsgTimestamp: index
    24      8     masterFlushedOffset (5.x): bytes, what a slave was told (906, 908)
    32      8     confirmPhyOffset (5.x): bytes, controller mode's confirm offset; else as found
    40      8     logicsPhysicalOffset (5.5): bytes, a record starts there or the log ends; what is
                  before it has its units on disk. 5.5 rebuilds its queues from there after a crash
                  (0: from logicsMsgTimestamp on), so it must never be too high
    48      4048  zero
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from struct import Struct
from typing import Final, Self

from store.errors import DiskFullError, FlushFailedError, StoreError
from store.mapped_file import NO_SPACE

log = logging.getLogger(__name__)

CHECKPOINT_SIZE: Final = 4096
TIMESTAMPS: Final = Struct(">qqq")
assert TIMESTAMPS.size == 24
_OFFSETS: Final = Struct(">qqq")
_KNOWN_SIZE: Final = TIMESTAMPS.size + _OFFSETS.size
assert _KNOWN_SIZE == 48
_SAFETY_MS: Final = 3000


class StoreCheckpoint:
    """The three timestamps, the offsets, and the rest of the file as it was found."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self.master_flushed_offset = 0
        self.confirm_offset = 0
        self.logics_physical_offset = 0
        self._rest = bytes(CHECKPOINT_SIZE - _KNOWN_SIZE)
        self._lock = threading.Lock()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read `path`; all zero when it is missing or not 4096 bytes. Raises StoreError."""
        found = cls(path)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return found
        except OSError as error:
            raise StoreError(
                f"{path}: cannot be read: {error.strerror}. It must be a file; it may be moved "
                "away, which costs a longer recovery"
            ) from error
        if len(raw) != CHECKPOINT_SIZE:
            log.warning("%s: %s bytes, not %s; ignored", path, len(raw), CHECKPOINT_SIZE)
            return found
        found._take(raw)
        return found

    def _take(self, raw: bytes) -> None:
        times = TIMESTAMPS.unpack_from(raw)
        if min(times) < 0:
            log.warning("%s: negative timestamps %s; ignored", self.path, times)
            return
        self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp = times
        offsets = (max(0, offset) for offset in _OFFSETS.unpack_from(raw, TIMESTAMPS.size))
        self.master_flushed_offset, self.confirm_offset, self.logics_physical_offset = offsets
        self._rest = raw[_KNOWN_SIZE:]

    def end_at(self, phy_offset: int, time_ms: int) -> None:
        """The log is cut at `phy_offset`, behind a record of `time_ms`: what comes in place of what
        is cut off may be older than what is said to be on disk, and is not confirmed yet."""
        self.physic_msg_timestamp = min(self.physic_msg_timestamp, time_ms)
        self.logics_msg_timestamp = min(self.logics_msg_timestamp, time_ms)
        self.index_msg_timestamp = min(self.index_msg_timestamp, time_ms)
        self.confirm_offset = min(self.confirm_offset, phy_offset)
        self.units_end_at(phy_offset)

    def units_end_at(self, phy_offset: int) -> None:
        """Units of records from `phy_offset` on are made again, and not on disk before the next
        flush of all queues."""
        self.logics_physical_offset = min(self.logics_physical_offset, phy_offset)

    def min_timestamp(self, *, with_index: bool = False) -> int:
        """Records stored before this ms are on disk in log, queue and, if asked, index."""
        newest = min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MS
        if with_index:
            newest = min(newest, self.index_msg_timestamp)
        return max(0, newest)

    def flush(self) -> None:
        """Write the file in place and fdatasync it. Raises DiskFullError (only a file that was not
        there needs room), FlushFailedError, OSError."""
        with self._lock:
            try:
                self._write(self._encode())
            except OSError as error:
                if error.errno in NO_SPACE:
                    raise DiskFullError(f"{self.path}: {error.strerror}") from error
                raise

    def _write(self, raw: bytes) -> None:
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(fd, raw, 0)
            self._sync(fd)
        finally:
            os.close(fd)

    def _sync(self, fd: int) -> None:
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise FlushFailedError(f"fdatasync of {self.path}: {error}") from error

    def _encode(self) -> bytes:
        times = (self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)
        offsets = (self.master_flushed_offset, self.confirm_offset, self.logics_physical_offset)
        return TIMESTAMPS.pack(*times) + _OFFSETS.pack(*offsets) + self._rest
