"""The error-budget policy: which step each replica has reached, in each window that counts.

Plain functions on the driver over rows of tables `windows` and `calendar_windows`; which of them
count is said in spark/figures/judged_windows.py, what a step means for the exit code in
docs/nightly.md. Must not know Spark, YAML or the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark.config.objectives import PolicyStep
from spark.figures.judged_windows import WindowName, window_name


@dataclass(frozen=True, slots=True)
class ReachedStep:
    """A replica and the highest step that its budget of a window has reached; `used_ratio` is a
    part of 1, None of an objective of 100 %, whose first bad moment is more than it allows."""

    cluster: str
    broker: str
    replica: str
    used_ratio: float | None
    window: WindowName
    step: PolicyStep

    @property
    def key(self) -> tuple[str, str, str]:
        """(cluster, broker, replica)."""
        return self.cluster, self.broker, self.replica


def reached_steps(
    windows: Iterable[Mapping[str, Any]], policy: Sequence[PolicyStep]
) -> list[ReachedStep]:
    """The most used budget first, one for each row that reached a step. `windows`: rows with the
    replica's and the window's names and `budget_used_ratio` (known bad time / budget; None without
    a budget) and `bad_s`; `policy`: ascending."""
    found = []
    for row in windows if policy else ():
        ratio = row["budget_used_ratio"]
        step = _highest(math.inf if ratio is None and row["bad_s"] else ratio, policy)
        if step is not None:
            names = (row["cluster"], row["broker"], row["replica"])
            found.append(ReachedStep(*names, ratio, window_name(row), step))
    return sorted(found, key=lambda one: (-_rank(one), one.key, one.window.text))


def steps_up_to(
    reached: Sequence[ReachedStep], policy: Sequence[PolicyStep]
) -> Sequence[PolicyStep]:
    """Every step that some replica has reached: who is at 100 % has passed 50 %."""
    highest = max((one.step.at_percent for one in reached), default=0.0)
    return [step for step in policy if step.at_percent <= highest]


def _rank(one: ReachedStep) -> float:
    return math.inf if one.used_ratio is None else one.used_ratio


def _highest(used_ratio: float | None, policy: Sequence[PolicyStep]) -> PolicyStep | None:
    if used_ratio is None:
        return None
    used_percent = round(used_ratio * 100, 9)  # 0.07 * 100 is more than 7
    return max(
        (step for step in policy if used_percent >= step.at_percent),
        key=lambda step: step.at_percent,
        default=None,
    )
