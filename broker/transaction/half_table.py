"""HalfTable: which prepared halves of transactions have ended, as far back as is known.

Owned by the loop thread of `remoting` once it is known, that is, once TransactionalMessageService
has read the op queue after a start; until then it is that service's. `is_ended` and `pass_ops` may
be called by the service's thread meanwhile. A half is named by its offset in the half queue. A
half that was checked lies in the queue again, farther behind: original and copies are a family,
and the end of one is the end of all. In memory only; the op queue is what is kept. Knows neither
log nor requests.

The original knows of an end only while it looks through the op queue: it stores a message again
whose commit comes twice, and asks about the copy of a half whose commit was late.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

log = logging.getLogger(__name__)

_CHUNK_BITS: Final = 16
_CHUNK_MASK: Final = (1 << _CHUNK_BITS) - 1
MAX_CHUNKS: Final = 256
"""2 MiB: the ends of the last 16.7 million halves."""


class _OpTail:
    """The op queue from the first op that is still needed: for each its (largest) half."""

    __slots__ = ("halves", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """Queue offset of the first; moved by whoever passes them, others only append."""
        self.halves: deque[int] = deque()


class HalfTable:
    """See the module. Owned by: the loop thread."""

    def __init__(self) -> None:
        self.known: Final = threading.Event()
        """Set when the op queue has been read."""
        self._chunks: dict[int, bytearray] = {}
        self._families: dict[int, list[int]] = {}
        """Halves that have copies, and the copies, to all of them, oldest first."""
        self._ending: set[int] = set()
        """The oldest of each family whose end is on its way into the log."""
        self._tail = _OpTail(0)
        self._next_op = 0

    # -- ends ----------------------------------------------------------------------------------

    def is_ended(self, half: int) -> bool:
        """Whether it was committed or rolled back; False may also mean: not known. Any thread."""
        chunk = self._chunks.get(half >> _CHUNK_BITS)
        if chunk is None:
            return False
        bit = half & _CHUNK_MASK
        return bool(chunk[bit >> 3] >> (bit & 7) & 1)

    def is_ending(self, half: int) -> bool:
        """Whether its end waits for its place in the log."""
        return self._oldest(half) in self._ending

    def begin_end(self, half: int) -> bool:
        """Its end goes into the log now; False when it has ended, or is about to."""
        if self.is_ended(half) or self.is_ending(half):
            return False
        self._ending.add(self._oldest(half))
        return True

    def cancel_end(self, half: int) -> None:
        """Its end was not stored: it may still end."""
        self._ending.discard(self._oldest(half))

    def end(self, half: int) -> tuple[int, ...]:
        """It has ended, with its family. The halves that need an op: it, and the newest copy."""
        self.cancel_end(half)
        family = self.forget(half)
        for member in family:
            self._mark(member)
        newest = family[-1]
        return (half,) if newest == half else (half, newest)

    def _mark(self, half: int) -> None:
        index, bit = half >> _CHUNK_BITS, half & _CHUNK_MASK
        chunk = self._chunks.get(index)
        if chunk is None:
            chunk = self._chunks[index] = bytearray(1 << _CHUNK_BITS - 3)
            if len(self._chunks) > MAX_CHUNKS:
                del self._chunks[min(self._chunks)]
        chunk[bit >> 3] |= 1 << (bit & 7)

    # -- families ------------------------------------------------------------------------------

    def link(self, half: int, original: int) -> None:
        """`half` says that it is a copy of `original`."""
        if half not in self._families:
            family = self._families.setdefault(original, [original])
            family.append(half)
            self._families[half] = family

    def add_copy(self, half: int, copy: int) -> None:
        """`half` was stored again as `copy`."""
        family = self._families.setdefault(half, [half])
        family.append(copy)
        self._families[copy] = family

    def forget(self, half: int) -> list[int]:
        """Nobody will be asked about it any more; gives its family, at least itself."""
        family = self._families.get(half, [half])
        for member in family:
            self._families.pop(member, None)
        return family

    def _oldest(self, half: int) -> int:
        family = self._families.get(half)
        return half if family is None else family[0]

    # -- the op queue --------------------------------------------------------------------------

    def start_ops(self, op_offset: int) -> None:
        """The ops that are added next are those from `op_offset` on."""
        self._tail = _OpTail(op_offset)
        self._next_op = op_offset

    def add_stored_op(self, halves: list[int]) -> None:
        """An op that was found in its queue; it may name halves that are none: not marked here."""
        self._tail.halves.append(max(halves, default=-1))
        self._next_op += 1

    def mark_stored(self, half: int) -> None:
        """A half that a stored op names."""
        self._mark(half)

    def add_op(self, op_offset: int, half: int) -> None:
        """An op was stored at `op_offset` of its queue."""
        if op_offset != self._next_op:
            log.error(
                "op queue: offset %s, expected %s: it was made anew", op_offset, self._next_op
            )
            self.start_ops(op_offset)
        self._tail.halves.append(half)
        self._next_op += 1

    def pass_ops(self, half: int) -> int:
        """No half before `half` is looked at any more; where the ops begin that are still needed.

        Called by one thread, which need not be the loop's.
        """
        tail = self._tail
        while tail.halves and tail.halves[0] < half:
            tail.halves.popleft()
            tail.offset += 1
        return tail.offset
