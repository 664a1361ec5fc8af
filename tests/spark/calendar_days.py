"""Days for the calendar: verdicts as letters, one a day, and what follows from them."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from dataclasses import replace

from spark.figures.report_data import BREACHED, INSUFFICIENT, MET
from spark.page.history import DayResult, PeriodResult

VERDICTS = {"m": MET, "b": BREACHED, "i": INSUFFICIENT}
BAD_S = {"m": 10.0, "b": 300.0, "i": 0.0}
GROUP = ("DefaultCluster", "broker-a")


def days_of(
    first: str, letters: str, groups: Sequence[tuple[str, str]] = (GROUP,)
) -> list[DayResult]:
    """One for each letter but `-`. The first group has the day's verdict, the others are met."""
    begin = datetime.date.fromisoformat(first)
    found = []
    for index, letter in enumerate(letters):
        if letter == "-":
            continue
        unknown_s = 3_600.0 if letter == "i" else 0.0
        bad_s = BAD_S[letter]
        others = dict.fromkeys(groups[1:], MET)
        found.append(
            DayResult(
                date=begin + datetime.timedelta(days=index),
                verdict=VERDICTS[letter],
                window_days=30,
                window_begun=None,
                window_verdict=MET,
                length_s=86_400.0,
                good_s=86_400.0 - bad_s - unknown_s,
                bad_s=bad_s,
                unknown_s=unknown_s,
                incidents=1 if letter == "b" else 0,
                sends=1000,
                sends_failed=3 if letter == "b" else 0,
                groups={groups[0]: VERDICTS[letter], **others} if groups else {},
            )
        )
    return found


ALLOWED_S = {"week": 500.0, "month": 1_000.0, "quarter": 3_000.0}


def with_periods(days: Sequence[DayResult], timezone: str = "Europe/Berlin") -> list[DayResult]:
    """Their weeks, months and quarters as their dates have them; bad time beyond ALLOWED_S is a
    breach."""
    found = list(days)
    for kind in ALLOWED_S:
        for name, members in itertools.groupby(days, key=lambda day: _name(kind, day.date)):
            bad_s = 0.0
            for day in members:
                bad_s += day.bad_s
                place = next(n for n, each in enumerate(found) if each.date == day.date)
                period = _period(kind, name, timezone, bad_s, _is_last(kind, day.date))
                found[place] = replace(found[place], periods=(*found[place].periods, period))
    return found


def _period(kind: str, name: str, timezone: str, bad_s: float, is_final: bool) -> PeriodResult:
    allowed_s = ALLOWED_S[kind]
    verdict = BREACHED if bad_s > allowed_s else MET
    used, left_s = bad_s / allowed_s, allowed_s - bad_s
    return PeriodResult(kind, name, timezone, is_final, verdict, bad_s, 0.0, used, left_s)


def _name(kind: str, date: datetime.date) -> str:
    if kind == "week":
        return date.strftime("%G-W%V")
    return date.strftime("%Y-%m") if kind == "month" else f"{date.year}-Q{(date.month + 2) // 3}"


def _is_last(kind: str, date: datetime.date) -> bool:
    return _name(kind, date + datetime.timedelta(days=1)) != _name(kind, date)
