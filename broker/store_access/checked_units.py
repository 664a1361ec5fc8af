"""CheckedUnits: consume queue units for pulls, each checked against its record before it is used.

Runs on the loop thread. Consumers that catch up read on and on: a block of units is read and
checked at once and serves their next pulls, so that the check costs less than the reads that it
saves; where checks take long, blocks are short. What was checked is believed for some seconds: what
has rotted on the disk comes with pages that are read again, later than that. Where a unit is wrong
the units end, and the place is reported. It knows no requests.

Tested by tests/broker/pull/test_pull_message_reader.py.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker.store_access.pages_ahead import PagesAhead
from broker.store_access.unit_block import TaggedBlock, UnitBlock
from ipc.queue_table import QueueTableReader
from store.commit_log_reader import CommitLogReader
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, Units
from store.unit_check import (
    as_units,
    count_plausible,
    count_right,
    is_right,
    right_units,
)

_BLOCK: Final = 1_024
"""Units; 20 KB."""
_LEAST_BLOCK: Final = 32
_SCAN: Final = 4_096
"""Units whose tags are looked at at once for who reads on; at most a block of them is kept."""
_LONG_CHECK_NS: Final = 300_000
"""Of processor time. A thousand records take 50 to 200 us, but 7,000 where the disk has written
them into memory that a virtual machine never used before: their pages are touched here first, 5 us
each. Nobody else is served meanwhile."""
_GROWTH: Final = 8
"""By an eighth: where queues lie side by side in the log, whoever comes first touches the pages,
and the others' checks are short."""
_BELIEVED_S: Final = 5.0
"""After that a block is read and checked anew. A queue that is read on and on needs a new one
sooner; to look at the clock takes 0.05 us."""
_BLOCKS: Final = 500
"""That are kept."""
_BLOCKS_OF_A_QUEUE: Final = 4
"""Groups that read a queue at different places do not take each other's block away."""
_FEW_CODES: Final = 64
"""To compare thousands of tags with one code takes 1.5 us. A peer may want a million codes: with
more than these each tag is looked up, which takes 0.05 us whatever their number is."""
_SPARSE_BYTES: Final = 64 << 20
"""Of the log between a block's first and last record: of a queue with so few messages each check is
a read of its own, so only what is wanted is checked."""

ReadUnits = Callable[[str, int, int, int], bytes]
"""(topic, queue id, queue offset, count) -> up to `count` units from there on; fewer at a file's
end, b"" for none (ConsumeQueueReader.read_units)."""

NoteDamaged = Callable[[str, int, int], None]
"""A unit cannot be used: (topic, queue id, queue offset) (DamagedQueues.report)."""


class CheckedUnits:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        read_units: ReadUnits,
        log: CommitLogReader,
        table: QueueTableReader,
        note_damaged: NoteDamaged,
        thread_time_ns: Callable[[], int] = time.thread_time_ns,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._thread_time_ns = thread_time_ns
        self._monotonic_s = monotonic_s
        self._ahead = _BLOCK
        """Units of the next block."""
        self._read_units = read_units
        self._log = log
        self._table = table
        self._note_damaged = note_damaged
        self._blocks: OrderedDict[tuple[str, int], list[UnitBlock]] = OrderedDict()
        self._kept = 0

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count: int,
        high: int,
        pages: PagesAhead | None = None,
    ) -> bytes:
        """Up to `count` right units from `queue_offset`, fewer before a wrong one (none if it is
        the first) and at a file's end. high: the queue's max offset, which is not reached. pages:
        asked before a record is looked at; what it raises ends the reading."""
        block = self.block(topic, queue_id, queue_offset, count, high, pages)
        return block.units(queue_offset, count)

    def block(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count: int,
        high: int,
        pages: PagesAhead | None = None,
    ) -> UnitBlock:
        """A block that has what `read` gives."""
        generation = self._table.generation_of(topic, queue_id)
        found = self.find_block(topic, queue_id, queue_offset, count, generation)
        if found is not None:
            return found
        ahead = min(max(count, self._ahead), high - queue_offset)
        raw = self._read_units(topic, queue_id, queue_offset, ahead)
        if ahead > count and _is_sparse(raw):
            ahead, raw = count, raw[: count * CQ_UNIT_SIZE]
        place = topic, queue_id, queue_offset
        return self._check_block(place, count, ahead, generation, raw, pages)

    def find_long_block(
        self, topic: str, queue_id: int, queue_offset: int, high: int, pages: PagesAhead | None
    ) -> UnitBlock | None:
        """A block with the unit at `queue_offset`, if that is right, and with those behind it: for
        who looks at one after the other, and does not know how far. None where the records lie so
        far apart that each should be checked when it is reached."""
        generation = self._table.generation_of(topic, queue_id)
        found = self.find_block(topic, queue_id, queue_offset, 1, generation)
        if found is not None:
            return found
        ahead = min(self._ahead, high - queue_offset)
        raw = self._read_units(topic, queue_id, queue_offset, ahead)
        if _is_sparse(raw):
            return None
        return self._check_block((topic, queue_id, queue_offset), 1, ahead, generation, raw, pages)

    def generation_of(self, topic: str, queue_id: int) -> int:
        """Of the queue now: blocks of another one are out of date."""
        return self._table.generation_of(topic, queue_id)

    def believes(self, block: UnitBlock, generation: int) -> bool:
        """Whether it may still be used. generation: of the queue now."""
        return block.generation == generation and self._monotonic_s() < block.believed_until_s

    def find_block(
        self, topic: str, queue_id: int, queue_offset: int, count: int, generation: int
    ) -> UnitBlock | None:
        """A block that was lately read and has all of these units. generation: of the queue now."""
        for block in self._blocks.get((topic, queue_id), ()):
            if (
                block.begin <= queue_offset
                and queue_offset + count <= block.end
                and block.generation == generation
            ):
                if self._monotonic_s() < block.believed_until_s:
                    return block
                self._forget((topic, queue_id), block)
                return None
        return None

    def _check_block(
        self,
        place: tuple[str, int, int],
        count: int,
        ahead: int,
        generation: int,
        raw: bytes,
        pages: PagesAhead | None,
    ) -> UnitBlock:
        """The right units at the start of `raw`, of which `count` are wanted now. ahead: how many
        were asked for."""
        topic, queue_id, queue_offset = place
        if pages is not None:
            pages.check(raw)
        began_ns = self._thread_time_ns()
        good = count_right(self._log, raw, topic.encode(), queue_id, queue_offset)
        self._follow(self._thread_time_ns() - began_ns, len(raw) // CQ_UNIT_SIZE)
        if good < count and (good < len(raw) / CQ_UNIT_SIZE or not raw):
            self._note_damaged(topic, queue_id, queue_offset + good)
        read = len(raw) // CQ_UNIT_SIZE
        block = UnitBlock(
            queue_offset,
            generation,
            raw[: good * CQ_UNIT_SIZE],
            believed_until_s=self._monotonic_s() + _BELIEVED_S,
            ends_file=good == read < ahead,
        )
        if good > count:
            self._keep((topic, queue_id), block)
        return block

    def read_filtered(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count: int,
        codes: frozenset[int] | None,
        limit: int,
        pages: PagesAhead | None = None,
    ) -> bytes:
        """Up to `count` units from `queue_offset`, fewer before one that cannot be right. Of those
        with a tag code in `codes` (None: all) the first `limit` are checked, and the units end
        before the next of them. With a limit of 0 whoever uses a unit checks it. pages: see `read`.
        """
        return self.choose(topic, queue_id, queue_offset, count, codes, limit, pages)[0]

    def choose(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count: int,
        codes: frozenset[int] | None,
        limit: int,
        pages: PagesAhead | None = None,
    ) -> tuple[bytes, NDArray[np.int64]]:
        """What `read_filtered` gives, and the numbers in it of the units with these tags; with a
        limit of 0 they are not looked for."""
        raw = self._read_units(topic, queue_id, queue_offset, count)
        units = as_units(raw)
        good = count_plausible(units)
        if pages is not None and not limit:
            pages.check(raw[: good * CQ_UNIT_SIZE])
        chosen = np.zeros(0, np.int64)
        if limit:
            chosen = _with_tags(units[:good], codes)
            end = int(chosen[limit]) if len(chosen) > limit else good
            chosen = chosen[:limit]
            if pages is not None:
                pages.check(units[chosen].tobytes())
            right = right_units(
                self._log, units[chosen], topic.encode(), queue_id, chosen + queue_offset
            )
            if right.all() and end < good:
                return raw[: end * CQ_UNIT_SIZE], chosen
            if not right.all():
                first = int(right.argmin())
                good, chosen = int(chosen[first]), chosen[:first]
        if good < len(units) or not len(units):
            self._note_damaged(topic, queue_id, queue_offset + good)
        return raw[: good * CQ_UNIT_SIZE], chosen

    def tagged(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        high: int,
        codes: frozenset[int],
        pages: PagesAhead | None,
    ) -> TaggedBlock:
        """The units with these tags among many from `queue_offset` on, as far as they are right and
        not sparse. high, pages: see `read`. What is wrong is reported by who comes to it."""
        generation = self._table.generation_of(topic, queue_id)
        units = as_units(
            self._read_units(topic, queue_id, queue_offset, min(_SCAN, high - queue_offset))
        )
        end = count_plausible(units)
        numbers = _with_tags(units[:end], codes)
        chosen = units[numbers]
        phys = chosen["phy_offset"].astype(np.int64)
        most = min(self._ahead, int((phys - phys[:1] <= _SPARSE_BYTES).sum()))
        if pages is not None:
            pages.check(chosen[:most].tobytes())
        offsets = numbers + queue_offset
        began_ns = self._thread_time_ns()
        right = right_units(self._log, chosen[:most], topic.encode(), queue_id, offsets[:most])
        self._follow(self._thread_time_ns() - began_ns, most)
        good = most if right.all() else int(right.argmin())
        block = UnitBlock(
            0,
            generation,
            chosen[:good].tobytes(),
            believed_until_s=self._monotonic_s() + _BELIEVED_S,
            ends_file=False,
        )
        behind = int(offsets[good]) if good < len(offsets) else queue_offset + end
        return TaggedBlock(queue_offset, behind, codes, offsets[:good].data, block)

    def is_right(
        self, topic: str, queue_id: int, queue_offset: int, phy_offset: int, size: int
    ) -> bool:
        """Whether a unit of `read_filtered` is right; a wrong one is reported."""
        right = is_right(self._log, phy_offset, size, topic.encode(), queue_id, queue_offset)
        if not right:
            self._note_damaged(topic, queue_id, queue_offset)
        return right

    def _follow(self, took_ns: int, count: int) -> None:
        """A block of `count` units was checked in that time: how long the next one may be."""
        if took_ns > _LONG_CHECK_NS:
            most = count * _LONG_CHECK_NS // took_ns
            self._ahead = max(min(self._ahead, most), _LEAST_BLOCK)
        elif self._ahead < _BLOCK:
            self._ahead = min(self._ahead + self._ahead // _GROWTH, _BLOCK)

    def _forget(self, key: tuple[str, int], block: UnitBlock) -> None:
        blocks = self._blocks[key]
        blocks.remove(block)
        if not blocks:
            del self._blocks[key]
        self._kept -= 1

    def _keep(self, key: tuple[str, int], block: UnitBlock) -> None:
        blocks = self._blocks.setdefault(key, [])
        self._blocks.move_to_end(key)
        blocks.insert(0, block)
        self._kept += 1
        if len(blocks) > _BLOCKS_OF_A_QUEUE:
            blocks.pop()
            self._kept -= 1
        while self._kept > _BLOCKS:
            self._kept -= len(self._blocks.popitem(last=False)[1])


def _is_sparse(raw: bytes) -> bool:
    if len(raw) < 2 * CQ_UNIT_SIZE:
        return False
    last = CQ_UNIT.unpack_from(raw, len(raw) // CQ_UNIT_SIZE * CQ_UNIT_SIZE - CQ_UNIT_SIZE)[0]
    return bool(last - CQ_UNIT.unpack_from(raw)[0] > _SPARSE_BYTES)


def _with_tags(units: Units, codes: frozenset[int] | None) -> NDArray[np.int64]:
    """The numbers of those with a tag code in `codes`; None: of all."""
    if codes is None:
        return np.arange(len(units))
    tags = units["tags_code"].astype(np.int64).astype(np.int32)
    return np.flatnonzero(_is_one_of(tags, codes))


def _is_one_of(tags: NDArray[np.int32], codes: frozenset[int]) -> NDArray[np.bool_]:
    if len(codes) > _FEW_CODES:
        return np.fromiter(map(codes.__contains__, tags.tolist()), np.bool_, len(tags))
    found = np.zeros(len(tags), np.bool_)
    for code in codes:
        found |= tags == code
    return found
