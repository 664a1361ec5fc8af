"""The two verdicts that a report begins with, and why: the day's and the longest window's.

Called on the driver by the page, by the line on stdout and by the notification, so that all of them
give the same reasons in the same order. It must not know Spark or HTML.
"""

from __future__ import annotations

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
from spark.page import budget_steps

_MAX_REASONS = 3


@dataclass(frozen=True)
class Headline:
    """A verdict; `days` is 1 for the day itself. `rows` are all replicas' rows of that length, the
    worst first."""

    days: int
    verdict: str
    rows: Sequence[Row]

    @property
    def span(self) -> str:
        """`30 days`; nothing for the day itself."""
        return f"{self.days} days" if self.days > 1 else ""

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
    return Headline(1, data.verdict, worst_first(data.replica_days))


def window_headline(data: ReportData) -> Headline:
    """Of the longest window."""
    return Headline(data.longest_window, data.window_verdict, worst_first(data.longest_windows))


def reasons_of(row: Row) -> list[str]:
    """Why a replica has its verdict: stored with its day, derived from the figures for a window."""
    stored = row.get("reasons")
    return list(stored) if stored is not None else [_window_reason(row)]


def _window_reason(row: Row) -> str:
    share, bad = wording.share(row["availability"]), wording.duration(row["bad_s"])
    allowed = wording.duration(row["budget_s"])
    if row["verdict"] == INSUFFICIENT:
        unknown = wording.duration(row["unknown_s"])
        known_days = f"{row['days_with_data']} of {row['days']} days have data"
        return (
            f"availability not proved: {bad} bad and {unknown} unknown of {allowed} allowed;"
            f" {known_days}"
        )
    return f"availability {share}: {bad} bad of {allowed} allowed"


def one_line(data: ReportData) -> str:
    """Both verdicts, and why, without line breaks: `DATE breached: …; 30 days met: …`."""
    revised = f" (revision {data.revision})" if data.revision > 1 else ""
    day, window = day_headline(data), window_headline(data)
    why = "; ".join(short_reasons(data, day)) or _how_many(day)
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
        f" {', '.join(map(wording.excerpt, reasons_of(row)))}"
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
