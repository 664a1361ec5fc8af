"""The curves of `bin/bench growth`: which there are, their points, and when one is called flat.

Shared by what measures (growth.py), by the pictures and by the page. Pure: it knows no broker and
no file. A report is the JSON that growth.py writes:

    date, java_version, machine, python, messages, rounds
    curves      name of a curve -> its points (`Point`), in the order in which they were measured
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

FLAT_WITHIN: Final = 1.3
"""The last point's cost is at most so many times the first's, and not less than so many parts."""
SEND: Final = "send"
PULL: Final = "pull"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One thing that grows. `setup` says how, `sides` for which brokers it can be measured."""

    name: str
    title: str
    axis: str
    setup: str
    points: tuple[float, ...]
    quick: tuple[float, ...]
    sides: tuple[str, ...] = ("ours", "java")


CURVES: Final = {
    curve.name: curve
    for curve in (
        Curve(
            name="stored",
            title="Messages stored",
            axis="GB in the commit log",
            setup="One broker whose log is filled with messages of 2 KiB up to each point. Then"
            " messages of 128 bytes to a new topic, 4 connections × 64 in flight, and pulls of"
            " these, 32 at most a request.",
            points=(0, 0.5, 1.5, 4, 9, 20),
            quick=(0, 0.1, 0.3),
        ),
        Curve(
            name="topics",
            title="Topics",
            axis="topics",
            setup="Every topic has a message before it begins. Messages of 128 bytes, each to the"
            " next topic, 4 connections × 64 in flight.",
            points=(10, 50, 250, 1_000, 5_000, 20_000),
            quick=(10, 100, 1_000),
        ),
        Curve(
            name="connections",
            title="Connections",
            axis="connections",
            setup="One message of 128 bytes in flight altogether, each from the next connection;"
            " an eighth of the messages.",
            points=(1, 5, 30, 200, 1_000, 5_000),
            quick=(1, 20, 200),
        ),
        Curve(
            name="parked",
            title="Parked pulls",
            axis="pulls that wait",
            setup="Every pull waits at a queue of its own, 200 on a connection. Messages of 128"
            " bytes to another topic, 4 connections × 64 in flight.",
            points=(0, 100, 500, 2_000, 7_000, 20_000),
            quick=(0, 100, 1_000),
        ),
        Curve(
            name="size",
            title="Message size",
            axis="size of a body",
            setup="4 connections × 16 in flight, a new topic each time; then pulls of the same"
            " messages, 32 at most a request. Of bodies over 4 KiB as many bytes are sent as of"
            " those of 4 KiB.",
            points=(16, 128, 1_024, 8_192, 65_536, 262_144, 1_048_576),
            quick=(16, 1_024, 65_536),
        ),
        Curve(
            name="slaves",
            title="Slaves",
            axis="slaves",
            setup="An asynchronous master, processor time of the master alone until every slave has"
            " everything. Messages of 128 bytes, 4 connections × 64 in flight; the slaves run on"
            " the same machine.",
            points=(1, 2, 3, 4),
            quick=(1, 2),
            sides=("ours",),
        ),
        Curve(
            name="groups",
            title="Consumer groups",
            axis="consumer groups",
            setup="Every group pulls the same messages of 128 bytes, 32 a request, and commits its"
            " offset with each pull; one pull of each of 4 queues in flight, the groups in turn."
            " Four times the messages, pulled.",
            points=(1, 5, 20, 60, 200),
            quick=(1, 5, 20),
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What the rounds of one kind of load showed at one point of a curve, on one side."""

    side: str
    kind: str
    at: float
    msg_per_s: Sequence[float]
    cpu_us: Sequence[float]
    """Microseconds a message, all processes of the broker together."""
    refused: int
    """Sends that got no SUCCESS; they are in neither figure."""
    stolen: float
    """0 to 1: the most that the host gave to others of this machine in a round."""

    @property
    def speed(self) -> float:
        """The median of the rounds, messages a second."""
        return statistics.median(self.msg_per_s)

    @property
    def cost(self) -> float:
        """The median of the rounds, microseconds a message."""
        return statistics.median(self.cpu_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole run."""

    date: str
    java_version: str
    machine: Mapping[str, Any]
    python: str
    messages: int
    rounds: int
    curves: Mapping[str, Sequence[Point]]

    def to_json(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Raises ValueError that says what is wrong."""
        try:
            data = dict(json.loads(text))
            points = {
                CURVES[name].name: [Point(**point) for point in found]
                for name, found in data.pop("curves").items()
            }
            return cls(**data, curves=points)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no report of bin/bench growth: {error!r:.200}") from error


def series(points: Sequence[Point]) -> dict[tuple[str, str], list[Point]]:
    """(side, kind) -> its points, by what has grown."""
    found: dict[tuple[str, str], list[Point]] = {}
    for point in sorted(points, key=lambda one: one.at):
        found.setdefault((point.side, point.kind), []).append(point)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How the cost of a message went from the first point to the last."""

    ratio: float
    """The last / the first."""
    highest: float
    """The highest / the first."""

    @classmethod
    def of(cls, costs: Sequence[float]) -> Verdict:
        """Of the costs in order. Raises ValueError for fewer than two points."""
        if len(costs) < 2:
            raise ValueError("a curve has two points at least")
        first = costs[0]
        if first <= 0:
            raise ValueError("the first point cost nothing: more messages are needed")
        return cls(ratio=costs[-1] / first, highest=max(costs) / first)

    @property
    def word(self) -> str:
        """ "flat", "grows" or "falls"."""
        if self.ratio > FLAT_WITHIN:
            return "grows"
        return "falls" if self.ratio * FLAT_WITHIN < 1 else "flat"


def points_up_to(points: Sequence[float], most: float) -> tuple[float, ...]:
    """The points below `most`, and `most` as the last.

    Raises ValueError when that is not behind the first, or a fraction where no point is one.
    """
    if not points[0] < most < math.inf:
        raise ValueError(f"must be a number above {points[0]:g}, where the curve begins")
    if most % 1 and not any(point % 1 for point in points):
        raise ValueError("must be a whole number")
    return (*(point for point in points if point < most), most)


def label(curve: str, at: float) -> str:
    """A point as it is written at an axis and in a table."""
    if curve != "size":
        return f"{at:,.0f}" if at >= 1_000 else f"{at:g}"
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if at >= size:
            return f"{at / size:g} {unit}"
    return f"{at:g} B"
