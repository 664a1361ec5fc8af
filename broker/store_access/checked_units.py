"""CheckedUnits: consume queue units for pulls, each checked against its record before it is used.

Runs on the loop thread. Consumers that catch up read on and on: a block of units is read and
checked at once and serves their next pulls, so that the check costs less than the reads that it
saves. Where a unit is wrong the units end, and the place is reported. It knows no requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE
from store.unit_check import (
    LogFiles,
    as_units,
    count_plausible,
    count_right,
    is_right,
    right_units,
)

_BLOCK: Final = 1_024
"""Units; 20 KB."""
_BLOCKS: Final = 500
"""Queues whose last block is kept."""
_SPARSE_BYTES: Final = 64 << 20
"""Of the log between a block's first and last record: of a queue with so few messages each check is
a read of its own, so only what is wanted is checked."""

ReadUnits = Callable[[str, int, int, int], bytes]
"""(topic, queue id, queue offset, count) -> up to `count` units from there on; fewer at a file's
end, b"" for none (ConsumeQueueReader.read_units)."""

NoteDamaged = Callable[[str, int, int], None]
"""A unit cannot be used: (topic, queue id, queue offset) (DamagedQueues.report)."""


class Generations(Protocol):
    """The part of the queue table used here."""

    def generation_of(self, topic: str, queue_id: int) -> int:
        """Another number when the queue's files are others."""


class LogPages(Protocol):
    """The part of PagesAhead used here."""

    def check(self, units: bytes) -> None:
        """Raises PagesMissingError unless the records of these units are in memory."""


class _Block(NamedTuple):
    begin: int
    """Queue offset of the first unit."""
    end: int
    generation: int
    units: bytes


class CheckedUnits:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        read_units: ReadUnits,
        log: LogFiles,
        table: Generations,
        note_damaged: NoteDamaged,
    ) -> None:
        self._read_units = read_units
        self._log = log
        self._table = table
        self._note_damaged = note_damaged
        self._blocks: OrderedDict[tuple[str, int], _Block] = OrderedDict()

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count: int,
        high: int,
        pages: LogPages | None = None,
    ) -> bytes:
        """Up to `count` right units from `queue_offset`, fewer before a wrong one (none if it is
        the first) and at a file's end. high: the queue's max offset, which is not reached. pages:
        asked before a record is looked at; what it raises ends the reading."""
        key = topic, queue_id
        generation = self._table.generation_of(topic, queue_id)
        block = self._blocks.get(key)
        if (
            block is None
            or queue_offset < block.begin
            or queue_offset + count > block.end
            or generation != block.generation
        ):
            ahead = min(max(count, _BLOCK), high - queue_offset)
            raw = self._read_units(topic, queue_id, queue_offset, ahead)
            if ahead > count and _is_sparse(raw):
                raw = raw[: count * CQ_UNIT_SIZE]
            if pages is not None:
                pages.check(raw)
            good = count_right(self._log, raw, topic.encode(), queue_id, queue_offset)
            if good < count and (good < len(raw) / CQ_UNIT_SIZE or not raw):
                self._note_damaged(topic, queue_id, queue_offset + good)
            raw = raw[: good * CQ_UNIT_SIZE]
            if good > count:
                self._keep(key, _Block(queue_offset, queue_offset + good, generation, raw))
            return raw[: count * CQ_UNIT_SIZE]
        at = (queue_offset - block.begin) * CQ_UNIT_SIZE
        return block.units[at : at + count * CQ_UNIT_SIZE]

    def read_filtered(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count: int,
        codes: frozenset[int] | None,
        limit: int,
        pages: LogPages | None = None,
    ) -> bytes:
        """Up to `count` units from `queue_offset`, fewer before one that cannot be right. Of those
        with a tag code in `codes` (None: all) the first `limit` are checked, and the units end
        before the next of them. With a limit of 0 whoever uses a unit checks it. pages: see `read`.
        """
        raw = self._read_units(topic, queue_id, queue_offset, count)
        units = as_units(raw)
        good = count_plausible(units)
        if pages is not None and not limit:
            pages.check(raw[: good * CQ_UNIT_SIZE])
        if limit:
            tags = units["tags_code"][:good].astype(np.int64).astype(np.int32)
            wanted = np.ones(good, np.bool_) if codes is None else _is_one_of(tags, codes)
            chosen = np.flatnonzero(wanted)
            end = int(chosen[limit]) if len(chosen) > limit else good
            chosen = chosen[:limit]
            if pages is not None:
                pages.check(units[chosen].tobytes())
            right = right_units(
                self._log, units[chosen], topic.encode(), queue_id, chosen + queue_offset
            )
            if right.all() and end < good:
                return raw[: end * CQ_UNIT_SIZE]
            if not right.all():
                good = int(chosen[right.argmin()])
        if good < len(units) or not len(units):
            self._note_damaged(topic, queue_id, queue_offset + good)
        return raw[: good * CQ_UNIT_SIZE]

    def is_right(
        self, topic: str, queue_id: int, queue_offset: int, phy_offset: int, size: int
    ) -> bool:
        """Whether a unit of `read_filtered` is right; a wrong one is reported."""
        right = is_right(self._log, phy_offset, size, topic.encode(), queue_id, queue_offset)
        if not right:
            self._note_damaged(topic, queue_id, queue_offset)
        return right

    def _keep(self, key: tuple[str, int], block: _Block) -> None:
        self._blocks.pop(key, None)
        if len(self._blocks) >= _BLOCKS:
            self._blocks.popitem(last=False)
        self._blocks[key] = block


def _is_sparse(raw: bytes) -> bool:
    if len(raw) < 2 * CQ_UNIT_SIZE:
        return False
    last = CQ_UNIT.unpack_from(raw, len(raw) // CQ_UNIT_SIZE * CQ_UNIT_SIZE - CQ_UNIT_SIZE)[0]
    return bool(last - CQ_UNIT.unpack_from(raw)[0] > _SPARSE_BYTES)


def _is_one_of(tags: NDArray[np.int32], codes: frozenset[int]) -> NDArray[np.bool_]:
    found = np.zeros(len(tags), np.bool_)
    for code in codes:
        found |= tags == code
    return found
