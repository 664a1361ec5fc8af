"""HalfMessageStates: which half messages of transactions have ended, as far back as known.

Owned by the service thread until TransactionalMessageService has read the op queue after a start
(`known`), and by the loop thread of `remoting` from then on; the service's thread may still call
`is_ended` and `advance_ops`. A half is identified by its offset in the half queue. A half that was
checked is stored in the queue again, at a higher offset: the first record and its copies form a set
of copies, and ending one of them ends all. Who says that a half is a copy must know it
(TransactionalMessageService): what a half says of itself, its sender may have written. In memory
only; the op queue is the durable form. Knows neither log nor requests.

An end is remembered as long as its half is in the log: a bit for each half, so at most a thousandth
of the log's bytes, and next to nothing for a run of 65,536 halves that have all ended.

RocketMQ detects an end only while it scans the op queue: it stores a message twice if its commit is
repeated, and checks the copy of a half whose commit was late.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

log = logging.getLogger(__name__)

_CHUNK_BITS: Final = 16
_CHUNK_MASK: Final = (1 << _CHUNK_BITS) - 1
_FULL: Final = bytearray(b"\xff" * (1 << _CHUNK_BITS - 3))
"""The chunk of halves that have all ended; never written."""


class _OpTail:
    """The op queue from the first op still needed: the (largest) half of each op."""

    __slots__ = ("halves", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """Queue offset of the first op; only `advance_ops` moves it, others append."""
        self.halves: deque[int] = deque()


class HalfMessageStates:
    """See the module. Owned by: the loop thread."""

    def __init__(self) -> None:
        self.known = threading.Event()
        """Set when the op queue has been read. Another one for each lead of a member."""
        self._chunks: dict[int, bytearray] = {}
        """By half // 65,536: a bit for each half, set when it has ended."""
        self._copies: dict[int, list[int]] = {}
        """Each half with copies, and each copy, to the set of copies, oldest first."""
        self._ending: set[int] = set()
        """The oldest half of each set of copies whose end is being appended to the log."""
        self._tail = _OpTail(0)
        self._next_op = 0

    def forget_all(self) -> None:
        """Nothing is known any more: the op queue is read again. The thread of the check service,
        while nobody ends halves."""
        self._chunks.clear()
        self._copies.clear()
        self._ending.clear()
        self.start_ops(0)

    # -- ends ----------------------------------------------------------------------------------

    def is_ended(self, half: int) -> bool:
        """Whether the half was committed or rolled back; False may also mean unknown. Any
        thread."""
        chunk = self._chunks.get(half >> _CHUNK_BITS)
        if chunk is None:
            return False
        bit = half & _CHUNK_MASK
        return bool(chunk[bit >> 3] >> (bit & 7) & 1)

    def is_ending(self, half: int) -> bool:
        """Whether the half's end is being appended to the log."""
        return self._oldest(half) in self._ending

    def begin_end(self, half: int) -> bool:
        """Start ending the half; False if it has ended or is being ended."""
        if self.is_ended(half) or self.is_ending(half):
            return False
        self._ending.add(self._oldest(half))
        return True

    def is_single(self, half: int) -> bool:
        """Whether the half has no copies, has not ended and is not being ended: then all that its
        end has to do here is `mark_stored`."""
        return half not in self._copies and half not in self._ending and not self.is_ended(half)

    def cancel_end(self, half: int) -> None:
        """The end could not be stored; it may be attempted again."""
        self._ending.discard(self._oldest(half))

    def end(self, half: int) -> tuple[int, ...]:
        """Mark the half and its copies ended. Returns the halves that need an op: the half itself
        and the newest copy."""
        self.cancel_end(half)
        copies = self.forget(half)
        for member in copies:
            self.mark_stored(member)
        newest = max(copies)
        return (half,) if newest == half else (half, newest)

    def mark_stored(self, half: int) -> None:
        """Mark a half that a stored op ends."""
        index, bit = half >> _CHUNK_BITS, half & _CHUNK_MASK
        chunk = self._chunks.get(index)
        if chunk is None:
            _share_full(self._chunks)
            chunk = self._chunks[index] = bytearray(len(_FULL))
        if chunk is not _FULL:
            chunk[bit >> 3] |= 1 << (bit & 7)

    def forget_before(self, half: int) -> None:
        """The halves before are no longer in the log: nobody can end them again."""
        for index in [index for index in self._chunks if index < half >> _CHUNK_BITS]:
            del self._chunks[index]

    # -- copies ------------------------------------------------------------------------------

    def link(self, half: int, original: int) -> None:
        """`half` is a copy of `original`, as both of their records say."""
        if half not in self._copies:
            copies = self._copies.setdefault(original, [original])
            copies.append(half)
            self._copies[half] = copies

    def are_copies(self, half: int, other: int) -> bool:
        """Whether both are known to be in one set of copies. Any thread."""
        copies = self._copies.get(half)
        return copies is not None and copies is self._copies.get(other)

    def add_copy(self, half: int, copy: int) -> None:
        """`half` was stored again as `copy`."""
        copies = self._copies.setdefault(half, [half])
        copies.append(copy)
        self._copies[copy] = copies

    def replace_copy(self, half: int, copy: int) -> None:
        """`half`, itself a copy about which nobody was asked, was stored again as `copy`, which
        takes its place: an immune half is stored again every round, and would fill the memory. An
        end that names `half` all the same has no effect."""
        self.add_copy(half, copy)
        copies = self._copies[half]
        if copies[0] != half and copies[0] not in self._ending:
            del self._copies[half]
            copies.remove(half)
            self.mark_stored(half)

    def forget(self, half: int) -> list[int]:
        """The half will not be checked again; returns its set of copies, at least itself."""
        copies = self._copies.get(half, [half])
        for member in copies:
            self._copies.pop(member, None)
        return copies

    def _oldest(self, half: int) -> int:
        copies = self._copies.get(half)
        return half if copies is None else copies[0]

    # -- the op queue --------------------------------------------------------------------------

    def start_ops(self, op_offset: int) -> None:
        """The next op to be added is the one at `op_offset`."""
        self._tail = _OpTail(op_offset)
        self._next_op = op_offset

    def add_stored_op(self, halves: list[int]) -> None:
        """Add an op read from the op queue; its halves may not exist, so they are not marked
        here."""
        self._tail.halves.append(max(halves, default=-1))
        self._next_op += 1

    def add_op(self, op_offset: int, half: int) -> None:
        """An op was stored at `op_offset` of its queue."""
        if op_offset != self._next_op:
            log.error(
                "op queue: offset %s, expected %s: the queue was recreated",
                op_offset,
                self._next_op,
            )
            self.start_ops(op_offset)
        self._tail.halves.append(half)
        self._next_op += 1

    def advance_ops(self, half: int) -> int:
        """Halves before `half` are no longer needed; returns the offset of the first op still
        needed.

        Called by a single thread, not necessarily the loop's.
        """
        tail = self._tail
        while tail.halves and tail.halves[0] < half:
            tail.halves.popleft()
            tail.offset += 1
        return tail.offset


def family_of(half: int, states: HalfMessageStates) -> list[int]:
    """The half and what is known to be in one set of copies with it. Loop thread."""
    return list(states._copies.get(half, (half,)))


def _share_full(chunks: dict[int, bytearray]) -> None:
    for index, chunk in chunks.items():
        if chunk is not _FULL and chunk == _FULL:
            chunks[index] = _FULL
