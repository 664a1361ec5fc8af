"""Pushed: what of a query's WHERE clause the source does itself.

Planned on the driver, applied by planning and by tasks. Queues and offsets choose ranges, tags are
selected by the broker where that is exact, tags and keys are compared again for each message; Spark
evaluates what is not exact: times only make the ranges shorter, as a broker searches them by
halving, and clocks that were set back make that vague.

Tested by tests/spark/sources/test_pushed_filters.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from spark.sources.rows import KEYS, TAGS, StoredMessage

TIME_MARGIN_MS: Final = 60_000
"""How far a broker's clock may have been set back without an effect on filters of times."""
_SETS: Final = {
    "topic": str,
    "broker_name": str,
    "queue_id": int,
    "queue_offset": int,
    "tags": str,
    "keys": str,
}
"""Columns whose values may be chosen, and their type."""
_COMPARED: Final = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_EVERY: Final = "*"
_TRIMMED: Final = "".join(map(chr, range(33)))
"""What brokers cut off the ends of a subscription's tags (Java's String.trim), control characters
among them."""
_MOST_TAGS: Final = 100
_LAST: Final = 2**63 - 1


@dataclass(slots=True)
class Pushed:
    """The filters that were taken over. Owned by: a reader."""

    chosen: dict[str, frozenset[Any]]
    """By column: the values that it may have."""
    first_offset: int = 0
    end_offset: int = _LAST
    begin_ms: int | None = None
    end_ms: int | None = None
    """Times of storing that a message may have, roughly: Spark looks again."""

    def take(self, wanted: Filter) -> bool:
        """Take a filter over; whether it is done exactly, so that Spark need not look again."""
        match wanted:
            case EqualTo((column,), value):
                return self._choose(column, (value,)) or self._shorten(column, wanted)
            case In((column,), values):
                return self._choose(column, [value for value in values if value is not None])
            case GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
                if wanted.attribute == ("queue_offset",) and type(wanted.value) is int:
                    return self._bound(wanted)
                return len(wanted.attribute) == 1 and self._shorten(wanted.attribute[0], wanted)
            case _:
                return False

    def _choose(self, column: str, values: Iterable[Any]) -> bool:
        kind = _SETS.get(column)
        found = frozenset(values)
        if kind is None or any(type(value) is not kind for value in found):
            return False
        self.chosen[column] = self.chosen.get(column, found) & found
        return True

    def _bound(self, wanted: Filter) -> bool:
        match wanted:
            case GreaterThan(_, value):
                self.first_offset = max(self.first_offset, value + 1)
            case GreaterThanOrEqual(_, value):
                self.first_offset = max(self.first_offset, value)
            case LessThan(_, value):
                self.end_offset = min(self.end_offset, value)
            case LessThanOrEqual(_, value):
                self.end_offset = min(self.end_offset, value + 1)
        return True

    def _shorten(self, column: str, wanted: Filter) -> bool:
        """Always False: Spark compares the times."""
        time = getattr(wanted, "value", None)
        if column != "store_timestamp" or not isinstance(time, datetime) or time.tzinfo is None:
            return False
        ms = int(time.timestamp() * 1000)
        if isinstance(wanted, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.begin_ms = max(self.begin_ms or 0, ms - TIME_MARGIN_MS)
        if isinstance(wanted, EqualTo | LessThan | LessThanOrEqual):
            end_ms = max(ms + TIME_MARGIN_MS, 0)
            self.end_ms = end_ms if self.end_ms is None else min(self.end_ms, end_ms)
        return False

    # -- applied -------------------------------------------------------------------------------

    def chooses(self, topic: str, broker_name: str, queue_id: int) -> bool:
        """Whether messages of this queue may be wanted."""
        values = {"topic": topic, "broker_name": broker_name, "queue_id": queue_id}
        return all(
            value in self.chosen[column]
            for column, value in values.items()
            if column in self.chosen
        )

    def offsets(self, begin: int, end: int) -> tuple[int, int]:
        """The part of these offsets that may be wanted."""
        begin, end = max(begin, self.first_offset), min(end, self.end_offset)
        if (chosen := self.chosen.get("queue_offset")) is not None:
            inside = [offset for offset in chosen if begin <= offset < end]
            begin, end = (min(inside), max(inside) + 1) if inside else (begin, begin)
        return begin, max(begin, end)

    def wants(self, message: StoredMessage) -> bool:
        """What is compared for each message."""
        chosen, properties = self.chosen, message.properties
        return (
            ("tags" not in chosen or properties.get(TAGS) in chosen["tags"])
            and ("keys" not in chosen or properties.get(KEYS) in chosen["keys"])
            and ("queue_offset" not in chosen or message.queue_offset in chosen["queue_offset"])
        )

    def needs_a_look(self) -> bool:
        """Whether `wants` may refuse a message."""
        return not self.chosen.keys().isdisjoint(("tags", "keys", "queue_offset"))

    def expression(self) -> str:
        """The tags as a broker's subscription has them; "*" where it cannot say the same."""
        tags = self.chosen.get("tags")
        if not tags or len(tags) > _MOST_TAGS:
            return _EVERY
        if any(
            tag != tag.strip().strip(_TRIMMED) or "|" in tag or tag in ("", _EVERY) for tag in tags
        ):
            return _EVERY
        return " || ".join(sorted(tags))


def push(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """What is taken over of these filters, and those that Spark must evaluate nevertheless."""
    pushed = Pushed({})
    return pushed, [each for each in filters if not pushed.take(each)]
