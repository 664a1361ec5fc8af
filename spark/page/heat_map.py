"""The heat map of one replica: the lag of each hour of each day as a class of its objective.

Called on the driver by spark/page/replica_plots.py; templates/plot.html.j2 draws the `Plot`. It
must not know Spark or tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spark.figures import wording
from spark.page.plot_shapes import Band, Data, Path, Plot, Tick, hatched


@dataclass(frozen=True)
class Hour:
    """One cell of a heat map: lags in ms or None, times in ms."""

    lag_ms_p99: float | None
    lag_ms_max: float | None
    good_ms: float
    bad_ms: float
    unknown_ms: float


HEAT_CLASSES = (
    ("heat1", "up to 1 % of the objective"),
    ("heat2", "up to 10 %"),
    ("heat3", "up to the objective"),
    ("heat4", "up to 1 % of the time bad"),
    ("heat5", "more"),
)
_HEAT_PARTS = (("heat1", 0.01), ("heat2", 0.1), ("heat3", 1.0))
_BAD_PART = 0.01
"""What p99 leaves out: with more bad time it is above the objective, or the lag is not known."""
_MARKS = {"heat4": "m0 {h}l9 -{h}", "heat5": "l9 {h}m-9 0l9 -{h}"}
"""Strokes over a cell with bad time, so that it can be seen without colour."""


def heat_map(days: Sequence[tuple[str, Sequence[Hour | None]]], objective_ms: float) -> Plot:
    """Hour by day: p99 of each hour's lag as a class of the objective, bad hours crossed.

    `days` are (date, 24 hours), the newest last; None is an hour without any row. A hatch over the
    colour, as wide as it was long, shows unknown time.
    """
    row_px = 14
    cells: dict[str, list[str]] = {style: [] for style, _ in HEAT_CLASSES}
    marks: dict[str, list[str]] = {style: [] for style in _MARKS}
    bands: list[Band] = []
    for lane, (_date, hours) in enumerate(days):
        bands += hatched([_unknown_part(cell) for cell in hours], row_px - 1, top=lane * row_px)
        for hour, cell in enumerate(hours):
            if cell is not None and (style := _heat(cell, objective_ms)):
                corner = f"M{hour * 10} {lane * row_px}"
                cells[style].append(f"{corner}h9v{row_px - 1}h-9z")
                if style in marks:
                    marks[style].append(corner + _MARKS[style].format(h=row_px - 1))
    bad = sum(1 for _, hours in days for cell in hours if cell is not None and cell.bad_ms > 0)
    strokes = {f"{style}-mark": d for style, d in marks.items()}
    return Plot(
        title="Lag p99 by hour and day",
        note="The lag that was not exceeded for 99 % of the hour, as a share of the objective; "
        "hours with bad time are crossed out.",
        alternative=(
            f"Heat map of {wording.plural(len(days), 'day', 'days')} by 24 hours: "
            f"{wording.plural(bad, 'hour has', 'hours have')} some bad time."
        ),
        width=240,
        height=row_px * len(days),
        paths=[Path("".join(d), style) for style, d in (cells | strokes).items() if d],
        bands=bands,
        x_ticks=[
            Tick(round(hour * 100 / 24, 2), f"{hour:02d}", "start") for hour in range(0, 24, 4)
        ],
        y_ticks=[Tick(i * row_px + 7, date[5:], "end") for i, (date, _) in enumerate(days)],
        legend=[*HEAT_CLASSES, ("unknown", "unknown time")],
        data=Data(
            ("Day", *(f"{hour:02d}" for hour in range(24))),
            [(date, *(_heat_words(cell) for cell in hours)) for date, hours in days],
        ),
        grid=False,
        x_grid=False,
    )


def _unknown_part(cell: Hour | None) -> float:
    if cell is None:
        return 1.0
    every = cell.good_ms + cell.bad_ms + cell.unknown_ms
    return cell.unknown_ms / every if every else 0.0


def _heat(cell: Hour, objective_ms: float) -> str | None:
    if cell.bad_ms > _BAD_PART * (cell.good_ms + cell.bad_ms):
        return "heat5"
    if cell.bad_ms > 0:
        return "heat4"
    if cell.lag_ms_p99 is None:
        return None
    part = cell.lag_ms_p99 / objective_ms if objective_ms else math.inf
    # What was good under another objective may be above today's.
    return next((style for style, top in _HEAT_PARTS if part <= top), "heat5")


def _heat_words(cell: Hour | None) -> str:
    if cell is None:
        return "unknown"
    words = []
    if cell.lag_ms_max is not None:
        words = [f"{wording.lag(cell.lag_ms_p99)}, max {wording.lag(cell.lag_ms_max)}"]
    if cell.bad_ms > 0:
        words.append(f"bad {wording.duration(cell.bad_ms / 1000)}")
    if cell.unknown_ms > 0:
        words.append(f"unknown {wording.duration(cell.unknown_ms / 1000)}")
    return ", ".join(words) or wording.NOTHING
