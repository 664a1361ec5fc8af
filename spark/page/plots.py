"""One replica's plots: figures in; shapes, ticks, words and a table of the data out.

Called on the driver by spark/page/replica_plots.py; templates/plot.html.j2 draws a `Plot` as inline
SVG. Own SVG and not matplotlib's: the page's style sheet colours it (dark mode, paper), text stays
text at a readable size on a phone, and a plot takes a tenth of the bytes. It must not know Spark or
tables. The heat map is in spark/page/heat_map.py, the plots of a whole report in
spark/page/group_plots.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark.figures import wording
from spark.figures.result_tables import HISTOGRAM_BASE
from spark.page.plot_shapes import (
    DAY_MINUTES,
    THINNED_PERCENT,
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
    hatched,
    line,
    round_seconds,
    round_up,
    stairs,
    steps,
    thinned,
)
from spark.vocabulary import MINUTE_MS

STATE_WORDS = {"unknown": "not recorded"}
"""Of a state: what is unknown elsewhere is whether time was good; this is in which state it was."""
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
    excluded_ms: float = 0

    @property
    def unknown_part(self) -> float:
        """Of its time."""
        return _part(self.unknown_ms, self)

    @property
    def excluded_part(self) -> float:
        """Of its time."""
        return _part(self.excluded_ms, self)


def _part(ms: float, minute: Minute) -> float:
    every = minute.good_ms + minute.bad_ms + minute.unknown_ms + minute.excluded_ms
    return ms / every if every else 0.0


UNKNOWN_MINUTE = Minute(0, 0, MINUTE_MS, None, None)


def lag_over_time(
    minutes: Sequence[Minute],
    span: Span,
    objective_ms: float,
    incidents: Sequence[tuple[int, int]],
) -> Plot:
    """Largest lag of each minute, the objective, incidents shaded; unknown time is hatched and
    excluded time dotted, as wide as it was long."""
    height = 170
    known = [minute.lag_ms for minute in minutes if minute.lag_ms is not None]
    scale = LagScale.over(height, objective_ms, *known)
    shaded = [
        Band(left, max(round(span.percent(end) - left, 2), 0.1), 0, height, "incident")
        for start, end in incidents
        if (left := span.percent(start)) < 100 and end > span.start_ms
    ]
    unknown = hatched([minute.unknown_part for minute in minutes], height)
    excluded = hatched([minute.excluded_part for minute in minutes], height, "excluded")
    bands = thinned(shaded, THINNED_PERCENT) + excluded + unknown
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
            *([("excluded", "excluded time")] if excluded else []),
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

    @property
    def unknown_part(self) -> float:
        """Of its time."""
        every = self.good_s + self.bad_s + self.unknown_s
        return self.unknown_s / every if every else 0.0


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
        note="Bad time that is still allowed. Unknown time does not use up the budget, but it "
        "does not prove that none was used either.",
        alternative=(
            f"Line of the error budget left. At the beginning {wording.duration(budget_s)}, "
            f"at the end {wording.duration(left[-1])}; {wording.duration(unknown_s)} unknown."
        ),
        width=max(len(periods), 1),
        height=height,
        paths=[Path(line(levels), "line")],
        bands=hatched([period.unknown_part for period in periods], height),
        rules=[Rule(round(height * budget_s / reach), "nothing left")],
        x_ticks=x_ticks,
        y_ticks=_budget_ticks(budget_s, lowest, reach, height),
        data=data,
    )


def _budget_ticks(budget_s: float, lowest_s: float, reach: float, height: int) -> list[Tick]:
    """Round times from the budget down to what is left."""
    return [
        Tick(round(height * (budget_s - value) / reach), wording.brief(value), "end")
        for value in round_seconds(lowest_s, budget_s)
    ]


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
        (state, STATE_WORDS.get(state, state.replace("_", " ")), wording.duration(value))
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
