"""Cells of numbers that brokers tell: an age, a rate, a count; nothing for what is no number.

Pure; any thread. Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

from typing import Final

from console.tables import TableCell
from tools.commands.ha_status import duration_text

_LIMIT: Final = 1e15
"""Beyond it a peer's number is no age and no count."""


def age_cell(ms: float | None) -> TableCell | None:
    """How old something is."""
    if ms is None or not 0 <= ms < _LIMIT:
        return None
    return TableCell(duration_text(ms / 1000) if ms >= 1_000 else f"{ms:.0f} ms", ms)


def rate_cell(per_second: float | None) -> TableCell | None:
    """How often something happens."""
    if per_second is None or not 0 <= per_second < _LIMIT:
        return None
    return TableCell(f"{per_second:.1f}", per_second)


def whole(value: float | None) -> int | None:
    """A count."""
    return None if value is None or not abs(value) < _LIMIT else int(value)
