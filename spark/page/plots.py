"""The report's plots: figures in; shapes, ticks, words and a table of the data out.

Called on the driver by spark/page/report_page.py; templates/plot.html.j2 draws a `Plot` as inline
SVG. Own SVG and not matplotlib's: the page's style sheet colours it (dark mode, paper), text stays
text at a readable size on a phone, and a plot takes a tenth of the bytes. It must not know Spark or
tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark.figures import wording
from spark.figures.result_tables import HISTOGRAM_BASE
from spark.page.plot_shapes import (
    DAY_MINUTES,
    Anchor,
    Band,
    Data,
    LagScale,
    Path,
    Plot,
    Rule,
    Span,
    Tick,
    anchor_at,
    joined,
    line,
    round_up,
    runs,
    stairs,
    steps,
    thinned,
)
from spark.vocabulary import MINUTE_MS

_TEXT_PX = 14
"""Two labels of an axis need this distance."""
_THINNED_PERCENT = 0.2
_EDGES: tuple[tuple[float, Anchor], ...] = ((0, "start"), (0.5, "middle"), (1, "end"))
_NINES = (0.5, 0.9, 0.99, 0.999, 0.9999)


@dataclass(frozen=True)
class Minute:
    """What one minute of a replica is: times in ms, lag in ms or None."""

    good_ms: float
    bad_ms: float
    unknown_ms: float
    lag_ms: float | None
    messages: float | None


UNKNOWN_MINUTE = Minute(0, 0, MINUTE_MS, None, None)


def lag_over_time(
    minutes: Sequence[Minute],
    span: Span,
    objective_ms: float,
    incidents: Sequence[tuple[int, int]],
) -> Plot:
    """Largest lag of each minute, the objective, incidents shaded, unknown time hatched."""
    height = 170
    known = [minute.lag_ms for minute in minutes if minute.lag_ms is not None]
    scale = LagScale.over(height, objective_ms, *known)
    shaded = [
        Band(left, max(round(span.percent(end) - left, 2), 0.1), 0, height, "incident")
        for start, end in incidents
        if (left := span.percent(start)) < 100 and end > span.start_ms
    ]
    unknown = [minute.unknown_ms > 0 for minute in minutes]
    bands = thinned(shaded, _THINNED_PERCENT) + runs(unknown, len(minutes), height)
    levels = [None if m.lag_ms is None else scale.y(m.lag_ms) for m in minutes]
    unknown_s = sum(minute.unknown_ms for minute in minutes) / 1000
    worst = wording.lag(max(known)) if known else "nothing known of the lag"
    return Plot(
        title="Lag over time",
        note="Largest lag of each minute; the scale is logarithmic. Times are UTC.",
        alternative=(
            f"Line of the lag by minute. Largest: {worst}; objective: {wording.lag(objective_ms)}. "
            f"{wording.plural(len(incidents), 'incident', 'incidents')}; "
            f"{wording.duration(unknown_s)} unknown."
        ),
        width=len(minutes),
        height=height,
        paths=[Path(stairs(levels), "line")],
        bands=bands,
        rules=[Rule(scale.y(objective_ms), f"objective {wording.lag(objective_ms)}")],
        x_ticks=span.ticks(),
        y_ticks=scale.ticks(),
        legend=[
            ("line", "lag"),
            ("objective", "objective"),
            ("incident", "incident"),
            ("unknown", "unknown time"),
        ],
        data=_hourly_data(minutes, span),
    )


def _hourly_data(minutes: Sequence[Minute], span: Span) -> Data:
    rows = []
    for label, part in _by_hour(minutes, span):
        lags = [minute.lag_ms for minute in part if minute.lag_ms is not None]
        rows.append(
            (
                label,
                wording.lag(max(lags) if lags else None),
                wording.duration(sum(minute.good_ms for minute in part) / 1000),
                wording.duration(sum(minute.bad_ms for minute in part) / 1000),
                wording.duration(sum(minute.unknown_ms for minute in part) / 1000),
            )
        )
    return Data(("Hour", "Largest lag", "Good", "Bad", "Unknown"), rows)


def _by_hour(minutes: Sequence[Minute], span: Span) -> list[tuple[str, Sequence[Minute]]]:
    first = span.start_ms // MINUTE_MS
    found: list[tuple[str, Sequence[Minute]]] = []
    index = 0
    while index < len(minutes):
        end = min(index + 60 - (first + index) % 60, len(minutes))
        of_day = (first + index) % DAY_MINUTES
        found.append((f"{of_day // 60:02d}:{of_day % 60:02d}", minutes[index:end]))
        index = end
    return found


def percentile_ladder(
    histogram: Mapping[int, float],
    largest_ms: float | None,
    percentiles: Sequence[tuple[str, float | None]],
    objective_ms: float,
) -> Plot:
    """The share of time with at most this lag: x by nines, so that the rare is seen.

    `histogram` is bucket -> ms (docs/sla_report.md); `percentiles` are the table's rows.
    """
    height = 150
    scale = LagScale.over(height, objective_ms, largest_ms)
    total = sum(histogram.values())
    points = [(0, height)]
    done = 0.0
    for bucket in sorted(bucket for bucket, ms in histogram.items() if ms):
        value = HISTOGRAM_BASE**bucket if bucket else 0.0
        level = scale.y(min(value, largest_ms) if largest_ms is not None else value)
        points.append((points[-1][0], level))
        done += histogram[bucket]
        points.append((_nines(done / total), level))
    known = dict(percentiles)
    return Plot(
        title="Lag percentiles",
        note="Share of the known time with at most this lag (cumulative, by nines).",
        alternative="Curve of lag percentiles: "
        + ", ".join(f"{label} {wording.lag(value)}" for label, value in percentiles)
        + f"; objective: {wording.lag(objective_ms)}.",
        width=1000,
        height=height,
        paths=[Path(steps(points), "line")] if total else [],
        rules=[Rule(scale.y(objective_ms), f"objective {wording.lag(objective_ms)}")],
        x_ticks=[
            Tick(
                _nines(part) / 10,
                f"{part * 100:.10g}{' %' if part == _NINES[-1] else ''}",
                anchor_at(_nines(part) / 10),
            )
            for part in _NINES
        ],
        y_ticks=scale.ticks(),
        data=Data(("Percentile", "Lag"), [(k, wording.lag(v)) for k, v in known.items()]),
    )


def _nines(part: float) -> int:
    """0 to 1000: 50 % is 75, every further nine 231 more, from 99.99 % on the right edge."""
    return round(min(-math.log10(max(1 - part, 1e-12)) / 4, 1.0) * 1000)


@dataclass(frozen=True)
class Period:
    """One step of a burn-down: times in s."""

    label: str
    good_s: float
    bad_s: float
    unknown_s: float


def burn_down(
    title: str, periods: Sequence[Period], budget_s: float, x_ticks: Sequence[Tick], data: Data
) -> Plot:
    """Error budget left after each period; below nothing left it is overspent."""
    height = 150
    left = [budget_s]
    for period in periods:
        left.append(left[-1] - period.bad_s)
    lowest = min(left[-1], 0.0)
    reach = (budget_s - lowest) or 1.0
    levels = [round(height * (budget_s - value) / reach) for value in left]
    unknown_s = sum(period.unknown_s for period in periods)
    return Plot(
        title=title,
        note="Time that may still be bad. Unknown time does not spend the budget, nor does it "
        "prove that nothing was spent.",
        alternative=(
            f"Line of the error budget left. At the beginning {wording.duration(budget_s)}, "
            f"at the end {wording.duration(left[-1])}; {wording.duration(unknown_s)} unknown."
        ),
        width=max(len(periods), 1),
        height=height,
        paths=[Path(line(levels), "line")],
        bands=runs([p.unknown_s > 0 for p in periods], max(len(periods), 1), height),
        rules=[Rule(round(height * budget_s / reach), "nothing left")],
        x_ticks=x_ticks,
        y_ticks=_budget_ticks(budget_s, left[-1], reach, height),
        data=data,
    )


def _budget_ticks(budget_s: float, left_s: float, reach: float, height: int) -> list[Tick]:
    """The budget, nothing, what is left, half of it: whichever have room for their words."""
    found: list[Tick] = []
    for value in (budget_s, 0.0, left_s, budget_s / 2):
        at = round(height * (budget_s - value) / reach)
        if all(abs(at - tick.at) >= _TEXT_PX for tick in found):
            found.append(Tick(at, wording.brief(value), "end"))
    return found


def burn_down_minutes(minutes: Sequence[Minute], span: Span, budget_s: float) -> Plot:
    """The window's own budget, by minute."""
    periods = [
        Period("", minute.good_ms / 1000, minute.bad_ms / 1000, minute.unknown_ms / 1000)
        for minute in minutes
    ]
    left = budget_s
    rows = []
    for label, part in _by_hour(minutes, span):
        bad = sum(minute.bad_ms for minute in part) / 1000
        left -= bad
        rows.append((label, wording.duration(bad), wording.duration(left)))
    data = Data(("Hour", "Bad", "Budget left at its end"), rows)
    return burn_down("Error budget of the window", periods, budget_s, span.ticks(), data)


def burn_down_days(days: Sequence[Period], budget_s: float, length: int) -> Plot:
    """The budget of `length` days, by day; `label` of a period is its date."""
    left = budget_s
    rows = []
    for day in days:
        left -= day.bad_s
        rows.append(
            (
                day.label,
                wording.duration(day.bad_s),
                wording.duration(day.unknown_s),
                wording.duration(left),
            )
        )
    every = max(1, math.ceil(len(days) / 6))
    ticks = [
        Tick(at := round(index * 100 / len(days), 2), days[index].label[5:], anchor_at(at))
        for index in range(0, len(days), every)
    ]
    data = Data(("Day", "Bad", "Unknown", "Budget left at its end"), rows)
    title = f"Error budget of {length} days: the last {len(days)}"
    return burn_down(title, days, budget_s, ticks, data)


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
    colour shows unknown time.
    """
    row_px = 14
    cells: dict[str, list[str]] = {style: [] for style, _ in HEAT_CLASSES}
    marks: dict[str, list[str]] = {style: [] for style in _MARKS}
    bands = []
    for lane, (_date, hours) in enumerate(days):
        for hour, cell in enumerate(hours):
            if cell is None or cell.unknown_ms > 0:
                box = round(hour * 100 / 24, 2), round(100 / 24, 2), lane * row_px, row_px - 1
                bands.append(Band(*box, "unknown"))
            if cell is not None and (style := _heat(cell, objective_ms)):
                corner = f"M{hour * 10} {lane * row_px}"
                cells[style].append(f"{corner}h9v{row_px - 1}h-9z")
                if style in marks:
                    marks[style].append(corner + _MARKS[style].format(h=row_px - 1))
    bad = sum(1 for _, hours in days for cell in hours if cell is not None and cell.bad_ms > 0)
    strokes = {f"{style}-mark": d for style, d in marks.items()}
    return Plot(
        title="Lag p99 by hour and day",
        note="The lag that 99 % of an hour did not exceed, as a part of the objective; "
        "hours with bad time are crossed.",
        alternative=(
            f"Heat map of {wording.plural(len(days), 'day', 'days')} by 24 hours: "
            f"{wording.plural(bad, 'hour has', 'hours have')} some bad time."
        ),
        width=240,
        height=row_px * len(days),
        paths=[Path("".join(d), style) for style, d in (cells | strokes).items() if d],
        bands=joined(bands),
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


def throughput_against_lag(minutes: Sequence[Minute], objective_ms: float) -> Plot:
    """A dot for each minute: messages stored by the master, largest lag."""
    height = 150
    points = [
        (m.messages, m.lag_ms) for m in minutes if m.messages is not None and m.lag_ms is not None
    ]
    most = max((messages for messages, _ in points), default=0.0)
    top = round_up(most)
    scale = LagScale.over(height, objective_ms, *(lag_ms for _, lag_ms in points))
    dots = sorted({(round(messages / top * 1000), scale.y(lag_ms)) for messages, lag_ms in points})
    return Plot(
        title="Throughput against lag",
        note="Each dot is a minute: messages stored by the master, and the largest lag.",
        alternative=(
            f"Scatter of {wording.plural(len(points), 'minute', 'minutes')}: up to "
            f"{wording.count(most)} messages a minute."
        ),
        width=1000,
        height=height,
        paths=[Path("".join(f"M{x} {y}h0" for x, y in dots), "dots")] if dots else [],
        rules=[Rule(scale.y(objective_ms), f"objective {wording.lag(objective_ms)}")],
        x_ticks=[
            Tick(part * 100, f"{wording.count(top * part)}{'/min' if part == 1 else ''}", anchor)
            for part, anchor in _EDGES
        ],
        y_ticks=scale.ticks(),
        data=Data(
            ("Messages a minute", "Minutes", "Median of the lag", "Largest lag"),
            _fifths(points, top),
        ),
    )


def _fifths(points: Sequence[tuple[float, float]], top: float) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for index in range(5):
        low, high = top * index / 5, top * (index + 1) / 5
        lags = sorted(
            lag_ms
            for messages, lag_ms in points
            if low <= messages < high or (index == 4 and messages == high)
        )
        rows.append(
            (
                f"{wording.count(low)} to {wording.count(high)}",
                wording.count(len(lags)),
                wording.lag(lags[len(lags) // 2] if lags else None),
                wording.lag(lags[-1] if lags else None),
            )
        )
    return rows


@dataclass(frozen=True)
class Lane:
    """One replica's line of the incident chart: (start, end, cause) in epoch ms."""

    label: str
    incidents: Sequence[tuple[int, int, str]] = field(default_factory=tuple)


CAUSES = (
    "master_restart",
    "failover",
    "ha_restart",
    "disconnected",
    "fell_behind",
    "stalled",
    "slow",
)


def incident_chart(lanes: Sequence[Lane], span: Span) -> Plot:
    """Gantt: a lane for each replica, a bar for each incident, at least 0.4 % wide."""
    lane_px = 34
    bands = []
    used = set()
    for index, lane in enumerate(lanes):
        top = index * lane_px + 18
        bands.append(Band(0, 100, top, 10, "lane"))
        bars = []
        for start, end, cause in lane.incidents:
            used.add(cause)
            left = min(span.percent(start), 99.6)
            width = max(round(span.percent(end) - left, 2), 0.4)
            bars.append(Band(left, width, top, 10, _cause(cause)))
        bands += thinned(bars, _THINNED_PERCENT)
    total = sum(len(lane.incidents) for lane in lanes)
    return Plot(
        title="Incidents over time",
        note="Times are UTC. The table below has the same incidents.",
        alternative=(
            f"Chart of {wording.plural(total, 'incident', 'incidents')} of "
            f"{wording.plural(len(lanes), 'replica', 'replicas')} over the window; "
            "the table below lists them."
        ),
        width=1000,
        height=lane_px * len(lanes),
        bands=bands,
        x_ticks=span.ticks(),
        lanes=[Tick(i * lane_px + 13, lane.label, "start") for i, lane in enumerate(lanes)],
        legend=[(_cause(cause), cause.replace("_", " ")) for cause in sorted(used)],
        grid=False,
    )


def _cause(cause: str) -> str:
    return f"cause-{cause}" if cause in CAUSES else "cause-other"


def ack_histogram(
    bounds_s: Sequence[float], counts: Sequence[int], quantiles: Sequence[tuple[str, float | None]]
) -> Plot:
    """Sends by the time from append to acknowledgement; empty buckets at both ends left out."""
    labels = [f"≤ {wording.lag(bound * 1000)}" for bound in bounds_s]
    labels.append(f"> {wording.lag(bounds_s[-1] * 1000)}" if bounds_s else "any")
    there = [index for index, number in enumerate(counts) if number]
    first, last = (there[0], there[-1] + 1) if there else (0, len(counts))
    bars = list(zip(labels[first:last], counts[first:last], strict=True))
    height = 150
    most = max((number for _, number in bars), default=0) or 1
    total = sum(counts)
    every = max(1, math.ceil(len(bars) / 5))
    return Plot(
        title="Acknowledgement latency",
        note="Synchronous sends by the time from append to the replicas' acknowledgement.",
        alternative=f"Histogram of {wording.plural(total, 'send', 'sends')}: "
        + ", ".join(f"{label} {wording.lag(_ms(value))}" for label, value in quantiles)
        + ".",
        width=max(len(bars), 1) * 10,
        height=height,
        paths=[Path("".join(_bar(i, n / most, height) for i, (_, n) in enumerate(bars)), "bars")],
        x_ticks=[
            Tick(
                at := round((index + 0.5) * 100 / len(bars), 2),
                bars[index][0],
                "start" if at < 12 else "end" if at > 88 else "middle",
            )
            for index in range(0, len(bars), every)
        ],
        y_ticks=[
            Tick(
                round(height * (1 - part)),
                wording.per_cent(round(100 * most * part / total, 1)) if total else "",
                "end",
            )
            for part in (0.5, 1.0)
        ],
        data=Data(
            ("Latency", "Sends", "Share"),
            [
                (label, wording.count(n), wording.share(n / total if total else None))
                for label, n in bars
            ],
        ),
        x_grid=False,
    )


def _bar(index: int, part: float, height: int) -> str:
    # What is there is seen: a bucket that is not empty has at least 1 px.
    tall = max(round(part * height), 1) if part else 0
    return f"M{index * 10 + 1} {height}h8v{-tall}h-8z" if tall else ""


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def state_bar(seconds: Mapping[str, float | None]) -> Plot:
    """Where the window's time went: one stacked bar."""
    known = {state: value for state, value in seconds.items() if value}
    if not known:
        # Not even how long it was unknown is known.
        known = {"unknown": 1.0}
    total = sum(known.values())
    bands = []
    left = 0.0
    for state, value in known.items():
        width = value * 100 / total
        bands.append(Band(round(left, 2), round(width, 2), 0, 18, f"state-{state}"))
        left += width
    words = [
        (state, state.replace("_", " "), wording.duration(value))
        for state, value in seconds.items()
    ]
    return Plot(
        title="Time in each state",
        alternative="Bar of the time in each state: "
        + ", ".join(f"{word} {time}" for _, word, time in words)
        + ".",
        width=1000,
        height=18,
        bands=bands,
        legend=[(f"state-{state}", f"{word} {time}") for state, word, time in words],
        grid=False,
    )
