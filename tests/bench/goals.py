"""What the figures of bin/bench compare, replication and idle have to reach: a goal, and whether it
was held.

Arithmetic only. A goal is about the ratio ours/Java of one figure, or about our figure itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Figures = Mapping[str, float]
"""One side's figures of a row, by name: msg_per_s, p50_us, p99_us, p999_us, cpu_us, seconds …"""

MORE_IS_BETTER = frozenset(
    {
        *("msg_per_s", "received_per_s", "acknowledged_mb_s", "dispatched_mb_s", "mb_s"),
        *("of_limit", "of_raw", "of_not_waiting"),
    }
)


@dataclass(frozen=True, slots=True)
class Goal:
    """At least `limit` where more is better, else at most.

    kinds: whose, where both kinds of ours are measured. anchor: the Java that a ratio is to.
    """

    figure: str
    limit: float
    of_ratio: bool = True
    kinds: tuple[str, ...] = ("compiled", "sources")
    anchor: str = "java"

    def reached(self, ours: Figures | None, java: Figures | None) -> float | None:
        """What was reached; None when a side that it is about was not measured."""
        if self.of_ratio:
            return ratios(ours, java).get(self.figure)
        return None if ours is None else ours.get(self.figure)

    def is_held(self, reached: float) -> bool:
        if self.figure in MORE_IS_BETTER:
            return reached >= self.limit
        return reached <= self.limit

    def text(self, reached: float | None) -> str:
        """For people, for instance "p50_us 0.62, goal 0.50: MISSED"."""
        if reached is None:
            return f"{self.figure} goal {self.limit:.2f}: not measured"
        verdict = "held" if self.is_held(reached) else "MISSED"
        return f"{self.figure} {reached:.2f}, goal {self.limit:.2f}: {verdict}"

    def verdict(self, ours: Figures | None, java: Figures | None = None) -> Verdict:
        """What came of it."""
        reached = self.reached(ours, java)
        held = None if reached is None else self.is_held(reached)
        return Verdict(self.figure, self.limit, self.of_ratio, reached, held, self.text(reached))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal and what was reached, as reports keep it; None where it was not measured."""

    figure: str
    limit: float
    of_ratio: bool
    reached: float | None
    held: bool | None
    text: str


def ratios(ours: Figures | None, java: Figures | None) -> dict[str, float]:
    """ours/Java of each figure that both have; none where Java's is 0."""
    if ours is None or java is None:
        return {}
    return {name: ours[name] / java[name] for name in ours if java.get(name)}


def judge(goals: tuple[Goal, ...], ours: Figures | None, java: Figures | None) -> list[Verdict]:
    """The verdict of each goal."""
    return [goal.verdict(ours, java) for goal in goals]
