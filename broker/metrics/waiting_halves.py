"""WaitingHalves: which half messages wait for their end, by topic and producer group, since when.

Owned by the loop thread of `remoting`; `counts` may be called by any thread. In memory only: a
start derives it from the half and op queues (broker/transaction/recovered_halves.py). A half is its
place in the half queue; one that is stored again for a check keeps its time. What is not known here
changes nothing when it ends, so no count becomes negative, whatever a client repeats. Eight bytes a
half, in chunks of the half queue, and an entry for all halves of one group, topic and ms. A group's
name is its producer's word: there are rows for so many of them, and one a topic for the others.

Tested by tests/broker/metrics/test_waiting_halves.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ipc.metric_slots import MAX_LABEL_BYTES, OVERFLOW

MOST_GROUPS: Final = 1_000
"""Of all topics together: pairs of topic and group with rows of their own."""
_CHUNK_BITS: Final = 8
_CHUNK_MASK: Final = (1 << _CHUNK_BITS) - 1


class Waiting(NamedTuple):
    """The halves of a topic and a producer group that wait."""

    topic: str
    group: str
    halves: int
    oldest_ms: int | None
    """When the oldest was stored; None: it has just ended."""


class WaitingHalf(NamedTuple):
    """A half that waits."""

    half: int
    """Its place in the half queue."""
    topic: str
    group: str
    stored_ms: int


class _Row:
    """Halves of one topic and group."""

    __slots__ = ("count", "key", "moments")

    def __init__(self, topic: str, group: str) -> None:
        self.key = topic, group
        self.count = 0
        self.moments: dict[int, _Moment] = {}
        """By the ms at which they were stored, the oldest first."""

    def oldest_ms(self) -> int | None:
        """Any thread."""
        while True:
            try:
                return next(iter(self.moments), None)
            except RuntimeError:
                continue  # It changed between the two calls.


class _Moment:
    """Halves of one row that were stored in the same ms."""

    __slots__ = ("count", "row", "stored_ms")

    def __init__(self, row: _Row, stored_ms: int) -> None:
        self.row = row
        self.stored_ms = stored_ms
        self.count = 0


class _Chunk:
    """A run of the half queue."""

    __slots__ = ("count", "moments")

    def __init__(self) -> None:
        self.count = 0
        self.moments: list[_Moment | None] = [None] * (1 << _CHUNK_BITS)


class WaitingHalves:
    """See the module. Owned by: the loop thread."""

    def __init__(self, most_groups: int = MOST_GROUPS) -> None:
        self._most_groups = most_groups
        self._rows: dict[tuple[str, str], _Row] = {}
        self._chunks: dict[int, _Chunk] = {}
        self.is_known = False
        """Whether the halves that were stored before are among them."""

    # -- what happens --------------------------------------------------------------------------

    def add(self, half: int, topic: str, group: str, stored_ms: int) -> None:
        """A half was stored at this place."""
        self.remove(half)
        row = self._row(topic, group)
        moment = row.moments.get(stored_ms)
        if moment is None:
            moment = row.moments[stored_ms] = _Moment(row, stored_ms)
        row.count += 1
        self._put(half, moment)

    def move(self, half: int, copy: int) -> None:
        """A half that waits was stored again at `copy`, and goes on waiting as that."""
        self.remove(copy)
        moment = self._take(half)
        if moment is not None:
            self._put(copy, moment)

    def remove(self, half: int) -> int | None:
        """A half has ended, or was given up; when it was first stored, None if it did not wait."""
        moment = self._take(half)
        if moment is None:
            return None
        row = moment.row
        row.count -= 1
        if not moment.count:
            del row.moments[moment.stored_ms]
        if not row.count:
            del self._rows[row.key]
        return moment.stored_ms

    def forget_before(self, half: int) -> None:
        """No half before this place waits."""
        last = half >> _CHUNK_BITS
        for index in sorted(index for index in self._chunks if index <= last):
            begin = index << _CHUNK_BITS
            for place in range(begin, min(begin + _CHUNK_MASK + 1, half)):
                self.remove(place)

    def recovered(self, found: Iterable[WaitingHalf]) -> None:
        """Those that a start has found; what is here already came after it."""
        for each in sorted(found, key=lambda each: each.stored_ms):
            if not self._waits(each.half):
                self.add(*each)
        for row in self._rows.values():
            row.moments = dict(sorted(row.moments.items()))
        self.is_known = True

    def clear(self) -> None:
        """Nothing is known any more: this broker leads no longer."""
        self._rows.clear()
        self._chunks.clear()
        self.is_known = False

    # -- what waits ----------------------------------------------------------------------------

    def counts(self) -> list[Waiting]:
        """A row for each topic and group of which halves wait. Any thread."""
        return [Waiting(*row.key, row.count, row.oldest_ms()) for row in list(self._rows.values())]

    # -- places --------------------------------------------------------------------------------

    def _row(self, topic: str, group: str) -> _Row:
        key = topic, group[:MAX_LABEL_BYTES]
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self._most_groups:
                key = topic, OVERFLOW
            row = self._rows.setdefault(key, _Row(*key))
        return row

    def _waits(self, half: int) -> bool:
        chunk = self._chunks.get(half >> _CHUNK_BITS)
        return chunk is not None and chunk.moments[half & _CHUNK_MASK] is not None

    def _put(self, half: int, moment: _Moment) -> None:
        index = half >> _CHUNK_BITS
        chunk = self._chunks.get(index)
        if chunk is None:
            chunk = self._chunks[index] = _Chunk()
        chunk.count += 1
        chunk.moments[half & _CHUNK_MASK] = moment
        moment.count += 1

    def _take(self, half: int) -> _Moment | None:
        index, at = half >> _CHUNK_BITS, half & _CHUNK_MASK
        chunk = self._chunks.get(index)
        moment = None if chunk is None else chunk.moments[at]
        if chunk is None or moment is None:
            return None
        chunk.moments[at] = None
        chunk.count -= 1
        if not chunk.count:
            del self._chunks[index]
        moment.count -= 1
        return moment
