"""The last 7 and 30 days (or as sla.yaml says) of each replica and group of D, and D's clusters.

Plain functions over stored days, never over samples; windows are made in the executors, clusters on
the driver. Sums are sums of the days' sums, percentiles come from the days' histograms. Days
without a stored result are unknown time. Rows are dictionaries by column
(spark/figures/result_tables.py). Knows docs/sla_report.md ("Several days"), no dump and no path.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.config.objectives import Objective
from spark.figures.cluster_calendar import cluster_calendar, verdict_counts
from spark.figures.criteria import availability_verdict, is_covered
from spark.figures.distributions import (
    NANOSECONDS,
    ack_figures,
    merged_figures,
    send_ratio,
    sum_of_seconds,
    whole_ms,
    whole_ns,
)
from spark.figures.result_tables import PERCENTILES, SPANS_S, STATES
from spark.figures.verdicts import budget_columns, budget_s, waiting_groups, worst_of
from spark.vocabulary import DAY_MS, IS_MASTER, MINUTE_MS, SEND_ANSWERS, SYNC_RESULTS

Row = Mapping[str, Any]

DAY_S: Final = DAY_MS // 1000
_DAY_MINUTES: Final = DAY_MS // MINUTE_MS
_RATE_DAYS: Final = 7
"""The forecast takes the bad time of so many days."""
_LAST_DATE: Final = datetime.date(9999, 12, 31)
_LAGS: Final = ("lag_ms", "lag_bytes")
_EXPOSED: Final = ("unreplicated_bytes", "oldest_unreplicated_ms")
_KNOWN_STATES: Final = tuple(f"state_{name}_s" for name in STATES if name != "unknown")
_SYNC: Final = tuple(f"sync_{name}" for name in SYNC_RESULTS)
_SENDS: Final = tuple(f"sends_{name}" for name in SEND_ANSWERS)
_COUNTERS: Final = ("transferred_bytes", "reconnects", "rejected_acks")
_SAMPLE_COUNTS: Final = (
    *("expected", "received", "duplicates", "conflicts", "late", "out_of_order"),
)
_MINUTES: Final = ("minutes_good", "minutes_bad", "minutes_written", "minutes_written_good")
_GROUP_SUMS: Final = ("samples", *_SYNC, "msgs_in", "bytes_in", "restarts")
_REPLICA_SECONDS: Final = (
    *("window_s", "good_s", "bad_s", "unknown_s", "excluded_s"),
    *("incident_s", "incident_ended_s"),
    *(f"state_{name}_s" for name in STATES),
)
_REPLICA_COUNTS: Final = (
    *("minutes_good", "minutes_bad", "minutes_unknown", "minutes_written"),
    *("minutes_written_good", "incidents", "incidents_ended", *_COUNTERS),
)


def replica_windows(
    days: Sequence[Row],
    objective: Objective,
    date: str,
    lengths: Sequence[int],
    begun: str | None = None,
) -> list[dict[str, Any]]:
    """Rows of table `windows` of one replica, one for each length in days.

    `days`: its rows of replica_days with `dt`, D's own among them; those beyond a length are left
    out of it. `begun`: the date of the first result of all; a window that reaches further back is
    judged from then on.
    """
    today = next(row for row in days if row["dt"] == date)
    longest = max(lengths)
    return [
        _replica_window(
            _within(days, date, length), objective, today, _span(days, date, length, begun), longest
        )
        for length in lengths
    ]


@dataclass(frozen=True, slots=True)
class _Span:
    """A window of `days` that is judged over the last `judged_days` of them: of a window that
    reaches back behind the first result those since `begun`, its date, less `silent_ms`: what was
    unknown of that date before its first line."""

    days: int
    judged_days: int
    begun: str | None = None
    silent_ms: int = 0


def _span(days: Iterable[Row], date: str, length: int, begun: str | None) -> _Span:
    last = datetime.date.fromisoformat(date)
    if begun is None or begun < str(last - datetime.timedelta(days=length - 1)):
        return _Span(length, length)
    first = next((row for row in days if row["dt"] == begun), None)
    silent_ms = whole_ms(first["leading_unknown_s"] or 0.0) if first is not None else 0
    if first is not None and silent_ms >= whole_ms(first["window_s"]):
        silent_ms = 0  # nothing of it is known: there is no first line to begin with
    judged_days = (last - datetime.date.fromisoformat(begun)).days + 1
    # A whole window of this length has nothing before it that would be left out.
    is_whole = judged_days == length and not silent_ms
    return _Span(length, judged_days, None if is_whole else begun, silent_ms)


def _within(days: Iterable[Row], date: str, length: int) -> list[Row]:
    """Those of the last `length` days, oldest first."""
    last = datetime.date.fromisoformat(date)
    first = str(last - datetime.timedelta(days=length - 1))
    return sorted((row for row in days if first <= row["dt"] <= date), key=lambda row: row["dt"])


def _replica_window(
    days: Sequence[Row], objective: Objective, today: Row, span: _Span, longest: int
) -> dict[str, Any]:
    # D itself may be a part of a day; whatever is not stored of the days before is unknown.
    whole_s = (span.judged_days - 1) * DAY_S + today["window_s"]
    length_s = max(0, whole_ms(whole_s) - span.silent_ms) / 1000
    row = _sums(days, span.judged_days)
    row["window_s"] = length_s
    row["begun"] = span.begun
    unknown = _unknown_minutes(days, today, span.judged_days)
    row["minutes_unknown"] = max(0, unknown - span.silent_ms // MINUTE_MS)
    row |= _shares(row)
    row["unknown_s"] = _rest_s(length_s, row["excluded_s"], row["good_s"], row["bad_s"])
    # A day's states may be longer than the day: its unknown time is 0 then, and no less.
    stored = sum(whole_ms(day["window_s"]) - whole_ms(day["state_unknown_s"]) for day in days)
    row["state_unknown_s"] = max(0, whole_ms(length_s) - stored) / 1000
    for measure in _LAGS:
        row |= merged_figures(days, measure, PERCENTILES)
    budget = budget_s(objective.availability_percent, length_s - row["excluded_s"])
    row |= budget_columns(budget, row["bad_s"])
    row["verdict"] = availability_verdict(
        row["bad_s"],
        row["unknown_s"],
        budget,
        # Where all is excluded nothing was promised.
        is_covered=row["coverage"] is None
        or is_covered(row["coverage"], objective.min_coverage_percent),
    )
    row["forecast"] = _forecast(row, days, today["dt"]) if span.days == longest else None
    row["metadata"] = _metadata(days)
    return (
        row | {name: today[name] for name in ("cluster", "broker", "replica")} | {"days": span.days}
    )


def _rest_s(length_s: float, *parts_s: float) -> float:
    return max(0, whole_ms(length_s) - sum(map(whole_ms, parts_s))) / 1000


def _sums(days: Sequence[Row], length: int) -> dict[str, Any]:
    largest = ("clock_skew_ms", "catch_up_longest_s", *(f"burn_{name}" for name in SPANS_S))
    seconds = ("good_s", "bad_s", "excluded_s", *_KNOWN_STATES, "catch_up_s")
    counts = (*_SAMPLE_COUNTS, *_MINUTES, *_COUNTERS, "catch_up_bytes")
    gap_s = _largest(days, "longest_gap_s")
    if len(days) < length:  # a day without a result; gaps are not joined over midnight
        gap_s = max(gap_s or 0.0, float(DAY_S))
    row: dict[str, Any] = {
        "days_with_data": sum(row["good_s"] + row["bad_s"] > 0 for row in days),
        **{name: sum_of_seconds(day.get(name) for day in days) for name in seconds},
        **{name: sum(day[name] or 0 for day in days) for name in counts},
        **{name: _largest(days, name) for name in largest},
        "longest_gap_s": gap_s,
    }
    row["catch_up_mb_s"] = (
        row["catch_up_bytes"] / 1_000_000 / row["catch_up_s"] if row["catch_up_s"] > 0 else None
    )
    return row | _incident_sums(days)


def _largest(rows: Iterable[Row], name: str) -> Any:
    return max((row[name] for row in rows if row[name] is not None), default=None)


def _unknown_minutes(days: Sequence[Row], today: Row, length: int) -> int:
    """Of the stored days, of what those were short of a day, and of the days that are missing."""
    unknown: int = today["minutes_unknown"] or 0
    for row in days:
        if row["dt"] != today["dt"]:
            not_asked_ms = DAY_MS - whole_ms(row["window_s"])
            unknown += (row["minutes_unknown"] or 0) + not_asked_ms // MINUTE_MS
    return unknown + (length - len(days)) * _DAY_MINUTES


def _shares(row: Row) -> dict[str, Any]:
    """What is a part of the sums, or a mean: of a replica's window, and of a cluster."""
    judged_ms = whole_ms(row["good_s"]) + whole_ms(row["bad_s"])
    asked_ms = whole_ms(row["window_s"]) - whole_ms(row["excluded_s"])
    ended, count = row["incidents_ended"], row["incidents"]
    return {
        "coverage": judged_ms / asked_ms if asked_ms > 0 else None,
        "availability": whole_ms(row["good_s"]) / judged_ms if judged_ms else None,
        "mttr_s": row["incident_ended_s"] / ended if ended else None,
        "mtbf_s": row["good_s"] / count if count else None,
    }


def _forecast(row: Row, days: Sequence[Row], date: str) -> str | None:
    """When the budget is used up if the last 7 days go on: None, `exhausted`, a date."""
    left_s, recent = row["budget_left_s"], _within(days, date, _RATE_DAYS)
    if left_s <= 0 and row["bad_s"] > 0:
        return "exhausted"
    if row["begun"] is not None:
        return None  # its budget grows with each day
    known_ms = sum(whole_ms(day["good_s"]) + whole_ms(day["bad_s"]) for day in recent)
    bad_s = sum_of_seconds(day["bad_s"] for day in recent)
    if known_ms < DAY_MS or bad_s <= 0:
        return None
    last = datetime.date.fromisoformat(date)
    count = math.floor(left_s / (bad_s / (known_ms / DAY_MS)))
    return str(last + datetime.timedelta(days=count)) if count <= (_LAST_DATE - last).days else None


def _metadata(days: Iterable[Row]) -> list[dict[str, Any]]:
    """How old each kind of metadata was at worst; a p99 has no histogram to come from."""
    kinds: dict[str, list[Row]] = {}
    for row in days:
        for kind in row["metadata"] or []:
            kinds.setdefault(kind["kind"], []).append(kind)
    return [
        {
            "kind": kind,
            "max_age_ms": _largest(kinds[kind], "max_age_ms"),
            "failures": sum(each["failures"] for each in kinds[kind]),
            "covered_s": sum_of_seconds(each["covered_s"] for each in kinds[kind]),
        }
        for kind in sorted(kinds)
    ]


# -- incidents over midnight -----------------------------------------------------------------


@dataclass(slots=True)
class _Incidents:
    """Incidents up to a day; `start_ms`, `end_ms` of the one that is open."""

    count: int = 0
    ended: int = 0
    ended_ms: int = 0
    all_ms: int = 0
    longest_ms: int = 0
    start_ms: int | None = None
    end_ms: int = 0

    def add(self, day: Row) -> None:
        """A day's incidents: one that continues over midnight counts once."""
        carried_ms, until_ms = day["carried_start_ms"], day["carried_end_ms"]
        has_led = any(each["reason"] == IS_MASTER for each in day["exclusions"] or ())
        is_silent = not (day["good_s"] or day["incidents"] or has_led)
        self.count += day["incidents"] or 0
        self.ended += day["incidents_ended"] or 0
        self.ended_ms += whole_ms(day["incident_ended_s"])
        self.all_ms += whole_ms(day["incident_s"])
        self.longest_ms = max(self.longest_ms, whole_ms(day["longest_incident_s"]))
        if self.start_ms is not None and carried_ms is not None:
            joined_ms = until_ms - self.start_ms
            self.count -= 1
            self.all_ms += carried_ms - self.end_ms
            self.longest_ms = max(self.longest_ms, joined_ms)
            if day["open_start_ms"] == carried_ms:  # it continues
                self.end_ms = day["open_end_ms"]
                return
            self.ended_ms += joined_ms - (until_ms - carried_ms)
        elif self.start_ms is not None and not is_silent:
            # Good time came before the next incident: it ended where its bad time ended.
            self.ended += 1
            self.ended_ms += self.end_ms - self.start_ms
        if not is_silent:
            self.start_ms, self.end_ms = day["open_start_ms"], day["open_end_ms"] or 0


def _incident_sums(days: Iterable[Row]) -> dict[str, Any]:
    found = _Incidents()
    for day in days:
        found.add(day)
    return {
        "incidents": found.count,
        "incidents_ended": found.ended,
        "incident_s": found.all_ms / 1000,
        "incident_ended_s": found.ended_ms / 1000,
        "longest_incident_s": found.longest_ms / 1000,
    }


# -- groups and clusters ---------------------------------------------------------------------


def group_windows(
    days: Sequence[Row], of_replicas: Iterable[Row], date: str, lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows of table `group_windows` of one group. `days`: its rows of group_days with `dt`;
    `of_replicas`: what `replica_windows` gave for its replicas."""
    today = next(row for row in days if row["dt"] == date)
    verdicts = [(row["days"], row["verdict"]) for row in of_replicas]
    return [
        {
            "cluster": today["cluster"],
            "broker": today["broker"],
            "days": length,
            "days_with_data": sum((row["samples"] or 0) > 0 for row in _within(days, date, length)),
            "verdict": worst_of(verdict for each, verdict in verdicts if each == length),
            **_group_sums(_within(days, date, length)),
            **_exposed(_within(days, date, length)),
        }
        for length in lengths
    ]


def _exposed(days: Sequence[Row]) -> dict[str, Any]:
    """Largest and p99 of what was at risk; histograms are not stored for windows."""
    figures: dict[str, Any] = {}
    for measure in _EXPOSED:
        figures |= merged_figures(days, measure, {"p99": PERCENTILES["p99"]})
        del figures[f"{measure}_hist"]
    return figures


def _group_sums(rows: Sequence[Row]) -> dict[str, Any]:
    row: dict[str, Any] = {name: _sum(rows, name) for name in _GROUP_SUMS}
    row |= {name: _sum_of_all(rows, name) for name in _SENDS}
    row |= {f"{measure}_max": _largest(rows, f"{measure}_max") for measure in _EXPOSED}
    exposure = [each["exposure_byte_s"] for each in rows if each["exposure_byte_s"] is not None]
    row["exposure_byte_s"] = sum(map(whole_ms, exposure)) / 1000 if exposure else None
    latency = [each["ack_sum_s"] for each in rows if each["ack_sum_s"] is not None]
    row["ack_sum_s"] = sum(map(whole_ns, latency)) / NANOSECONDS if latency else None
    buckets: dict[float, int] = {}
    for each in rows:
        if each["ack_le"] is not None:
            for bound, count in zip((*each["ack_le"], math.inf), each["ack_counts"], strict=True):
                buckets[bound] = buckets.get(bound, 0) + count
    return row | ack_figures(buckets) | {"sync_ok_ratio": send_ratio(row)}


def _sum_of_all(rows: Iterable[Row], name: str) -> int | None:
    """None also where one of those with samples does not tell: the rest would pass for all."""
    told = [row[name] for row in rows if row["samples"]]
    return None if not told or None in told else sum(told)


def _sum(rows: Iterable[Row], name: str) -> int | None:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def clusters(
    replicas: Sequence[Row],
    of_replicas: Sequence[Row],
    groups: Sequence[Row],
    of_groups: Sequence[Row],
    calendar: Sequence[Row] = (),
) -> list[dict[str, Any]]:
    """Rows of table `clusters`: one for each cluster and number of days, 1 among them.

    `replicas` and `groups`: D's rows of replica_days and group_days, `of_replicas` and
    `of_groups`: those of windows and group_windows; replicas' with their histograms. `calendar`:
    those of calendar_windows.
    """
    every = _by_cluster([*({**row, "days": 1} for row in replicas), *of_replicas])
    members = _by_cluster([*({**row, "days": 1} for row in groups), *of_groups])
    waiting = {row["cluster"] for row in waiting_groups(groups, replicas)}
    return [
        _cluster(cluster, days, members[cluster, days], every.get((cluster, days), []), waiting)
        | {"calendar": cluster_calendar(cluster, calendar, waiting) if days == 1 else None}
        for cluster, days in sorted(members)
    ]


def _by_cluster(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["cluster"], row["days"]), []).append(row)
    return found


def _cluster(
    cluster: str, days: int, groups: Sequence[Row], replicas: Sequence[Row], waiting: set[str]
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "cluster": cluster,
        "days": days,
        "groups": len(groups),
        "replicas": len(replicas),
        **verdict_counts(replicas, is_waiting=cluster in waiting),
        **{name: sum_of_seconds(each[name] for each in replicas) for name in _REPLICA_SECONDS},
        **{name: sum(each[name] or 0 for each in replicas) for name in _REPLICA_COUNTS},
        "longest_incident_s": _largest(replicas, "longest_incident_s") or 0.0,
        **_group_sums(groups),
    }
    for measure in _LAGS:
        row |= merged_figures(replicas, measure, PERCENTILES)
    known = row["minutes_good"] + row["minutes_bad"]
    row["minutes_good_ratio"] = row["minutes_good"] / known if known else None
    return row | _shares(row)
