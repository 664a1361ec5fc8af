"""Which series are one scraped broker: its own labels, its scrapes, one series for each.

Plain Python, no Spark. A Prometheus server adds labels of its own, renames ours where its own have
their names, and may have a broker twice (two servers). What comes out of here has the broker's own
labels only, and one value for each of them at each scrape; must not know what lines are made of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark.prometheus_import.metrics import (
    ACK_BUCKET,
    BASE_LABELS,
    DOWN_AT,
    OWN_LABELS,
    PROCESS_START,
    READY,
    SCRAPED_AT,
)
from spark.prometheus_import.response import Grid, ResponseError, Series

_NEEDED: Final = frozenset({"kind", "result", "le", "replica", "state", "process"})
"""Labels that no broker leaves empty and that a line is made of."""

_PLAIN: Final = "import it as the broker shows it (metric_relabel_configs may have changed it)"

_Source = tuple[tuple[str, str], ...]
"""Labels and values that tell apart where several series of READY come from."""


@dataclass(frozen=True, slots=True)
class Target:
    """One scraped broker.

    scrapes: (moment of the grid, time of the scrape), ms
    failed: the same of scrapes that got no answer; none at a moment that has another one
    shown: metrics that have a value anywhere
    series: by metric, with the broker's own labels; of meaning at the moments of `scrapes` only
    """

    cluster: str
    broker: str
    instance: str
    job: str
    scrapes: tuple[tuple[int, int], ...]
    failed: tuple[tuple[int, int], ...]
    shown: frozenset[str]
    series: Mapping[str, Sequence[Series]]

    @property
    def name(self) -> str:
        """For messages."""
        return _name(self.cluster, self.broker, self.instance, self.job)

    def has(self, metric: str) -> bool:
        """Whether there is any value of it."""
        return metric in self.shown

    def values(self, metric: str, ts: int) -> list[tuple[Mapping[str, str], float]]:
        """Labels and value of each series that has one at `ts`, a moment of `scrapes`."""
        return [
            (series.labels, series.points[ts])
            for series in self.series.get(metric, ())
            if ts in series.points
        ]

    def value(self, metric: str, ts: int) -> float | None:
        """Of a metric without labels of its own."""
        found = self.values(metric, ts)
        return found[0][1] if found else None

    def by(self, label: str, metric: str, ts: int) -> dict[str, float]:
        """Values by one label, summed over the others."""
        found: dict[str, float] = {}
        for labels, value in self.values(metric, ts):
            key = labels[label]
            found[key] = found.get(key, 0.0) + value
        return found


@dataclass(frozen=True, slots=True)
class _Entered:
    """A series with its labels by origin. `own`: the broker's, without BASE_LABELS."""

    series: Series
    base: Mapping[str, str]
    own: Mapping[str, str]
    foreign: Mapping[str, str]


def targets_of(grid: Grid) -> list[Target]:
    """Every target that shows a broker's metric; series of other metrics are ignored.

    Raises ResponseError when it is unclear what a series is, or which of several counts.
    """
    found: dict[tuple[str, str, str, str], list[_Entered]] = defaultdict(list)
    failed: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for series in grid.series:
        if series.name == DOWN_AT:
            failed[series.labels.get("instance", ""), series.labels.get("job", "")] |= series.points
        if series.name not in OWN_LABELS:
            continue
        entered = _enter(series)
        cluster, broker = entered.base["cluster"], entered.base["node_id"]
        if cluster and broker:
            place = (entered.foreign.get("instance", ""), entered.foreign.get("job", ""))
            found[cluster, broker, *place].append(entered)
        elif series.name != PROCESS_START:  # every process has that one
            raise ResponseError(
                f"{_describe(series)}: lacks the label cluster or node_id; query the plain"
                " metrics, as `mqreport import --print-queries` says"
            )
    return [
        _target(key, found[key], failed.get(key[2:], {}), grid.step_ms) for key in sorted(found)
    ]


def _enter(series: Series) -> _Entered:
    """Where a target has a label of the same name, Prometheus calls the broker's `exported_…`."""
    foreign = dict(series.labels)

    def take(label: str) -> str:
        exported = foreign.pop(f"exported_{label}", "")
        return exported or foreign.pop(label, "")

    base = {label: take(label) for label in BASE_LABELS}
    own = {label: take(label) for label in OWN_LABELS[series.name]}
    for label in own.keys() & _NEEDED:
        if not own[label]:
            raise ResponseError(f"{_describe(series)}: lacks the label {label}; {_PLAIN}")
    if series.name == ACK_BUCKET and not _is_bound(own["le"]):
        raise ResponseError(f'{_describe(series)}: le="{own["le"]}" is not a number; {_PLAIN}')
    return _Entered(series, base, own, foreign)


def _is_bound(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def _describe(series: Series) -> str:
    return f"{series.file}: {series.name}{dict(series.labels)}"


def _name(cluster: str, broker: str, instance: str, job: str) -> str:
    where = " ".join(text for text in (job, instance) if text)
    return f"{cluster}/{broker} ({where})"


def _target(
    key: tuple[str, str, str, str],
    entered: list[_Entered],
    failed: Mapping[int, float],
    step_ms: int,
) -> Target:
    name = _name(*key)
    by_metric: dict[str, list[_Entered]] = defaultdict(list)
    for one in entered:
        by_metric[one.series.name].append(one)
    scrapes = _scrapes(name, by_metric[READY], by_metric[SCRAPED_AT], step_ms)
    return Target(
        *key,
        tuple((scrape.moment, scrape.at_ms) for scrape in scrapes),
        _failed(failed, {scrape.moment for scrape in scrapes}, step_ms),
        frozenset(m for m, some in by_metric.items() if any(one.series.points for one in some)),
        {metric: _one_each(name, some, scrapes) for metric, some in by_metric.items()},
    )


def _failed(
    at_s: Mapping[int, float], scraped: Collection[int], step_ms: int
) -> tuple[tuple[int, int], ...]:
    """In order. Of two servers, one of which gets an answer, the other one is cut off."""
    found = ((ts, round(at_s[ts] * 1000)) for ts in sorted(at_s) if ts not in scraped)
    # What is a whole step old was there at the moment before: Prometheus repeats it.
    return tuple((ts, at_ms) for ts, at_ms in found if ts - step_ms < at_ms <= ts)


@dataclass(frozen=True, slots=True)
class _Scrape:
    """`source`: foreign labels by which the series of READY differ, as this scrape has them."""

    moment: int
    at_ms: int
    source: _Source


def _scrapes(
    name: str, ready: Sequence[_Entered], times: Sequence[_Entered], step_ms: int
) -> list[_Scrape]:
    """In order, one for each moment that has any.

    Series of READY that differ in a foreign label follow each other when that label changed, and
    then share one moment at most, whose later scrape counts. Else two servers scraped the broker.
    """
    differing = _differing(one.foreign for one in (*ready, *times))
    found: dict[int, list[_Scrape]] = defaultdict(list)
    for one in ready:
        source = tuple((label, one.foreign.get(label, "")) for label in differing)
        at_s: dict[int, float] = {}
        for time in _of_source(times, source):
            at_s |= time.series.points
        moments = one.series.points if not times else at_s.keys() & one.series.points
        before = -math.inf
        for ts in sorted(moments):
            at_ms = round(at_s[ts] * 1000) if times else ts
            # What is a whole step old was there at the moment before: Prometheus repeats it.
            if max(before, ts - step_ms) < at_ms <= ts:
                before = at_ms
                found[ts].append(_Scrape(ts, at_ms, source))
    for ts, some in found.items():
        if len(some) > 1 and len(found.get(ts - step_ms, ())) > 1:
            raise ResponseError(f"{name}: {READY} is there several times{_told_apart(ready)}")
    return [max(found[ts], key=lambda scrape: scrape.at_ms) for ts in sorted(found)]


def _one_each(name: str, entered: Sequence[_Entered], scrapes: Sequence[_Scrape]) -> list[Series]:
    """Series with the broker's own labels, at each scrape those of its source.

    Raises ResponseError where the broker's labels do not tell two of them apart.
    """
    of_source = {scrape.source: _of_source(entered, scrape.source) for scrape in scrapes}
    found: dict[tuple[str, ...], Series] = {}
    for one in entered:
        series = Series(one.series.name, one.own, one.series.file)
        found.setdefault(tuple(one.own.values()), series)
    if len(of_source) < 2 and len(found) == len(entered):
        return [
            Series(one.series.name, one.own, one.series.file, one.series.points) for one in entered
        ]
    for scrape in scrapes:
        for one in of_source[scrape.source]:
            if scrape.moment not in one.series.points:
                continue
            points = found[tuple(one.own.values())].points
            if scrape.moment in points:
                alike = [other for other in entered if other.own == one.own]
                raise ResponseError(
                    f"{name}: {one.series.name}{dict(one.own)} has several values at"
                    f" {scrape.moment / 1000}{_told_apart(alike)}"
                )
            points[scrape.moment] = one.series.points[scrape.moment]
    return list(found.values())


def _differing(several: Iterable[Mapping[str, str]]) -> list[str]:
    """Labels that these do not have in common."""
    every = [set(labels.items()) for labels in several]
    some = {pair for pairs in every for pair in pairs}
    return sorted({pair[0] for pair in some if any(pair not in pairs for pairs in every)})


def _of_source(entered: Sequence[_Entered], source: _Source) -> list[_Entered]:
    """Those of this source. A metric that never has one of its labels is of every source."""
    there = [
        (label, value) for label, value in source if any(label in one.foreign for one in entered)
    ]
    return [
        one for one in entered if all(one.foreign.get(label, "") == value for label, value in there)
    ]


def _told_apart(entered: Sequence[_Entered]) -> str:
    """The end of a message: by what, and the way out."""
    label, *others = _differing(one.series.labels for one in entered)
    values = sorted({one.series.labels.get(label, "") for one in entered})
    also = f" (and by {', '.join(others)})" if others else ""
    return (
        f", told apart by {label}{also}: {', '.join(values)}. Is the broker scraped by several"
        f" servers? Choose one: --print-queries --match '{label}=\"{values[-1]}\"'"
    )
