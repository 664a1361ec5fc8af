"""Which windows count beside the day: the longest rolling one, and every calendar period.

Plain functions on the driver over rows of tables `windows` and `calendar_windows`. The exit code,
the error-budget policy, the line on stdout and the notifications all ask here, so that a calendar
month counts wherever 30 days do. Must not know Spark, YAML or the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WindowName:
    """Of a rolling window its `days`; of a calendar period `period` (month), `name` (2026-11)."""

    days: int | None = None
    period: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """`30 days`, `2026-11`."""
        return f"{self.days} days" if self.name is None else self.name

    @property
    def budget(self) -> str:
        """`30 days' budget`, `the budget of 2026-11`."""
        return f"{self.days} days' budget" if self.name is None else f"the budget of {self.name}"

    @property
    def labels(self) -> dict[str, str]:
        """Of an alert. Each month is an event of its own, so its name belongs to the identity."""
        if self.name is None:
            return {"window": f"{self.days}d"}
        return {"window": str(self.period), "period": self.name}

    @property
    def fields(self) -> dict[str, Any]:
        """For programs: what does not apply is None."""
        return {"days": self.days, "period": self.period, "name": self.name}


@dataclass(frozen=True, slots=True)
class JudgedWindow:
    """A window that counts, with every replica's row of it. `is_final`: nothing of it is to come,
    which a rolling window always is."""

    name: WindowName
    rows: Sequence[Row]
    verdict: str
    is_final: bool = True


def window_name(row: Row) -> WindowName:
    """Of a row of either table."""
    if row.get("period") is None:
        return WindowName(days=row["days"])
    return WindowName(period=row["period"], name=row["name"])


def judged_windows(
    days: int,
    longest: Sequence[Row],
    periods: Iterable[Row],
    verdict_of: Callable[[Sequence[Row]], str],
) -> list[JudgedWindow]:
    """The longest rolling window, of `days`, whose rows are `longest`; then the calendar periods,
    the shortest first, of their rows. `verdict_of`: what all replicas together have."""
    found = [JudgedWindow(WindowName(days=days), longest, verdict_of(longest))]
    by_name: dict[WindowName, list[Row]] = {}
    for row in sorted(periods, key=lambda row: float(row["window_s"])):
        by_name.setdefault(window_name(row), []).append(row)
    for name, rows in by_name.items():
        is_final = all(row["final"] for row in rows)
        found.append(JudgedWindow(name, rows, verdict_of(rows), is_final))
    return found
