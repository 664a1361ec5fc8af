"""FileWindow: the bytes of one commit-log file, read piece by piece.

Used by the Python workers of Spark's executors, one thread. It reads, and maps nothing: a bad
sector, or a file that becomes shorter, would end a process that has it mapped, and both are what
this reader is for. What cannot be read is zeros here and noted (`why_unreadable`). It opens for
reading only, and knows no record.

Tested by tests/spark/sources/test_log_window.py.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final, Self

from spark.sources.errors import SourceError

WINDOW: Final = 8 << 20
"""Bytes that are read at once."""
_BLOCK: Final = 4096
_ROT: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA, errno.EREMOTEIO})
"""What a disk or file system says of bytes that it has lost. Everything else (a mount that is
gone, no right) is no damage of the log, and an error."""


class FileWindow:
    """See the module. `size`: of the file when it was opened."""

    def __init__(self, path: str) -> None:
        """Raises OSError, SourceError: no regular file. Opening a FIFO would wait for a writer."""
        self.path: Final = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise SourceError(f"{path}: no regular file")
        self.size: Final = status.st_size
        self._memory = bytearray(min(WINDOW, max(self.size, 1)))
        self._base = 0
        self.loaded_end = 0
        """Position in the file behind the last byte that is loaded."""
        self._bad_blocks: dict[int, str] = {}
        """Why, by number of a block of _BLOCK bytes."""
        self._became: int | None = None
        """The size of the file, if it became shorter."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def view(self, position: int, size: int) -> tuple[memoryview, int]:
        """All loaded bytes, [position, position + size) among them as far as the file goes, and the
        position of the first. Lent until the next call. Raises SourceError."""
        end = min(position + size, self.size)
        if position < self._base or end > self.loaded_end:
            self._load(position, end)
        return memoryview(self._memory)[: self.loaded_end - self._base], self._base

    def why_unreadable(self, start: int, end: int) -> str:
        """Why a part of [start, end), which was loaded, is zeros here; "" when it was read."""
        if self._became is not None and end > self._became:
            return f"the file became shorter while it was read: {self._became} bytes"
        if not self._bad_blocks:
            return ""
        blocks = range(start // _BLOCK, -(-end // _BLOCK))
        return next((self._bad_blocks[at] for at in blocks if at in self._bad_blocks), "")

    def next_data(self, position: int) -> int:
        """The first place from `position` on that is not in a hole of the file."""
        try:
            return max(os.lseek(self._fd, position, os.SEEK_DATA), position)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else position

    def _load(self, position: int, end: int) -> None:
        """What is loaded already is kept, and WINDOW more is read: who asks for ever more from
        here on has each byte read once."""
        kept = self.loaded_end - position if self._base <= position <= self.loaded_end else 0
        needed = max(end - position, min(kept + WINDOW, self.size - position))
        memory = self._memory
        if needed > len(memory) or len(memory) > 2 * max(needed, WINDOW):
            self._memory = bytearray(-(-needed // WINDOW) * WINDOW if kept else needed)
        with memoryview(memory) as source, memoryview(self._memory) as target:
            target[:kept] = source[position - self._base : position - self._base + kept]
            self._base, self.loaded_end = position, position + kept
            while self.loaded_end < position + needed:
                at = self.loaded_end - position
                self.loaded_end += self._read(target[at:needed], self.loaded_end)

    def _read(self, target: memoryview, position: int) -> int:
        try:
            count = os.preadv(self._fd, [target], position)
        except OSError as error:
            if error.errno not in _ROT:
                raise SourceError(f"{self.path}: {error.strerror}, at byte {position}") from error
            return self._read_block(target, position)
        if count == 0:
            self._became = min(position, self._became or position)
            target[:] = bytes(len(target))
            return len(target)
        return count

    def _read_block(self, target: memoryview, position: int) -> int:
        """Up to the next block's end, so that what can be read around a bad block is."""
        block = target[: _BLOCK - position % _BLOCK]
        try:
            count = os.preadv(self._fd, [block], position)
        except OSError as error:
            self._bad_blocks[position // _BLOCK] = f"the disk cannot read it: {error.strerror}"
            count = 0
        block[count:] = bytes(len(block) - count)
        return len(block)
