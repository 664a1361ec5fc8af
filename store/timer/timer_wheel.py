"""TimerWheel: the slots by time, in one file; TimerWheelReader reads them in any process.

The file `<root>/timerwheel` has two turns of 7 x 86,400 slots of 32 bytes (slot.py), 38,707,200
bytes however long the precision; slot index = (time / precision) mod 1,209,600. A slot counts only
if the time in it is the asked one; past ones are never cleared. RocketMQ changes a private copy and
compares all of it with the file each second; here the file is written in place with pwrite (a hole
without room is an error and no SIGBUS), the kernel knows which pages changed, and the readers' maps
show it at once. Corresponds to RocketMQ's TimerWheel. With timerWheelSnapshotFlush a 5.5 broker
writes `timerwheel.<timer log offset>` instead, two of them, and leaves `timerwheel` as it was.

Tested by tests/store/test_timer_files.py.
"""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store.errors import DiskFullError, FlushFailedError, StoreError
from store.mapped_file import NO_SPACE
from store.timer.slot import SLOT, SLOT_DTYPE, SLOT_SIZE, Slot

SLOTS_A_TURN: Final = 7 * 86_400
SLOT_COUNT: Final = 2 * SLOTS_A_TURN
WHEEL_SIZE: Final = SLOT_COUNT * SLOT_SIZE
BLANK_SLOTS: Final = 60
"""A turn less these is the longest time that may lie between read time and now."""
_LOOK_AHEAD: Final = 4096


class TimerWheelReader:
    """The wheel as a process reads it that does not write it. Any thread.

    A slot that may still be written (see timer_slots.py) can be read while it changes: its `num` is
    good for flow control, its positions are not to be followed.
    """

    def __init__(self, path: Path, precision_ms: int) -> None:
        """path: need not exist yet; it is opened at the first use that finds it whole."""
        self._path = path
        self.precision_ms = precision_ms
        self._lock = threading.Lock()
        self._slots: NDArray[np.void] | None = None
        self._map: mmap.mmap | None = None

    def slot(self, time_ms: int) -> Slot | None:
        """The slot of `time_ms`, None when it holds nothing. Raises StoreError."""
        if self._find() is None:
            return None
        number = time_ms // self.precision_ms
        assert self._map is not None
        found = SLOT.unpack_from(self._map, number % SLOT_COUNT * SLOT_SIZE)
        if found[0] != number or not number:
            return None
        return Slot(number * self.precision_ms, *found[1:])

    def num(self, time_ms: int) -> int:
        """Messages in the slot of `time_ms`: getCongestNum."""
        found = self.slot(time_ms)
        return 0 if found is None else found.num

    def next_slot(self, start_ms: int, end_ms: int) -> int | None:
        """Time (ms) of the first slot in [start_ms, end_ms) that holds something."""
        number, end = start_ms // self.precision_ms, -(-end_ms // self.precision_ms)
        end = min(end, number + SLOT_COUNT)
        if self._find() is None:
            return None
        while number < end:
            count = min(_LOOK_AHEAD, end - number, SLOT_COUNT - number % SLOT_COUNT)
            held = self._held(number, count)
            if len(held):
                return int(number + held[0]) * self.precision_ms
            number += count
        return None

    def used_slots(self, start_ms: int) -> list[int]:
        """Times (ms) of all slots from `start_ms` on that hold something, in order."""
        found: list[int] = []
        for number, held in self._parts(start_ms):
            found += [int(number + each) * self.precision_ms for each in held]
        return found

    def all_num(self, start_ms: int) -> int:
        """Messages in all slots from `start_ms` on: getAllNum."""
        total = 0
        for number, held in self._parts(start_ms):
            assert self._slots is not None
            first = number % SLOT_COUNT
            total += int(self._slots["num"][first + held].astype(np.int64).sum())
        return total

    def nums(self, start_ms: int, count: int) -> NDArray[np.int64]:
        """Messages in each of the `count` slots from that of `start_ms` on; at most SLOT_COUNT."""
        if self._find() is None:
            return np.zeros(count, np.int64)
        assert self._slots is not None
        numbers = start_ms // self.precision_ms + np.arange(count, dtype=np.int64)
        slots = self._slots[numbers % SLOT_COUNT]
        return np.where(slots["time"] == numbers, slots["num"], 0).astype(np.int64)

    def newest_slot(self) -> Slot:
        """The slot with the newest unit, past or not; of time 0 when all are empty."""
        if self._find() is None:
            return Slot(0, -1, -1)
        assert self._slots is not None
        number, *rest = self._slots[int(self._slots["last_pos"].argmax())].tolist()
        return Slot(number * self.precision_ms, *rest)

    def close(self) -> None:
        """Unmap; idempotent."""
        with self._lock:
            self._slots, found = None, self._map
            self._map = None
            if found is not None:
                found.close()

    def _parts(self, start_ms: int) -> list[tuple[int, NDArray[np.intp]]]:
        if self._find() is None:
            return []
        number = start_ms // self.precision_ms
        split = SLOT_COUNT - number % SLOT_COUNT
        parts = ((number, split), (number + split, SLOT_COUNT - split))
        return [(first, self._held(first, count)) for first, count in parts if count]

    def _held(self, number: int, count: int) -> NDArray[np.intp]:
        assert self._slots is not None
        first = number % SLOT_COUNT
        times = self._slots["time"][first : first + count].astype(np.int64)
        times -= np.arange(number, number + count)
        return np.flatnonzero(times == 0)

    def _find(self) -> NDArray[np.void] | None:
        if self._slots is not None:
            return self._slots
        with self._lock:
            if self._slots is None and self._path.exists():
                self._open()
            return self._slots

    def _open(self) -> None:
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < WHEEL_SIZE:
                    return
                self._map = mmap.mmap(file.fileno(), WHEEL_SIZE, access=mmap.ACCESS_READ)
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be read: {error.strerror}") from error
        self._slots = np.frombuffer(self._map, SLOT_DTYPE)


class TimerWheel:
    """The wheel as process `store` writes it. Owned by: one thread; `reader` by any.

    Changes are kept until `write_out`, so that a slot with many new units is written once.
    """

    def __init__(self, path: Path, precision_ms: int) -> None:
        self.path = path
        self.precision_ms = precision_ms
        self.reader: Final = TimerWheelReader(path, precision_ms)
        self._changed: dict[int, Slot] = {}
        self._fd = -1
        self._is_dirty = False

    def open(self) -> bool:
        """Open the file; False: it was missing or had not the length of a wheel, and is empty now.
        Raises DiskFullError, OSError."""
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFullError(f"{self.path}: {error.strerror}") from error
            raise
        size = os.fstat(self._fd).st_size
        if size == WHEEL_SIZE:
            return True
        os.ftruncate(self._fd, WHEEL_SIZE)
        if size:
            self.clear()
        return False

    def has_snapshots(self) -> bool:
        """Whether a broker of 5.5 has written another file than this."""
        return bool(self._snapshots())

    def remove_snapshots(self) -> None:
        """What is here counts now: a broker of 5.5 would believe them. Raises FlushFailedError,
        OSError."""
        if snapshots := self._snapshots():
            self.flush()
            for path in snapshots:
                path.unlink()

    def _snapshots(self) -> list[Path]:
        names = self.path.parent.glob(f"{self.path.name}.*")
        return [path for path in names if path.suffix[1:].isdecimal()]

    def clear(self) -> None:
        """Empty all slots. In place: other processes have the file mapped. Raises DiskFullError,
        OSError."""
        self._changed.clear()
        zeros = bytes(1 << 20)
        for at in range(0, WHEEL_SIZE, len(zeros)):
            piece = os.pread(self._fd, len(zeros), at)
            if piece != zeros[: len(piece)]:
                self._write(zeros[: len(piece)], at)

    def slot(self, time_ms: int) -> Slot | None:
        """The slot of `time_ms`, with the changes that are not written yet."""
        time_ms -= time_ms % self.precision_ms
        found = self._changed.get(time_ms)
        return self.reader.slot(time_ms) if found is None else found

    def put_slot(self, slot: Slot) -> None:
        """Replace a slot, at the next `write_out`."""
        self._changed[slot.time_ms] = slot

    def write_out(self) -> None:
        """Write the changes. Raises DiskFullError, OSError: they are kept."""
        for time_ms in list(self._changed):
            slot = self._changed[time_ms]
            number = time_ms // self.precision_ms
            self._write(SLOT.pack(number, *slot[1:]), number % SLOT_COUNT * SLOT_SIZE)
            del self._changed[time_ms]

    def empty_slots(self, start_ms: int, end_ms: int) -> None:
        """The slots in [start_ms, end_ms) hold nothing any more. Raises DiskFullError, OSError."""
        while (found_ms := self.reader.next_slot(start_ms, end_ms)) is not None:
            self._write(bytes(SLOT_SIZE), found_ms // self.precision_ms % SLOT_COUNT * SLOT_SIZE)
            start_ms = found_ms + self.precision_ms

    def flush(self) -> None:
        """Bring written changes to disk. Raises FlushFailedError."""
        if self._is_dirty:
            self._is_dirty = False
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                raise FlushFailedError(f"fdatasync of {self.path}: {error}") from error

    def close(self) -> None:
        """Close; idempotent. Nothing is flushed."""
        self.reader.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: bytes, at: int) -> None:
        self._is_dirty = True
        try:
            os.pwrite(self._fd, data, at)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFullError(f"{self.path}: {error.strerror}") from error
            raise
