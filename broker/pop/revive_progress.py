"""ReviveProgress: up to where check points are handled, kept over kill -9 of every process.

Used on the loop thread of `remoting`. The consumer offset of the revive group is saved every few
seconds, and only behind what is flushed. If a killed broker went on from there, messages that were
copied to a retry topic, popped and acknowledged meanwhile would come again. So the queue offsets
are also stored in a small mapped file, without fsync: the page cache survives processes. After a
start of the machine (another boot id) the file counts for nothing: the log may have lost its end.

    byte  0  16  boot id
         16  8n  int64 for each revive queue that there may be: queue offset of the last handled
                 check point, -1: none
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import Final

from store.unflushed_map import map_unflushed

_HEAD: Final = 16
_OFFSET: Final = Struct("<q")


class ReviveProgress:
    """See the module. Owned by: the loop thread."""

    def __init__(self, path: Path, boot_id: bytes, queues: int) -> None:
        """boot_id: 16 bytes. Raises OSError."""
        self._queues = queues
        size = _HEAD + _OFFSET.size * queues
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size != size:
                os.ftruncate(file, 0)
                os.ftruncate(file, size)
            self._map = map_unflushed(file, size, size, path)
        finally:
            os.close(file)
        if self._map[:_HEAD] != boot_id:
            self.clear()
            self._map[:_HEAD] = boot_id

    def find(self, queue_id: int) -> int:
        """The stored queue offset; -1 if there is none."""
        return int(_OFFSET.unpack_from(self._map, _HEAD + _OFFSET.size * queue_id)[0])

    def store(self, queue_id: int, offset: int) -> None:
        """The check point at `offset` is handled, and what came of it is published."""
        _OFFSET.pack_into(self._map, _HEAD + _OFFSET.size * queue_id, offset)

    def clear(self) -> None:
        """Nothing is known: another log is followed from now on."""
        for queue_id in range(self._queues):
            self.store(queue_id, -1)

    def close(self) -> None:
        """Unmap."""
        self._map.close()
