"""Days for the calendar: verdicts as letters, one a day, and what follows from them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from spark.figures.report_data import BREACHED, INSUFFICIENT, MET
from spark.page.history import DayResult

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
