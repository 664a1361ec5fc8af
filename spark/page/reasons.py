"""The opening paragraph of the report: which replicas have which verdict, and why.

Called on the driver by spark/page/report_page.py. It must not know Spark or HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark.figures import wording
from spark.figures.report_data import (
    BREACHED,
    INSUFFICIENT,
    MET,
    ReplicaKey,
    ReportData,
    Row,
    finite,
    key_of,
)
from spark.page.headlines import Headline, reasons_of
from spark.page.summary import ordered_incidents

NAMED_IN_WHY = 5
"""The first ones are named, the rest is a number."""


@dataclass(frozen=True)
class Reason:
    """One replica of the opening paragraph: who, and why it has its verdict; without a row it
    says how many more there are."""

    verdict: str
    row: Row | None
    sentences: Sequence[str]


def why_day(data: ReportData, ordered: Sequence[Row]) -> list[Reason]:
    """The worst replicas of each verdict that is not `met`; of a met day, how near it was."""
    incidents: dict[ReplicaKey, list[Row]] = {}
    for row in ordered_incidents(data):
        incidents.setdefault(key_of(row), []).append(row)

    def sentences(row: Row) -> list[str]:
        return _sentences(data, row, incidents.get(key_of(row), []))

    found = [
        reason
        for verdict in (BREACHED, INSUFFICIENT)
        for reason in _worst_of(ordered, verdict, sentences)
    ]
    if not found and ordered:
        row = min(ordered, key=lambda row: (finite(row["availability"]) or 0.0, key_of(row)))
        found.append(Reason(MET, row, ["The lowest availability of all.", *sentences(row)]))
    return found


def why_window(headline: Headline) -> list[Reason]:
    """The same of a window; nothing of one that is met."""
    return [
        reason
        for verdict in (BREACHED, INSUFFICIENT)
        for reason in _worst_of(
            headline.rows,
            verdict,
            lambda row: [wording.sentence(reason) for reason in reasons_of(row)],
        )
    ]


def _worst_of(
    ordered: Sequence[Row], verdict: str, sentences: Callable[[Row], Sequence[str]]
) -> list[Reason]:
    """The first replicas with that verdict, and how many more there are."""
    rows = [row for row in ordered if row["verdict"] == verdict]
    found = [Reason(verdict, row, sentences(row)) for row in rows[:NAMED_IN_WHY]]
    if len(rows) > NAMED_IN_WHY:
        more = wording.plural(len(rows) - NAMED_IN_WHY, "replica", "replicas")
        found.append(Reason(verdict, None, [f"And {more} more."]))
    return found


def _sentences(data: ReportData, row: Row, incidents: Sequence[Row]) -> list[str]:
    found = [wording.sentence(reason) for reason in row["reasons"]]
    if incidents:
        longest = max(incidents, key=lambda one: (one["duration_s"], -one["start_ms"]))
        found.append(
            f"{wording.plural(int(row['incidents']), 'incident', 'incidents')}, the longest "
            f"{wording.duration(longest['duration_s'])} from "
            f"{wording.moment(longest['start_ms'], data.date)}: {cause(longest['cause'])}."
        )
    return found


def cause(name: str) -> str:
    """A cause in words."""
    return wording.name(name).replace("_", " ")
