"""What one report says: rows of the final tables of one date, as plain Python values.

The pipeline (spark/job/sla_report.py) fills it on the driver from collected tables,
spark/page/summary.py and spark/page/report_page.py write it down. It must not know Spark: tests and
other tools build it by hand.

Tested by tests/spark/figures/test_group_report.py.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark.config.objectives import PolicyStep
from spark.figures import result_tables
from spark.figures.budget_policy import ReachedStep, reached_steps, steps_up_to
from spark.figures.judged_windows import JudgedWindow, judged_windows
from spark.figures.result_tables import METADATA_FIGURES, TABLES
from spark.reported_day import midnight_ms
from spark.vocabulary import ANY_LEFT_OUT, DAY_MS, REPLICA, SYNC_MASTER

Row = Mapping[str, Any]
"""One row: column name -> None, bool, int, float, text, or lists and dicts of these."""
ReplicaKey = tuple[str, str, str]
"""(cluster, broker, replica)."""

BREACHED, INSUFFICIENT, MET = "breached", "insufficient data", "met"
EXIT_CODES = {MET: 0, BREACHED: 1, INSUFFICIENT: 2}
EXIT_ERROR = 3
"""Exit code of the command when there is no verdict."""
SEVERITY = {BREACHED: 0, INSUFFICIENT: 1, MET: 2}
_EPOCH = datetime.date(1970, 1, 1)
MAX_PLOTTED = 30
"""So many replicas get plots, the worst; `minutes`, `hours` and `days` have only their rows."""

STATES = result_tables.STATES
PERCENTILES = result_tables.LAG_FIGURES
KEY = REPLICA


def _shown(table: str, *but: str) -> tuple[str, ...]:
    return tuple(name for name in TABLES[table] if not name.endswith("_hist") and name not in but)


REPLICA_DAY_COLUMNS = _shown(
    "replica_days",
    # What only later reports need.
    *("first_received", "carried_start_ms", "carried_end_ms", "open_start_ms", "open_end_ms"),
    *("first_copy_since_ms", "leading_unknown_s"),
)
METADATA_COLUMNS = tuple(METADATA_FIGURES)
"""Of each element of `metadata` of a replica's day."""
GROUP_DAY_COLUMNS = _shown("group_days")
WINDOW_COLUMNS = _shown("windows")
CALENDAR_WINDOW_COLUMNS = _shown("calendar_windows")
GROUP_WINDOW_COLUMNS = _shown("group_windows")
CLUSTER_COLUMNS = _shown("clusters")
INCIDENT_COLUMNS = _shown("incidents")
EVENT_COLUMNS = _shown("events")
ELECTION_COLUMNS = _shown("elections")
CONSUMER_LAG_COLUMNS = _shown("consumer_lag")
BAD_LINE_COLUMNS = ("reason", "lines", "files", "example_file", "example_text")
MINUTE_COLUMNS = (
    *(*KEY, "minute", "good_ms", "bad_ms", "unknown_ms", "excluded_ms"),
    *("lag_ms_max", "msgs_in"),
)
HOUR_COLUMNS = _shown("hours")
DAY_COLUMNS = (*KEY, "dt", "good_s", "bad_s", "unknown_s")
OBJECTIVE_COLUMNS = (
    "name",
    "availability_percent",
    "lag_seconds",
    "min_coverage_percent",
    "lag_p99_seconds",
    "sync_ok_percent",
    "rpo_bytes",
    "metadata_age_seconds",
    "first_copy_hours",
    "sync_ok_given",
    "runbook_url",
    "sends_ok_percent",
    "sends_slower_than",
    "group_availability",
    "consumer_lag",
)


class ReportDataError(ValueError):
    """The tables given for a report do not have what docs/sla_report.md says."""


@dataclass(frozen=True)
class ReportData:
    """One date's results. Further columns of rows are allowed and not looked at.

    `date` is YYYY-MM-DD (UTC), the window [w0_ms, w1_ms) epoch ms, `verdict` one of EXIT_CODES.
    - `replica_days`, `group_days`, `windows` and `group_windows` (of `window_days` each),
      `clusters` (of 1 day and of those), `calendar_windows`: every row of the date, without
      histograms; but a plotted replica's day has `lag_ms_hist` (bucket -> ms).
    - `incidents`, `events`: rows of the date, perhaps not all; `total` says how many it has.
    - `bad_lines`: one row for each reason: `lines` and `files` are counts, with one example.
    - `minutes` of the date, `hours` and `days` of up to 30 days that end with the date, with
      `minute` and `hour` in epoch ms: of the plotted replicas only (`plotted_keys`).
      `hours` are sums (times) and maxima (lag) of the minutes table; `dt` of `days` is a date.
    - `objectives`: those that some replica of the date has, criteria that are not set None.

    Raises ReportDataError for an unknown verdict, an empty window or a column that is missing.
    """

    date: str
    w0_ms: int
    w1_ms: int
    verdict: str
    replica_days: Sequence[Row] = ()
    group_days: Sequence[Row] = ()
    windows: Sequence[Row] = ()
    calendar_windows: Sequence[Row] = ()
    group_windows: Sequence[Row] = ()
    clusters: Sequence[Row] = ()
    incidents: Sequence[Row] = ()
    events: Sequence[Row] = ()
    bad_lines: Sequence[Row] = ()
    minutes: Sequence[Row] = ()
    hours: Sequence[Row] = ()
    days: Sequence[Row] = ()
    objectives: Sequence[Row] = ()
    window_days: Sequence[int] = (7, 30)
    totals: Mapping[str, int] = field(default_factory=dict)
    """Of `incidents` and `events`, where there are more than the rows given."""
    remarks: Sequence[Row] = ()
    """Exclusions and annotations after the event that touch the window: who, when, why."""
    past_remarks: Sequence[Row] = ()
    """Exclusions of earlier time, which windows and calendar periods have."""
    exit_on: str = "day"
    """Whose verdicts the exit code tells: one of `sla_config.EXIT_POLICIES`."""
    budget_policy: Sequence[PolicyStep] = ()
    elections: Sequence[Row] = ()
    """Of groups with a controller, all of the date."""
    consumer_lag: Sequence[Row] = ()
    """Of the consumer groups that the lines tell of."""
    past_left_out: Sequence[str] = ()
    """Dates before this one of which files or replicas were left out, YYYY-MM-DD."""

    def __post_init__(self) -> None:
        if self.verdict not in EXIT_CODES:
            raise ReportDataError(f"verdict {self.verdict!r} is not one of {', '.join(EXIT_CODES)}")
        if self.w1_ms <= self.w0_ms:
            raise ReportDataError(f"window [{self.w0_ms}, {self.w1_ms}) of {self.date} is empty")
        for table, columns in _REQUIRED.items():
            for row in getattr(self, table):
                if missing := [name for name in columns if name not in row]:
                    raise ReportDataError(f"a row of {table} lacks {', '.join(missing)}")

    @property
    def exit_code(self) -> int:
        """0 met, 1 breached, 2 insufficient data: of the verdicts that `exit_on` names; or what a
        step of the error-budget policy says, if that is worse."""
        of_windows = [one.verdict for one in self.judged_windows]
        verdicts = {"day": [self.verdict], "window": of_windows}
        counted = verdicts.get(self.exit_on, [self.verdict, *of_windows])
        steps = steps_up_to(self.budget_steps, self.budget_policy)
        of_steps = [step.exit_code for step in steps if step.exit_code is not None]
        return worst_exit_code([*(EXIT_CODES[verdict] for verdict in counted), *of_steps])

    @property
    def budget_steps(self) -> list[ReachedStep]:
        """Of each replica and window that counts the highest step that is reached; the most used
        budget first."""
        return self.steps_reached_of(self.budget_policy)

    def steps_reached_of(self, policy: Sequence[PolicyStep]) -> list[ReachedStep]:
        """The same of some steps, ascending."""
        rows = [row for window in self.judged_windows for row in window.rows]
        return reached_steps(rows, policy)

    @property
    def longest_window(self) -> int:
        """Days of the window whose verdict is shown beside the day's."""
        return max(self.window_days)

    @property
    def longest_windows(self) -> list[Row]:
        """Each replica's row of that window."""
        return [row for row in self.windows if row["days"] == self.longest_window]

    @property
    def judged_windows(self) -> list[JudgedWindow]:
        """What counts beside the day: the longest rolling window, then the calendar periods."""
        return judged_windows(
            self.longest_window, self.longest_windows, self.calendar_windows, self._verdict_over
        )

    @property
    def window_verdict(self) -> str:
        """Over the longest rolling window."""
        return self.judged_windows[0].verdict

    def _verdict_over(self, rows: Sequence[Row]) -> str:
        """The worst of the replicas' over a window, as the day's is that of its replicas; without
        any, with a group that waits for its slaves, or where a file of one of its dates was left
        out, it is not `met`."""
        verdicts = {str(row["verdict"]) for row in rows}
        is_whole = not self.left_out and not self.past_left_out_of(rows)
        if self.waiting_groups or not is_whole or not verdicts:
            verdicts.add(INSUFFICIENT)
        return min(verdicts, key=SEVERITY.__getitem__)

    @property
    def revision(self) -> int:
        """How often this date's result was written with a change; above 1 it is a revised one."""
        return max((int(row["revision"] or 1) for row in self.replica_days), default=1)

    @property
    def waiting_groups(self) -> list[Row]:
        """Groups whose master waits for slaves and has none: nothing could be met, as
        spark/figures/verdicts.py says of the stored rows."""
        with_replicas = {key_of(row)[:2] for row in self.replica_days}
        waiting = [row for row in self.group_days if row["role"] == SYNC_MASTER]
        names = {(row["cluster"], row["broker"]): row for row in waiting}
        return [names[name] for name in sorted(names.keys() - with_replicas)]

    @property
    def left_out(self) -> list[Row]:
        """Rows of `bad_lines` that are whole files whose lines do not count, or groups of which not
        all replicas are reported: what they would have told nobody knows, so nothing can be
        met."""
        return [row for row in self.bad_lines if _is_left_out(row)]

    def past_left_out_of(self, window: Sequence[Row]) -> list[str]:
        """Those of `past_left_out` that lie in a window, of its rows."""
        if not window:
            return []
        from_ms = window[0].get("from_ms")
        if from_ms is None:
            from_ms = midnight_ms(datetime.date.fromisoformat(self.date))
            from_ms -= (window[0].get("days") or 1) * DAY_MS - DAY_MS
        since = str(_EPOCH + datetime.timedelta(days=from_ms // DAY_MS))
        return [date for date in self.past_left_out if date >= since]

    def total(self, table: str) -> int:
        """How many `incidents` or `events` the date has."""
        return self.totals.get(table, len(getattr(self, table)))

    def objective_of(self, row: Row) -> Row:
        """The objective of a replica's day.

        Raises ReportDataError when `objectives` does not have it.
        """
        for objective in self.objectives:
            if objective["name"] == row["objective"]:
                return objective
        raise ReportDataError(f"no objective {row['objective']!r} in objectives")


_REQUIRED = {
    "replica_days": REPLICA_DAY_COLUMNS,
    "group_days": GROUP_DAY_COLUMNS,
    "windows": WINDOW_COLUMNS,
    "calendar_windows": CALENDAR_WINDOW_COLUMNS,
    "group_windows": GROUP_WINDOW_COLUMNS,
    "clusters": CLUSTER_COLUMNS,
    "incidents": INCIDENT_COLUMNS,
    "events": EVENT_COLUMNS,
    "elections": ELECTION_COLUMNS,
    "consumer_lag": CONSUMER_LAG_COLUMNS,
    "bad_lines": BAD_LINE_COLUMNS,
    "minutes": MINUTE_COLUMNS,
    "hours": HOUR_COLUMNS,
    "days": DAY_COLUMNS,
    "objectives": OBJECTIVE_COLUMNS,
}


def is_any_left_out(bad_lines: Iterable[Row]) -> bool:
    """Of rows of `bad_lines`: whether a whole file is among them, or replicas of a group."""
    return any(map(_is_left_out, bad_lines))


def _is_left_out(row: Row) -> bool:
    return str(row["reason"]).startswith(ANY_LEFT_OUT)


def worst_exit_code(codes: Iterable[int]) -> int:
    """Of several: 3, then a step's own code (the largest), 1, 2, 0."""
    ranks = {EXIT_ERROR: -100, EXIT_CODES[BREACHED]: 1, EXIT_CODES[INSUFFICIENT]: 2}
    ranks[EXIT_CODES[MET]] = 3
    return min(codes, key=lambda code: ranks.get(code, -code), default=EXIT_CODES[MET])


def key_of(row: Row) -> ReplicaKey:
    """The replica that a row is about."""
    return row["cluster"], row["broker"], row["replica"]


def worst_first(replica_days: Iterable[Row]) -> list[Row]:
    """Breached, then insufficient data, then met; within these the longest bad time first.

    Rows need `verdict`, `bad_s`, `unknown_s` and the key. The order is total: equal rows in any
    order give one order.
    """
    return sorted(
        replica_days,
        key=lambda row: (
            SEVERITY[row["verdict"]],
            -(finite(row["bad_s"]) or 0.0),
            -(finite(row["unknown_s"]) or 0.0),
            key_of(row),
        ),
    )


def plotted_keys(replica_days: Iterable[Row], limit: int = MAX_PLOTTED) -> list[ReplicaKey]:
    """The replicas that get plots: whose minutes, hours and days a report needs."""
    return [key_of(row) for row in worst_first(replica_days)[:limit]]


def finite(value: Any) -> float | None:
    """A number as float; None for null, NaN and infinities, which no report shows."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
