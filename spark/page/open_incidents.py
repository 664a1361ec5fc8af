"""What is still going on at the end of the report's window, and what nobody has seen end.

Called on the driver for the top of the page and for the line on stdout. It must not know Spark or
HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark.figures import wording
from spark.figures.report_data import ReportData, Row, finite, key_of

MOST = 5
"""So many are named, the longest first."""


@dataclass(frozen=True)
class OpenIncident:
    """One incident that no good time follows. `is_going_on`: it is bad to the window's end; else
    what became of it is unknown."""

    row: Row
    is_going_on: bool
    sentence: str


@dataclass(frozen=True)
class Open:
    """The longest ones, and how many `more` there are."""

    incidents: Sequence[OpenIncident]
    more: int


def open_incidents(data: ReportData) -> Open:
    """Those that go on come before those that nobody saw end."""
    found = [_told(data, row) for row in data.incidents if row["open"]]
    found.sort(
        key=lambda one: (not one.is_going_on, -(finite(one.row["duration_s"]) or 0.0),
                         key_of(one.row))
    )  # fmt: skip
    return Open(found[:MOST], max(0, len(found) - MOST))


def _told(data: ReportData, row: Row) -> OpenIncident:
    begin = wording.moment(row["start_ms"], data.date)
    lasted = wording.duration(row["duration_s"])
    if row["end_ms"] >= data.w1_ms:
        return OpenIncident(row, True, f"since {begin} ({lasted} so far).")
    end = wording.moment(row["end_ms"], data.date)
    return OpenIncident(
        row, False, f"from {begin}, last seen at {end} ({lasted}); nothing good was seen since."
    )


def brief(data: ReportData) -> str:
    """For one line: `still going on: c/b/b:1 disconnected since 23:40:00`; empty without any."""
    going_on = [one for one in open_incidents(data).incidents if one.is_going_on]
    if not going_on:
        return ""
    worst = going_on[0].row
    who = "/".join(map(wording.name, key_of(worst)))
    cause = wording.name(worst["cause"]).replace("_", " ")
    since = wording.moment(worst["start_ms"], data.date)
    others = sum(1 for row in data.incidents if row["open"] and row["end_ms"] >= data.w1_ms) - 1
    more = f" and {others} more" if others else ""
    return f"still going on: {who} {cause} since {since}{more}"
