"""The plots of one replica: its rows of ReportData put on one grid of minutes, hours and days.

Called on the driver by spark/page/report_page.py for the replicas that are plotted. What has no row
is unknown. It must not know Spark or HTML.

Tested by tests/spark/page/test_report_page.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta

from spark.figures.report_data import (
    PERCENTILES,
    STATES,
    ReplicaKey,
    ReportData,
    Row,
    finite,
    key_of,
)
from spark.page import plots
from spark.page.heat_map import Hour, heat_map
from spark.page.plot_shapes import Plot, Span
from spark.vocabulary import HOUR_MS, MINUTE_MS

_MAX_DAYS = 30
"""ReportData has the hours and days of so many dates."""
_LABELS = {
    "p50": "50 %",
    "p90": "90 %",
    "p95": "95 %",
    "p99": "99 %",
    "p999": "99.9 %",
    "max": "max",
}


class ReplicaPlots:
    """All rows of a report by replica, and the plots made of them."""

    def __init__(self, data: ReportData) -> None:
        self._data = data
        self._span = span_of(data)
        self._minutes = _by_replica(data.minutes)
        self._hours = _by_replica(data.hours)
        self._days = _by_replica(data.days)
        self._incidents = _by_replica(data.incidents)

    def of(self, row: Row) -> list[Plot]:
        """The plots of a replica's day; those of several days only where there are several."""
        key, span = key_of(row), self._span
        objective = self._data.objective_of(row)
        objective_ms = float(objective["lag_seconds"]) * 1000
        minutes = _minutes(self._minutes.get(key, ()), span)
        incidents = [(one["start_ms"], one["end_ms"]) for one in self._incidents.get(key, ())]
        found = [
            plots.lag_over_time(minutes, span, objective_ms, incidents),
            plots.state_bar(_states(row)),
            plots.percentile_ladder(
                _histogram(row),
                finite(row["lag_ms_max"]),
                [(_LABELS[name], finite(row[f"lag_ms_{name}"])) for name in PERCENTILES],
                objective_ms,
            ),
            plots.throughput_against_lag(minutes, objective_ms),
            plots.burn_down_minutes(minutes, span, finite(row["budget_s"]) or 0.0),
        ]
        of_days = {_text(day["dt"]): day for day in self._days.get(key, ())}
        dates = _dates(self._data.date, of_days)
        if len(dates) > 1:
            found.append(self._burn_down(dates, of_days, float(objective["availability_percent"])))
            hours = {int(hour["hour"]): hour for hour in self._hours.get(key, ())}
            found.append(heat_map([(day, _day(day, hours)) for day in dates], objective_ms))
        return found

    def _burn_down(
        self, dates: Sequence[str], of_days: Mapping[str, Row], availability_percent: float
    ) -> Plot:
        """Of the longest window, as far as its days are stored."""
        length = min(max(self._data.window_days), _MAX_DAYS)
        budget_s = (1 - availability_percent / 100) * length * 86_400
        periods = [_period(day, of_days) for day in dates[-length:]]
        return plots.burn_down_days(periods, budget_s, length)


def _states(row: Row) -> dict[str, float | None]:
    """Time in each state, and what was excluded, if anything was."""
    states = {state: finite(row[f"state_{state}_s"]) for state in STATES}
    excluded = finite(row["excluded_s"])
    return states | ({"excluded": excluded} if excluded else {})


def span_of(data: ReportData) -> Span:
    """The window in whole minutes."""
    start = data.w0_ms // MINUTE_MS
    return Span(start * MINUTE_MS, -(-data.w1_ms // MINUTE_MS) - start)


def _by_replica(rows: Iterable[Row]) -> dict[ReplicaKey, list[Row]]:
    found: dict[ReplicaKey, list[Row]] = {}
    for row in rows:
        found.setdefault(key_of(row), []).append(row)
    return found


def _histogram(row: Row) -> dict[int, float]:
    """Text keys too: a map that went through JSON has them."""
    return {int(bucket): float(ms) for bucket, ms in (row.get("lag_ms_hist") or {}).items()}


def _minutes(rows: Iterable[Row], span: Span) -> list[plots.Minute]:
    found = [plots.UNKNOWN_MINUTE] * span.minutes
    for row in rows:
        index = (int(row["minute"]) - span.start_ms) // MINUTE_MS
        if 0 <= index < span.minutes:
            found[index] = plots.Minute(
                finite(row["good_ms"]) or 0,
                finite(row["bad_ms"]) or 0,
                finite(row["unknown_ms"]) or 0,
                finite(row["lag_ms_max"]),
                finite(row["msgs_in"]),
                finite(row["excluded_ms"]) or 0,
            )
    return found


def _dates(report_date: str, of_days: Mapping[str, Row]) -> list[str]:
    """Every date from the first with a row to the report's, at most 30."""
    last = date.fromisoformat(report_date)
    first = date.fromisoformat(min(of_days, default=report_date))
    number = min(max((last - first).days + 1, 1), _MAX_DAYS)
    return [(last - timedelta(days=back)).isoformat() for back in range(number - 1, -1, -1)]


def _period(day: str, of_days: Mapping[str, Row]) -> plots.Period:
    row = of_days.get(day)
    if row is None:
        return plots.Period(day, 0.0, 0.0, 86_400.0)
    good, bad, unknown = (finite(row[f"{kind}_s"]) or 0.0 for kind in ("good", "bad", "unknown"))
    return plots.Period(day, good, bad, unknown)


def _day(day: str, hours: Mapping[int, Row]) -> list[Hour | None]:
    start_ms = int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()) * 1000
    return [_hour(hours.get(start_ms + hour * HOUR_MS)) for hour in range(24)]


def _hour(row: Row | None) -> Hour | None:
    if row is None:
        return None
    lags = finite(row["lag_ms_p99"]), finite(row["lag_ms_max"])
    times = (finite(row[f"{kind}_ms"]) or 0 for kind in ("good", "bad", "unknown"))
    return Hour(*lags, *times)


def _text(value: str | date) -> str:
    return value if isinstance(value, str) else value.isoformat()
