"""What a plot is made of: shapes, ticks, scales; and the way from values to SVG path data.

Used on the driver by the modules that make plots; templates/plot.html.j2 draws a `Plot`. The data
layer has its own coordinates and is stretched to the available width; ticks stand at percentages of
that width, so nothing needs a script. It must not know what is plotted.

Tested by tests/spark/page/test_plots.py.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from spark.figures import wording
from spark.vocabulary import MINUTE_MS

DAY_MINUTES = 1440
_LAG_TICKS = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 360_000_000)
_LEAST_WIDTH = 0.1
"""Per cent: so much of a plot is seen."""
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Tick:
    """A label: `at` is per cent of the width for an x tick, px from the top for a y tick.

    A minor one is left out where there is little room.
    """

    at: float
    label: str
    anchor: Anchor = "middle"
    minor: bool = False


@dataclass(frozen=True)
class Band:
    """A rectangle: `left` and `width` in per cent of the data's width, `top` and `height` in px."""

    left: float
    width: float
    top: float
    height: float
    style: str


@dataclass(frozen=True)
class Rule:
    """A horizontal line across the data at `at` px, with words."""

    at: float
    label: str
    style: str = "objective"


@dataclass(frozen=True)
class Path:
    """SVG path data in the data layer's coordinates."""

    d: str
    style: str


@dataclass(frozen=True)
class Data:
    """The figures of a plot as a table; the first cell of a row is its header."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Plot:
    """One figure. The data layer is `width` x `height` units, drawn `height` px high."""

    title: str
    alternative: str
    width: int
    height: int
    paths: Sequence[Path] = ()
    bands: Sequence[Band] = ()
    rules: Sequence[Rule] = ()
    x_ticks: Sequence[Tick] = ()
    y_ticks: Sequence[Tick] = ()
    lanes: Sequence[Tick] = ()
    note: str = ""
    legend: Sequence[tuple[str, str]] = ()
    data: Data | None = None
    grid: bool = True
    x_grid: bool = True


@dataclass(frozen=True)
class LagScale:
    """Logarithmic, from 1 ms at the bottom (`height` px) to a tick above everything at the top."""

    height: int
    top_ms: float

    @classmethod
    def over(cls, height: int, *values: float | None) -> LagScale:
        """A scale that has room for all of `values`."""
        largest = max((value for value in values if value is not None), default=1.0) * 1.5
        top = next((tick for tick in _LAG_TICKS[2:] if tick >= largest), largest)
        return cls(height, top)

    def y(self, lag_ms: float) -> int:
        """Px from the top; anything up to 1 ms is at the bottom."""
        part = math.log(max(lag_ms, 1.0)) / math.log(self.top_ms)
        return round(self.height * (1 - min(part, 1.0)))

    def ticks(self) -> list[Tick]:
        """At most one for each decade."""
        inside = [tick for tick in _LAG_TICKS if tick <= self.top_ms]
        return [Tick(self.y(tick), wording.lag(tick), "end") for tick in inside]


@dataclass(frozen=True)
class Span:
    """The minutes that a plot over time shows: `minutes` of them from `start_ms` (epoch)."""

    start_ms: int
    minutes: int

    def percent(self, epoch_ms: float) -> float:
        """Where a moment lies, 0 to 100."""
        part = (epoch_ms - self.start_ms) / (self.minutes * MINUTE_MS)
        return round(min(max(part, 0.0), 1.0) * 100, 2)

    def ticks(self) -> list[Tick]:
        """At most seven full hours or round minutes, the first and last drawn inwards."""
        lengths = (1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440)
        step = next((step for step in lengths if self.minutes / step <= 6), lengths[-1])
        first = self.start_ms // MINUTE_MS
        ticks: list[Tick] = []
        for minute in range(-(-first // step) * step, first + self.minutes + 1, step):
            at = self.percent(minute * MINUTE_MS)
            day = minute % DAY_MINUTES
            label = "24:00" if day == 0 and ticks else f"{day // 60:02d}:{day % 60:02d}"
            ticks.append(Tick(at, label, anchor_at(at), minor=len(ticks) % 2 == 1))
        return ticks


def anchor_at(percent: float) -> Anchor:
    if percent < 3:
        return "start"
    return "end" if percent > 97 else "middle"


def hatched(
    parts: Sequence[float], height: float, style: str = "unknown", top: float = 0
) -> list[Band]:
    """Bands as wide as a time was long: `parts` of units, 0 to 1, each of the same width.

    Where in its unit a part of it lies nobody has stored: it is put beside that of a neighbour,
    else in the middle.
    """
    unit = 100 / max(len(parts), 1)
    found: list[Band] = []
    end = -1.0
    for index, part in enumerate(parts):
        if part <= 0:
            continue
        width = min(part, 1.0) * unit
        left = index * unit
        if not (index and parts[index - 1] > 0):
            is_continued = index + 1 < len(parts) and parts[index + 1] > 0
            left += (unit - width) * (1.0 if is_continued else 0.5)
        if found and abs(left - end) < 1e-9:
            last = found[-1]
            found[-1] = dataclasses.replace(last, width=left + width - last.left)
        else:
            found.append(Band(left, width, top, height, style))
        end = left + width
    return [
        dataclasses.replace(
            band,
            left=round(min(band.left, 100 - _LEAST_WIDTH), 2),
            width=max(round(band.width, 2), _LEAST_WIDTH),
        )
        for band in found
    ]


def line(levels: Sequence[int]) -> str:
    """Path through one level a unit; equal ones become one stroke."""
    parts = [f"M0 {levels[0]}"]
    before = levels[0]
    for level, same in itertools.groupby(levels[1:]):
        run = sum(1 for _ in same)
        if level != before:
            parts.append(f"l1 {level - before}")
            run -= 1
        if run:
            parts.append(f"h{run}")
        before = level
    return "".join(parts)


def stairs(levels: Sequence[int | None]) -> str:
    """Path with one level over each whole unit; None interrupts it."""
    parts: list[str] = []
    before: int | None = None
    index = 0
    for level, same in itertools.groupby(levels):
        run = sum(1 for _ in same)
        if level is not None:
            turn = f"M{index} {level}" if before is None else f"v{level - before}"
            parts.append(f"{turn}h{run}")
        before = level
        index += run
    return "".join(parts)


def steps(points: Sequence[tuple[int, int]]) -> str:
    """Path through points, leaving out those that change nothing."""
    parts = [f"M{points[0][0]} {points[0][1]}"]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x1 == x0 and y1 == y0:
            continue
        if y1 == y0:
            parts.append(f"H{x1}")
        elif x1 == x0:
            parts.append(f"V{y1}")
        else:
            parts.append(f"L{x1} {y1}")
    return "".join(parts)


_STEPS_S: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30),
    *(60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(86_400 * days for days in (1, 2, 5, 10, 20, 50, 100)),
)
_STEPS_PERCENT: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 25, 50)
_MOST_STEPS: Final = 5


def round_seconds(lowest: float, highest: float) -> list[float]:
    """Moments of a scale of seconds that people count in, highest first; 0 where it is within."""
    return _multiples(lowest, highest, _STEPS_S)


def round_per_cent(highest: float) -> list[float]:
    """Marks of a scale that begins at 0 %, highest first, without the 0."""
    return [mark for mark in _multiples(0, highest, _STEPS_PERCENT) if mark]


def _multiples(lowest: float, highest: float, steps: Sequence[float]) -> list[float]:
    reach = highest - lowest
    step = next((step for step in steps if reach / step <= _MOST_STEPS), steps[-1])
    first, last = math.ceil(lowest / step - 1e-9), math.floor(highest / step + 1e-9)
    return [round(step * number, 6) for number in range(last, first - 1, -1)]


def round_up(number: float) -> float:
    """To a number with one or two digits that are not 0, at least 10."""
    power = 10.0 ** math.floor(math.log10(max(number, 10)))
    factors = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(power * factor for factor in factors if power * factor >= number)


THINNED_PERCENT: Final = 0.2
"""The step of `thinned` in every plot: of its width."""


def thinned(bands: Iterable[Band], step: float) -> list[Band]:
    """Bands of one lane, by beginning; what ends less than `step` % later is joined or left out.

    So ten thousand short ones stay a few hundred shapes; their figures are in the tables.
    """
    found: list[Band] = []
    end = -math.inf
    mixed = False
    for band in sorted(bands, key=lambda band: band.left):
        right = band.left + band.width
        last = found[-1] if found else None
        # Over one of another style that was left out nothing grows.
        if last and band.style == last.style and band.left <= end and not mixed:
            width = round(max(right, end) - last.left, 2)
            found[-1] = dataclasses.replace(last, width=width)
        elif right >= end + step:
            found.append(band)
            mixed = False
        else:
            mixed = mixed or last is None or band.style != last.style
            continue
        end = max(end, right)
    return found
