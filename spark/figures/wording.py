"""How figures are written for people: one way for durations, sizes, shares and names.

Called on the driver by spark/page/report_page.py and spark/page/plots.py. Knows no table and no
HTML; whatever becomes part of a page is escaped there.
"""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC, datetime
from typing import Any

from spark.figures.report_data import finite

NOTHING = "–"
"""Stands for a figure of which nothing is known."""
_SPACE = "\u00a0"
_SIZE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_BRIEF_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_NAME_LENGTH = 80
_EXCERPT_LENGTH = 300
_SECONDS = re.compile(r"(?<![\w.,:-])(\d+(?:\.\d+)?) s\b")
_ISOLATE, _END_ISOLATE = "\u2068", "\u2069"


def duration(seconds: Any) -> str:
    """`12.5 s`, `4 min 10 s`, `3 h 05 min`, `2 d 04 h`; to the ms: no report measures less."""
    number = finite(seconds)
    if number is None:
        return NOTHING
    number = round(number, 3)
    sign, number = "−" if number < 0 else "", abs(number)
    if number < 59.95:
        return f"{sign}{_short(number)}{_SPACE}s"
    whole = round(number)
    if whole < 3600:
        return sign + _two(whole // 60, "min", whole % 60, "s")
    if whole < 86_400:
        return sign + _two(whole // 3600, "h", whole % 3600 // 60, "min")
    return sign + _two(whole // 86_400, "d", whole % 86_400 // 3600, "h")


def brief(seconds: float) -> str:
    """One unit, for an axis: `43.2 min`."""
    number = round(seconds, 3)
    sign, number = "−" if number < 0 else "", abs(number)
    unit, length = next(one for one in _BRIEF_UNITS if number >= one[1] or one[1] == 1)
    return f"{sign}{_short(number / length)}{_SPACE}{unit}"


def lag(milliseconds: Any) -> str:
    """`0.5 ms`, `12 ms`, `1.25 s`, then as `duration`."""
    number = finite(milliseconds)
    if number is None:
        return NOTHING
    if 0 < number < 9.95 and number != round(number):
        return f"{_short(number)}{_SPACE}ms"
    if round(number) < 1000:
        return f"{round(number)}{_SPACE}ms"
    if number < 10_000:
        return f"{_trim(f'{number / 1000:.2f}')}{_SPACE}s"
    return duration(number / 1000)


def size(number_of_bytes: Any) -> str:
    """`512 B`, `1.5 MB`: powers of 1000."""
    number = finite(number_of_bytes)
    if number is None:
        return NOTHING
    unit = 0
    while abs(number) >= 999.5 and unit < len(_SIZE_UNITS) - 1:
        number /= 1000
        unit += 1
    text = str(round(number)) if unit == 0 else _short(number)
    return f"{text}{_SPACE}{_SIZE_UNITS[unit]}"


def share(ratio: Any) -> str:
    """A part of 1 as per cent, never rounded up: 0.99999 is not `100 %`."""
    number = finite(ratio)
    if number is None:
        return NOTHING
    return f"{_trim(f'{math.floor(number * 100_000 + 1e-6) / 1000:.3f}')}{_SPACE}%"


def per_cent(percent: Any) -> str:
    """A figure that is per cent already, as it was set."""
    number = finite(percent)
    return NOTHING if number is None else f"{_trim(f'{number:.6f}')}{_SPACE}%"


def used(ratio: Any) -> str:
    """A part of a budget: `291 %`, `0.4 %`, or as a multiple when it is far beyond."""
    number = finite(ratio)
    if number is None:
        return NOTHING
    if round(number * 100) >= 1000:
        return f"{round(number):,}{_SPACE}×"
    return f"{_short(number * 100)}{_SPACE}%"


def rate(number: Any) -> str:
    """A burn rate: `14.4 ×`."""
    value = finite(number)
    return NOTHING if value is None else f"{_short(value)}{_SPACE}×"


def count(number: Any) -> str:
    """`12,345`."""
    value = finite(number)
    return NOTHING if value is None else f"{round(value):,}"


def moment(epoch_ms: Any, date: str = "") -> str:
    """UTC time of day, `02:10:05`; the date before it unless it is `date`."""
    number = finite(epoch_ms)
    if number is None:
        return NOTHING
    when = datetime.fromtimestamp(number / 1000, UTC)
    text = when.strftime("%H:%M:%S")
    return text if when.strftime("%Y-%m-%d") == date else f"{when:%Y-%m-%d} {text}"


def plural(number: int, one: str, many: str) -> str:
    """`1 replica`, `3 replicas`."""
    return f"{number:,} {one if number == 1 else many}"


def name(text: Any) -> str:
    """A name that others chose, fit to be shown: nothing invisible, at most 80 characters.

    Of a longer one the beginning and the end are kept. The CSV and JSON files have it whole.
    """
    return _shortened(text, _NAME_LENGTH)


def excerpt(text: Any) -> str:
    """Longer texts that others chose, such as a reason or a line of a dump: 300 characters."""
    return _shortened(text, _EXCERPT_LENGTH)


def spoken(reason: Any) -> str:
    """A verdict's reason for people: `4 min 35 s`, not `275 s`, and never rounded to a limit."""
    return _SECONDS.sub(lambda found: _exactly(float(found[1])), excerpt(reason))


def sentence(reason: Any) -> str:
    """A verdict's reason as a sentence in which no figure is parted from its unit."""
    text = re.sub(r"(?<=\d) (?=\S)", _SPACE, spoken(reason))
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _exactly(seconds: float) -> str:
    """To the ms below an hour: what is just above a limit does not read as the limit."""
    seconds = round(seconds, 3)
    if seconds < 60:
        return f"{_trim(f'{seconds:.3f}')}{_SPACE}s"
    if seconds >= 3600:
        return duration(seconds)
    minutes, rest = divmod(seconds, 60)
    if not rest:
        return f"{int(minutes)}{_SPACE}min"
    whole, point, part = _trim(f"{rest:.3f}").partition(".")
    return f"{int(minutes)}{_SPACE}min{_SPACE}{whole:0>2}{point}{part}{_SPACE}s"


def visible(text: str) -> str:
    """All of a text, what is invisible in it as `\\u200b`: for a terminal, or a log's line. A space
    that does not break a line is a space."""
    return "".join(_visible(character) for character in text)


def isolated(text: Any) -> str:
    """A name within a sentence: its writing direction does not turn the words around it."""
    return f"{_ISOLATE}{name(text)}{_END_ISOLATE}"


def _shortened(text: Any, length: int) -> str:
    whole = str(text)
    if len(whole) > length:
        whole = f"{whole[: length - 20]}…{whole[-19:]}"
    return "".join(_visible(character) for character in whole)


def _visible(character: str) -> str:
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
        return f"\\u{ord(character):04x}"
    return character


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    if not small:
        return f"{large}{_SPACE}{large_unit}"
    return f"{large}{_SPACE}{large_unit}{_SPACE}{small:02d}{_SPACE}{small_unit}"


def _short(number: float) -> str:
    """Three digits that say something."""
    magnitude = abs(number)
    if magnitude >= 100:
        return f"{number:,.0f}"
    if magnitude >= 10:
        return _trim(f"{number:.1f}")
    if magnitude >= 0.01 or magnitude == 0:
        return _trim(f"{number:.2f}")
    return f"{number:.1g}" if magnitude >= 0.001 else "< 0.001"


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
