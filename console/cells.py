"""Cells of numbers that brokers tell: an age, a count, a rate; nothing for what is not known or no
number.

Any thread. Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

from typing import Final

from console.history import Series
from console.lanes import NOT_YET
from console.page import Reader
from console.tables import TableCell
from tools.commands.ha_status import duration_text

_LIMIT: Final = 1e15
"""Beyond it a peer's number is no age and no count."""
FRESH_MS: Final = 30_000
"""Older figures of the history are no current ones."""


def age_cell(ms: float | None) -> TableCell | None:
    """How old something is."""
    if ms is None or not 0 <= ms < _LIMIT:
        return None
    return TableCell(duration_text(ms / 1000) if ms >= 1_000 else f"{ms:.0f} ms", ms)


def rate_cell(per_second: float | None) -> TableCell | None:
    """So many each second."""
    if per_second is None or not 0 <= per_second < _LIMIT:
        return None
    return TableCell(f"{per_second:.1f}", per_second)


def whole(value: float | None) -> int | None:
    """A count."""
    return None if value is None or not abs(value) < _LIMIT else int(value)


def newest(reader: Reader, address: str, figure: str) -> float | None:
    """The last value of a figure, unless it is too old to be the current one."""
    read: Series = reader.history.read((address, figure), reader.now_ms - FRESH_MS, reader.now_ms)
    return next((value for value in reversed(read.values) if value is not None), None)


def unanswered_cell(error: str | None) -> TableCell:
    """In place of a figure: why there is none."""
    return TableCell("asked soon" if error in NOT_YET else error or "–", None)


def milliseconds_cell(seconds: float | None) -> TableCell | None:
    """A short time."""
    return None if seconds is None else TableCell(f"{seconds * 1000:.2f}", seconds * 1000)
