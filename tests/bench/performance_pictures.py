"""Draws the pictures of docs/performance.md as SVG files: goals that are reached, cores.

The same figures give the same bytes, as in growth_pictures.py. Needs matplotlib (extra `bench` of
setup.cfg).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.bench.cores_model import HOSTS, TWO_GROUPS, models
from tests.bench.goals import MORE_IS_BETTER
from tests.bench.measuring import COMPILED
from tests.bench.performance_page import CORES_PICTURE, FIGURES, PUBLISHED, ROWS_PICTURE

_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "performance",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_MARKS: Final = dict(zip(FIGURES, "osv^<phD*Pd>XH", strict=True))
_COLORS: Final = dict(
    zip(
        FIGURES,
        (
            *("#1f5fa8", "#b8541a", "#2f7d4f", "#7a4fa3", "#a33a5c"),
            *("#c9a227", "#8a6d3b", "#555555", "#1f9fa8", "#66aa33"),
            *("#99cc66", "#333399", "#cc6699", "#006666"),
        ),
        strict=True,
    )
)
_ROW_INCHES: Final = 0.27


def draw(section: str, data: Mapping[str, Any], directory: Path) -> list[Path]:
    """The pictures of a section, none for most; their paths."""
    drawings = {"compare": (draw_goals, ROWS_PICTURE), "cores": (draw_cores, CORES_PICTURE)}
    if section not in drawings:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    function, name = drawings[section]
    with mpl.rc_context(), mpl.rc_context(_STYLE):
        figure = function(data)
        metadata = {"Date": None, "Creator": None}
        figure.savefig(directory / name, format="svg", metadata=metadata)
    return [directory / name]


def shares(data: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """(row, figure, how much of its goal is reached: 1 and more is held) for what was measured, of
    compiled modules; of the sources where only these have a goal."""
    for row in data["rows"]:
        compiled = {goal["figure"] for goal in row["goals"] if goal["kind"] == COMPILED}
        for goal in row["goals"]:
            is_shown = goal["kind"] == COMPILED or goal["figure"] not in compiled
            if goal["reached"] and is_shown:
                share = goal["reached"] / goal["limit"]
                is_more = goal["figure"] in MORE_IS_BETTER
                yield row["shape"], goal["figure"], share if is_more else 1 / share


def draw_goals(data: Mapping[str, Any]) -> Figure:
    """A line for each row, a mark for each of its goals; right of 1 they are held."""
    found = list(shares(data))
    names = list(dict.fromkeys(name for name, _, _ in found))
    figure = Figure(figsize=(7.2, 1.4 + _ROW_INCHES * len(names)), layout="constrained")
    axes = figure.subplots()
    for kind, words in FIGURES.items():
        of_it = [(share, names.index(name)) for name, one, share in found if one == kind]
        if of_it:
            at, lines = zip(*of_it, strict=True)
            mark, color = _MARKS[kind], _COLORS[kind]
            axes.plot(at, lines, linestyle="", marker=mark, markersize=5, color=color, label=words)
    axes.axvline(1.0, color="#444444", linewidth=1)
    axes.set_xscale("log")
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("of the goal: right of 1 it is held")
    axes.grid(color="#dddddd")
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=len(FIGURES), frameon=False)
    return figure


def draw_cores(data: Mapping[str, Any]) -> Figure:
    """Messages a second over cores: what two groups took on two, which the load generators used,
    too; a band for each load, from pairs to cores; and Java's."""
    two = next(one["loads"] for one in data["layouts"] if one["name"] == TWO_GROUPS)
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    sends = {load: model for load, model in models(data).items() if load.startswith("send")}
    for (load, model), color in zip(sends.items(), _COLORS.values(), strict=False):
        low, high = ([of(cores) for cores in HOSTS] for of in (model.on_pairs, model.on_each))
        axes.fill_between(HOSTS, low, high, color=color, alpha=0.25)
        axes.plot(HOSTS, low, color=color, label=f"extrapolated, {load}")
        axes.scatter(2, two[load]["msg_per_s"], color=color, label=f"measured, {load}")
    cores, speeds = ([one[at] for one in PUBLISHED] for at in (0, 1))
    axes.scatter(cores, speeds, color="#333333", marker="s", label="Java, published")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks((2, 4, *HOSTS), [str(count) for count in (2, 4, *HOSTS)])
    axes.set_xlabel("cores")
    axes.set_ylabel("messages of 1 KiB a second")
    axes.grid(color="#dddddd")
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    return figure
