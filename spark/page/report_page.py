"""The report for people: one self-contained HTML page.

Called on the driver by spark/job/sla_report.py with the finished ReportData; gives bytes and opens
no file but its own templates. Users chose the names in it: the templates escape all of them, and
the page's policy allows no script, no request and no style but its own. It must not know Spark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment

from spark.figures import wording
from spark.figures.report_data import (
    MAX_PLOTTED,
    METADATA_COLUMNS,
    SEVERITY,
    ReplicaKey,
    ReportData,
    Row,
    finite,
    key_of,
    worst_first,
)
from spark.page.comparisons import days_in_words, sheets
from spark.page.consumers import shown_lags
from spark.page.group_plots import Lane, ack_histogram, incident_chart
from spark.page.headlines import Headline, day_headline, window_headlines
from spark.page.notices import excluded, excluded_kinds, notices
from spark.page.open_incidents import open_incidents
from spark.page.page_template import page_bytes, page_environment
from spark.page.plot_shapes import Plot
from spark.page.reasons import cause, why_day, why_window
from spark.page.replica_plots import ReplicaPlots, span_of
from spark.page.runbook import RUNBOOK, link
from spark.page.summary import (
    counts,
    ordered_bad_lines,
    ordered_elections,
    ordered_events,
    ordered_incidents,
)
from spark.vocabulary import GROUP, SYNC_RESULTS

MAX_ROWS = 200
"""Of each table; what is beyond is in the files beside the page."""


@dataclass(frozen=True)
class Part:
    """The first rows of a table; `more` are left out."""

    rows: Sequence[Any]
    more: int


def report_html(data: ReportData) -> bytes:
    """The page, UTF-8. Equal data give equal bytes."""
    return page_bytes(
        _environment(), "report.html.j2", ("report.css",), {"data": data, **_view(data)}
    )


@functools.cache
def _environment() -> Environment:
    return page_environment(
        {
            "lag": wording.lag,
            "size": wording.size,
            "per_cent": wording.per_cent,
            "used": wording.used,
            "rate": wording.rate,
            "excerpt": wording.excerpt,
            "sentence": wording.sentence,
            "cause": cause,
        },
        {"waited": _waited, "MAX_PLOTTED": MAX_PLOTTED},
    )


def _view(data: ReportData) -> dict[str, Any]:
    """What the templates show."""
    ordered = worst_first(data.replica_days)
    anchors = {key_of(row): f"replica-{i + 1}" for i, row in enumerate(ordered[:MAX_PLOTTED])}
    plots = ReplicaPlots(data)
    objectives = {row["name"]: row for row in data.objectives}
    groups = sorted(
        data.group_days, key=lambda row: (SEVERITY[row["verdict"]], row["cluster"], row["broker"])
    )
    windows = _windows(data)
    judged = window_headlines(data)
    lengths = tuple(data.window_days)
    return {
        "headlines": [(one, _how_many(one)) for one in (day_headline(data), *judged)],
        "open_now": open_incidents(data),
        "runbook_of": _runbook_links(data),
        "entries": [
            (name, entry)
            for name, entry in RUNBOOK.items()
            if any(row["cause"] == name for row in data.incidents)
        ],
        "window": _window(data),
        "counts": counts(data),
        "notices": notices(data, _window(data)),
        "whys": [
            ("Why", why_day(data, ordered)),
            *((f"Why, over {window.span}", why_window(window)) for window in judged),
        ],
        "tiles": _tiles(data),
        "key_of": key_of,
        "ended": lambda row: _how_it_ended(row, data.date),
        "still_open": {key_of(row) for row in data.incidents if row["open"]},
        "any_excluded": _any_excluded(data.replica_days),
        "windows_excluded": _any_excluded(data.windows),
        "periods_excluded": _any_excluded(data.calendar_windows),
        "excluded_kinds": excluded_kinds,
        "excluded": lambda row: excluded([row]),
        "anchors": anchors,
        "objectives": objectives,
        "moment": lambda epoch_ms: wording.moment(epoch_ms, data.date),
        "lengths": lengths,
        "lengths_in_words": days_in_words(lengths),
        "clusters": _part(_clusters(data)),
        "cluster_periods": _part(
            [(row, one) for row, *_ in _clusters(data) for one in row["calendar"] or ()]
        ),
        "replicas": _part(ordered),
        "details": [
            (row, sheets(row, windows.get(key_of(row), {}), lengths), plots.of(row))
            for row in ordered[:MAX_PLOTTED]
        ],
        "incidents": _part(ordered_incidents(data), data.total("incidents")),
        "incident_chart": _incident_chart(data, ordered),
        "groups": _part(_group_lengths(data, groups)),
        "ack_plots": [(row, _ack_plot(row)) for row in groups if sum(row["ack_counts"] or ())][
            :MAX_PLOTTED
        ],
        "catch_ups": _part([row for row in ordered if row["catch_up_s"]]),
        "metadata": _part(_metadata(ordered, windows, lengths)),
        "windows": _part(_windows_in_order(ordered, windows)),
        "calendar": _part(_calendar(data, ordered)),
        "events": _part(ordered_events(data), data.total("events")),
        "elections": _part(ordered_elections(data)),
        "election_totals": _election_totals(data),
        "consumers": _part(shown_lags(data)),
        "bad_lines": _part(ordered_bad_lines(data)),
        "remarks": _part(data.remarks),
        "past_remarks": _part(data.past_remarks),
    }


def _election_totals(data: ReportData) -> str:
    """How many there were, how long nobody was master, and what is not known of that."""
    rows = data.elections
    known = [seconds for row in rows if (seconds := finite(row["without_master_s"])) is not None]
    text = f"{wording.plural(len(rows), 'election', 'elections')}, {wording.duration(sum(known))}"
    text += " without a master in all"
    if len(known) < len(rows):
        text += f" (of {len(rows) - len(known)} nobody knows how long)"
    return f"{text}."


def _any_excluded(rows: Sequence[Row]) -> bool:
    return any(finite(row["excluded_s"]) for row in rows)


def _runbook_links(data: ReportData) -> Callable[[Row], str | None]:
    """The link of an incident's cause: into its objective's runbook, or the page's."""
    names = {key_of(row): row["objective"] for row in data.replica_days}
    urls = {row["name"]: row["runbook_url"] for row in data.objectives}

    def of(row: Row) -> str | None:
        return link(row["cause"], urls.get(names.get(key_of(row))))

    return of


def _window(data: ReportData) -> str:
    end = wording.moment(data.w1_ms, data.date)
    if data.w1_ms % 86_400_000 == 0:
        end = "24:00:00"
    return f"{wording.moment(data.w0_ms, data.date)} to {end} UTC"


def _part(rows: Sequence[Any], total: int | None = None) -> Part:
    """`total`: how many there are, where `rows` are not all of them."""
    shown = rows[:MAX_ROWS]
    return Part(shown, (len(rows) if total is None else total) - len(shown))


def _how_many(headline: Headline) -> str:
    if not headline.rows:
        return "no replica is known for this day"
    return headline.how_many


def _how_it_ended(row: Row, date: str) -> str:
    """Host and reason of the connection that ended, where the dumps have them."""
    peer, reason = row.get("peer"), row.get("disconnect_reason")
    if reason is None:
        return ""
    at = wording.moment(row.get("disconnect_ms"), date)
    host = f" to {wording.isolated(peer)}" if peer else ""
    return f" The connection{host} ended at {at}: {wording.excerpt(reason)}."


def _tiles(data: ReportData) -> list[tuple[str, str, str]]:
    """(label, figure, remark): the day at a glance."""
    rows = data.replica_days
    known = sum((finite(row["good_s"]) or 0) + (finite(row["bad_s"]) or 0) for row in rows)
    bad = sum(finite(row["bad_s"]) or 0 for row in rows)
    total = sum((finite(row["window_s"]) or 0) - (finite(row["excluded_s"]) or 0) for row in rows)
    longest = max((finite(row["duration_s"]) or 0 for row in data.incidents), default=None)
    return [
        ("Time known", wording.share(known / total if total else None), "of all replicas' time"),
        (
            "Availability",
            wording.share((known - bad) / known if known else None),
            "of the time known",
        ),
        (
            "Incidents",
            wording.count(data.total("incidents")),
            f"longest {wording.duration(longest)}",
        ),
        ("Lag, p99", wording.lag(_largest(rows, "lag_ms_p99")), "of the worst replica"),
        (
            "Unreplicated",
            wording.size(_largest(data.group_days, "unreplicated_bytes_max")),
            "at most, of one group",
        ),
        (
            "At risk for",
            wording.lag(_largest(data.group_days, "oldest_unreplicated_ms_max")),
            "the oldest record not copied",
        ),
    ]


def _waited(row: Row) -> float | None:
    """Sends of a group that had to wait for replicas; None when no answer is known."""
    known = [value for name in SYNC_RESULTS if (value := finite(row[f"sync_{name}"])) is not None]
    return sum(known) if known else None


def _largest(rows: Sequence[Row], column: str) -> float | None:
    known = [value for row in rows if (value := finite(row[column])) is not None]
    return max(known, default=None)


def _incident_chart(data: ReportData, ordered: Sequence[Row]) -> Plot | None:
    lanes: dict[ReplicaKey, list[tuple[int, int, str]]] = {}
    for row in ordered_incidents(data):
        lanes.setdefault(key_of(row), []).append((row["start_ms"], row["end_ms"], row["cause"]))
    shown = [key_of(row) for row in ordered if key_of(row) in lanes][:MAX_PLOTTED]
    if not shown:
        return None
    span = span_of(data)
    return incident_chart([Lane(_lane_label(key), lanes[key]) for key in shown], span)


def _lane_label(key: ReplicaKey) -> str:
    cluster, broker, replica = (wording.isolated(part) for part in key)
    return f"{replica} · {cluster} / {broker}"


def _ack_plot(row: Row) -> Plot:
    return ack_histogram(
        row["ack_le"],
        row["ack_counts"],
        [(label, finite(row[f"ack_{name}_s"])) for label, name in _ACK_QUANTILES],
    )


_ACK_QUANTILES = (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999"))


def _clusters(data: ReportData) -> list[tuple[Row, Sequence[Row | None], float | None]]:
    """Day, windows, and p99 of the replica that lags most; none where there is one group only."""
    if len(data.group_days) <= 1 and len({row["cluster"] for row in data.clusters}) <= 1:
        return []
    rows = {(row["cluster"], int(row["days"])): row for row in data.clusters}
    of_day = sorted(
        (row for row in data.clusters if row["days"] == 1),
        key=lambda row: (SEVERITY[row["verdict"]], row["cluster"]),
    )
    replicas: dict[str, list[Row]] = {}
    for row in data.replica_days:
        replicas.setdefault(row["cluster"], []).append(row)
    return [
        (
            row,
            [rows.get((row["cluster"], days)) for days in data.window_days],
            _largest(replicas.get(row["cluster"], ()), "lag_ms_p99"),
        )
        for row in of_day
    ]


def _windows(data: ReportData) -> dict[ReplicaKey, dict[int, Row]]:
    """Each replica's windows by days."""
    found: dict[ReplicaKey, dict[int, Row]] = {}
    for row in sorted(data.windows, key=lambda row: int(row["days"])):
        found.setdefault(key_of(row), {})[int(row["days"])] = row
    return found


def _calendar(data: ReportData, ordered: Sequence[Row]) -> list[Row]:
    """Each replica's calendar periods, the shortest first."""
    found: dict[ReplicaKey, list[Row]] = {}
    for row in sorted(data.calendar_windows, key=lambda row: float(row["window_s"])):
        found.setdefault(key_of(row), []).append(row)
    return [period for row in ordered for period in found.get(key_of(row), ())]


def _windows_in_order(
    ordered: Sequence[Row], windows: Mapping[ReplicaKey, Mapping[int, Row]]
) -> list[Row]:
    """The shortest first, of each replica."""
    return [window for row in ordered for window in windows.get(key_of(row), {}).values()]


def _group_lengths(data: ReportData, groups: Sequence[Row]) -> list[Row]:
    """Each group's day, then its windows, all with `days` and `role`."""
    windows: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(data.group_windows, key=lambda row: int(row["days"])):
        windows.setdefault(tuple(row[name] for name in GROUP), []).append(row)
    found: list[Row] = []
    for row in groups:
        role = {"role": row["role"]}
        found.append({**row, "days": 1})
        found += [{**one, **role} for one in windows.get(tuple(row[name] for name in GROUP), ())]
    return found


_NO_METADATA = dict.fromkeys(METADATA_COLUMNS)


def _metadata(
    ordered: Sequence[Row],
    windows: Mapping[ReplicaKey, Mapping[int, Row]],
    lengths: Sequence[int],
) -> list[tuple[Row, str, Row, list[Row]]]:
    """Replica, kind, its figures of the day and of each window."""
    found = []
    for row in ordered:
        of_replica = windows.get(key_of(row), {})
        each = [row, *(of_replica.get(days) for days in lengths)]
        by_kind = [{one["kind"]: one for one in (of and of["metadata"]) or ()} for of in each]
        for kind in dict.fromkeys(kind for figures in by_kind for kind in figures):
            day, *others = (figures.get(kind, _NO_METADATA) for figures in by_kind)
            found.append((row, kind, day, others))
    return found
