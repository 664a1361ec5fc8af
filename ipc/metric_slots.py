"""Metric slots: the broker's counters and gauges as float64 numbers in shared memory.

One sparse memfd, made by the supervisor and inherited by every child. Each process has a region of
its own and is its only writer; the supervisor reads all regions at a scrape. A child that is
started again finds its series in its region's directory and goes on counting. Counting is
`values[slot] += n`: no lock, no call. It knows metrics by name and label values only, not what
they mean (broker/metrics/metrics_table.py does).

    offset in a region  content (native byte order)
    0                   uint64 generation: its lowest bit says which of the two directories counts
    8, 16               uint64 bytes of directory 0 and 1 that are valid
    4096                directory 0, then directory 1: entries, only ever appended
    +                   float64 slots; NaN in a series' first slot: the series is hidden

    entry: uint32 first slot, uint16 slot count, uint16 label count, uint16 size + name in UTF-8,
           then uint16 size + UTF-8 for each label value

An entry whose slots an earlier entry has, too, takes them over: that series was hidden. When a
directory is full, its living entries are written to the other one, which counts from then on.
"""

from __future__ import annotations

import logging
import math
import mmap
import os
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ipc.control_page import ProcessIndex
from ipc.errors import SharedMemoryFullError

log = logging.getLogger(__name__)

OVERFLOW: Final = "__overflow__"
"""Every label value of the series that counts for all series without a slot."""
SERIES_CAPPED: Final = "rocketmq_metrics_series_capped_total"
"""Counted here, by metric: how often `find` gave the slot of __overflow__."""
MAX_LABEL_BYTES: Final = 255
"""Label values are truncated to this: RocketMQ's names are not longer, hostile ones may be."""
MAX_SERIES: Final = 10_000
"""Of one metric, unless said otherwise."""
_HEAD_SIZE: Final = 4096
_DIRECTORY_SIZE: Final = 16 << 20
_SLOTS_AT: Final = _HEAD_SIZE + 2 * _DIRECTORY_SIZE
_SLOT_COUNT: Final = 2 << 20
REGION_SIZE: Final = _SLOTS_AT + 8 * _SLOT_COUNT
_KEPT_BYTES: Final = 1 << 20
_KEPT_SLOTS: Final = 1 << 14
"""What only __overflow__ series and those without labels may use of a region."""
_HIDDEN_SLOTS: Final = 1 << 17
"""Of one metric; beyond, its hidden series make room before fresh slots are taken: a thousand names
of series with thousands of slots would fill the region for all metrics."""
_GENERATION: Final = 0
_ENDS: Final = 1
_ENTRY: Final = struct.Struct("=IHH")
_SIZE: Final = struct.Struct("=H")
_READ_TRIES: Final = 5
assert _ENTRY.size == 8
assert _SLOTS_AT % mmap.ALLOCATIONGRANULARITY == 0
assert REGION_SIZE % mmap.ALLOCATIONGRANULARITY == 0

Labels = tuple[str, ...]


def create_metric_slots() -> int:
    """A descriptor of fresh, empty slots for all processes; children inherit it."""
    fd = os.memfd_create("mqbroker-metric-slots")
    os.ftruncate(fd, REGION_SIZE * len(ProcessIndex))
    return fd


class _Entry(NamedTuple):
    metric: str
    labels: Labels
    first: int
    size: int


class _Region:
    """The mapping of one process' region, and how its bytes are read."""

    def __init__(self, fd: int, process: ProcessIndex) -> None:
        self._map = mmap.mmap(fd, REGION_SIZE, offset=REGION_SIZE * process)
        view = memoryview(self._map)
        self.head: memoryview[int] = view[:_HEAD_SIZE].cast("Q")
        middle = _HEAD_SIZE + _DIRECTORY_SIZE
        self.directories = (view[_HEAD_SIZE:middle], view[middle:_SLOTS_AT])
        self.values: memoryview[float] = view[_SLOTS_AT:].cast("d")

    @property
    def generation(self) -> int:
        return self.head[_GENERATION]

    @property
    def end(self) -> int:
        return self.head[_ENDS + (self.generation & 1)]

    def entries(self, generation: int, start: int, end: int) -> Iterator[_Entry]:
        """The entries of the bytes [start, end) of that generation's directory."""
        data = bytes(self.directories[generation & 1][start:end])
        at = 0
        while at < len(data):
            first, size, count = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            texts = []
            for _ in range(1 + count):
                (length,) = _SIZE.unpack_from(data, at)
                at += _SIZE.size
                texts.append(str(data[at : at + length], "utf-8", "replace"))
                at += length
            yield _Entry(texts[0], tuple(texts[1:]), first, size)

    def close(self) -> None:
        for view in (self.head, *self.directories, self.values):
            view.release()
        self._map.close()


def _entry_bytes(entry: _Entry) -> bytes:
    parts = [_ENTRY.pack(entry.first, entry.size, len(entry.labels))]
    for text in (entry.metric, *entry.labels):
        data = text.encode()
        parts += [_SIZE.pack(len(data)), data]
    return b"".join(parts)


def _cut(labels: Labels) -> Labels:
    """As UTF-8 of a bounded size; what UTF-8 cannot express becomes a question mark."""
    return tuple(
        label.encode("utf-8", "replace")[:MAX_LABEL_BYTES].decode("utf-8", "ignore")
        for label in labels
    )


def _count(series: Mapping[Labels, int], like: Labels) -> int:
    """Without that of __overflow__, which takes nobody's room; `like`: labels of that metric."""
    return len(series) - ((OVERFLOW,) * len(like) in series)


class MetricSlots:
    """A process' own region: the only writer of it.

    Guarded by: its lock, which `find` takes for what it does not know yet, and `hide`. Each series
    has one thread that writes its `values`, and those of one metric the same, since they may share
    __overflow__. NaN is no value for a gauge: it hides the series.
    """

    def __init__(self, fd: int, process: ProcessIndex, *, max_series: int = MAX_SERIES) -> None:
        """Takes up the series that a predecessor left in the region of `process`.

        max_series: of one metric; `fd` (from create_metric_slots) stays the caller's.
        """
        self._region = _Region(fd, process)
        self.values: memoryview[float] = self._region.values
        self._max_series = max_series
        self._lock = threading.Lock()
        self._shown: dict[str, dict[Labels, int]] = {}
        self._hidden: dict[str, dict[Labels, int]] = {}
        self._sizes: dict[str, int] = {}
        self._slots_used = 0
        self._stale_bytes = 0
        self._take_up()

    def find(self, metric: str, labels: Labels = (), size: int = 1) -> int:
        """The first slot of a series of `size` slots, made (zeros) when it is new.

        Beyond max_series of a metric, or when the region is full: that of its __overflow__ series.
        Raises ValueError for another size than the metric has.
        """
        known = self._shown.get(metric)
        first = None if known is None else known.get(labels)
        if first is None:
            with self._lock:
                first = self._find_or_make(metric, _cut(labels), size)
        return first

    def hide(self, metric: str, labels: Labels, *, is_gauge: bool = False) -> None:
        """Show the series no more (its topic was deleted, its group is gone); the next `find`
        begins at zero again. Whoever remembered its slot must forget it: a new series may take it.
        A counter's series of __overflow__ stays: what it counted was of many. A gauge's goes, and
        keeps its slot.
        """
        labels = _cut(labels)
        if labels and self._is_kept(labels) and not is_gauge:
            return
        with self._lock:
            first = self._shown.get(metric, {}).pop(labels, None)
            if first is not None:
                self.values[first] = math.nan
                self._hidden.setdefault(metric, {})[labels] = first

    def series(self, metric: str) -> dict[Labels, int]:
        """Label values to first slot of what is shown of `metric`."""
        with self._lock:
            return dict(self._shown.get(metric, {}))

    def close(self) -> None:
        """Unmap the region; for tests."""
        self._region.close()

    # -- making --------------------------------------------------------------------------------

    def _take_up(self) -> None:
        region = self._region
        owners: dict[int, _Entry] = {}
        for entry in region.entries(region.generation, 0, region.end):
            if entry.first in owners:
                self._stale_bytes += len(_entry_bytes(owners[entry.first]))
            owners[entry.first] = entry
        for entry in owners.values():
            hidden = math.isnan(self.values[entry.first])
            table = self._hidden if hidden else self._shown
            table.setdefault(entry.metric, {})[entry.labels] = entry.first
            self._sizes[entry.metric] = entry.size
            self._slots_used = max(self._slots_used, entry.first + entry.size)

    def _find_or_make(self, metric: str, labels: Labels, size: int) -> int:
        if self._sizes.setdefault(metric, size) != size:
            raise ValueError(f"{metric} has {self._sizes[metric]} slots a series, not {size}")
        shown = self._shown.setdefault(metric, {})
        first = shown.get(labels)
        if first is not None:
            return first
        first = self._hidden.get(metric, {}).pop(labels, None)
        if first is not None:
            self._zero(first, size)
        elif self._is_kept(labels) or _count(shown, labels) < self._max_series:
            first = self._make(metric, labels, size)
        if first is None:
            return self._overflow(metric, labels, size)
        shown[labels] = first
        return first

    def _make(self, metric: str, labels: Labels, size: int) -> int | None:
        """Fresh slots, or those of the series that was hidden longest ago where the metric, or the
        region, has no fresh ones for it, or much is hidden; None: no room."""
        hidden = self._hidden.get(metric, {})
        used = _count(self._shown[metric], labels) + _count(hidden, labels)
        is_fresh = used < self._max_series and len(hidden) * size < _HIDDEN_SLOTS
        if self._is_kept(labels) or is_fresh:
            first, limit = self._slots_used, _SLOT_COUNT
            limit -= 0 if self._is_kept(labels) else _KEPT_SLOTS
            if first + size <= limit and self._append(_Entry(metric, labels, first, size)):
                self._slots_used = first + size
                return first
        oldest = next((each for each in hidden if not self._is_kept(each)), None)
        if oldest is not None:
            first = hidden[oldest]
            if self._append(_Entry(metric, labels, first, size)):
                del hidden[oldest]
                self._stale_bytes += len(_entry_bytes(_Entry(metric, oldest, first, size)))
                self._zero(first, size)
                return first
        return None

    def _overflow(self, metric: str, labels: Labels, size: int) -> int:
        if self._is_kept(labels):
            raise SharedMemoryFullError(
                f"the region of metric slots is full, even for {metric} {labels}: this is a bug"
            )
        if metric != SERIES_CAPPED:
            capped = self._find_or_make(SERIES_CAPPED, (metric,), 1)
            if self.values[capped] == 0:
                log.warning(
                    "metric %s: has %s series, more are counted under %s (metricsMaxSeries)",
                    metric,
                    len(self._shown[metric]),
                    OVERFLOW,
                )
            self.values[capped] += 1
        return self._find_or_make(metric, (OVERFLOW,) * len(labels), size)

    @staticmethod
    def _is_kept(labels: Labels) -> bool:
        """Series that always get a slot, since they are few."""
        return all(label == OVERFLOW for label in labels)

    def _zero(self, first: int, size: int) -> None:
        """The first slot last: it says whether the series is shown."""
        for slot in range(first + size - 1, first - 1, -1):
            self.values[slot] = 0.0

    # -- the directory -------------------------------------------------------------------------

    def _append(self, entry: _Entry) -> bool:
        """False: the directory is full."""
        data = _entry_bytes(entry)
        limit = _DIRECTORY_SIZE - (0 if self._is_kept(entry.labels) else _KEPT_BYTES)
        if self._region.end + len(data) > limit:
            # It takes a moment: only for much room, otherwise the next one comes soon.
            if self._stale_bytes < _DIRECTORY_SIZE // 2:
                return False
            self._tidy()
        region = self._region
        which, end = region.generation & 1, region.end
        region.directories[which][end : end + len(data)] = data
        region.head[_ENDS + which] = end + len(data)
        return True

    def _tidy(self) -> None:
        """Leave out, in the other directory, the entries whose slots others have taken over."""
        region, generation = self._region, self._region.generation
        data = b"".join(
            _entry_bytes(_Entry(metric, labels, first, self._sizes[metric]))
            for table in (self._shown, self._hidden)
            for metric, series in table.items()
            for labels, first in series.items()
        )
        other = (generation + 1) & 1
        region.directories[other][: len(data)] = data
        region.head[_ENDS + other] = len(data)
        region.head[_GENERATION] = generation + 1
        self._stale_bytes = 0


class _ReadRegion:
    """What the reader knows of one region."""

    def __init__(self, fd: int, process: ProcessIndex) -> None:
        self._region = _Region(fd, process)
        self._generation = 0
        self._read_end = 0
        self._series: dict[str, dict[int, _Entry]] = {}
        self.close = self._region.close

    def add_to(self, metric: str, found: dict[Labels, list[float]]) -> None:
        """Add the shown series of `metric`; what is there under equal labels is summed."""
        for _ in range(_READ_TRIES):
            self._refresh()
            shown = self._shown(metric)
            if self._is_fresh():
                break
        for labels, numbers in shown:
            known = found.get(labels)
            if known is None:
                found[labels] = numbers
            else:
                found[labels] = [a + b for a, b in zip(known, numbers, strict=True)]

    def _shown(self, metric: str) -> list[tuple[Labels, list[float]]]:
        values = self._region.values
        shown: list[tuple[Labels, list[float]]] = []
        for entry in self._series.get(metric, {}).values():
            first = entry.first
            value = values[first]
            if value == value:  # Not NaN, at half the price of isnan.
                size = entry.size
                numbers = [value] if size == 1 else list(values[first : first + size])
                shown.append((entry.labels, numbers))
        return shown

    def _is_fresh(self) -> bool:
        """No slots were given to another series since the last refresh."""
        return (self._generation, self._read_end) == (self._region.generation, self._region.end)

    def _refresh(self) -> None:
        if self._is_fresh():
            return
        generation = self._region.generation
        if generation != self._generation:
            self._generation, self._read_end = generation, 0
            self._series.clear()
        end = self._region.head[_ENDS + (generation & 1)]
        for entry in self._region.entries(generation, self._read_end, end):
            self._series.setdefault(entry.metric, {})[entry.first] = entry
        self._read_end = end


class MetricSlotsReader:
    """All regions, as the supervisor reads them. Any thread: guarded by its lock."""

    def __init__(self, fd: int) -> None:
        """`fd` (from create_metric_slots) stays the caller's."""
        self._regions = [_ReadRegion(fd, process) for process in ProcessIndex]
        self._lock = threading.Lock()

    def read(self, metric: str) -> list[tuple[Labels, list[float]]]:
        """Label values and slot values of each shown series of `metric`; equal labels of several
        processes are summed. Costs what the metric's series cost; the directory is read once."""
        found: dict[Labels, list[float]] = {}
        with self._lock:
            for region in self._regions:
                region.add_to(metric, found)
        return list(found.items())

    def close(self) -> None:
        """Unmap the regions; for tests."""
        for region in self._regions:
            region.close()
