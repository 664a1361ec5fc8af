"""DescriptorCache: a bounded number of open files, of which any may give way to another.

10,000 topics of 8 queues are 80,000 files and more; neither descriptors nor maps exist for all of
them. Which file gives way is drawn by lot: messages that go round a third more topics than files
may be open find half of them open, and would find none if the least recently used gave way. Used
by the consume queues of process `store` and by their reader in `remoting`. It is not thread-safe:
its owner holds a lock from `get` to the end of the use of the descriptor, which another `get` may
close. It knows paths and keys, not what the files hold.

A file that another process deleted keeps its disk space while it is open here, and nobody asks for
it again: each file that is opened has some others looked at, in turn.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Final

_LOOKED_AT: Final = 2
"""Files looked at for each one that is opened: that costs a tenth of the opening."""

FileKey = tuple[str, int, int]
"""Topic, queue id, first byte offset of the file."""


class DescriptorCache:
    """Descriptors by file key. Guarded by: the owner's lock."""

    def __init__(self, capacity: int, open_file: Callable[[FileKey], int]) -> None:
        """`open_file` opens the file of a key; its OSError passes through `get`."""
        self._capacity = capacity
        self._open_file = open_file
        self._fds: dict[FileKey, int] = {}
        self._keys: list[FileKey] = []
        """Those of `_fds`, in the order of `_places`."""
        self._places: dict[FileKey, int] = {}
        self._lot = random.Random(capacity)
        self._to_look_at: list[FileKey] = []

    def __len__(self) -> int:
        return len(self._fds)

    def get(self, key: FileKey) -> int:
        """The descriptor of a file, valid until the next call. Raises OSError."""
        fd = self._fds.get(key)
        if fd is None:
            fd = self._open_file(key)
            self.put(key, fd)
        return fd

    def put(self, key: FileKey, fd: int) -> None:
        """Take over a descriptor that was opened elsewhere (a file's creation)."""
        self.forget_file(key)
        self._close_deleted()
        if len(self._keys) >= self._capacity:
            self.forget_file(self._keys[self._lot.randrange(len(self._keys))])
        self._fds[key] = fd
        self._places[key] = len(self._keys)
        self._keys.append(key)

    def _close_deleted(self) -> None:
        for _ in range(_LOOKED_AT):
            if not self._to_look_at:
                self._to_look_at = self._keys.copy()
            if not self._to_look_at:
                return
            key = self._to_look_at.pop()
            fd = self._fds.get(key)
            if fd is not None and not os.fstat(fd).st_nlink:
                self.forget_file(key)

    def forget_file(self, key: FileKey) -> None:
        """Close one file, if it is open."""
        fd = self._fds.pop(key, None)
        if fd is None:
            return
        place, last = self._places.pop(key), self._keys.pop()
        if last != key:
            self._keys[place], self._places[last] = last, place
        os.close(fd)

    def forget_queue(self, topic: str, queue_id: int) -> None:
        """Close all files of a queue."""
        for key in [key for key in self._keys if key[:2] == (topic, queue_id)]:
            self.forget_file(key)

    def close(self) -> None:
        """Close all files; idempotent."""
        while self._keys:
            self.forget_file(self._keys[-1])
