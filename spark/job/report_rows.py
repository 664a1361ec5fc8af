"""Collects what one report shows: the date's rows as they were computed, and stored ones of the
days before.

The last stage of the pipeline, on the driver. Whatever has a row for each minute or hour is asked
for the plotted replicas only. Computes nothing that is not a count of rows.
"""

from __future__ import annotations

import datetime
import heapq
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as fn

from spark.config.exclusion_log import exclusions_before, remarks_on
from spark.config.objectives import SlaConfig
from spark.figures.report_data import DAY_COLUMNS, ReplicaKey, ReportData, Row, key_of, plotted_keys
from spark.figures.result_tables import TABLES
from spark.figures.verdicts import worst_of
from spark.job.report_job import GroupTables
from spark.job.results import Results
from spark.reported_day import Day
from spark.vocabulary import REPLICA

_HISTORY_DAYS: Final = 30
_MOST_ROWS: Final = 100_000
"""Of incidents and of events: more than a person reads."""


def report_data(
    results: Results,
    groups: GroupTables,
    of_several: Mapping[str, Sequence[Row]],
    day: Day,
    sla: SlaConfig,
    past_left_out: Sequence[str],
    since_ms: int,
) -> ReportData:
    """The report of a date whose tables are in place. `past_left_out`: dates before it of which
    files were left out; `since_ms`: when the longest of its windows and periods begins."""
    date = str(day.date)
    replica_days = in_order(groups.rows("replica_days"))
    plotted = set(plotted_keys(replica_days))
    before = _Before(results, dates_until(day.date, _HISTORY_DAYS)[1:], plotted)
    keys = {key[:2] for key in plotted}
    hours = [*before.rows("hours", list(TABLES["hours"])), *of_some(groups.rows("hours"), plotted)]
    today = ({**row, "dt": date} for row in of_some(replica_days, plotted))
    days = [*before.rows("replica_days", list(DAY_COLUMNS)), *today]
    used = {row["objective"] for row in replica_days}
    return ReportData(
        date=date,
        w0_ms=day.w0_ms,
        w1_ms=day.w1_ms,
        verdict=worst_of(row["verdict"] for row in of_several["reports"]),
        replica_days=[
            row if key_of(row) in plotted else _without_histograms(row) for row in replica_days
        ],
        group_days=_shown(groups, "group_days"),
        windows=_shown(groups, "windows"),
        calendar_windows=_shown(groups, "calendar_windows"),
        group_windows=_shown(groups, "group_windows"),
        clusters=in_order(of_several["clusters"]),
        incidents=first_rows(groups.rows("incidents"), "-bad_s", "start_ms", *REPLICA),
        events=first_rows(groups.rows("events"), "ts", *TABLES["events"]),
        elections=in_order(groups.rows("elections")),
        consumer_lag=in_order(groups.rows("consumer_lag")),
        bad_lines=groups.bad_lines(),
        minutes=in_order(of_some(groups.long_rows("minutes", keys), plotted)),
        hours=in_order(hours),
        days=in_order({name: row[name] for name in DAY_COLUMNS} for row in days),
        objectives=[asdict(item) for item in sla.objectives if item.name in used],
        window_days=sla.windows,
        totals={table: groups.count(table) for table in ("incidents", "events")},
        remarks=remarks_on(sla.log, day.w0_ms, day.w1_ms),
        past_remarks=exclusions_before(sla.log, day.w0_ms, since_ms),
        exit_on=sla.exit_policy,
        budget_policy=sla.budget_policy,
        past_left_out=past_left_out,
    )


class _Before:
    """Stored rows of some replicas, of some dates."""

    def __init__(
        self, results: Results, dates: Sequence[str], replicas: Iterable[ReplicaKey]
    ) -> None:
        self._results = results
        self._dates = dates
        self._replicas = sorted(replicas)

    def rows(self, table: str, columns: list[str]) -> list[Row]:
        """Their rows, with these columns."""
        frame = self._results.read(table, self._dates)
        if frame is None or not self._replicas:
            return []
        found = frame.select(*columns).where(is_one_of(self._replicas)).collect()
        return [row.asDict(recursive=True) for row in found]


def dates_until(date: datetime.date, count: int) -> list[str]:
    """The `count` dates that end with `date`."""
    return [str(date - datetime.timedelta(days=back)) for back in range(count)]


def dates_since(date: datetime.date, dates: Sequence[str]) -> list[str]:
    """The dates from the earliest of `dates` up to `date`; none without any."""
    if not dates:
        return []
    return dates_until(date, (date - datetime.date.fromisoformat(min(dates))).days + 1)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows of one table, in an order that does not depend on how they were computed."""
    found = list(rows)
    order = [name for name in _ORDER if found and name in found[0]]
    return sorted(found, key=lambda row: [_sortable(row[name]) for name in order])


_ORDER: Final = (
    *("cluster", "broker", "replica", "days", "from_ms", "dt", "number", "minute", "hour", "ts"),
    *("broker_id", "kind", "reason", "text", "consumer_group", "topic"),
)


def _sortable(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


def is_one_of(keys: Sequence[ReplicaKey]) -> Column:
    """Whether a row is about one of these few; a join would be a job more for every table."""
    names = (fn.struct(*map(fn.lit, key)) for key in keys)
    return fn.struct(*REPLICA).isin(*names)


def of_some(rows: Iterable[Row], replicas: Container[ReplicaKey]) -> list[Row]:
    """The rows that are about these replicas."""
    return [row for row in rows if key_of(row) in replicas]


def first_rows(rows: Iterable[Row], *order: str, count: int = _MOST_ROWS) -> list[Row]:
    """So many rows in a total order, always the same ones; they are then put in the table's order.
    `-name`: the largest first."""

    def key(row: Row) -> list[tuple[bool, Any]]:
        return [
            _sortable(-row[name[1:]]) if name.startswith("-") else _sortable(row[name])
            for name in order
        ]

    return in_order(heapq.nsmallest(count, rows, key=key))


def _shown(groups: GroupTables, table: str) -> list[Row]:
    return in_order(map(_without_histograms, groups.rows(table)))


def _without_histograms(row: Row) -> Row:
    return {name: value for name, value in row.items() if not name.endswith("_hist")}
