"""TargetLog: writes a commit log of ours, record after record, before any broker opens it: a new
one, or the end of one that is there.

One thread. Files as RocketMQ lays them out: a record goes where eight bytes stay free behind it, a
blank closes what is left. Each file is on disk before the next begins, and ages from the time of
its newest message, so that what is old goes when it would have gone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

from store.closing import Closing
from store.errors import StoreError
from store.mapped_file import create_allocated, file_name, make_directory, sync_directory
from store.message_codec import BLANK_SIZE, encode_blank, read_store_timestamp

_BUFFER: Final = 4 << 20


class TargetLog(Closing):
    """See the module."""

    __slots__ = ("_directory", "_file", "_file_size", "_newest_ms", "position")

    def __init__(self, directory: Path, file_size: int, start: int) -> None:
        """The log begins at `start`, a multiple of `file_size`, or goes on there: what its file
        holds before stays. Raises OSError."""
        self._directory = directory
        self._file_size = file_size
        self._file: BinaryIO | None = None
        self._newest_ms = 0
        self.position = start
        """Where the next record goes, unless the file is too full for it."""
        make_directory(directory)

    def place_for(self, size: int) -> int:
        """Where a record of `size` bytes goes; a blank is written if that is in the next file.
        Raises StoreError: it fits into none; DiskFullError, OSError."""
        if size + BLANK_SIZE > self._file_size:
            raise StoreError(
                f"a record of {size} bytes does not fit into files of {self._file_size}: name a "
                "larger --file-size, and mappedFileSizeCommitLog in the broker's settings"
            )
        left = self._file_size - self.position % self._file_size
        if size + BLANK_SIZE > left:
            self._write(encode_blank(left))
            self._end_file()
            self.position += left
        return self.position

    def append(self, record: bytes) -> None:
        """At `position`. Raises DiskFullError, OSError."""
        self._write(record)
        self.position += len(record)
        self._newest_ms = max(self._newest_ms, read_store_timestamp(record, 0))

    def close(self) -> None:
        """All is on disk. Raises OSError."""
        self._end_file()

    def _write(self, data: bytes) -> None:
        if self._file is None:
            at = self.position % self._file_size
            path = self._directory / file_name(self.position - at)
            create_allocated(path, self._file_size)
            self._file = path.open("r+b", buffering=_BUFFER)
            self._file.seek(at)
        self._file.write(data)

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            file.flush()
            os.fsync(file.fileno())
            os.utime(file.fileno(), ns=(self._newest_ms * 10**6,) * 2)
        sync_directory(self._directory)
