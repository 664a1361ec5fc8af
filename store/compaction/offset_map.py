"""OffsetMap: the newest queue offset of each key, in bounded memory.

Keys are MD5 sums, as in RocketMQ's OffsetMap (two keys of one sum would count as one there, too),
24 bytes an entry: a sorted array, and a dict for what came last. When it is full it takes no more,
and what has not been put counts as newer than all. (RocketMQ's throws then: such a log is never
compacted again.) Owned by: one compaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_ENTRY_SIZE: Final = 24
_LEAST_ENTRIES: Final = 100
_RECENT: Final = 65_536
_DIGEST: Final = np.dtype("S16")

Int64Array = NDArray[np.int64]


def digest_of(key: bytes) -> bytes:
    """What stands for a key: 16 bytes."""
    return hashlib.md5(key, usedforsecurity=False).digest()


class OffsetMap:
    """See the module."""

    def __init__(self, memory_size: int) -> None:
        """memory_size: maxOffsetMapSize, bytes."""
        self._capacity = max(memory_size // _ENTRY_SIZE, _LEAST_ENTRIES)
        self._digests: NDArray[np.bytes_] = np.empty(0, _DIGEST)
        self._offsets: Int64Array = np.empty(0, np.int64)
        self._recent: dict[bytes, int] = {}
        self.last_offset = -1
        """The queue offset that was put last; what lies behind has not been put."""

    def put(self, digest: bytes, queue_offset: int) -> bool:
        """Note the newest offset of a key; offsets grow from call to call. False: it is full."""
        recent = self._recent
        if digest not in recent and (at := self._find(digest)) is not None:
            self._offsets[at] = queue_offset
        elif digest not in recent and len(recent) + len(self._digests) >= self._capacity:
            return False
        else:
            recent[digest] = queue_offset
            if len(recent) >= _RECENT:
                self._merge()
        self.last_offset = queue_offset
        return True

    def newest(self, digests: Sequence[bytes]) -> Int64Array:
        """The newest offset of each key; -1 of those that have none."""
        self._merge()
        wanted = np.array(digests, _DIGEST)
        found = np.full(len(wanted), -1, np.int64)
        if len(self._digests):
            at = np.searchsorted(self._digests, wanted)
            at[at == len(self._digests)] = 0
            hits = self._digests[at] == wanted
            found[hits] = self._offsets[at[hits]]
        return found

    def _find(self, digest: bytes) -> int | None:
        """Where in the array a key is."""
        if not len(self._digests):
            return None
        wanted = np.array(digest, _DIGEST)
        at = int(np.searchsorted(self._digests, wanted))
        return at if at < len(self._digests) and self._digests[at] == wanted else None

    def _merge(self) -> None:
        """Recent entries into the array, which has none of their keys."""
        if not self._recent:
            return
        digests = np.array(list(self._recent), _DIGEST)
        offsets = np.array(list(self._recent.values()), np.int64)
        order = np.argsort(digests)
        # All others are in order: to sort them again is half a second for four million.
        at = np.searchsorted(self._digests, digests[order])
        self._digests = np.insert(self._digests, at, digests[order])
        self._offsets = np.insert(self._offsets, at, offsets[order])
        self._recent.clear()
