"""Small reports to be told of, and a reporter that remembers its notes."""

from __future__ import annotations

import datetime
from typing import Any

from spark.command.progress import LineReporter
from spark.config.objectives import PolicyStep
from spark.figures.report_data import (
    CALENDAR_WINDOW_COLUMNS,
    OBJECTIVE_COLUMNS,
    REPLICA_DAY_COLUMNS,
    SEVERITY,
    WINDOW_COLUMNS,
    ReportData,
)
from spark.reported_day import midnight_ms
from spark.vocabulary import DAY_MS

PAGE = "/o/report.html"
HOSTILE = 'a"b\\c\n</script>&<!channel>|`*_~\u202e\x00\x07ß\U0001f980' + "x" * 5_000 + "\ud800"
"""A name with everything that a format could stumble over."""
RUNBOOK = "https://wiki.example.com/r"


class Notes(LineReporter):
    """Remembers what was told."""

    def __init__(self) -> None:
        super().__init__("mqreport", None)
        self.told: list[str] = []

    def note(self, text: str) -> None:
        """See Reporter."""
        self.told.append(text)


def calendar_row(
    name: str, verdict: str = "met", used: float = 0.1, *, final: bool = False, replica: str = "b:1"
) -> dict[str, Any]:
    """Of table calendar_windows: a month (`2026-03`) or a quarter (`2026-Q1`)."""
    is_quarter = "Q" in name
    return dict.fromkeys(CALENDAR_WINDOW_COLUMNS) | {
        "cluster": "c",
        "broker": "b",
        "replica": replica,
        "verdict": verdict,
        "period": "quarter" if is_quarter else "month",
        "name": name,
        "final": final,
        "timezone": "Europe/Berlin",
        "window_s": (90 if is_quarter else 30) * 86_400.0,
        "bad_s": 1.0,
        "unknown_s": 0.0,
        "budget_s": 2592.0,
        "budget_used_ratio": used,
        "budget_left_s": 2591.0,
        "open_s": 0.0,
        "availability": 0.99,
        "reason": f"availability of {name}",
    }


def told_report(
    date: str = "2026-03-10",
    day: str = "met",
    window: str = "met",
    used: float = 0.1,
    *,
    replica: str = "b:1",
    policy: tuple[PolicyStep, ...] = (),
    **others: Any,
) -> ReportData:
    """Of two replicas: `replica` with these verdicts, and one that met all."""
    w0_ms = midnight_ms(datetime.date.fromisoformat(date))
    days, windows = [], []
    for name, verdicts, ratio in ((replica, (day, window), used), ("b:9", ("met", "met"), 0.0)):
        row = {"cluster": "c", "broker": "b", "replica": name, "bad_s": 1.0, "unknown_s": 0.0}
        days.append(
            dict.fromkeys(REPLICA_DAY_COLUMNS)
            | row
            | {"verdict": verdicts[0], "objective": "o", "reasons": ["availability low"]}
        )
        windows.append(
            dict.fromkeys(WINDOW_COLUMNS)
            | row
            | {"verdict": verdicts[1], "days": 30, "days_with_data": 3, "availability": 0.99}
            | {"budget_used_ratio": ratio, "budget_s": 2592.0}
        )
    objective = dict.fromkeys(OBJECTIVE_COLUMNS) | {"name": "o", "runbook_url": RUNBOOK}
    return ReportData(
        *(date, w0_ms, w0_ms + DAY_MS, min((day, "met"), key=SEVERITY.__getitem__)),
        replica_days=days,
        windows=windows,
        objectives=[objective],
        budget_policy=policy,
        **others,
    )
