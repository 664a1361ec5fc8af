"""One replica's day beside the windows that end with it: small tables of words.

Called on the driver by spark/page/report_page.py. A figure is a row, a length of time a column;
what a length has no row for is unknown. It must not know Spark or HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark.figures import wording
from spark.figures.report_data import PERCENTILES, STATES, Row, finite
from spark.page.plots import STATE_WORDS

_LAGS = {
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "p999": "p99.9",
    "max": "largest",
}
Figure = tuple[str, str, Callable[[Any], str]]
"""Label, column, wording."""


@dataclass(frozen=True)
class Sheet:
    """Figures by length of time; the first cell of a row says what it is."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def _speed(megabytes: Any) -> str:
    number = finite(megabytes)
    return wording.NOTHING if number is None else f"{wording.size(number * 1e6)}/s"


def _text(text: Any) -> str:
    return str(text).capitalize() if text else wording.NOTHING


SHEETS: dict[str, tuple[Figure, ...]] = {
    "Service level and incidents": (
        ("Verdict", "verdict", _text),
        ("Coverage", "coverage", wording.share),
        ("Availability", "availability", wording.share),
        ("Bad", "bad_s", wording.duration),
        ("Unknown", "unknown_s", wording.duration),
        ("Excluded", "excluded_s", wording.duration),
        ("Budget", "budget_s", wording.duration),
        ("Budget left", "budget_left_s", wording.duration),
        ("Budget used", "budget_used_ratio", wording.used),
        ("Burn rate, 1 h", "burn_1h", wording.rate),
        ("Burn rate, 6 h", "burn_6h", wording.rate),
        ("Burn rate, 24 h", "burn_24h", wording.rate),
        ("Burn rate, 3 d", "burn_3d", wording.rate),
        ("Budget ends", "forecast", _text),
        ("Incidents", "incidents", wording.count),
        ("Seen to end", "incidents_ended", wording.count),
        ("Longest", "longest_incident_s", wording.duration),
        ("MTTR", "mttr_s", wording.duration),
        ("MTBF", "mtbf_s", wording.duration),
    ),
    "Lag and catch-up": (
        *((f"Lag {_LAGS[name]}", f"lag_ms_{name}", wording.lag) for name in PERCENTILES),
        *((f"In bytes, {_LAGS[name]}", f"lag_bytes_{name}", wording.size) for name in PERCENTILES),
        ("Catching up", "catch_up_s", wording.duration),
        ("Longest run", "catch_up_longest_s", wording.duration),
        ("Caught up", "catch_up_bytes", wording.size),
        ("Speed", "catch_up_mb_s", _speed),
    ),
    "States, minutes and traffic": (
        *(
            (
                STATE_WORDS.get(state, state.replace("_", " ")).capitalize(),
                f"state_{state}_s",
                wording.duration,
            )
            for state in STATES
        ),
        ("Minutes good", "minutes_good", wording.count),
        ("Minutes with bad time", "minutes_bad", wording.count),
        ("Minutes mostly unknown", "minutes_unknown", wording.count),
        ("Minutes written", "minutes_written", wording.count),
        ("Of these good", "minutes_written_good", wording.count),
        ("Transferred", "transferred_bytes", wording.size),
        ("Reconnects", "reconnects", wording.count),
        ("Rejected acks", "rejected_acks", wording.count),
        ("Samples expected", "expected", wording.count),
        ("Samples received", "received", wording.count),
        ("Longest gap", "longest_gap_s", wording.duration),
    ),
}


def sheets(day: Row, windows: Mapping[int, Row], lengths: Sequence[int]) -> list[Sheet]:
    """Of one replica; `windows` are its rows by days."""
    columns = ("Figure", "Day", *(f"{days} days" for days in lengths))
    rows = [day, *(windows.get(days, {}) for days in lengths)]
    return [
        Sheet(title, columns, [_line(figure, rows) for figure in figures])
        for title, figures in SHEETS.items()
    ]


def _line(figure: Figure, rows: Sequence[Row]) -> tuple[str, ...]:
    label, column, words = figure
    return (label, *(words(row.get(column)) for row in rows))


def days_in_words(lengths: Sequence[int]) -> str:
    """`7 and 30 days`."""
    *others, last = (str(days) for days in lengths)
    return f"{', '.join(others)} and {last} days" if others else f"{last} days"
