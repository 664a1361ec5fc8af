"""The verdicts that a report begins with, and why: the day's, and those of the windows that count
beside it.

Called on the driver by the page, by the line on stdout and by the notification, so that all of them
give the same reasons in the same order. It must not know Spark or HTML.

Tested by tests/spark/page/test_calendar_page.py.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from spark.figures import wording
from spark.figures.judged_windows import JudgedWindow
from spark.figures.report_data import (
    BREACHED,
    INSUFFICIENT,
    MET,
    ReportData,
    Row,
    finite,
    key_of,
    worst_first,
)
from spark.page import budget_steps, open_incidents
from spark.page.sends import Sends, sends_of
from spark.vocabulary import LEFT_OUT

_MAX_REASONS = 3


@dataclass(frozen=True)
class Headline:
    """A verdict; `window` is None for the day itself. `rows` are all replicas' rows of it, the
    worst first. `begun`: the date of the first result, where a window is judged from there on;
    `date`: the report's."""

    window: JudgedWindow | None
    verdict: str
    rows: Sequence[Row]
    date: str
    sends: Sends | None = None
    begun: str | None = None

    @property
    def name(self) -> str:
        """`30 days`, `2026-11`; nothing for the day itself."""
        return "" if self.window is None else self.window.name.text

    @property
    def span(self) -> str:
        """`30 days`, `30 days (begun 3 days ago)`, `2026-11 (so far)`; nothing for the day."""
        return f"{self.name}{f' ({self.age})' if self.age else ''}"

    @property
    def age(self) -> str:
        """`begun 3 days ago`: how long ago the first day with a result began; `so far`: of a
        calendar period that goes on."""
        if self.window is not None and not self.window.is_final:
            return "so far"
        if self.begun is None:
            return ""
        first, last = map(datetime.date.fromisoformat, (self.begun, self.date))
        return f"begun {wording.plural((last - first).days + 1, 'day', 'days')} ago"

    @property
    def excluded(self) -> str:
        """`3 h excluded`, of all replicas of a window together; nothing where no time is, and of
        the day, which has its exclusions by reason."""
        total_s = sum(finite(row["excluded_s"]) or 0.0 for row in self.rows)
        return f"{wording.duration(total_s)} excluded" if self.window and total_s else ""

    def count(self, verdict: str) -> int:
        """How many replicas have this verdict."""
        return sum(row["verdict"] == verdict for row in self.rows)

    @property
    def how_many(self) -> str:
        """`of 3 replicas, 1 breached, 2 met`."""
        words = {BREACHED: "breached", INSUFFICIENT: "with insufficient data", MET: "met"}
        found = [f"{self.count(one):,} {text}" for one, text in words.items() if self.count(one)]
        found += [self.excluded] if self.excluded else []
        return f"of {wording.plural(len(self.rows), 'replica', 'replicas')}, {', '.join(found)}"


def day_headline(data: ReportData) -> Headline:
    """Of the date itself."""
    rows = worst_first(data.replica_days)
    return Headline(None, data.verdict, rows, data.date, sends_of(data.group_days))


def window_headline(data: ReportData) -> Headline:
    """Of the longest rolling window."""
    window = data.judged_windows[0]
    rows = worst_first(window.rows)
    begun = max((row["begun"] for row in rows if row["begun"] is not None), default=None)
    sends = sends_of(row for row in data.group_windows if row["days"] == data.longest_window)
    return Headline(window, window.verdict, rows, data.date, sends, begun)


def calendar_headlines(data: ReportData) -> list[Headline]:
    """Of each calendar period, the shortest first."""
    return [
        Headline(window, window.verdict, worst_first(window.rows), data.date)
        for window in data.judged_windows[1:]
    ]


def window_headlines(data: ReportData) -> list[Headline]:
    """Of everything that counts beside the day."""
    return [window_headline(data), *calendar_headlines(data)]


def reasons_of(row: Row) -> list[str]:
    """Why a replica has its verdict: stored with its day and with a calendar period, derived from
    the figures for a rolling window."""
    stored = row.get("reasons")
    if stored is not None:
        return list(stored)
    return [row["reason"] if row.get("period") is not None else _window_reason(row)]


def _window_reason(row: Row) -> str:
    share, bad = wording.share(row["availability"]), wording.duration(row["bad_s"])
    allowed = f"{wording.duration(row['budget_s'])} allowed"
    if row["excluded_s"]:
        allowed += f", {wording.duration(row['excluded_s'])} excluded"
    if row["verdict"] == INSUFFICIENT:
        unknown = wording.duration(row["unknown_s"])
        known_days = _known_days(row)
        return (
            f"availability not proved: {bad} bad and {unknown} unknown of {allowed}; {known_days}"
        )
    return f"availability {share}: {bad} bad of {allowed}"


def _known_days(row: Row) -> str:
    known = row["days_with_data"]
    if row["begun"] is not None:
        days = wording.plural(known, "day has", "days have")
        return f"{days} data since {row['begun']}, the first one"
    return f"{known} of {row['days']} days have data"


def one_line(data: ReportData) -> str:
    """All verdicts, and why, without line breaks: `DATE breached: …; 30 days met: …`."""
    revised = f" (revision {data.revision})" if data.revision > 1 else ""
    day = day_headline(data)
    told = ["; ".join(short_reasons(data, day)) or _how_many(day), open_incidents.brief(data)]
    if day.sends is not None and day.sends.failed:
        told.append(day.sends.brief)
    why = "; ".join(filter(None, told))
    texts = [f"{data.date} {day.verdict}{revised}: {why}"]
    for window in window_headlines(data):
        reasons = short_reasons(data, window)
        because = f": {'; '.join(reasons) or window.excluded}" if reasons or window.excluded else ""
        texts.append(f"{window.span} {window.verdict}{because}")
    text = "; ".join([*texts, *budget_steps.by_label(data)])
    return " ".join(text.split())  # no line breaks


def left_out_text(row: Row) -> str:
    """Of files whose lines do not count, or groups of which not all replicas are reported, for one
    reason: the first of them, and why."""
    others = int(row["files"]) - 1
    is_file = str(row["reason"]).startswith(LEFT_OUT)
    what = ("more file", "more files") if is_file else ("more group", "more groups")
    more = f" and {wording.plural(others, *what)}" if others else ""
    return f"{wording.name(row['example_file'])}{more}: {wording.excerpt(row['reason'])}"


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
        found += [left_out_text(row) for row in data.left_out]
        window = headline.window.rows if headline.window is not None else ()
        found += [
            f"files or replicas of {date} were left out" for date in data.past_left_out_of(window)
        ]
    more = len(found) - _MAX_REASONS
    found = [*found[:_MAX_REASONS], *([f"and {more} more"] if more > 0 else [])]
    unknown = headline.count(INSUFFICIENT) if headline.verdict == BREACHED else 0
    if unknown:
        found.append(f"and {unknown} with insufficient data")
    return [" ".join(text.split()) for text in found]  # no spaces that only a page needs
