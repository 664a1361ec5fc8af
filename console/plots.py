"""Plots: series on one axis of time, as static/plots.js draws them.

Pure; any thread. Tested by tests/console/test_history.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.history import Series
from tools.report import safe_line


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plot."""

    name: str
    unit: str
    """s, bytes, or what is counted each second."""
    series: Series


def plot_data(
    lines: Sequence[Line], incidents: Sequence[tuple[int, int, str]] = ()
) -> dict[str, Any]:
    """The JSON of a plot: times (ms) of all lines together; a gap is null, and stays a gap.
    `incidents` are marked: from, to (ms), and what it was."""
    times = sorted({time for line in lines for time in line.series.times_ms})
    at = {time: index for index, time in enumerate(times)}
    shown = []
    for line in lines:
        values: list[float | None] = [None] * len(times)
        for time, value in zip(line.series.times_ms, line.series.values, strict=True):
            values[at[time]] = value
        shown.append({"name": safe_line(line.name), "unit": line.unit, "values": values})
    marks = [
        {"from": first, "to": last, "kind": safe_line(kind)} for first, last, kind in incidents
    ]
    return {"times": times, "series": shown, "incidents": marks}
