"""PagesAhead: old records are brought into memory beside the loop, before a pull reads them there.

The loop reads the mapped log, and what a consumer that is far behind asks for may be on disk only:
each page would be waited for while no send and no other pull is served. So the loop looks first
whether the records are in memory, at some of them, without waiting (RWF_NOWAIT); if not, threads
read them, and the pull goes on when they have. Records that were written of late are not looked at.
Knows no request. Not brought ahead: units of the consume queue, which are small, and what pops,
revival and batch or compaction queues read. Where the kernel cannot tell, everything is as without
it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np

from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE
from store.unit_check import as_units

log = logging.getLogger(__name__)

_YOUNG_BYTES: Final = 64 << 20
"""Behind the log's end: in memory unless there is hardly any."""
_SAMPLES: Final = 32
"""Records that are looked at, of a thousand: 30 us."""
_APART: Final = 16 << 10
"""Bytes from one that is looked at to the next: the kernel reads no less at once."""
_GAP: Final = 64 << 10
"""Bytes between two records that are read along with them."""
_STEP: Final = 256 << 10
_AHEAD: Final = 8 << 20
"""What the kernel is asked to read on by itself behind what was wanted."""
_FILES: Final = 8
_THREADS: Final = 4


class PagesMissingError(Exception):
    """Records are not in memory. units: of the consume queue, whose records are wanted."""

    def __init__(self, units: bytes) -> None:
        super().__init__("records are not in memory")
        self.units = units


class PagesAhead:
    """See the module. Owned by: the loop thread; its threads only read files."""

    def __init__(
        self,
        path_of: Callable[[int], Path],
        file_size: int,
        log_bounds: Callable[[], tuple[int, int]],
        call_soon: Callable[[Callable[[], None]], None],
        *,
        reads_on: bool,
    ) -> None:
        """path_of: the log's file that begins at an offset. log_bounds: of what is published.
        call_soon: runs a function on the loop; any thread. reads_on: whether the kernel is asked
        for what follows, too (dataReadAheadEnable)."""
        self._path_of = path_of
        self._file_size = file_size
        self._log_bounds = log_bounds
        self._call_soon = call_soon
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="PagesAheadThread")
        self._files: OrderedDict[int, int] = OrderedDict()
        """Descriptors, by where their file begins; the one that was used last is the last."""
        self._dropped_below = 0
        self._byte = bytearray(1)
        self.reads_on = reads_on
        self._is_known = True
        """Whether the kernel tells."""
        self.brought = 0
        """How often records were brought, since the start."""

    def check(self, units: bytes) -> None:
        """Raises PagesMissingError unless the records of these units are in memory, as far as some
        of them show."""
        if not self._is_known or not units:
            return
        count = len(units) // CQ_UNIT_SIZE
        low, high = self._log_bounds()
        if low != self._dropped_below:
            self._drop_below(low)
        edge = high - _YOUNG_BYTES
        step = -(-count // _SAMPLES)
        looked_at = -_APART
        for number in range(0, count, step):
            phy_offset, size, _tags = CQ_UNIT.unpack_from(units, number * CQ_UNIT_SIZE)
            if phy_offset >= edge:
                return
            if 0 <= phy_offset - looked_at < _APART:
                continue
            looked_at = phy_offset
            # The last byte: the first ones of a file are read at every start.
            position = phy_offset % self._file_size + max(size, 1) - 1
            if position >= self._file_size:
                continue
            found = self._is_in_memory(phy_offset - phy_offset % self._file_size, position)
            if found is None:
                return
            if not found:
                raise PagesMissingError(units)

    def bring(self, units: bytes, then: Callable[[], None]) -> None:
        """Have the records read; `then` runs on the loop when they were, or could not be."""
        self.brought += 1
        runs = runs_of(units, self._file_size)

        def read() -> None:
            try:
                for start, end in runs:
                    self._read(start, end)
                if runs and self.reads_on:
                    self._ask_for_more(runs[-1][1])
            except OSError as error:
                # Deleted meanwhile, or a bad disk: who reads the record finds out.
                log.warning("could not read ahead: %s", error)
            finally:
                self._call_soon(then)

        self._pool.submit(read)

    def shutdown(self) -> None:
        """Bring nothing more; what waits is dropped with its connection. Idempotent."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        while self._files:
            os.close(self._files.popitem()[1])

    # -- loop ----------------------------------------------------------------------------------

    def _is_in_memory(self, start: int, position: int) -> bool | None:
        """A byte of the file that begins at `start`. None: the kernel does not tell."""
        fd = self._descriptor(start)
        if fd is None:
            return True
        try:
            os.preadv(fd, [self._byte], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                return True
            log.info("old records are not read ahead of pulls: %s", error)
            self._is_known = False
            return None
        return True

    def _drop_below(self, low: int) -> None:
        """Deleted files free their space only when nobody has them open."""
        self._dropped_below = low
        for start in [start for start in self._files if start + self._file_size <= low]:
            os.close(self._files.pop(start))

    def _descriptor(self, start: int) -> int | None:
        fd = self._files.get(start)
        if fd is not None:
            self._files.move_to_end(start)
            return fd
        try:
            fd = os.open(self._path_of(start), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        if len(self._files) >= _FILES:
            os.close(self._files.popitem(last=False)[1])
        self._files[start] = fd
        return fd

    # -- threads -------------------------------------------------------------------------------

    def _read(self, start: int, end: int) -> None:
        left = end - start
        buffer = memoryview(bytearray(min(_STEP, left)))
        with self._file_at(start) as (fd, position):
            while left > 0:
                size = os.preadv(fd, [buffer[: min(_STEP, left)]], position)
                if not size:
                    return
                position += size
                left -= size

    def _ask_for_more(self, end: int) -> None:
        with self._file_at(end) as (fd, position):
            os.posix_fadvise(fd, position, _AHEAD, os.POSIX_FADV_WILLNEED)

    @contextlib.contextmanager
    def _file_at(self, phy_offset: int) -> Iterator[tuple[int, int]]:
        """A descriptor of the file that holds the offset, and the offset's place in it."""
        position = phy_offset % self._file_size
        fd = os.open(self._path_of(phy_offset - position), os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd, position
        finally:
            os.close(fd)


def runs_of(units: bytes, file_size: int) -> list[tuple[int, int]]:
    """What to read for the records of these units: (start, end) in the log, none over a file's end;
    records that lie near each other are one. Units of no record, such as those of a gap, count
    for nothing."""
    found = as_units(units)
    starts = found["phy_offset"].astype(np.int64)
    sizes = found["size"].astype(np.int64)
    plausible = (starts >= 0) & (sizes > 0) & (sizes <= file_size)
    starts, sizes = starts[plausible], sizes[plausible]
    if not len(starts):
        return []
    files = starts // file_size
    ends = np.minimum(starts + sizes, (files + 1) * file_size)
    gaps = starts[1:] - ends[:-1]
    parts = np.flatnonzero((gaps < 0) | (gaps > _GAP) | (files[1:] != files[:-1])) + 1
    firsts, lasts = np.concatenate(((0,), parts)), np.concatenate((parts, (len(starts),))) - 1
    return list(zip(starts[firsts].tolist(), ends[lasts].tolist(), strict=True))
