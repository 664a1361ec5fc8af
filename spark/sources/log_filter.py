"""LogFilter: what of a WHERE clause spares the reader of a log work.

Made on the driver, used by executors; picklable. It leaves out files and records that cannot be in
the result; Spark applies the whole clause again, so a comparison that is not known here costs time
only.

Tested by tests/spark/sources/test_log_filter.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS: Final = frozenset({"queue_id", "physical_offset", "store_timestamp"})


@dataclass(slots=True)
class Bounds:
    """Values from `low` to `high`, both included; with `values` only those."""

    low: int = _LEAST
    high: int = _MOST
    values: frozenset[int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether everything is within."""
        return self.low == _LEAST and self.high == _MOST and self.values is None

    def meets(self, low: int, high: int) -> bool:
        """Whether anything from `low` to `high`, both included, is within."""
        if max(low, self.low) > min(high, self.high):
            return False
        return self.values is None or any(low <= value <= high for value in self.values)

    def mask(self, column: NDArray[Any]) -> NDArray[np.bool_]:
        """Which are within."""
        found = (column >= self.low) & (column <= self.high)
        if self.values is not None:
            found &= np.isin(column, np.fromiter(self.values, np.int64, len(self.values)))
        return found


@dataclass(slots=True)
class LogFilter:
    """See the module. `topics`: None: all. `bounds`: by column; times in ms."""

    topics: frozenset[str] | None = None
    bounds: dict[str, Bounds] = field(default_factory=dict)

    def of(self, column: str) -> Bounds:
        """The bounds of a column."""
        return self.bounds.get(column) or Bounds()


def read_filters(filters: Iterable[Filter]) -> LogFilter:
    """What is known of these, all of which hold."""
    found = LogFilter()
    for each in filters:
        column = getattr(each, "attribute", ("",))[0]
        if column == "topic":
            _topic(found, each)
        elif column in _NUMBERS:
            _narrow(found.bounds.setdefault(column, Bounds()), each)
    return found


def _topic(found: LogFilter, each: Filter) -> None:
    if isinstance(each, EqualTo | EqualNullSafe):
        names: Iterable[Any] = (each.value,)
    elif isinstance(each, In):
        names = each.value
    else:
        return
    topics = frozenset(name for name in names if isinstance(name, str))
    found.topics = topics if found.topics is None else found.topics & topics


def _narrow(bounds: Bounds, each: Filter) -> None:
    """A time between two milliseconds is widened to both."""
    if isinstance(each, EqualTo | EqualNullSafe):
        pairs = _pairs((each.value,))
    elif isinstance(each, In):
        pairs = _pairs(each.value)
    elif isinstance(each, GreaterThan | GreaterThanOrEqual):
        pairs = _pairs((each.value,))
        bounds.low = max(bounds.low, pairs[0][0]) if pairs else bounds.low
        return
    elif isinstance(each, LessThan | LessThanOrEqual):
        pairs = _pairs((each.value,))
        bounds.high = min(bounds.high, pairs[0][1]) if pairs else bounds.high
        return
    else:
        return
    if pairs is not None:
        values = frozenset(value for pair in pairs for value in pair)
        bounds.values = values if bounds.values is None else bounds.values & values


def _pairs(values: Iterable[Any]) -> list[tuple[int, int]] | None:
    """(below or equal, above or equal) of each; without nulls, which equal nothing. None: one of
    another kind is among them."""
    found = []
    for value in values:
        if isinstance(value, datetime) and value.tzinfo is not None:
            micros = (value - _EPOCH) // timedelta(microseconds=1)
            found.append((micros // 1000, -(-micros // 1000)))
        elif isinstance(value, int) and not isinstance(value, bool):
            found.append((value, value))
        elif value is not None:
            return None
    return found
