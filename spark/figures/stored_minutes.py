"""Stored minutes with bad time, of one replica in one piece: 16 bytes a minute, not a row of 600.

Packed where they are read, looked at where the burn rates of the group are computed; both in the
executors (the standard library). Must not know where rows are stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class StoredMinutes(NamedTuple):
    """`numbers`: of each minute its beginning and its bad time, both in ms."""

    replica: str
    numbers: array[int]

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(minute, bad_ms)"""
        return zip(self.numbers[::2], self.numbers[1::2], strict=True)


def packed_minutes(
    rows: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[tuple[str, str], StoredMinutes]]:
    """Rows of table minutes in any order, by group and replica."""
    found: dict[tuple[str, str, str], array[int]] = {}
    for row in rows:
        key = row["cluster"], row["broker"], row["replica"]
        found.setdefault(key, array("q")).extend((row["minute"], row["bad_ms"]))
    for (cluster, broker, replica), numbers in found.items():
        yield (cluster, broker), StoredMinutes(replica, numbers)
