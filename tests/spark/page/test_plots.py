"""The geometry of the plots: what is drawn is what was measured."""

from __future__ import annotations

import re

import pytest

from spark.page import plots
from spark.page.group_plots import Lane, ack_histogram, incident_chart
from spark.page.heat_map import Hour, heat_map
from spark.page.plot_shapes import (
    Band,
    LagScale,
    Span,
    hatched,
    line,
    round_per_cent,
    round_seconds,
    round_up,
    stairs,
    steps,
    thinned,
)

DAY = Span(1_773_446_400_000, 1440)


def minute(lag_ms: float | None = 5, bad_ms: float = 0, unknown_ms: float = 0) -> plots.Minute:
    return plots.Minute(60_000 - bad_ms - unknown_ms, bad_ms, unknown_ms, lag_ms, 100)


def points(d: str) -> list[tuple[int, int]]:
    """Where a path of M, l and h goes, a stroke along h as its single units."""
    found: list[tuple[int, int]] = []
    for kind, x, y in re.findall(r"([Mlh])(-?\d+) ?(-?\d+)?", d):
        if kind == "M":
            found.append((int(x), int(y)))
        elif kind == "l":
            found.append((found[-1][0] + int(x), found[-1][1] + int(y)))
        else:
            found += [(found[-1][0] + step + 1, found[-1][1]) for step in range(int(x))]
    return found


def test_a_line_goes_through_every_value() -> None:
    levels = [3, 3, 3, 7, 2, 9, 4, 4]
    assert points(line(levels)) == list(enumerate(levels))
    assert line(levels) == "M0 3h2l1 4l1 -5l1 7l1 -5h1"
    assert line([5]) == "M0 5"


def test_stairs_hold_a_level_over_its_unit() -> None:
    assert stairs([3, 3, 7, None, None, 9, 4]) == "M0 3h2v4h1M5 9h1v-5h1"
    assert stairs([None]) == stairs([]) == ""


def test_steps_leave_out_what_changes_nothing() -> None:
    assert steps([(0, 9), (0, 5), (0, 5), (10, 5), (20, 1)]) == "M0 9V5H10L20 1"


def test_the_lag_scale() -> None:
    scale = LagScale.over(100, 10_000, 125_000)
    assert scale.top_ms == 600_000
    assert (scale.y(0), scale.y(1), scale.y(600_000), scale.y(10**9)) == (100, 100, 0, 0)
    levels = [tick.at for tick in scale.ticks()]
    assert levels == sorted(levels, reverse=True)
    assert LagScale.over(100, None).top_ms == 100


def test_ticks_of_time_stand_at_round_times() -> None:
    assert [tick.label for tick in DAY.ticks()][::3] == ["00:00", "12:00", "24:00"]
    part = Span(DAY.start_ms + 125 * 60_000, 25)
    assert [tick.label for tick in part.ticks()] == [
        "02:05",
        "02:10",
        "02:15",
        "02:20",
        "02:25",
        "02:30",
    ]
    assert [tick.at for tick in part.ticks()] == [0, 20, 40, 60, 80, 100]


def test_a_hatch_is_as_wide_as_its_time_was_long() -> None:
    def bands(*parts: float) -> list[tuple[float, float]]:
        return [(band.left, band.width) for band in hatched(parts, 50)]

    assert bands(1, 0, 1, 1) == [(0, 25), (50, 50)]
    # Three seconds of a minute in a window of ten: half a per cent of it, not a tenth.
    assert bands(*[0] * 4, 0.05, *[0] * 5) == [(44.75, 0.5)]
    # What goes on over the end of a minute is one piece.
    assert bands(0, 0.5, 1, 0.25) == [(37.5, 43.75)]
    assert bands(*[0] * 1439, 1e-4) == [(99.9, 0.1)], "what is there is seen"
    assert bands() == bands(0, 0) == []


def test_marks_of_a_scale_are_round() -> None:
    assert round_seconds(-188.6, 86.4) == [60, 0, -60, -120, -180]
    assert round_seconds(0, 86.4) == [80, 60, 40, 20, 0]
    assert round_seconds(0, 2592) == [2400, 1800, 1200, 600, 0]
    assert round_seconds(0, 0.6) == [0.6, 0.4, 0.2, 0]
    assert round_seconds(0, 0) == [0]
    assert round_per_cent(38.3) == [30, 20, 10]
    assert round_per_cent(100) == [100, 80, 60, 40, 20]
    assert round_per_cent(0) == []


def test_thousands_of_incidents_are_few_shapes() -> None:
    bands = [
        Band(round(i / 100, 2), 0.1, 0, 10, "slow" if i % 2 else "stalled") for i in range(10_000)
    ]
    assert 100 < len(thinned(bands, 0.2)) <= 501
    apart = [Band(left, 1, 0, 10, "slow") for left in (10, 5, 50)]
    assert [band.left for band in thinned(apart, 0.2)] == [5, 10, 50]
    overlapping = [Band(5, 2, 0, 10, "slow"), Band(6, 4, 0, 10, "slow")]
    assert thinned(overlapping, 0.2) == [Band(5, 5, 0, 10, "slow")]


def test_round_up() -> None:
    assert [round_up(number) for number in (0, 10, 11, 240_000, 264_000)] == [
        10,
        10,
        15,
        250_000,
        300_000,
    ]


def test_lag_over_time_shades_incidents_and_hatches_what_is_unknown() -> None:
    minutes = [minute()] * 720 + [minute(None, unknown_ms=60_000)] * 720
    start = DAY.start_ms + 6 * 3_600_000
    plot = plots.lag_over_time(minutes, DAY, 10_000, [(start, start + 3_600_000)])
    shaded, hatched = plot.bands
    assert (shaded.style, shaded.left, shaded.width) == ("incident", 25.0, 4.17)
    assert (hatched.style, hatched.left, hatched.width) == ("unknown", 50, 50)
    level = LagScale.over(170, 10_000, 5).y(5)
    assert plot.paths[0].d == f"M0 {level}h720"
    assert "1 incident; 12\u00a0h unknown" in plot.alternative
    assert plot.data is not None
    assert len(plot.data.rows) == 24
    assert plot.data.rows[23][1:] == ("–", "0\u00a0s", "0\u00a0s", "1\u00a0h")


def test_an_unknown_day_says_so() -> None:
    plot = plots.lag_over_time([plots.UNKNOWN_MINUTE] * 1440, DAY, 10_000, [])
    assert "nothing known of the lag" in plot.alternative
    assert [path.d for path in plot.paths] == [""]
    assert [(band.left, band.width) for band in plot.bands] == [(0, 100)]


def test_the_ladder_climbs_where_the_time_was() -> None:
    bucket_of_100_ms = 233
    histogram = {0: 900, bucket_of_100_ms: 100}
    plot = plots.percentile_ladder(histogram, 100, [("99 %", 100)], 10_000)
    numbers = [int(n) for n in re.findall(r"[HV](\d+)", plot.paths[0].d)]
    assert 250 in numbers, "90 % is the first nine, a quarter of the width"
    assert LagScale(150, 60_000).y(100) in numbers
    for nothing in ({}, {0: 0}):
        assert plots.percentile_ladder(nothing, None, [("50 %", None)], 10_000).paths == []


def test_the_budget_burns_by_bad_time_only() -> None:
    minutes = [minute(), minute(bad_ms=30_000), minute(None, unknown_ms=60_000), minute()]
    plot = plots.burn_down_minutes(minutes, Span(DAY.start_ms, 4), 60)
    assert points(plot.paths[0].d) == [(0, 0), (1, 0), (2, 75), (3, 75), (4, 75)]
    assert [rule.at for rule in plot.rules] == [150]
    overspent = plots.burn_down_minutes([minute(bad_ms=60_000)] * 2, Span(DAY.start_ms, 2), 60)
    assert [rule.at for rule in overspent.rules] == [75]
    assert points(overspent.paths[0].d)[-1] == (2, 150)
    labels = [tick.label.replace("\u00a0", " ") for tick in overspent.y_ticks]
    assert labels == ["1 min", "30 s", "0 s", "−30 s", "−1 min"]


def test_no_budget_at_all() -> None:
    plot = plots.burn_down_minutes([minute(bad_ms=60_000)], Span(DAY.start_ms, 1), 0)
    assert points(plot.paths[0].d) == [(0, 0), (1, 150)]
    assert plots.burn_down_minutes([minute()], Span(DAY.start_ms, 1), 0).rules[0].at == 0


def test_days_without_rows_are_hatched_in_the_budget_of_30_days() -> None:
    days = [plots.Period("2026-03-13", 0, 0, 86_400), plots.Period("2026-03-14", 86_000, 400, 0)]
    plot = plots.burn_down_days(days, 2592, 30)
    assert plot.title == "Error budget of 30 days: the last 2"
    assert [(band.left, band.width) for band in plot.bands] == [(0, 50)]
    assert plot.data is not None
    assert plot.data.rows[1][3] == "36\u00a0min\u00a032\u00a0s"


def hour(p99_ms: float | None, bad_ms: float = 0, unknown_ms: float = 0) -> Hour:
    largest = None if p99_ms is None else p99_ms * 2
    return Hour(p99_ms, largest, 3_600_000 - bad_ms - unknown_ms, bad_ms, unknown_ms)


HEAT = [
    (hour(100), "heat1"),
    (hour(101), "heat2"),
    (hour(10_000), "heat3"),
    (hour(5, bad_ms=36_000), "heat4"),
    (hour(5, bad_ms=36_001), "heat5"),
    (hour(10_001), "heat5"),
    (hour(None, bad_ms=3_600_000), "heat5"),
    (hour(None), None),
    (hour(None, unknown_ms=3_600_000), None),
]


@pytest.mark.parametrize(("cell", "style"), HEAT)
def test_an_hour_is_classed_by_its_p99_and_its_bad_time(cell: Hour, style: str | None) -> None:
    plot = heat_map([("2026-03-14", [cell, *[None] * 23])], 10_000)
    marked = style in ("heat4", "heat5")
    assert [path.style for path in plot.paths] == [
        name for name in (style, f"{style}-mark" if marked else None) if name
    ]


def test_a_heat_map_hatches_what_is_unknown_and_tells_the_largest_lag() -> None:
    hours: list[Hour | None] = [None] * 24
    hours[0], hours[3] = hour(250, unknown_ms=60_000), hour(5, bad_ms=1000)
    plot = heat_map([("2026-03-14", hours)], 10_000)
    # A minute of the first hour, beside the hours without a row; not of the fourth.
    assert [(band.left, band.width) for band in plot.bands] == [(4.1, 8.4), (16.67, 83.33)]
    assert plot.data is not None
    words = [cell.replace("\u00a0", " ") for cell in plot.data.rows[0]]
    assert words[1] == "250 ms, max 500 ms, unknown 1 min"
    assert words[4] == "5 ms, max 10 ms, bad 1 s"
    assert words[5] == "unknown"


def test_strokes_stay_within_their_cell() -> None:
    hours = [hour(5, bad_ms=1), hour(5, bad_ms=3_600_000), *[None] * 22]
    plot = heat_map([("2026-03-13", [None] * 24), ("2026-03-14", hours)], 10_000)
    strokes = {path.style: path.d for path in plot.paths if path.style.endswith("-mark")}
    assert strokes == {
        "heat4-mark": "M0 14m0 13l9 -13",
        "heat5-mark": "M10 14l9 13m-9 0l9 -13",
    }


def test_dots_where_messages_and_lag_are_known() -> None:
    minutes = [minute(10), minute(10), minute(None), plots.Minute(60_000, 0, 0, 10, None)]
    plot = plots.throughput_against_lag(minutes, 10_000)
    assert plot.paths[0].d.count("M") == 1, "equal dots are one"
    assert "Scatter of 2 minutes" in plot.alternative
    assert plots.throughput_against_lag([], 10_000).paths == []


def test_bars_of_ack_latency_leave_out_empty_ends() -> None:
    plot = ack_histogram([0.001, 0.01, 0.1], [0, 30, 0, 10], [("p50", 0.005)])
    assert plot.data is not None
    assert [row[:2] for row in plot.data.rows] == [
        ("≤ 10\u00a0ms", "30"),
        ("≤ 100\u00a0ms", "0"),
        ("> 100\u00a0ms", "10"),
    ]
    assert plot.paths[0].d == "M1 150h8v-150h-8zM21 150h8v-50h-8z"


def test_the_bounds_of_buckets_below_a_millisecond_are_told() -> None:
    plot = ack_histogram([0.0005, 0.001, 0.0025], [10, 20, 70, 0], [("p50", 0.0041)])
    assert plot.data is not None
    assert [row[0].replace("\u00a0", " ") for row in plot.data.rows] == [
        *("≤ 0.5 ms", "≤ 1 ms", "≤ 2.5 ms"),
    ]
    assert [tick.label.replace("\u00a0", " ") for tick in plot.y_ticks] == ["60 %", "40 %", "20 %"]
    assert "p50 4.1" in plot.alternative


def test_excluded_time_is_dotted_beside_what_is_unknown() -> None:
    minutes = [plots.Minute(30_000, 0, 0, 5, 1, 30_000), minute(None, unknown_ms=60_000)]
    plot = plots.lag_over_time(minutes, Span(DAY.start_ms, 2), 10_000, [])
    assert [(band.style, band.left, band.width) for band in plot.bands] == [
        *(("excluded", 12.5, 25), ("unknown", 50, 50)),
    ]
    assert ("excluded", "excluded time") in plot.legend


def test_a_lane_for_each_replica() -> None:
    start = DAY.start_ms
    lanes = [
        Lane("a", [(start, start + 1000, "slow")]),
        Lane("b", [(start, start, "new")]),
    ]
    plot = incident_chart(lanes, DAY)
    bars = [band for band in plot.bands if band.style != "lane"]
    assert [(bar.style, bar.width) for bar in bars] == [("cause-slow", 0.4), ("cause-other", 0.4)]
    assert [lane.label for lane in plot.lanes] == ["a", "b"]


def test_states_fill_the_bar() -> None:
    plot = plots.state_bar({"in_sync": 75.0, "down": 0.0, "unknown": 25.0, "disconnected": None})
    assert [(band.style, band.left, band.width) for band in plot.bands] == [
        ("state-in_sync", 0, 75),
        ("state-unknown", 75, 25),
    ]
    nothing = plots.state_bar({"in_sync": None, "unknown": None})
    assert [(band.style, band.width) for band in nothing.bands] == [("state-unknown", 100)]
    assert "in sync –" in nothing.alternative
