"""Judges batch consume queues offline, against the commit log that was walked before.

One thread, read-only. Units whose record was deleted by retention, or is inside of a fence,
cannot be judged and are passed over.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from store.batch_units import BatchUnit, parse_unit
from store.check_report import CheckReport
from store.commit_log_checker import WalkedLog
from store.mapped_file_queue import list_store_files
from store.message_store_config import BATCH_UNIT_SIZE
from store.resync_request import is_backup_name


def check_batch_queues(
    directory: Path, walked: WalkedLog, report: CheckReport
) -> set[tuple[str, int]]:
    """All queues below `directory`: <topic>/<queueId>/<files>; returns topic and id of each."""
    seen: set[tuple[str, int]] = set()
    for path in sorted(directory.glob("*/*")):
        topic, name = path.parent.name, path.name
        if name.isascii() and name.isdigit() and not is_backup_name(topic):
            seen.add((topic, int(name)))
            report.count("batch consumequeues")
            _check_queue(path, walked, report, (topic, int(name)))
    return seen


def _check_queue(
    path: Path, walked: WalkedLog, report: CheckReport, queue: tuple[str, int]
) -> None:
    phy_offsets, sizes, queue_of, queue_offsets = walked.arrays()
    number = walked.queues.get(queue, -2)
    units = _units(path, report)
    report.count("batch consumequeue units", len(units))
    first = phy_offsets[0] if len(phy_offsets) else walked.end_offset
    for unit in units:
        if unit.phy_offset < first or walked.fences.find(unit.phy_offset) is not None:
            continue
        row = int(np.searchsorted(phy_offsets, unit.phy_offset))
        found = (unit.phy_offset, unit.size, number, unit.base)
        if row == len(sizes) or found != (
            *(int(phy_offsets[row]), int(sizes[row])),
            *(int(queue_of[row]), int(queue_offsets[row])),
        ):
            report.error(f"{path}: the unit of queue offset {unit.base} names no record of its own")
    last = units[-1].phy_offset if units else -1
    expected = (phy_offsets > last) & (phy_offsets < walked.dispatched_offset)
    missing = int(np.count_nonzero((queue_of == number) & expected))
    if missing:
        report.unfinished(f"{path}: the last {missing} records have no unit")


def _units(path: Path, report: CheckReport) -> list[BatchUnit]:
    units: list[BatchUnit] = []
    for file in list_store_files(path):
        raw = file.path.read_bytes()
        for at in range(0, len(raw), BATCH_UNIT_SIZE):
            unit = parse_unit(raw, at)
            if unit is None:
                if any(raw[at:]):
                    report.unfinished(f"{file.path}: bytes behind its last unit are not zero")
                break
            units.append(unit)
    return units
