"""The consumer groups of the page: each one's lag in a few figures.

Called on the driver by spark/page/report_page.py. It must not know Spark or HTML.

Tested by tests/spark/page/test_consumers.py.
"""

from __future__ import annotations

from typing import Final

from spark.figures.report_data import SEVERITY, ReportData, Row
from spark.page.summary import ordered_lags

_SHARE: Final = 0.99
_UNJUDGED: Final = max(SEVERITY.values()) + 1
Bounds = tuple[int | None, int | None]
"""The least bounds within which 99 % of the known time lay, and all of it; None: none of them."""


def shown_lags(data: ReportData) -> list[tuple[Row, Bounds, Bounds, float]]:
    """(row, bounds of its age, of its messages, seconds of which nothing is known), the worst
    first."""
    rows = sorted(
        ordered_lags(data),
        key=lambda row: (SEVERITY.get(row["verdict"], _UNJUDGED), -(row["age_max_ms"] or 0)),
    )
    return [(row, _bounds(row, "age"), _bounds(row, "messages"), _unknown_s(row)) for row in rows]


def _bounds(row: Row, kind: str) -> Bounds:
    columns = (row[f"{kind}_{name}"] for name in ("le", "within_ms", "beyond_ms"))
    known = list(zip(*columns, strict=True))
    return (
        next((le for le, a, b in known if a and a >= _SHARE * (a + b)), None),
        next((le for le, a, b in known if a and not b), None),
    )


def _unknown_s(row: Row) -> float:
    """By the highest bounds: by lower ones less is known."""
    highest = [row[f"{kind}_unknown_ms"][-1:] for kind in ("age", "messages")]
    return max((ms / 1000 for last in highest for ms in last), default=0.0)
