"""The two verdicts that a report begins with, and why: the day's and the longest window's.

Called on the driver by the page, by the line on stdout and by the notification, so that all of them
give the same reasons in the same order. It must not know Spark or HTML.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from spark.figures import wording
from spark.figures.report_data import (
    BREACHED,
    INSUFFICIENT,
    MET,
    ReportData,
    Row,
    key_of,
    worst_first,
)
from spark.page import budget_steps, open_incidents
from spark.page.sends import Sends, sends_of

_MAX_REASONS = 3


@dataclass(frozen=True)
class Headline:
    """A verdict; `days` is 1 for the day itself. `rows` are all replicas' rows of that length, the
    worst first. `begun`: the date of the first result, where a window is judged from there on;
    `date`: the report's."""

    days: int
    verdict: str
    rows: Sequence[Row]
    date: str
    sends: Sends | None
    begun: str | None = None

    @property
    def span(self) -> str:
        """`30 days`, `30 days (begun 3 days ago)`; nothing for the day itself."""
        if self.days <= 1:
            return ""
        return f"{self.days} days{f' ({self.age})' if self.begun is not None else ''}"

    @property
    def age(self) -> str:
        """`begun 3 days ago`: how long ago the first day with a result began."""
        if self.begun is None:
            return ""
        first, last = map(datetime.date.fromisoformat, (self.begun, self.date))
        return f"begun {wording.plural((last - first).days + 1, 'day', 'days')} ago"

    def count(self, verdict: str) -> int:
        """How many replicas have this verdict."""
        return sum(row["verdict"] == verdict for row in self.rows)

    @property
    def how_many(self) -> str:
        """`of 3 replicas, 1 breached, 2 met`."""
        words = {BREACHED: "breached", INSUFFICIENT: "with insufficient data", MET: "met"}
        found = [f"{self.count(one):,} {text}" for one, text in words.items() if self.count(one)]
        return f"of {wording.plural(len(self.rows), 'replica', 'replicas')}, {', '.join(found)}"


def day_headline(data: ReportData) -> Headline:
    """Of the date itself."""
    rows = worst_first(data.replica_days)
    return Headline(1, data.verdict, rows, data.date, sends_of(data.group_days))


def window_headline(data: ReportData) -> Headline:
    """Of the longest window."""
    rows = worst_first(data.longest_windows)
    begun = max((row["begun"] for row in rows if row["begun"] is not None), default=None)
    sends = sends_of(row for row in data.group_windows if row["days"] == data.longest_window)
    return Headline(data.longest_window, data.window_verdict, rows, data.date, sends, begun)


def reasons_of(row: Row) -> list[str]:
    """Why a replica has its verdict: stored with its day, derived from the figures for a window."""
    stored = row.get("reasons")
    return list(stored) if stored is not None else [_window_reason(row)]


def _window_reason(row: Row) -> str:
    share, bad = wording.share(row["availability"]), wording.duration(row["bad_s"])
    allowed = wording.duration(row["budget_s"])
    if row["verdict"] == INSUFFICIENT:
        unknown = wording.duration(row["unknown_s"])
        known_days = _known_days(row)
        return (
            f"availability not proved: {bad} bad and {unknown} unknown of {allowed} allowed;"
            f" {known_days}"
        )
    return f"availability {share}: {bad} bad of {allowed} allowed"


def _known_days(row: Row) -> str:
    known = row["days_with_data"]
    if row["begun"] is not None:
        days = wording.plural(known, "day has", "days have")
        return f"{days} data since {row['begun']}, the first one"
    return f"{known} of {row['days']} days have data"


def one_line(data: ReportData) -> str:
    """Both verdicts, and why, without line breaks: `DATE breached: …; 30 days met: …`."""
    revised = f" (revision {data.revision})" if data.revision > 1 else ""
    day, window = day_headline(data), window_headline(data)
    told = ["; ".join(short_reasons(data, day)) or _how_many(day), open_incidents.brief(data)]
    if day.sends is not None and day.sends.failed:
        told.append(day.sends.brief)
    why = "; ".join(filter(None, told))
    text = f"{data.date} {day.verdict}{revised}: {why}; {window.span} {window.verdict}"
    if reasons := short_reasons(data, window):
        text += f": {'; '.join(reasons)}"
    text = "; ".join([text, *budget_steps.by_label(data)])
    return " ".join(text.split())  # no line breaks


def _how_many(day: Headline) -> str:
    if not day.rows:
        return "no dump and no earlier result names a replica"
    return wording.plural(len(day.rows), "replica", "replicas")


def short_reasons(data: ReportData, headline: Headline) -> list[str]:
    """The worst replicas with that verdict, and how many more there are; empty where it is met."""
    if headline.verdict == MET:
        return []
    found = [
        f"{'/'.join(map(wording.name, key_of(row)))}:"
        f" {', '.join(map(wording.spoken, reasons_of(row)))}"
        for row in headline.rows
        if row["verdict"] == headline.verdict
    ]
    if headline.verdict == INSUFFICIENT:
        found += [
            f"{wording.name(row['cluster'])}/{wording.name(row['broker'])}:"
            " a SYNC_MASTER without a replica"
            for row in data.waiting_groups
        ]
    more = len(found) - _MAX_REASONS
    found = [*found[:_MAX_REASONS], *([f"and {more} more"] if more > 0 else [])]
    unknown = headline.count(INSUFFICIENT) if headline.verdict == BREACHED else 0
    if unknown:
        found.append(f"and {unknown} with insufficient data")
    return [" ".join(text.split()) for text in found]  # no spaces that only a page needs
