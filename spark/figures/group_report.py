"""One broker group's report: every row of every table that is about the group alone.

Runs in the executors: pure functions from the group's lines and stored rows to rows. Names the
stages and hands values from one to the next; the rules are in docs/sla_report.md.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spark.config.objectives import Objective, SlaConfig, is_named_by
from spark.dumps.dump_line import FileLines
from spark.figures.calendar_windows import calendar_windows
from spark.figures.consumer_lag import Lags, consumer_lags
from spark.figures.elections import elections
from spark.figures.events import events
from spark.figures.group_availability import group_availability
from spark.figures.group_day import GroupFigures, Row, group_columns, metadata_columns
from spark.figures.lag_criteria import judged_rows
from spark.figures.replica_day import ReplicaDay
from spark.figures.replica_names import (
    MOST_REPLICAS,
    KnownReplica,
    join_names,
    known_replicas,
)
from spark.figures.replica_time import Asked, replica_time
from spark.figures.report_context import Context
from spark.figures.report_data import INSUFFICIENT
from spark.figures.result_tables import METADATA_TYPE, TABLES, WINDOW_METADATA_TYPE
from spark.figures.revisions import Revision
from spark.figures.sample_stream import GroupSamples, read_samples
from spark.figures.spells import times_as_leader
from spark.figures.stored_minutes import StoredMinutes
from spark.figures.time_pieces import ReplicaTime
from spark.figures.two_masters import joined
from spark.figures.verdicts import (
    budget_columns,
    budget_s,
    burn_rates,
    burnt_minutes,
    judged,
    worst_of,
)
from spark.figures.windows import group_windows, replica_windows
from spark.vocabulary import HOUR_MS, LARGEST, LARGEST_INT, REPLICAS_LEFT_OUT

Rows = list[tuple[Any, ...]]
Stored = Mapping[str, Sequence[Mapping[str, Any]]]

OF_GROUPS: Final = (
    *("replica_days", "group_days", "group_availability", "consumer_lag"),
    *("windows", "calendar_windows", "group_windows"),
    *("incidents", "events", "elections", "minutes", "hours", "bad_lines"),
)
"""The tables that this module fills."""
_SHOWN_NAME: Final = 200
"""Characters of a name that somebody may have made up."""


def group_rows(
    group: tuple[str, str],
    files: Iterable[FileLines],
    stored: Stored,
    minutes: Iterable[StoredMinutes],
    context: Context,
) -> Iterator[tuple[str, Rows]]:
    """Tables, each with rows in the order of its columns (spark/figures/result_tables.py), without
    `dt`; that of minutes comes for each replica by itself.

    `stored`: rows with `dt` of "replica_days" and "group_days" of the dates that the windows and
    the last results reach, D's own included, and of "hours" of the dates in which calendar periods
    begin. `minutes`: those with bad time of the three days before D.
    """
    with _no_collector():
        date = str(context.day.date)
        is_known = any(row["dt"] < date for row in stored["replica_days"])
        samples = read_samples(files, context.day, is_known=is_known)
        yield from _GroupReport(group, samples, stored, minutes, context).tables()


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """A day of a group is a million objects in no circle: looking for circles among them again and
    again is a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _GroupReport:
    """One group; used once."""

    def __init__(
        self,
        group: tuple[str, str],
        samples: GroupSamples,
        stored: Stored,
        minutes: Iterable[StoredMinutes],
        context: Context,
    ) -> None:
        self._group: Final = group
        self._key: Final[Row] = {"cluster": group[0], "broker": group[1]}
        self._samples: Final = samples
        self._stored: Final = stored
        self._context: Final = context
        self._day: Final = context.day
        self._date: Final = str(context.day.date)
        samples.named = join_names(group, samples.masters)
        self._figures: Final = GroupFigures(samples, context.day)
        self._tables: Final[dict[str, Rows]] = {name: [] for name in OF_GROUPS}
        self._bad_minutes: Final[dict[str, list[StoredMinutes]]] = {}
        for each in minutes:
            self._bad_minutes.setdefault(each.replica, []).append(each)
        led = samples.masters.samples if samples.has_members else ()
        self._leading: Final = times_as_leader(group, led)
        self._untold: list[str] = []
        """Names of replicas that are not reported."""
        self._hours: Final[dict[str, list[Row]]] = {}
        """Replica -> its rows of `hours` of D."""

    def tables(self) -> Iterator[tuple[str, Rows]]:
        """All rows of the group."""
        self._tables["bad_lines"] = [tuple(row) for row in self._samples.bad]
        self._tables["events"] = [(*self._group, *row) for row in events(self._samples, self._day)]
        elected = elections(self._samples, self._day)
        self._put("elections", (self._key | row for row in elected))
        group_row = self._key | group_columns(self._figures)
        group_row = dict.fromkeys(TABLES["group_days"]) | group_row
        revision = Revision(self._own_rows(), is_reported=self._context.is_reported)
        days, windows = [], []
        times = self._times()
        availability = self._availability(times)
        lags = consumer_lags(self._samples.masters, self._day)
        self._put("consumer_lag", self._judged_lags(lags, times))
        for name, (objective, time) in times.items():
            of_day = ReplicaDay(self._figures, name, time)
            row = self._replica_day(
                name,
                of_day,
                objective,
                group_row,
                (availability.get(objective.name), elected, lags),
            )
            yield "minutes", [(*self._group, name, *each) for each in of_day.minute_rows()]
            row |= revision.columns(row)
            days.append(row)
            windows += self._replica_windows(row, objective)
            self._put("calendar_windows", self._calendar_windows(row, objective))
        self._put("replica_days", days)
        self._put("windows", windows)
        if days or group_row["samples"]:
            others = [INSUFFICIENT] if self._untold else []
            group_row["verdict"] = worst_of([*(row["verdict"] for row in days), *others])
            group_row["revision"] = max((row["revision"] for row in days), default=1)
            self._put("group_days", [group_row])
            of_days = [*self._before("group_days"), group_row | {"dt": self._date}]
            lengths = self._context.sla.windows
            self._put("group_windows", group_windows(of_days, windows, self._date, lengths))
        yield from ((table, rows) for table, rows in self._tables.items() if rows)

    def _put(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._tables[table] += [row_tuple(table, row) for row in rows]

    def _own_rows(self) -> list[Mapping[str, Any]]:
        return [row for row in self._stored["replica_days"] if row["dt"] == self._date]

    def _before(self, table: str) -> list[Mapping[str, Any]]:
        return [row for row in self._stored.get(table, ()) if row["dt"] < self._date]

    def _times(self) -> dict[str, tuple[Objective, ReplicaTime]]:
        """Of each replica, by its name."""
        found = {}
        replicas, self._untold = known_replicas(
            self._group, self._samples, self._stored, self._context
        )
        if self._untold:
            self._tables["bad_lines"].append(self._left_out())
        for name, known in replicas:
            objective = objective_of(self._context.sla, (*self._group, name))
            time = self._time(name, known, objective)
            if not time.is_unborn:
                found[name] = objective, time
        return found

    def _left_out(self) -> tuple[str, str, str]:
        """A row of table bad_lines: that some replicas are not reported."""
        count = MOST_REPLICAS + len(self._untold)
        return (
            "/".join(self._group),
            f"{REPLICAS_LEFT_OUT}: a group has at most {MOST_REPLICAS:,}, and others are not looked"
            " at; stop what names them, or set them down as `retired` in sla.yaml",
            f"{count:,} replicas, of which {MOST_REPLICAS:,} are reported; one of the others:"
            f" {self._untold[0][:_SHOWN_NAME]}",
        )

    def _availability(self, times: Mapping[str, tuple[Objective, ReplicaTime]]) -> dict[str, Row]:
        """Objective -> its row of group_availability."""
        found = {}
        laid_out = {name: time for name, (_, time) in times.items()}
        for objective in {each.name: each for each, _ in times.values()}.values():
            row = group_availability(objective, laid_out, self._day, len(self._untold))
            if row is not None:
                found[objective.name] = row
        self._put("group_availability", (self._key | row for row in found.values()))
        return found

    def _judged_lags(
        self, lags: Lags, times: Mapping[str, tuple[Objective, ReplicaTime]]
    ) -> Iterator[Row]:
        """Rows of consumer_lag: by the promises of all objectives of the group."""
        objectives = {objective.name: objective for objective, _ in times.values()}
        for row, found in zip(lags.rows, judged_rows(lags.rows, objectives.values()), strict=True):
            verdict = worst_of(each.verdict for each in found) if found else None
            reasons = [each.text for each in found]
            yield self._key | row | {"verdict": verdict, "reasons": reasons}

    def _replica_day(
        self,
        name: str,
        of_day: ReplicaDay,
        objective: Objective,
        group_row: Row,
        of_group: tuple[Row | None, Sequence[Row], Lags],
    ) -> Row:
        """of_group: the row of group_availability of its objective, the elections, and how consumer
        groups lagged."""
        row = {**self._key, "replica": name, "objective": objective.name, **of_day.columns()}
        row |= of_day.lag_p99_columns(objective.lag_p99_seconds)
        row["metadata"] = self._metadata(name)
        ended, count = row["incidents_ended"], row["incidents"]
        row["mttr_s"] = row["incident_ended_s"] / ended if ended else None
        row["mtbf_s"] = row["good_s"] / count if count else None
        budget = budget_s(objective.availability_percent, row["window_s"] - row["excluded_s"])
        row |= budget_columns(budget, row["bad_s"])
        today = burnt_minutes(self._figures.first_minute, (times[1] for times in of_day.minutes))
        before = (pair for each in self._bad_minutes.get(name, ()) for pair in each.pairs())
        row |= burn_rates(today, before, objective.availability_percent)
        row["verdict"], row["reasons"] = judged(row, objective, group_row, *of_group)
        self._hours[name] = of_day.hours
        self._put("hours", (self._key | {"replica": name} | each for each in of_day.hours))
        self._put("incidents", (self._key | {"replica": name} | each for each in of_day.incidents))
        return row

    def _time(self, name: str, known: KnownReplica, objective: Objective) -> ReplicaTime:
        return replica_time(
            self._samples.masters,
            Asked(
                replica=name,
                limit_ms=objective.lag_seconds * 1000,
                known_ms=known.known_ms,
                unnamed_since=known.unnamed_since,
                copy_since_ms=known.copy_since_ms,
                copy_ms=round(objective.first_copy_hours * HOUR_MS),
                maintenance=[
                    *maintenance_of(self._context, (*self._group, name)),
                    *self._leading.get(name, ()),
                ],
                doubted=joined(self._figures.overlaps),
            ),
            self._day,
        )

    def _metadata(self, replica: str) -> list[Row]:
        """Of the slave's own samples, if it has any."""
        prefix, _, number = replica.rpartition(":")
        if prefix != self._group[1] or not number.isdecimal():
            return []
        slave = self._samples.slaves.get(int(number))
        ancestry = self._figures.ancestry
        is_its_name = slave is not None and str(int(number)) == number
        return (
            metadata_columns(slave, ancestry, self._day)
            if slave is not None and is_its_name
            else []
        )

    def _replica_windows(self, row: Row, objective: Objective) -> list[Row]:
        before = [day for day in self._before("replica_days") if day["replica"] == row["replica"]]
        days = [*before, row | {"dt": self._date}]
        begun = min([*self._context.result_dates[:1], self._date])
        return replica_windows(days, objective, self._date, self._context.sla.windows, begun)

    def _calendar_windows(self, row: Row, objective: Objective) -> Iterator[Row]:
        if not self._context.periods:
            return
        key = self._key | {"replica": row["replica"]}
        days = [day for day in self._before("replica_days") if day["replica"] == row["replica"]]
        hours = [each for each in self._before("hours") if each["replica"] == row["replica"]]
        hours += self._hours[row["replica"]]
        for window in calendar_windows(
            [*days, row | {"dt": self._date}],
            hours,
            objective,
            self._day,
            self._context.periods,
        ):
            yield key | window


def objective_of(sla: SlaConfig, key: tuple[str, str, str]) -> Objective:
    """The first objective whose patterns match; the last one matches everything."""
    return next(each for each in sla.objectives if is_named_by(each.patterns, key))


def maintenance_of(context: Context, key: tuple[str, str, str]) -> list[tuple[int, int, str]]:
    """(from_ms, to_ms, reason) of what sla.yaml excludes for a replica in the window."""
    w0_ms, w1_ms = context.day.w0_ms, context.day.w1_ms
    return [
        (from_ms, to_ms, exclusion.reason)
        for exclusion in context.sla.exclusions
        if is_named_by(exclusion.patterns, key)
        for from_ms, to_ms in exclusion.intervals(w0_ms, w1_ms)
    ]


def _bigint(value: Any) -> int:
    """A sum that no bigint holds becomes the largest that one does: Spark would store null instead,
    over which the reports of the days behind would fall."""
    return max(-LARGEST, min(int(value), LARGEST))


def _int(value: Any) -> int:
    """The same of an id that somebody made up."""
    return max(-LARGEST_INT, min(int(value), LARGEST_INT))


def _bigints(values: Iterable[Any]) -> list[int]:
    return [_bigint(value) for value in values]


def _metadata_rows(rows: Iterable[Row]) -> list[Row]:
    return [
        {name: _bigint(value) if isinstance(value, int) else value for name, value in row.items()}
        for row in rows
    ]


_CASTS: Final[dict[str, Callable[[Any], Any]]] = {
    "double": float,
    "bigint": _bigint,
    "int": _int,
    "array<bigint>": _bigints,
    METADATA_TYPE: _metadata_rows,
    WINDOW_METADATA_TYPE: _metadata_rows,
}
_CASTS_OF: Final = {
    table: [(name, _CASTS.get(kind)) for name, kind in columns.items()]
    for table, columns in TABLES.items()
}


def row_tuple(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The columns of a table in order, each of its type; a number that is whole is a double where
    the table says so."""
    return tuple(
        row[name] if cast is None or row[name] is None else cast(row[name])
        for name, cast in _CASTS_OF[table]
    )
