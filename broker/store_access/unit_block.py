"""UnitBlock: checked units of one queue that follow each other, and where their records are; and
TaggedBlock: those of them that have certain tags.

Made by CheckedUnits; pulls take many records at once from them. What is worked out here is worked
out once for a block, for all of its units together, on first use: a pull of 32 records then costs
two slices of arrays instead of 32 units to be unpacked and compared. Loop thread. It knows no
requests and keeps no view of the log.

Tested by tests/broker/pull/test_pull_message_reader.py.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from store.message_codec import (
    BODY_SIZE_AT,
    HEAD_SIZE,
    HOSTS_V6_FLAGS,
    MAGIC_V1,
    SYS_FLAG_AT,
    TOPIC_LIMIT,
)
from store.stored_units import CQ_UNIT_SIZE, PRE_BLANK_SIZE
from store.unit_check import as_units

Numbers = NDArray[np.integer[Any]]
"""Of 32 bits where those are enough: up to 500 blocks are kept."""

_MAGIC_AT: Final = 4
_INT16: Final = 2
_INT32: Final = 4


class Places:
    """Where the records of a block are; all of them are in one file of the log. Immutable."""

    __slots__ = ("_alike", "ends", "file_start", "is_alike", "starts", "totals")

    def __init__(
        self, file_start: int, starts: NDArray[np.int64], sizes: NDArray[np.int64], kind: type
    ) -> None:
        """file_start: where the file begins in the log. starts: in the file. kind: of the numbers
        that are kept."""
        totals = np.concatenate(((0,), sizes.cumsum()))
        self.file_start: Final = file_start
        self.starts: Final[memoryview[int]] = starts.astype(kind).data
        """No arrays: one number, or the 32 of a pull, cost half."""
        self.ends: Final[memoryview[int]] = (starts + sizes).astype(kind).data
        self.totals: Final[memoryview[int]] = totals.astype(kind).data
        """Bytes of all records before each unit of the block, and of all of them."""
        self.is_alike: Final = bool((sizes == sizes[0]).all())
        """Whether all records are of one size: `copy` takes only such."""
        self._alike: Final = (np.dtype(f"V{sizes[0]}"), starts) if self.is_alike else None

    def copy(self, view: memoryview, first: int, last: int) -> memoryview:
        """The bytes of the records from number `first` to before `last`, which are scattered in
        `view`, their file: half of what it costs to make views of them, and to join those."""
        assert self._alike is not None
        record, starts = self._alike
        every = np.ndarray((len(view) - record.itemsize + 1,), record, view, 0, (1,))
        return every[starts[first:last]].view(np.uint8).data


class UnitBlock:
    """See the module. Owned by: the loop thread."""

    __slots__ = (
        "_has_properties",
        "_is_laid_out",
        "_places",
        "_properties",
        "begin",
        "believed_until_s",
        "end",
        "ends_file",
        "generation",
        "raw",
    )

    def __init__(
        self,
        begin: int,
        generation: int,
        raw: bytes,
        *,
        believed_until_s: float,
        ends_file: bool,
    ) -> None:
        """begin: the queue offset of the first of the units `raw`. believed_until_s: the monotonic
        time from which on they are to be checked again. ends_file: those behind them are in another
        file of the queue: a read ends there."""
        self.begin: Final = begin
        self.end: Final = begin + len(raw) // CQ_UNIT_SIZE
        self.generation: Final = generation
        self.raw: Final = raw
        self.believed_until_s: Final = believed_until_s
        self.ends_file: Final = ends_file
        self._is_laid_out = False
        self._places: Places | None = None
        self._has_properties = True
        self._properties: tuple[Numbers, Numbers] | None = None

    def units(self, queue_offset: int, count: int) -> bytes:
        """Up to `count` units from `queue_offset`, which is in the block or its end."""
        at = (queue_offset - self.begin) * CQ_UNIT_SIZE
        return self.raw[at : at + count * CQ_UNIT_SIZE]

    def places(self, file_size: int) -> Places | None:
        """None: some unit is blank, or the records are in several files."""
        if not self._is_laid_out:
            self._is_laid_out = True
            self._places = self._lay_out(file_size)
        return self._places

    def _lay_out(self, file_size: int) -> Places | None:
        units = as_units(self.raw)
        phys, sizes = units["phy_offset"].astype(np.int64), units["size"].astype(np.int64)
        if not len(phys) or (sizes == PRE_BLANK_SIZE).any():
            return None
        file_start = int(phys[0]) - int(phys[0]) % file_size
        starts = phys - file_start
        if int((starts + sizes).max()) > file_size:
            return None
        kind = np.int32 if file_size <= np.iinfo(np.int32).max else np.int64
        return Places(file_start, starts, sizes, kind)

    def properties(self, places: Places, view: memoryview) -> tuple[Numbers, Numbers] | None:
        """Where the properties of the block's records start and end in `view`, their file. None:
        there are records of rare forms (IPv6 hosts, V2), or sizes that contradict each other."""
        if self._properties is None and self._has_properties:
            self._properties = _find_properties(places, view)
            self._has_properties = self._properties is not None
        return self._properties


class TaggedBlock:
    """The units with some tags among those of one queue from `begin` to before `end`. Immutable."""

    __slots__ = ("begin", "codes", "end", "offsets", "units")

    def __init__(
        self,
        begin: int,
        end: int,
        codes: frozenset[int],
        offsets: memoryview[int],
        units: UnitBlock,
    ) -> None:
        """offsets: of the units in the queue. units: they alone, numbered from 0."""
        self.begin: Final = begin
        self.end: Final = end
        self.codes: Final = codes
        self.offsets: Final = offsets
        self.units: Final = units

    def find(self, queue_offset: int, count: int, scan: int) -> int | None:
        """The number of the first of its units from `queue_offset` on, if `count` of them are among
        the next `scan` units of the queue."""
        if not self.begin <= queue_offset <= self.end:
            return None
        offsets = self.offsets
        first = bisect_left(offsets, queue_offset)
        last = first + count - 1
        if last >= len(offsets) or offsets[last] >= queue_offset + scan:
            return None
        return first


def _find_properties(places: Places, view: memoryview) -> tuple[Numbers, Numbers] | None:
    starts, ends = np.array(places.starts, np.int64), np.array(places.ends, np.int64)
    if int((ends - starts).min()) <= HEAD_SIZE or int(ends.max()) > len(view):
        return None
    topics_at = starts + HEAD_SIZE + _numbers(view, _INT32, starts + BODY_SIZE_AT)
    if ((topics_at < starts + HEAD_SIZE) | (topics_at >= ends)).any():
        return None
    topic_sizes = np.frombuffer(view, np.uint8)[topics_at].astype(np.int64)
    begins = topics_at + 1 + topic_sizes + _INT16
    if (
        (begins > ends).any()
        or (topic_sizes > TOPIC_LIMIT).any()
        or (_numbers(view, _INT16, begins - _INT16) != ends - begins).any()
        or (_numbers(view, _INT32, starts + _MAGIC_AT) != MAGIC_V1 - (1 << 32)).any()
        or (_numbers(view, _INT32, starts + SYS_FLAG_AT) & HOSTS_V6_FLAGS).any()
    ):
        return None
    kept = np.asarray(places.ends)
    return begins.astype(kept.dtype), kept


def _numbers(view: memoryview, size: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The big-endian integers of `size` bytes there."""
    numbers = np.ndarray((len(view) - size + 1,), f">i{size}", view, 0, (1,))
    return numbers[places].astype(np.int64)
