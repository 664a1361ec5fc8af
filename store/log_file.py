"""LogFile: one commit log file as its writer holds it.

Used by CommitLog (`remoting` on a master), ReplicaLog (`ha` on a slave) and where the store is
closed or begun anew. It writes with pwrite and reads through a mapping, like everybody else; both
are the same pages. It knows no record. Corresponds to the writing half of RocketMQ's MappedFile.

Why not through the mapping: the first touch of a page there is a fault, for which the kernel makes
zeroed pages as far as it reads ahead (8 MiB at a time on the machine of tests/bench: 19 ms in which
the core does nothing else). 128 MiB written in pieces of 8 KB, processor time with the fdatasync,
and the longest write: mapped 1.8 s a GB, 42 ms; mapped and populated before 1.8, 1.2 (a step of
populating 19 ms); pwrite 0.6, 3.9; into pages that `prepare` had read before, 0.8 all together.
Where all memory has to come from a virtual machine's host, a write costs what a mapping does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from store.closing import Closing
from store.errors import StoreError, WrongFileSizeError
from store.mapped_file import MappedFile


class LogFile(Closing):
    """See the module. Owned by one thread."""

    __slots__ = ("_fd", "_mapped", "_size", "end_offset", "path", "start_offset")

    def __init__(self, path: Path, start_offset: int) -> None:
        """Open an existing file. Raises StoreError."""
        self.path: Final = path
        self.start_offset: Final = start_offset
        self._mapped: MappedFile | None = None
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"{path}: cannot be opened: {error.strerror}") from error
        self._size: Final = os.lseek(self._fd, 0, os.SEEK_END)
        self.end_offset: Final = start_offset + self._size

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`. Raises StoreError: it does not fit, or the disk
        refuses; what was written of it then is unknown. WrongFileSizeError: somebody has truncated
        the file, and a write behind its end would hide how far (0.2 us)."""
        end, size = position + len(data), self._size
        if position < 0 or end > size:
            raise StoreError(f"{self.path}: [{position}, {end}) is outside its {size} bytes")
        length = os.lseek(self._fd, 0, os.SEEK_END)
        if length != size:
            raise WrongFileSizeError(f"{self.path}: length {length}, expected {size}")
        try:
            written = os.pwrite(self._fd, data, position)
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], position + written)
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be written at {position}: {error.strerror}; check the disk "
                "(dmesg)"
            ) from error

    def prepare(self, position: int, size: int) -> None:
        """Have zeroed pages in memory for the next writes there; without effect where the file
        system cannot.

        Only these, unlike a fault, and they stay clean: dirty ones would go to the disk as zeroes
        with the next fdatasync, and again later.
        """
        os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_WILLNEED)

    def view(self) -> memoryview:
        """The whole file, to be read. Borrowed: see MappedFile.view. Raises StoreError."""
        if self._mapped is None:
            self._mapped = MappedFile.open(self.path, self.start_offset)
        return self._mapped.view()

    def close(self) -> None:
        """Give everything back. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        mapped, self._mapped = self._mapped, None
        if mapped is not None:
            mapped.close()
