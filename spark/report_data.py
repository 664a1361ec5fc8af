"""What one report says: rows of the final tables of one date, as plain Python values.

The pipeline (spark/sla_report.py) fills it on the driver from collected tables, spark/summary.py
and spark/page.py write it down. It must not know Spark: tests and other tools build it by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark import dump_words

Row = Mapping[str, Any]
"""One row: column name -> None, bool, int, float, text, or lists and dicts of these."""
ReplicaKey = tuple[str, str, str]
"""(cluster, broker, replica)."""

BREACHED, INSUFFICIENT, MET = "breached", "insufficient data", "met"
EXIT_CODES = {MET: 0, BREACHED: 1, INSUFFICIENT: 2}
SEVERITY = {BREACHED: 0, INSUFFICIENT: 1, MET: 2}
MAX_PLOTTED = 30
"""So many replicas get plots, the worst; `minutes`, `hours` and `days` have only their rows."""

STATES = (*dump_words.STATES, "down", "unknown")
PERCENTILES = ("p50", "p90", "p95", "p99", "p999", "max")
KEY = ("cluster", "broker", "replica")
REPLICA_DAY_COLUMNS = (
    *KEY,
    "objective",
    "verdict",
    "reasons",
    "window_s",
    "interval_s",
    "expected",
    "received",
    "duplicates",
    "conflicts",
    "late",
    "out_of_order",
    "longest_gap_s",
    "clock_skew_ms",
    "coverage",
    "good_s",
    "bad_s",
    "unknown_s",
    "availability",
    *(f"lag_ms_{name}" for name in PERCENTILES),
    *(f"lag_bytes_{name}" for name in PERCENTILES),
    *(f"state_{name}_s" for name in STATES),
    "minutes_good",
    "minutes_bad",
    "minutes_unknown",
    "minutes_written",
    "minutes_written_good",
    "incidents",
    "incident_s",
    "longest_incident_s",
    "mttr_s",
    "mtbf_s",
    "transferred_bytes",
    "reconnects",
    "rejected_acks",
    "catch_up_s",
    "catch_up_longest_s",
    "catch_up_bytes",
    "catch_up_mb_s",
    "metadata",
    "budget_s",
    "budget_left_s",
    "budget_used_ratio",
    "burn_1h",
    "burn_6h",
    "burn_24h",
    "burn_3d",
    "revision",
    "input_digest",
)
METADATA_COLUMNS = ("kind", "max_age_ms", "p99_age_ms", "failures", "covered_s")
"""Of each element of `metadata` of a replica's day."""
GROUP_DAY_COLUMNS = (
    "cluster",
    "broker",
    "role",
    "verdict",
    "samples",
    "unreplicated_bytes_max",
    "unreplicated_bytes_p99",
    "oldest_unreplicated_ms_max",
    "oldest_unreplicated_ms_p99",
    "exposure_byte_s",
    *(f"sync_{name}" for name in dump_words.SYNC_RESULTS),
    "sync_ok_ratio",
    "ack_p50_s",
    "ack_p99_s",
    "ack_p999_s",
    "ack_le",
    "ack_counts",
    "ack_sum_s",
    "msgs_in",
    "bytes_in",
    "restarts",
    "revision",
)
WINDOW_COLUMNS = (
    *KEY,
    "days",
    "days_with_data",
    "verdict",
    "good_s",
    "bad_s",
    "unknown_s",
    "coverage",
    "availability",
    *(f"lag_ms_{name}" for name in ("p50", "p99", "p999", "max")),
    *(f"lag_bytes_{name}" for name in ("p50", "p99", "p999", "max")),
    "incidents",
    "mttr_s",
    "mtbf_s",
    "budget_s",
    "budget_left_s",
    "budget_used_ratio",
    "forecast",
)
INCIDENT_COLUMNS = (
    *KEY,
    "number",
    "start_ms",
    "end_ms",
    "duration_s",
    "bad_s",
    "unknown_s",
    "cause",
    "open",
    "max_lag_ms",
    "max_lag_bytes",
)
EVENT_COLUMNS = ("cluster", "broker", "broker_id", "ts", "kind", "text")
BAD_LINE_COLUMNS = ("reason", "lines", "files", "example_file", "example_text")
MINUTE_COLUMNS = (*KEY, "minute", "good_ms", "bad_ms", "unknown_ms", "lag_ms_max", "msgs_in")
HOUR_COLUMNS = (*KEY, "hour", "good_ms", "bad_ms", "unknown_ms", "lag_ms_max")
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
)


class ReportDataError(ValueError):
    """The tables given for a report do not have what docs/sla_report.md says."""


@dataclass(frozen=True)
class ReportData:
    """One date's results. Further columns of rows are allowed and not looked at.

    `date` is YYYY-MM-DD (UTC), the window [w0_ms, w1_ms) epoch ms, `verdict` one of EXIT_CODES.
    - `replica_days`, `group_days`, `windows` (7 and 30 days), `incidents`, `events`: every row of
      the date. A plotted replica's day also has `lag_ms_hist` (bucket -> ms); others may lack it.
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
    incidents: Sequence[Row] = ()
    events: Sequence[Row] = ()
    bad_lines: Sequence[Row] = ()
    minutes: Sequence[Row] = ()
    hours: Sequence[Row] = ()
    days: Sequence[Row] = ()
    objectives: Sequence[Row] = ()

    def __post_init__(self) -> None:
        if self.verdict not in EXIT_CODES:
            raise ReportDataError(f"verdict {self.verdict!r} is none of {', '.join(EXIT_CODES)}")
        if self.w1_ms <= self.w0_ms:
            raise ReportDataError(f"window [{self.w0_ms}, {self.w1_ms}) of {self.date} is empty")
        for table, columns in _REQUIRED.items():
            for row in getattr(self, table):
                if missing := [name for name in columns if name not in row]:
                    raise ReportDataError(f"a row of {table} lacks {', '.join(missing)}")

    @property
    def exit_code(self) -> int:
        """0 met, 1 breached, 2 insufficient data."""
        return EXIT_CODES[self.verdict]

    @property
    def revision(self) -> int:
        """How often this date's result was written with a change; above 1 it is a revised one."""
        return max((int(row["revision"] or 1) for row in self.replica_days), default=1)

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
    "incidents": INCIDENT_COLUMNS,
    "events": EVENT_COLUMNS,
    "bad_lines": BAD_LINE_COLUMNS,
    "minutes": MINUTE_COLUMNS,
    "hours": HOUR_COLUMNS,
    "days": DAY_COLUMNS,
    "objectives": OBJECTIVE_COLUMNS,
}


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
