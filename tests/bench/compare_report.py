"""What bin/bench compare writes of its runs: medians, ratios and goals, as JSON and as a table.

Arithmetic and text only.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.bench.goals import ratios
from tests.bench.measuring import JAVA, JAVA_5, JAVAS, KINDS, LIMITS, MIB
from tests.bench.memory_budget import Holding, budget_lines
from tests.bench.shapes import Shape

LOAD_LIMIT: Final = 400 * MIB
ELSEWHERE: Final = """goals that other commands print:
  bin/bench replication   SYNC_MASTER 4 x 64, catch-up beside the raw loop, a slave's lag
  bin/bench cores         two broker groups, pinned processes: what a second core brings
  bin/bench growth        what a message costs while something grows"""
_SUMMED: Final = "refused"
_COLUMNS: Final = ("p50_us", "p99_us", "p999_us", "cpu_us")
_MAIN: Final = ("seconds", "mib", "msg_per_s", "request_us", "parked_percent")
"""The figure whose runs are shown: the first of these that a row has."""


@dataclass(slots=True)
class Start:
    """One start of one broker: what was measured while it lived. Memory in bytes."""

    side: str
    setup: str
    first_touch_gb_s: float
    idle: list[Holding] = field(default_factory=list)
    """Each process before the first load; nothing where the row started it."""
    runs: dict[str, dict[str, float]] = field(default_factory=dict)
    """Figures by the shape's name."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why a shape has no figures."""


def summary(starts: Sequence[Start], side: str, shape: str) -> dict[str, float] | None:
    """The median of each figure of a shape, but the sum of refused sends; None without a run."""
    runs = _runs(starts, side, shape)
    if not runs:
        return None
    values = {name: [run[name] for run in runs] for name in runs[0]}
    return {
        name: float(sum(each) if name == _SUMMED else statistics.median(each))
        for name, each in values.items()
    }


def report(
    starts: Sequence[Start],
    shapes: Sequence[Shape],
    java: Mapping[str, str],
    machine: dict[str, Any],
    run: dict[str, Any],
) -> dict[str, Any]:
    """Everything that was measured, as JSON data. java: the releases, by side. run: when and how
    long, for the page."""
    touched = [start.first_touch_gb_s for start in starts]
    return {
        "run": run,
        "java_versions": dict(java),
        "machine": {**machine, "first_touch_gb_s": statistics.median(touched)},
        "rows": [_row(starts, shape) for shape in shapes],
        "starts": [asdict(start) for start in starts],
    }


def _row(starts: Sequence[Start], shape: Shape) -> dict[str, Any]:
    everyone = (*KINDS, *JAVAS, *LIMITS)
    sides = {side: summary(starts, side, shape.name) for side in everyone}
    for kind in KINDS:
        _add_shares(sides[kind], sides)
    return {
        "shape": shape.name,
        "sides": sides,
        "runs": {side: _speeds(starts, side, shape.name) for side in everyone},
        "ratios": {
            kind: {java: ratios(sides[kind], sides[java]) for java in JAVAS} for kind in KINDS
        },
        "goals": [
            {
                "kind": kind,
                "anchor": goal.anchor,
                **asdict(goal.verdict(sides[kind], sides[goal.anchor])),
            }
            for goal in shape.goals
            for kind in goal.kinds
        ],
        "beside": shape.beside,
        "costs": _costs(starts, shape),
        "failures": [
            f"{start.side}: {start.failures[shape.name]}"
            for start in starts
            if shape.name in start.failures
        ],
    }


def _add_shares(
    ours: dict[str, float] | None, sides: Mapping[str, dict[str, float] | None]
) -> None:
    """of_limit and of_c: what part of each limit's speed is reached."""
    for name, side in zip(("of_limit", "of_c"), LIMITS, strict=True):
        limit = sides[side]
        if ours is not None and limit is not None:
            ours[name] = ours["msg_per_s"] / limit["msg_per_s"]


def _costs(starts: Sequence[Start], shape: Shape) -> dict[str, dict[str, float]]:
    """Of each side, beside its own run of the row without: the ratio of speeds, and microseconds
    of CPU that a message costs more."""
    found = {}
    for side in (*KINDS, *JAVAS):
        without, here = (summary(starts, side, name) for name in (shape.beside, shape.name))
        if without is not None and here is not None:
            found[side] = {
                "msg_per_s": here["msg_per_s"] / without["msg_per_s"],
                "cpu_us": here["cpu_us"] - without["cpu_us"],
            }
    return found


def _speeds(starts: Sequence[Start], side: str, shape: str) -> list[float]:
    return [run[_main_figure(run)] for run in _runs(starts, side, shape)]


def _runs(starts: Sequence[Start], side: str, shape: str) -> list[dict[str, float]]:
    return [start.runs[shape] for start in starts if start.side == side and shape in start.runs]


def _main_figure(figures: Mapping[str, float]) -> str:
    return next(name for name in _MAIN if name in figures)


def print_report(data: dict[str, Any]) -> None:
    """What each side did, then the goals."""
    versions = data["java_versions"]
    print("\n".join(table(data["rows"])))
    for start in data["starts"]:
        print(start_text(start))
    print("\n".join(budget_of(data["starts"])))
    print("\n".join(f"{key}: {value}" for key, value in data["machine"].items() if key != "quiet"))
    print(ELSEWHERE)
    javas = " and ".join(f"Java {version}" for version in versions.values()) or "nobody"
    run = data["run"]
    print(
        f"\nours, compiled and as sources, against {javas} (2 GB heap): medians of "
        f"{run['rounds']}, {run['took_s'] / 60:.0f} minutes"
    )
    print("\n".join(goal_table(data["rows"], versions)))
    print(data["machine"]["quiet"]["text"])


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each side of a row."""
    head = f"{'row':22}{'':9}{'msg/s':>11}"
    lines = [head + "".join(f"{name:>9}" for name in ("p50 us", "p99 us", "p99.9 us", "CPU us"))]
    for row in rows:
        lines += [_line(row, side) for side, figures in row["sides"].items() if figures]
        lines += _cost_lines(row)
        lines += [f"{row['shape']:22}FAILED, {text.splitlines()[0]}" for text in row["failures"]]
    return lines


def goal_table(rows: Sequence[dict[str, Any]], versions: Mapping[str, str]) -> list[str]:
    """A line for each figure of a row that has a goal: what each side reached, the ratios of both
    kinds of ours to both Javas, the goals, and our shares of the limits. A ratio that a goal is
    about has a star."""
    names = {side: f"Java {versions.get(side, '-')}" for side in JAVAS}
    head = f"{'row':20}{'figure':14}" + "".join(f"{name:>12}" for name in (*KINDS, *names.values()))
    for java in (JAVA, JAVA_5):
        head += f"{'/ ' + versions.get(java, '-'):>15}"
    lines = [f"{head}{'goal':>13}   verdict"]
    for row in rows:
        goals: dict[tuple[str, bool], dict[str, dict[str, Any]]] = {}
        for goal in row["goals"]:
            goals.setdefault((goal["figure"], goal["of_ratio"]), {})[goal["kind"]] = goal
        lines += [_goal_line(row, figure, of) for (figure, _), of in goals.items()]
        for side, figures in row["sides"].items():
            if side in LIMITS and figures:
                lines.append(_limit_line(row, side, figures))
    return lines


def _goal_line(row: dict[str, Any], figure: str, goals: Mapping[str, dict[str, Any]]) -> str:
    """goals: of each kind that has one."""
    text = f"{row['shape']:20}{figure:14}"
    for side in (*KINDS, *JAVAS):
        text += f"{_short((row['sides'][side] or {}).get(figure)):>12}"
    for java in JAVAS:
        of_kinds = (row["ratios"][kind][java].get(figure) for kind in KINDS)
        is_anchor = any(goal["of_ratio"] and goal["anchor"] == java for goal in goals.values())
        ratio = " ".join(_short(each) for each in of_kinds)
        text += f"{ratio + ('*' if is_anchor else ' '):>15}"
    limits = " ".join(f"{goals[kind]['limit']:.2f}" if kind in goals else "-" for kind in KINDS)
    return f"{text}{limits:>13}   {' / '.join(_word(goals.get(kind)) for kind in KINDS)}"


def _limit_line(row: dict[str, Any], side: str, figures: dict[str, float]) -> str:
    name, words = {"limit": ("of_limit", "stripped"), "limit-c": ("of_c", "C")}[side]
    shares = [
        f"{kind} {row['sides'][kind][name]:.0%}"
        for kind in KINDS
        if name in (row["sides"][kind] or {})
    ]
    speed = _short(figures["msg_per_s"])
    return f"{'':20}{'limit, ' + words:17} {speed} messages/s: {', '.join(shares)}"


def _word(goal: dict[str, Any] | None) -> str:
    if goal is None:
        return "-"
    return "not measured" if goal["held"] is None else "held" if goal["held"] else "MISSED"


def _short(figure: float | None) -> str:
    """Three digits are enough for ratios and times, thousands are grouped."""
    if figure is None:
        return "-"
    return (
        f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"
    )


def _cost_lines(row: dict[str, Any]) -> list[str]:
    costs = [
        f"{side} {cost['msg_per_s']:.2f} times the speed, {cost['cpu_us']:+.1f} us CPU"
        for side, cost in row["costs"].items()
    ]
    return [f"{'':8}cost beside {row['beside']}: {'; '.join(costs)}"] if costs else []


def _line(row: dict[str, Any], side: str) -> str:
    figures = row["sides"][side]
    main = _main_figure(figures)
    cells = "".join(f"{_cell(figures, name):>9}" for name in _COLUMNS)
    text = f"{row['shape']:22}{side:9}{_speed(main, figures[main]):>11}{cells}{_notes(figures)}"
    runs = row["runs"][side]
    if len(runs) > 1:
        text += f"   runs {' '.join(_speed(main, run) for run in runs)}"
    return text.rstrip()


_UNITS: Final = {"seconds": "s", "mib": "MiB", "request_us": "us", "parked_percent": "%"}


def _speed(main: str, figure: float) -> str:
    unit = _UNITS.get(main)
    return f"{figure:,.0f}" if unit is None else f"{figure:.2f} {unit}"


def _cell(figures: dict[str, float], name: str) -> str:
    if name not in figures:
        return "-"
    return f"{figures[name]:.1f}" if name == "cpu_us" else f"{figures[name]:.0f}"


def _notes(figures: dict[str, float]) -> str:
    """What only some rows have."""
    notes = []
    if figures.get("refused"):
        notes.append(f"{figures['refused']:,.0f} refused")
    if "tls" in figures:
        notes.append(f"TLS {figures['tls']:.1f}")
    if "syncs_per_s" in figures:
        notes.append(f"{figures['syncs_per_s']:,.0f} syncs/s")
    if figures.get("received") != figures.get("messages") and "received" in figures:
        notes.append(f"{figures['received_per_s']:,.0f} received/s")
    if "publish_p50_us" in figures:
        times = "/".join(f"{figures[f'publish_{name}']:.0f}" for name in _COLUMNS[:3])
        notes.append(f"publish {times} us")
    if "store_gb" in figures:
        notes.append(f"store of {figures['store_gb']:.2f} GB")
    return "".join(f"   {note}" for note in notes)


def start_text(start: dict[str, Any]) -> str:
    """Memory and first-touch rate of one start."""
    ours = start["side"] in KINDS
    text = f"{start['side']:8} {start['setup']:11} first touch {start['first_touch_gb_s']:.2f} GB/s"
    if start["idle"]:
        idle = sum(each["resident"] for each in start["idle"])
        text += f", anonymous memory idle {idle / MIB:.0f} MiB"
    loads = [run["rss_anon_max"] for run in start["runs"].values() if "rss_anon_max" in run]
    if loads:
        most = max(loads)
        text += f", under load at most {most / MIB:.0f} MiB"
        text += "" if not ours else " (ok)" if most <= LOAD_LIMIT else " (OVER THE LIMIT)"
    return text


def budget_of(starts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The memory of each process of ours beside its budget: of the last start with all of them."""
    idle = [start["idle"] for start in starts if start["side"] in KINDS and start["idle"]]
    if not idle:
        return []
    whole = [each for each in idle if len(each) == max(map(len, idle))]
    return budget_lines([Holding(**each) for each in whole[-1]])
