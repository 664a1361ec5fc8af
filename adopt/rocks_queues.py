"""What RocksDB knows of the consume queues: units counted by queue, where each goes on.

One thread, read-only. A count here and one of the log are of the same messages where both have
seen them: units behind `checkpoint` are not written yet, units before the log's first record have
expired. Knows no file queues.

Tested by tests/adopt/test_rocks_queues.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from adopt.log_survey import QueueName
from adopt.rocks_codec import (
    CHECKPOINT_TOPIC,
    DamagedEntryError,
    decode_bound,
    decode_unit,
    decode_unit_key,
)
from adopt.rocks_database import RocksDatabase

_NAMED: Final = 20


@dataclass(slots=True)
class RocksQueues:
    """See the module."""

    checkpoint: int = 0
    """Up to where the log is dispatched."""
    units: dict[QueueName, int] = field(default_factory=dict)
    """Of each queue, within the log."""
    ends: dict[QueueName, int] = field(default_factory=dict)
    """The queue offset that comes next."""
    lost: int = 0
    """Units of messages behind the log's end."""
    damaged: list[str] = field(default_factory=list)


def read_bounds(directory: Path) -> RocksQueues:
    """Checkpoint and ends. Raises StoreError."""
    found = RocksQueues()
    with RocksDatabase(directory) as database:
        for key, value in database.entries("offset"):
            try:
                bound = decode_bound(key, value)
            except DamagedEntryError as error:
                _note(found, error)
                continue
            if bound.topic == CHECKPOINT_TOPIC:
                found.checkpoint = bound.phy_offset
            elif bound.is_max:
                found.ends[bound.topic, bound.queue_id] = bound.queue_offset + 1
    return found


def count_units(
    directory: Path, found: RocksQueues, log_start: int, log_end: int, beat: Callable[[], None]
) -> None:
    """Go through all units. beat: called now and then. Raises StoreError."""
    with RocksDatabase(directory) as database:
        for number, (key, value) in enumerate(database.entries("default")):
            try:
                place, unit = decode_unit_key(key), decode_unit(value)
            except DamagedEntryError as error:
                _note(found, error)
                continue
            name = place.topic, place.queue_id
            if log_start <= unit.phy_offset < log_end:
                found.units[name] = found.units.get(name, 0) + 1
            elif unit.phy_offset >= log_end:
                found.lost += 1
            # A bound may be behind its units, as a flush covers both only in Java.
            found.ends[name] = max(found.ends.get(name, 0), place.queue_offset + 1)
            if number % 100_000 == 0:
                beat()


def _note(found: RocksQueues, error: DamagedEntryError) -> None:
    if len(found.damaged) < _NAMED:
        found.damaged.append(str(error))
