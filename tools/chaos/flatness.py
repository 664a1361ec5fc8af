"""Flatness: whether a figure that was sampled over a long run grows. Pure.

The rule: over the second half of the samples, the slope of the line through them (Theil and Sen's:
the median of the slopes of all pairs, which single peaks do not move) times the time of that half
must stay below a share of the median and a constant.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

_LEAST: Final = 8
"""Samples of the second half, for a verdict."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a figure may grow in half a run."""

    share: float
    constant: float

    def text(self, unit: str) -> str:
        """For the table."""
        return f"{self.share:.0%} + {self.constant:g} {unit}".strip()


@dataclass(frozen=True, slots=True)
class Growth:
    """What became of a figure. `is_flat` None: there were too few samples to say."""

    name: str
    unit: str
    first: float
    """Median of the first quarter."""
    last: float
    """Median of the last quarter."""
    most: float
    grown: float
    """Slope of the second half times its time."""
    allowed: float
    is_flat: bool | None

    def text(self) -> str:
        """One line of the table."""
        verdict = {True: "flat", False: "GROWS", None: "not judged"}[self.is_flat]
        return (
            f"{self.name:<28} {self.first:>9.1f} {self.last:>9.1f} {self.most:>9.1f} "
            f"{self.grown:>+9.2f} {self.allowed:>8.2f} {self.unit:<4} {verdict}"
        )


TABLE_HEAD: Final = (
    f"{'':<28} {'first':>9} {'last':>9} {'most':>9} {'grown':>9} {'allowed':>8}      verdict"
)


def growth_of(name: str, unit: str, limit: Limit, samples: Sequence[tuple[float, float]]) -> Growth:
    """samples: (seconds, figure) in the order of time; one at least."""
    figures = [figure for _time, figure in samples]
    quarter = max(len(figures) // 4, 1)
    half = samples[len(samples) // 2 :]
    middle = statistics.median(figure for _time, figure in half)
    grown = _slope(half) * (half[-1][0] - half[0][0])
    allowed = limit.share * middle + limit.constant
    return Growth(
        name,
        unit,
        statistics.median(figures[:quarter]),
        statistics.median(figures[-quarter:]),
        max(figures),
        grown,
        allowed,
        grown <= allowed if len(half) >= _LEAST else None,
    )


def _slope(samples: Sequence[tuple[float, float]]) -> float:
    slopes = [
        (later - earlier) / (end - begin)
        for (begin, earlier), (end, later) in combinations(samples, 2)
        if end > begin
    ]
    return statistics.median(slopes) if slopes else 0.0
