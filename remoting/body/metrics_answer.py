"""A broker's metrics now (28913) and what its dump tells of a range of time (28912): bodies of
requests of this broker's own. Pure data, any thread. Times in wall clock ms, sizes in bytes.

Whoever asks decodes with `msgspec.json.decode(body, type=MetricsAnswer)`; members that one does not
know are ignored.
"""

from __future__ import annotations

from typing import Final

import msgspec

UNKNOWN: Final = "unknown"
"""The state of an incident without lines: the broker, or its dump, was down."""
IN_ORDER: Final = "in order"
KILLED: Final = "killed"
"""How a life ended: with a line that says so, or without it and another one began."""


class MetricsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to GET_METRICS."""

    timestamp: int
    cut: bool = False
    """There are more series than an answer may have."""
    metrics: dict[str, list[tuple[dict[str, str], float]]] = {}
    """Name to series: labels and value. A histogram has the names that /metrics gives it: _bucket
    (cumulative, with the label le), _count and _sum."""


class ReplicaPoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One replica in one interval; the worst of it."""

    lag_ms_max: int
    lag_bytes_max: int
    worst_state: str
    """disconnected, else catching_up, else in_sync, by the lines of the interval."""
    in_sync: bool
    """In every line of the interval."""


class LatencyCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many by size: `counts` has one more than `le` (seconds), and is not cumulative."""

    le: list[float] = []
    counts: list[int] = []


class DumpPoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One interval. Counts are those of the time between two lines, booked where the later one is:
    none across a gap between two lives of the broker."""

    ts: int
    """Its start."""
    broker_id: int | None = None
    """By its last line."""
    lines: int = 0
    """0: nothing is known of it."""
    role: str | None = None
    """By its last line."""
    replicas: dict[str, ReplicaPoint] = {}
    sends: dict[str, int] = {}
    """Answers to sends by status. What a killed life had answered after its last line is booked
    where the next life's first line is, if that knows it."""
    ack_latency: LatencyCounts = LatencyCounts()
    exposure_bytes_at_most: int | None = None
    """The most that would have been lost; None where no line tells it."""
    msgs_in: int = 0


class DumpIncident(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A stretch in which a replica was in another state than in_sync, or (UNKNOWN) nobody wrote
    what state it was in."""

    replica: str
    """Empty when it concerns the whole broker."""
    from_: int
    """Of the first line that says so; of UNKNOWN that of the last line before."""
    to: int | None
    """Of the first line that no longer says so; None: it goes on where the answer ends."""
    state: str


class DumpLife(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A life of the broker, as far as its lines are in the range; a broker id belongs to it."""

    boot: str
    brokerId: int  # noqa: N815
    from_: int
    """Of its first line in the range; of line 1 that is its start."""
    to: int
    """Of its last line in the range."""
    started: bool
    """Its first line of all is in the range."""
    end: str | None = None
    """IN_ORDER, KILLED, or None: it goes on, or the range does not tell."""


class MetricsDumpAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to GET_METRICS_DUMP."""

    begin: int
    end: int
    step: int
    """Length of an interval."""
    partial_up_to: int | None = None
    """There was no time for what is from here on: ask again, with this as the begin."""
    bad_lines: int = 0
    """Lines that cannot be read, and files that break off."""
    points: list[DumpPoint] = []
    incidents: list[DumpIncident] = []
    lives: list[DumpLife] = []
    """In the order of time; a broker that was promoted, or became a slave, had another broker id
    before."""
