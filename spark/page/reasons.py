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
    says how many more there are. `longest` is its longest incident, if it had any."""

    verdict: str
    row: Row | None
    sentences: Sequence[str]
    longest: Row | None = None


def why_day(data: ReportData, ordered: Sequence[Row]) -> list[Reason]:
    """The worst replicas of each verdict that is not `met`; of a met day, how near it was."""
    incidents: dict[ReplicaKey, list[Row]] = {}
    for row in ordered_incidents(data):
        incidents.setdefault(key_of(row), []).append(row)

    def told(verdict: str, row: Row, *first: str) -> Reason:
        longest = max(
            incidents.get(key_of(row), []),
            key=lambda one: (one["duration_s"], -one["start_ms"]),
            default=None,
        )
        sentences = [*first, *map(wording.sentence, row["reasons"])]
        if longest is not None:
            sentences.append(_of_incidents(data, row, longest))
        return Reason(verdict, row, sentences, longest)

    found = [
        reason
        for verdict in (BREACHED, INSUFFICIENT)
        for reason in _worst_of(ordered, verdict, told)
    ]
    if not found and ordered:
        row = min(ordered, key=lambda row: (finite(row["availability"]) or 0.0, key_of(row)))
        found.append(told(MET, row, "No replica had a lower availability."))
    return found


def why_window(headline: Headline) -> list[Reason]:
    """The same of a window; nothing of one that is met."""
    return [
        reason
        for verdict in (BREACHED, INSUFFICIENT)
        for reason in _worst_of(
            headline.rows,
            verdict,
            lambda verdict, row: Reason(verdict, row, list(map(wording.sentence, reasons_of(row)))),
        )
    ]


def _worst_of(
    ordered: Sequence[Row], verdict: str, told: Callable[[str, Row], Reason]
) -> list[Reason]:
    """The first replicas with that verdict, and how many more there are."""
    rows = [row for row in ordered if row["verdict"] == verdict]
    found = [told(verdict, row) for row in rows[:NAMED_IN_WHY]]
    if len(rows) > NAMED_IN_WHY:
        more = wording.plural(len(rows) - NAMED_IN_WHY, "more replica", "more replicas")
        found.append(Reason(verdict, None, [f"And {more}."]))
    return found


def _of_incidents(data: ReportData, row: Row, longest: Row) -> str:
    """The cause stands behind it, as a link."""
    count = wording.plural(int(row["incidents"]), "incident", "incidents")
    lasted = wording.duration(longest["duration_s"])
    begin = wording.moment(longest["start_ms"], data.date)
    which = f"{count}, the longest lasted" if row["incidents"] > 1 else f"{count}, which lasted"
    return f"{which} {lasted} from {begin}:"


def cause(name: str) -> str:
    """A cause in words."""
    return wording.name(name).replace("_", " ")
