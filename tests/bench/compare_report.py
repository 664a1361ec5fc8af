"""What bin/bench compare writes of its runs: medians, ratios and goals, as JSON and as a table.

Arithmetic and text only.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.bench.goals import judge, ratios
from tests.bench.measuring import LIMIT, MIB, SIDES
from tests.bench.shapes import Shape

IDLE_LIMIT: Final = 250 * MIB
LOAD_LIMIT: Final = 400 * MIB
ELSEWHERE: Final = """goals that other commands print:
  bin/bench replication   SYNC_MASTER, catch-up beside the raw loop, a slave's lag
  bin/bench idle          5,000 clients: a request of theirs, waking one of them
  bin/bench cores         two broker groups, pinned processes: what a second core brings
  bin/bench growth        what a message costs while something grows"""
_SUMMED: Final = "refused"
_COLUMNS: Final = ("p50_us", "p99_us", "p999_us", "cpu_us")


@dataclass(slots=True)
class Start:
    """One start of one broker: what was measured while it lived. Memory in bytes."""

    side: str
    setup: str
    first_touch_gb_s: float
    rss_anon_idle: int
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
    java: str,
    machine: dict[str, Any],
    run: dict[str, Any],
) -> dict[str, Any]:
    """Everything that was measured, as JSON data. run: when and how long, for the page."""
    touched = [start.first_touch_gb_s for start in starts]
    return {
        "run": run,
        "java_version": java,
        "machine": {**machine, "first_touch_gb_s": statistics.median(touched)},
        "rows": [_row(starts, shape) for shape in shapes],
        "starts": [asdict(start) for start in starts],
    }


def _row(starts: Sequence[Start], shape: Shape) -> dict[str, Any]:
    ours, theirs, limit = (summary(starts, side, shape.name) for side in (*SIDES, LIMIT))
    if ours is not None and limit is not None:
        ours["of_limit"] = ours["msg_per_s"] / limit["msg_per_s"]
    return {
        "shape": shape.name,
        "ours": ours,
        "java": theirs,
        "limit": limit,
        "runs": {side: _speeds(starts, side, shape.name) for side in (*SIDES, LIMIT)},
        "ratios": ratios(ours, theirs),
        "goals": [asdict(verdict) for verdict in judge(shape.goals, ours, theirs)],
        "beside": shape.beside,
        "costs": _costs(starts, shape),
        "failures": [
            f"{start.side}: {start.failures[shape.name]}"
            for start in starts
            if shape.name in start.failures
        ],
    }


def _costs(starts: Sequence[Start], shape: Shape) -> dict[str, dict[str, float]]:
    """Of each side, beside its own run of the row without: the ratio of speeds, and microseconds
    of CPU that a message costs more."""
    found = {}
    for side in SIDES:
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


def _main_figure(figures: dict[str, float]) -> str:
    return "seconds" if "seconds" in figures else "msg_per_s"


def print_report(data: dict[str, Any]) -> None:
    """The table and the limits."""
    print(f"\nours against Java {data['java_version']} (2 GB heap), medians")
    print("\n".join(table(data["rows"])))
    for start in data["starts"]:
        print(start_text(start))
    print("\n".join(f"{key}: {value}" for key, value in data["machine"].items()))
    print(ELSEWHERE)


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each side of a row, then one for each of its goals."""
    head = f"{'row':22}{'':6}{'msg/s':>11}"
    head += "".join(f"{name:>9}" for name in ("p50 us", "p99 us", "p99.9 us", "CPU us"))
    lines = [head + f"{'ratio':>8}"]
    for row in rows:
        lines += [_line(row, side) for side in (*SIDES, LIMIT) if row[side]]
        lines += [f"{'':8}{goal['text']}" for goal in row["goals"]]
        lines += _cost_lines(row)
        lines += [f"{row['shape']:22}FAILED, {text.splitlines()[0]}" for text in row["failures"]]
    return lines


def _cost_lines(row: dict[str, Any]) -> list[str]:
    costs = [
        f"{side} {cost['msg_per_s']:.2f} times the speed, {cost['cpu_us']:+.1f} us CPU"
        for side, cost in row["costs"].items()
    ]
    return [f"{'':8}cost beside {row['beside']}: {'; '.join(costs)}"] if costs else []


def _line(row: dict[str, Any], side: str) -> str:
    figures = row[side]
    main = _main_figure(figures)
    cells = "".join(f"{_cell(figures, name):>9}" for name in _COLUMNS)
    ratio = row["ratios"].get(main) if side == "ours" else None
    text = f"{row['shape']:22}{side:6}{_speed(main, figures[main]):>11}{cells}"
    text += f"{'' if ratio is None else f'{ratio:.2f}':>8}{_notes(figures)}"
    runs = row["runs"][side]
    if len(runs) > 1:
        text += f"   runs {' '.join(_speed(main, run) for run in runs)}"
    return text.rstrip()


def _speed(main: str, figure: float) -> str:
    return f"{figure:.2f} s" if main == "seconds" else f"{figure:,.0f}"


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
    """Memory and first-touch rate of one start; ours with what is asked of it."""
    ours, idle = start["side"] == "ours", start["rss_anon_idle"]
    text = f"{start['side']:5} {start['setup']:11} first touch {start['first_touch_gb_s']:.2f} GB/s"
    text += f", anonymous memory idle {idle / MIB:.0f} MiB{_verdict(ours, idle <= IDLE_LIMIT)}"
    loads = [run["rss_anon_max"] for run in start["runs"].values() if "rss_anon_max" in run]
    if loads:
        most = max(loads)
        text += f", under load at most {most / MIB:.0f} MiB{_verdict(ours, most <= LOAD_LIMIT)}"
    return text


def _verdict(ours: bool, met: bool) -> str:
    return "" if not ours else " (ok)" if met else " (OVER THE LIMIT)"
