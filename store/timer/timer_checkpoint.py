"""TimerCheckpoint: up to where timers are entered and delivered, by the last flush.

Written by process `store`; `remoting` sends its 56 bytes to slaves (code 60) and reads a master's.
Corresponds to RocketMQ's TimerCheckpoint.

    +0   i8  lastReadTimeMs: slots before it are delivered
    +8   i8  lastTimerLogFlushPos: the timer log is on disk up to here
    +16  i8  lastTimerQueueOffset: units of the timer topic before it are entered
    +24  i8  masterTimerQueueOffset: the same of the master
    +32  i8  data version: state version
    +40  i8  data version: timestamp ms
    +48  i8  data version: counter
    56   file: zeros up to 4096 bytes
"""

from __future__ import annotations

import logging
import os
from dataclasses import astuple, dataclass
from pathlib import Path
from struct import Struct
from typing import Final, Self

from store.errors import DiskFullError, FlushFailedError
from store.mapped_file import NO_SPACE, make_directory

log = logging.getLogger(__name__)

CHECKPOINT: Final = Struct(">7q")
CHECKPOINT_SIZE: Final = 56
assert CHECKPOINT.size == CHECKPOINT_SIZE
FILE_SIZE: Final = 4096
_WITHOUT_VERSION: Final = Struct(">4q")


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """The values, in the order of the file."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """Its 56 bytes."""
        return CHECKPOINT.pack(*astuple(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """From 56 bytes, or from 32 without a data version. Raises ValueError."""
        if len(data) >= CHECKPOINT_SIZE:
            return cls(*CHECKPOINT.unpack_from(data))
        if len(data) >= _WITHOUT_VERSION.size:
            return cls(*_WITHOUT_VERSION.unpack_from(data))
        raise ValueError(f"a timer check point of {len(data)} bytes, expected {CHECKPOINT_SIZE}")


def load_timer_checkpoint(path: Path) -> TimerCheckpoint | None:
    """The file's values; None when it is missing or not to be used, which is logged. Raises
    OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = TimerCheckpoint.decode(data)
    except ValueError as error:
        log.warning("%s: ignored: %s", path, error)
        return None
    if min(astuple(found)) < 0:
        log.warning("%s: ignored: negative values", path)
        return None
    return found


def write_timer_checkpoint(path: Path, checkpoint: TimerCheckpoint) -> None:
    """In place, and flushed: 56 bytes within one sector. Raises DiskFullError, FlushFailedError,
    OSError."""
    try:
        make_directory(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _no_room(path, error) from error
    try:
        os.pwrite(fd, checkpoint.encode(), 0)
        if os.fstat(fd).st_size < FILE_SIZE:
            os.ftruncate(fd, FILE_SIZE)
    except OSError as error:
        os.close(fd)
        raise _no_room(path, error) from error
    try:
        os.fdatasync(fd)
    except OSError as error:
        raise FlushFailedError(f"fdatasync of {path}: {error}") from error
    finally:
        os.close(fd)


def _no_room(path: Path, error: OSError) -> Exception:
    return DiskFullError(f"{path}: {error.strerror}") if error.errno in NO_SPACE else error
