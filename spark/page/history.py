"""What the calendar keeps of each reported date: its verdicts and a few sums, a line a day.

Made on the driver of a date's summary (docs/report_files.md), so that a calendar of years needs
neither the tables nor the summaries of other dates. Plain data and JSON; it opens no file. It must
not know Spark or HTML.

Tested by tests/spark/page/test_calendar_page.py.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark.figures.report_data import BREACHED, INSUFFICIENT, MET, finite
from spark.page.sends import sends_of

VERSION: Final = 3
_LETTERS: Final = {BREACHED: "b", INSUFFICIENT: "i", MET: "m"}
_VERDICTS: Final = {letter: verdict for verdict, letter in _LETTERS.items()}
_NO_RESULT: Final = "-"

Group = tuple[str, str]
"""(cluster, broker)."""


class HistoryError(ValueError):
    """A history, or a summary, that this version cannot read."""


@dataclass(frozen=True)
class PeriodResult:
    """A calendar period, as far as a date's report judged it: `period` is `week`, `month` or
    `quarter`. Times are sums over its replicas (s); `used` and `left_s` are those of the replica
    whose budget is used the most, None where nobody knows; `used` also where nothing is allowed."""

    period: str
    name: str
    timezone: str
    is_final: bool
    verdict: str
    bad_s: float
    unknown_s: float
    used: float | None
    left_s: float | None
    excluded_s: float = 0.0


@dataclass(frozen=True)
class DayResult:
    """One date: `window_*` is of its longest window, times are sums over its replicas (s), `sends`
    counts answers and `sends_failed` those that were refused, late or unproved."""

    date: datetime.date
    verdict: str
    window_days: int
    window_begun: str | None
    window_verdict: str
    length_s: float
    good_s: float
    bad_s: float
    unknown_s: float
    incidents: int
    sends: int
    sends_failed: int
    groups: Mapping[Group, str]
    excluded_s: float = 0.0
    window_excluded_s: float = 0.0
    periods: tuple[PeriodResult, ...] = ()
    """Calendar periods in which it begins, the shortest first."""

    @property
    def is_part(self) -> bool:
        """Whether the date was reported in part only."""
        return self.length_s < 86_400


def result_of(summary: Mapping[str, Any]) -> DayResult:
    """Of a date's summary.json. Raises HistoryError."""
    try:
        replicas, groups = summary["replicas"], summary["groups"]
        sends = sends_of(groups)
        rolling = summary["rolling"]
        return DayResult(
            date=datetime.date.fromisoformat(summary["date"]),
            verdict=_verdict(summary["verdict"]),
            window_days=int(rolling["days"]),
            window_begun=rolling.get("begun"),
            window_verdict=_verdict(rolling["verdict"]),
            length_s=float(summary["window"]["seconds"]),
            good_s=_sum(replicas, "good_s"),
            bad_s=_sum(replicas, "bad_s"),
            unknown_s=_sum(replicas, "unknown_s"),
            incidents=int(summary["counts"]["incidents"]),
            sends=sends.total if sends is not None else 0,
            sends_failed=sends.failed if sends is not None else 0,
            groups={(row["cluster"], row["broker"]): _verdict(row["verdict"]) for row in groups},
            excluded_s=_sum(replicas, "excluded_s"),
            window_excluded_s=_sum(_longest(replicas, rolling["days"]), "excluded_s"),
            # A summary of an earlier version has none.
            periods=tuple(_period(one, replicas) for one in summary.get("calendar", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HistoryError(f"not a summary of this version: {error!r}") from error


def _longest(replicas: Iterable[Mapping[str, Any]], days: int) -> list[Mapping[str, Any]]:
    """Rows of the longest window; one that is not there has told of it by its verdict."""
    return [row["windows"][str(days)] for row in replicas if str(days) in row["windows"]]


def _period(one: Mapping[str, Any], replicas: Iterable[Mapping[str, Any]]) -> PeriodResult:
    rows = [row["calendar"][one["period"]] for row in replicas if one["period"] in row["calendar"]]
    worst = max(rows, key=_share_used, default=None)
    return PeriodResult(
        period=str(one["period"]),
        name=str(one["name"]),
        timezone=str(one["timezone"]),
        is_final=bool(one["final"]),
        verdict=_verdict(one["verdict"]),
        bad_s=_sum(rows, "bad_s"),
        unknown_s=_sum(rows, "unknown_s"),
        used=finite(worst["budget_used_ratio"]) if worst else None,
        left_s=finite(worst["budget_left_s"]) if worst else None,
        excluded_s=_sum(rows, "excluded_s"),
    )


def _share_used(row: Mapping[str, Any]) -> float:
    """Of a budget; of one of nothing all that was bad is infinitely much."""
    used, left_s = finite(row["budget_used_ratio"]), finite(row["budget_left_s"])
    if used is not None:
        return used
    return math.inf if left_s is not None and left_s < 0 else 0.0


def to_json(days: Iterable[DayResult]) -> bytes:
    """UTF-8, one JSON object. A day's groups are one letter each, in the order of `groups`."""
    ordered = sorted(days, key=lambda day: day.date)
    groups = sorted({group for day in ordered for group in day.groups})
    document = {
        "version": VERSION,
        "groups": [list(group) for group in groups],
        "days": {str(day.date): _to_json(day, groups) for day in ordered},
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=0)
    return (text + "\n").encode("utf-8", errors="backslashreplace")


def _to_json(day: DayResult, groups: Iterable[Group]) -> dict[str, Any]:
    letters = (
        _LETTERS[day.groups[group]] if group in day.groups else _NO_RESULT for group in groups
    )
    return {
        "verdict": day.verdict,
        "window": [day.window_days, day.window_begun, day.window_verdict, day.window_excluded_s],
        "seconds": [day.length_s, day.good_s, day.bad_s, day.unknown_s, day.excluded_s],
        "counts": [day.incidents, day.sends, day.sends_failed],
        "groups": "".join(letters),
        "periods": [list(dataclasses.astuple(period)) for period in day.periods],
    }


def from_json(text: str) -> list[DayResult]:
    """What `to_json` wrote. Raises HistoryError."""
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']}")
        groups = [(str(cluster), str(broker)) for cluster, broker in document["groups"]]
        return [_from_json(date, day, groups) for date, day in document["days"].items()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HistoryError(f"not a history of this version: {error!r}") from error


def _from_json(date: str, day: Mapping[str, Any], groups: list[Group]) -> DayResult:
    window_days, begun, window_verdict, window_excluded_s = day["window"]
    length_s, good_s, bad_s, unknown_s, excluded_s = map(float, day["seconds"])
    incidents, sends, sends_failed = map(int, day["counts"])
    letters = zip(groups, day["groups"], strict=True)
    return DayResult(
        date=datetime.date.fromisoformat(date),
        verdict=_verdict(day["verdict"]),
        window_days=int(window_days),
        window_begun=begun,
        window_verdict=_verdict(window_verdict),
        length_s=length_s,
        good_s=good_s,
        bad_s=bad_s,
        unknown_s=unknown_s,
        incidents=incidents,
        sends=sends,
        sends_failed=sends_failed,
        groups={group: _VERDICTS[letter] for group, letter in letters if letter != _NO_RESULT},
        excluded_s=excluded_s,
        window_excluded_s=float(window_excluded_s),
        periods=tuple(_period_from_json(*period) for period in day["periods"]),
    )


def _period_from_json(
    period: str,
    name: str,
    timezone: str,
    is_final: bool,
    verdict: str,
    *seconds: float | None,
) -> PeriodResult:
    bad_s, unknown_s, used, left_s, excluded_s = (
        None if each is None else float(each) for each in seconds
    )
    return PeriodResult(
        *(str(period), str(name), str(timezone)),
        bool(is_final),
        _verdict(verdict),
        bad_s or 0.0,
        unknown_s or 0.0,
        used,
        left_s,
        excluded_s or 0.0,
    )


def _verdict(text: Any) -> str:
    if text not in _LETTERS:
        raise ValueError(f"verdict {text!r}")
    return str(text)


def _sum(rows: Iterable[Mapping[str, Any]], name: str) -> float:
    return round(sum(finite(row[name]) or 0.0 for row in rows), 3)
