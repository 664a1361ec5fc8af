"""The plots of a group or of the whole report: incidents over time, acknowledgement latency.

Called on the driver by spark/page/report_page.py; templates/plot.html.j2 draws a `Plot`. Must not
know Spark or tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from spark.figures import wording
from spark.page.plot_shapes import (
    THINNED_PERCENT,
    Band,
    Data,
    Path,
    Plot,
    Span,
    Tick,
    round_per_cent,
    thinned,
)


@dataclass(frozen=True)
class Lane:
    """One replica's line of the incident chart: (start, end, cause) in epoch ms."""

    label: str
    incidents: Sequence[tuple[int, int, str]] = field(default_factory=tuple)


CAUSES = (
    "master_restart",
    "failover",
    "ha_restart",
    "disconnected",
    "fell_behind",
    "stalled",
    "slow",
)


def incident_chart(lanes: Sequence[Lane], span: Span) -> Plot:
    """Gantt: a lane for each replica, a bar for each incident, at least 0.4 % wide."""
    lane_px = 34
    bands = []
    used = set()
    for index, lane in enumerate(lanes):
        top = index * lane_px + 18
        bands.append(Band(0, 100, top, 10, "lane"))
        bars = []
        for start, end, cause in lane.incidents:
            used.add(cause)
            left = min(span.percent(start), 99.6)
            width = max(round(span.percent(end) - left, 2), 0.4)
            bars.append(Band(left, width, top, 10, _cause(cause)))
        bands += thinned(bars, THINNED_PERCENT)
    total = sum(len(lane.incidents) for lane in lanes)
    return Plot(
        title="Incidents over time",
        note="Times are UTC. The table below has the same incidents.",
        alternative=(
            f"Chart of {wording.plural(total, 'incident', 'incidents')} of "
            f"{wording.plural(len(lanes), 'replica', 'replicas')} over the window; "
            "the table below lists them."
        ),
        width=1000,
        height=lane_px * len(lanes),
        bands=bands,
        x_ticks=span.ticks(),
        lanes=[Tick(i * lane_px + 13, lane.label, "start") for i, lane in enumerate(lanes)],
        legend=[(_cause(cause), cause.replace("_", " ")) for cause in sorted(used)],
        grid=False,
    )


def _cause(cause: str) -> str:
    return f"cause-{cause}" if cause in CAUSES else "cause-other"


def ack_histogram(
    bounds_s: Sequence[float], counts: Sequence[int], quantiles: Sequence[tuple[str, float | None]]
) -> Plot:
    """Sends by the time from append to acknowledgement; empty buckets at both ends left out."""
    labels = [f"≤ {wording.lag(bound * 1000)}" for bound in bounds_s]
    labels.append(f"> {wording.lag(bounds_s[-1] * 1000)}" if bounds_s else "any")
    there = [index for index, number in enumerate(counts) if number]
    first, last = (there[0], there[-1] + 1) if there else (0, len(counts))
    bars = list(zip(labels[first:last], counts[first:last], strict=True))
    height = 150
    most = max((number for _, number in bars), default=0) or 1
    total = sum(counts)
    every = max(1, math.ceil(len(bars) / 5))
    return Plot(
        title="Acknowledgement latency",
        note="Synchronous sends by the time from append to the replicas' acknowledgement.",
        alternative=f"Histogram of {wording.plural(total, 'send', 'sends')}: "
        + ", ".join(f"{label} {wording.lag(_ms(value))}" for label, value in quantiles)
        + ".",
        width=max(len(bars), 1) * 10,
        height=height,
        paths=[Path("".join(_bar(i, n / most, height) for i, (_, n) in enumerate(bars)), "bars")],
        x_ticks=[
            Tick(
                at := round((index + 0.5) * 100 / len(bars), 2),
                bars[index][0],
                "start" if at < 12 else "end" if at > 88 else "middle",
            )
            for index in range(0, len(bars), every)
        ],
        y_ticks=[
            Tick(round(height * (1 - mark * total / (100 * most))), wording.per_cent(mark), "end")
            for mark in round_per_cent(100 * most / total if total else 0.0)
        ],
        data=Data(
            ("Latency", "Sends", "Share"),
            [
                (label, wording.count(n), wording.share(n / total if total else None))
                for label, n in bars
            ],
        ),
        x_grid=False,
    )


def _bar(index: int, part: float, height: int) -> str:
    # What is there is seen: a bucket that is not empty has at least 1 px.
    tall = max(round(part * height), 1) if part else 0
    return f"M{index * 10 + 1} {height}h8v{-tall}h-8z" if tall else ""


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
