"""Draws each curve of a report as an SVG file: cost of a message over what has grown.

The same report gives the same bytes: no date, a fixed salt for the ids, no fonts within (text stays
text). Points stand at equal distances, since they are about geometric and some curves begin at 0.
Needs matplotlib (extra `bench` of setup.cfg).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.bench.growth_curves import CURVES, Curve, Point, Report, label, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE: Final = {
    "svg.hashsalt": "growth",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_COLORS: Final = {"ours": "#1f5fa8", "java": "#b8541a"}
_LINES: Final = {"send": "-", "pull": "--"}
_MARKS: Final = {"send": "o", "pull": "s"}
_WORDS: Final = {"ours": "this broker", "java": "Java 4.9", "send": "sends", "pull": "pulls"}
_LOGARITHMIC_FROM: Final = 20.0
"""The highest cost / the lowest."""


def name_of(curve: str) -> str:
    """The file of a curve."""
    return f"growth-{curve}.svg"


def draw_all(report: Report, directory: Path) -> list[Path]:
    """A file for each curve of the report; their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, points in report.curves.items():
        paths.append(directory / name_of(name))
        draw(CURVES[name], points, paths[-1])
    return paths


def draw(curve: Curve, points: Sequence[Point], path: Path) -> None:
    """One picture; the bars reach from the lowest round to the highest."""
    with mpl.rc_context(), mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        places = sorted({point.at for point in points})
        for (side, kind), of_it in series(points).items():
            _line(axes, side, kind, of_it, [places.index(point.at) for point in of_it])
        costs = [point.cost for point in points]
        if max(costs) > _LOGARITHMIC_FROM * min(costs) > 0:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xticks(range(len(places)), [label(curve.name, at) for at in places])
        axes.set_title(curve.title)
        axes.set_xlabel(curve.axis)
        axes.set_ylabel("processor time a message, µs")
        axes.grid(axis="y", color="#dddddd")
        axes.set_axisbelow(True)
        axes.legend(frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _line(axes: Axes, side: str, kind: str, points: Sequence[Point], places: list[int]) -> None:
    below = [point.cost - min(point.cpu_us) for point in points]
    above = [max(point.cpu_us) - point.cost for point in points]
    axes.errorbar(
        places,
        [point.cost for point in points],
        yerr=[below, above],
        color=_COLORS[side],
        linestyle=_LINES[kind],
        marker=_MARKS[kind],
        markersize=5,
        capsize=3,
        label=f"{_WORDS[side]}, {_WORDS[kind]}",
    )
