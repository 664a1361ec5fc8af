"""Verdicts: a calendar of days and broker groups, the budget that is left, a link to each report.

From the directory into which `mqreport` writes (console/reports.py); the console judges nothing
itself, so that a page and the report that a customer gets never differ.

Tested by tests/console/test_verdicts_view.py.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

from console.health import group_url
from console.page import Page, Query, Reader, View
from console.reports import VERDICTS, Day, ReplicaBudget, Reports
from console.tables import Table, TableCell, badge, link
from tools.commands.ha_status import duration_text
from tools.report import Column, columns

REPORTS: Final = "reports"
"""Of Reader.options: a console.reports.Reports."""
DAYS: Final = 14
MOST_DAYS: Final = 62
BUDGETS: Final = columns(
    "Group broker | Replica replica | Day verdict | Window(days) days > | Over it windowVerdict | "
    "Budget budget > | Left left > | Used used > | Why reasons"
)
DATES: Final = columns("Date date | Verdict verdict | Report report | Problem problem")
_NOWHERE: Final = (
    "No reports are shown here: start the console with --reports and the directory into which "
    "mqreport writes. For brokers of another make there are none, as they keep no dumps to judge; "
    "`mqreport import` can take their past from Prometheus."
)


Group = tuple[str, str]
"""Cluster and broker name."""


def verdicts(reader: Reader, query: Query) -> Page:
    """The last days before `until`; the newest date's budgets."""
    days = query.number("days", DAYS, 1, MOST_DAYS)
    until = query.text("until", "9999")
    reports = reader.options.get(REPORTS)
    online = {(one.place.cluster, one.place.broker_name) for one in reader.snapshot.brokers}
    if not isinstance(reports, Reports):
        return _page(online, [], [], [_NOWHERE], None, days)
    dates, why = reports.dates()
    sentences = [why] if why else []
    known = [date for date in dates if date <= until]
    if not known and not why:
        sentences.append("The directory has no report yet.")
    shown = [reports.day(date) for date in known[:days]]
    return _page(online, shown, known, sentences, reports, days)


def _page(
    online: Set[Group],
    shown: list[Day],
    known: list[str],
    sentences: list[str],
    reports: Reports | None,
    days: int,
) -> Page:
    newest = next((day for day in shown if not day.problem), None)
    budgets = [] if newest is None else newest.budgets
    older = known[days] if len(known) > days else ""
    return Page(
        context={
            "sentences": sentences,
            "newest": "" if newest is None else newest.date,
            "older_url": f"/verdicts?until={older}&days={days}" if older else "",
            "index_url": "/reports/index.html" if reports and reports.file("index.html") else "",
        },
        tables=[
            _calendar(online, shown, reports),
            Table(
                "budgets",
                "Budgets on the newest date",
                BUDGETS,
                [_budget(online, one) for one in budgets],
                empty_text="No replica has been judged.",
            ),
            Table(
                "dates",
                "Dates",
                DATES,
                [_date(day, reports) for day in shown],
                empty_text="There is no report.",
            ),
        ],
    )


def _calendar(online: Set[Group], shown: list[Day], reports: Reports | None) -> Table:
    """A row a group, the worst first; a column a date, the oldest at the left."""
    days = list(reversed(shown))
    groups = sorted({group for day in days for group in day.groups})
    groups.sort(key=lambda group: min(_rank(day.groups.get(group)) for day in days))
    heads = [Column("Group", "broker"), Column("Cluster", "cluster")]
    heads += [Column(day.date[5:], day.date) for day in days]
    rows = [
        [
            _group(online, (cluster, broker)),
            cluster,
            *(_verdict(day.groups.get((cluster, broker)), day, reports) for day in days),
        ]
        for cluster, broker in groups
    ]
    return Table("calendar", "Verdicts", heads, rows, empty_text="No group has been judged.")


def _group(online: Set[Group], group: Group) -> object:
    """Its page is of now: a group that has gone has none."""
    return link(group[1], group_url(*group)) if group in online else group[1]


def _rank(verdict: str | None) -> int:
    return VERDICTS.index(verdict) if verdict in VERDICTS else len(VERDICTS)


def _verdict(verdict: str | None, day: Day, reports: Reports | None) -> object:
    if verdict is None:
        return None
    # The badge's name has no blank; what is no verdict of ours is shown as it is.
    state = verdict.replace(" ", "_") if verdict in VERDICTS else verdict
    return TableCell(verdict, verdict, url=_report_url(day, reports), badge=state)


def _report_url(day: Day, reports: Reports | None) -> str | None:
    has_page = reports is not None and reports.has_page(day.date)
    return f"/reports/dt={day.date}/report.html" if has_page else None


def _budget(online: Set[Group], one: ReplicaBudget) -> list[object]:
    return [
        _group(online, one.group),
        one.replica,
        badge(one.verdict.replace(" ", "_"), one.verdict),
        one.days or None,
        None if one.window_verdict is None else badge(one.window_verdict.replace(" ", "_")),
        _span(one.budget_s),
        _span(one.left_s),
        None if one.used_ratio is None else TableCell(f"{one.used_ratio:.0%}", one.used_ratio),
        "; ".join(one.reasons) or None,
    ]


def _span(seconds: float | None) -> TableCell | None:
    if seconds is None:
        return None
    sign = "−" if seconds < 0 else ""
    text = duration_text(abs(seconds)) if abs(seconds) >= 1 else f"{abs(seconds):.1f} s"
    return TableCell(sign + text, seconds)


def _date(day: Day, reports: Reports | None) -> list[Any]:
    url = _report_url(day, reports)
    return [
        day.date,
        None if day.verdict is None else badge(day.verdict.replace(" ", "_"), day.verdict),
        None if url is None else link("open", url),
        day.problem or None,
    ]


VIEWS: Final = [View("/verdicts", "Verdicts", "Replication", "verdicts.html.j2", verdicts)]
