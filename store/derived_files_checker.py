"""Judges consumequeue and index offline, against the commit log that was walked before.

One thread, read-only. Layouts come from consume_queue and index_file. Units whose record was
deleted by retention cannot be judged and are passed over.

Tested by tests/store/test_store_checker.py.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from store.check_report import CheckReport
from store.commit_log_checker import Int64Array, WalkedLog
from store.index_file import INDEX_HEADER, INDEX_UNIT
from store.mapped_file_queue import StoreFile, list_store_files
from store.resync_request import is_backup_name
from store.stored_units import CQ_UNIT_DTYPE, CQ_UNIT_SIZE, PRE_BLANK_SIZE

_SLOT_SIZE = 4
_UNITS_PER_SLOT = 4
"""Of RocketMQ's defaults; the number of slots is nowhere written in the file."""


class DerivedFilesChecker:
    """Compares derived files with the log's records."""

    def __init__(self, walked: WalkedLog, report: CheckReport) -> None:
        self._log = walked
        self._report = report
        self._phy_offsets, self._sizes, self._queue_of, self._queue_offsets = walked.arrays()

    # -- consumequeue --------------------------------------------------------------------------

    def check_consume_queues(
        self, directory: Path, elsewhere: Collection[tuple[str, int]] = ()
    ) -> None:
        """All queues below `directory`: <topic>/<queueId>/<files>. elsewhere: those that are not
        expected here, batch consume queues."""
        seen = set(elsewhere)
        names = sorted(os.listdir(directory)) if directory.is_dir() else []
        for topic in (name for name in names if not is_backup_name(name)):
            for name in sorted(os.listdir(directory / topic)):
                if name.isascii() and name.isdigit():
                    self._check_queue(directory / topic / name, topic, int(name))
                    seen.add((topic, int(name)))
        for topic, queue_id in sorted(self._log.queues.keys() - seen):
            self._report.note(f"{topic} queue {queue_id} has records and no consumequeue")

    def _check_queue(self, directory: Path, topic: str, queue_id: int) -> None:
        files = list_store_files(directory)
        self._report.count("consumequeues")
        first: int | None = None
        expected = files[0].start_offset if files else 0
        for at, file in enumerate(files):
            if file.start_offset != expected:
                self._report.error(f"{file.path}: bytes from {expected} on are missing before it")
            used = self._check_queue_file(file, topic, queue_id)
            self._report.count("consumequeue units", len(used))
            real = used["phy_offset"][used["size"] != PRE_BLANK_SIZE]
            first = int(real[0]) if first is None and len(real) else first
            expected = file.start_offset + file.size
            last_unit = file.start_offset // CQ_UNIT_SIZE + len(used)
            if len(used) * CQ_UNIT_SIZE < file.size and at + 1 < len(files):
                self._report.unfinished(f"{file.path}: ends early, a file follows")
                return
        if first is not None:
            self._check_complete(directory, topic, queue_id, first, last_unit)

    def _check_queue_file(self, file: StoreFile, topic: str, queue_id: int) -> NDArray[np.void]:
        raw = file.path.read_bytes()
        units = np.frombuffer(raw[: len(raw) - len(raw) % CQ_UNIT_SIZE], CQ_UNIT_DTYPE)
        valid = (units["size"] > 0) & (units["phy_offset"] >= 0)
        count = int(np.argmin(valid)) if len(valid) and not valid.all() else len(units)
        if any(raw[count * CQ_UNIT_SIZE :]):
            self._report.unfinished(f"{file.path}: bytes behind its last unit {count} are not zero")
        used = units[:count]
        self._check_units(file, used, topic, queue_id)
        return used

    def _check_units(
        self, file: StoreFile, units: NDArray[np.void], topic: str, queue_id: int
    ) -> None:
        phy = units["phy_offset"].astype(np.int64)
        real = units["size"] != PRE_BLANK_SIZE
        if not (np.diff(phy[real]) > 0).all():
            self._report.error(f"{file.path}: physical offsets do not grow")
        beyond = real & (phy >= self._log.end_offset)
        if beyond.any():
            at = int(np.argmax(beyond))
            self._report.unfinished(
                f"{file.path}: unit {at} points at {phy[at]}, behind the end of the log"
            )
        judged = np.flatnonzero(real & ~beyond & (phy >= self._log.min_offset))
        places, found = self._find(phy[judged])
        offsets = file.start_offset // CQ_UNIT_SIZE + judged
        queue = self._log.queues.get((topic, queue_id), -2)
        good = (
            found
            & (self._take(self._queue_of, places) == queue)
            & (self._take(self._queue_offsets, places) == offsets)
        )
        if (light := self._log.lmq.get(topic)) is not None:
            in_light_queue = [light.get(at, -1) for at in phy[judged].tolist()]
            good |= found & (np.array(in_light_queue, np.int64) == offsets)
        good &= self._take(self._sizes, places) == units["size"][judged]
        for at in judged[~good][:3]:
            self._report.error(
                f"{file.path}: unit {at} (phy_offset {phy[at]}, size {units['size'][at]}) is not "
                f"record {file.start_offset // CQ_UNIT_SIZE + at} of {topic} queue {queue_id}"
            )

    def _find(self, phy: Int64Array) -> tuple[Int64Array, NDArray[np.bool_]]:
        """Number of the record at each offset, and whether one starts there."""
        places = np.searchsorted(self._phy_offsets, phy).astype(np.int64)
        return places, self._take(self._phy_offsets, places) == phy

    def _take(self, values: Int64Array, places: Int64Array) -> Int64Array:
        if not len(values):
            return np.full(len(places), -3, np.int64)
        return values[np.minimum(places, len(values) - 1)]

    def _check_complete(
        self, directory: Path, topic: str, queue_id: int, first: int, last_unit: int
    ) -> None:
        """Every record of the queue from the first unit's on has a unit."""
        queue = self._log.queues.get((topic, queue_id), -2)
        mine = (self._queue_of == queue) & (self._phy_offsets >= first)
        end = self._log.dispatched_offset
        mine &= self._phy_offsets < end
        missing = int((self._queue_offsets[mine] >= last_unit).sum())
        light = self._log.lmq.get(topic, {})
        missing += sum(first <= phy < end and at >= last_unit for phy, at in light.items())
        if missing:
            self._report.unfinished(f"{directory}: {missing} records have no unit")

    # -- index ---------------------------------------------------------------------------------

    def check_index(self, directory: Path, hash_slots: int | None) -> None:
        """All index files; `hash_slots`: maxHashSlotNum, None: a quarter of the units."""
        for path in sorted(directory.iterdir()) if directory.is_dir() else []:
            if len(path.name) == 17 and path.name.isdigit():
                self._report.count("index files")
                self._check_index_file(path, hash_slots)
            else:
                self._report.note(f"{path}: not the name of an index file")

    def _check_index_file(self, path: Path, hash_slots: int | None) -> None:
        size = path.stat().st_size
        slots = hash_slots or (size - INDEX_HEADER.size) // (
            _SLOT_SIZE + _UNITS_PER_SLOT * INDEX_UNIT.itemsize
        )
        units_at = INDEX_HEADER.size + slots * _SLOT_SIZE
        if size <= units_at or (size - units_at) % INDEX_UNIT.itemsize:
            self._report.error(f"{path}: {size} bytes are not an index file of {slots} slots")
            return
        raw = np.memmap(path, np.uint8, "r")
        header = INDEX_HEADER.unpack(raw[: INDEX_HEADER.size].tobytes())
        count = max(header[5], 1)
        units = raw[units_at:].view(INDEX_UNIT)
        if header[5] < 0 or count > len(units):
            self._report.error(f"{path}: index count {header[5]} of {len(units)} units")
            return
        heads = raw[INDEX_HEADER.size : units_at].view(">i4").astype(np.int64)
        self._report.count("index entries", count - 1)
        self._check_chains(path, heads, units[:count])
        self._check_entries(path, units[1:count], header)

    def _check_chains(self, path: Path, heads: Int64Array, units: NDArray[np.void]) -> None:
        if (bad := int(((heads < 0) | (heads >= len(units))).sum())) > 0:
            self._report.unfinished(f"{path}: {bad} slots point at no entry")
        used = np.flatnonzero((heads > 0) & (heads < len(units)))
        hashes = units["key_hash"][heads[used]].astype(np.int64)
        wrong = int((hashes % len(heads) != used).sum())
        if wrong:
            self._report.error(f"{path}: {wrong} slots point at entries of other slots")
        numbers = np.arange(len(units))
        previous = units["previous"].astype(np.int64)
        if ((previous[1:] >= numbers[1:]) | (previous[1:] < 0)).any():
            self._report.error(f"{path}: a chain leads forward")

    def _check_entries(
        self, path: Path, entries: NDArray[np.void], header: tuple[int, ...]
    ) -> None:
        if not len(entries):
            return
        phy = entries["phy_offset"].astype(np.int64)
        if (phy > header[3]).any():
            self._report.unfinished(f"{path}: entries behind endPhyOffset {header[3]}")
        beyond = phy >= self._log.end_offset
        if beyond.any():
            self._report.unfinished(f"{path}: {int(beyond.sum())} entries behind the log's end")
        judged = phy[~beyond & (phy >= self._log.min_offset)]
        found = self._find(judged)[1]
        for fence in self._log.fences:
            # Keys of records that cannot be read any more: whoever looks them up finds nothing.
            found |= (judged >= fence.start) & (judged < fence.end)
        if not found.all():
            self._report.error(f"{path}: {int((~found).sum())} entries point at no record")
