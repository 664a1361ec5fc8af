"""What figures are made of: percentiles of values that are weighted by time, histograms of them,
buckets of latencies, sums of which the order changes nothing.

Plain functions for the figures of a day (spark/figures/group_day.py) and of several
(spark/figures/windows.py); they run in the executors. The rules are in docs/sla_report.md; must not
know samples, days or objectives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from spark.figures.result_tables import HISTOGRAM_BASE
from spark.vocabulary import SYNC_RESULTS

ACK_QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
NANOSECONDS: Final = 1_000_000_000
_LOG_BASE: Final = math.log(HISTOGRAM_BASE)
_BELOW_THE_END: Final = 1 - 1e-9

Weights = Mapping[int, int]
"""Value -> ms."""


def percentiles(weights: Weights, names: Mapping[str, int]) -> dict[str, int | None]:
    """The smallest value up to which lies at least that share (thousandths) of the weight, for each
    name; None without weight. Whole numbers: 0.99 as a double may come out above the share."""
    return _percentiles(weights, sorted(weights), names)


def _percentiles(
    weights: Weights, values: Sequence[int], names: Mapping[str, int]
) -> dict[str, int | None]:
    """`values`: the weights', ascending."""
    found: dict[str, int | None] = dict.fromkeys(names)
    whole = sum(weights.values())
    if not whole:
        return found
    wanted = sorted(names.items(), key=lambda item: item[1])
    so_far, place = 0, 0
    for value in values:
        so_far += weights[value]
        while place < len(wanted) and so_far * 1000 >= whole * wanted[place][1]:
            found[wanted[place][0]] = value
            place += 1
        if place == len(wanted):
            break
    return found


def largest(weights: Weights) -> int | None:
    """The largest value that has weight."""
    return max((value for value, weight in weights.items() if weight), default=None)


def histogram(weights: Weights) -> dict[int, int] | None:
    """Bucket -> ms, ascending; None without weight."""
    return _histogram(weights, sorted(weights))


def _histogram(weights: Weights, values: Iterable[int]) -> dict[int, int] | None:
    """`values`: the weights', ascending."""
    found: dict[int, int] = {}
    bucket = last = 0
    for value in values:
        weight = weights[value]
        if weight:
            if value > last:
                bucket = bucket_of(value)
                # Up to there no rounding reaches the next bucket: no logarithm for each value.
                last = int(math.pow(HISTOGRAM_BASE, bucket) * _BELOW_THE_END)
            found[bucket] = found.get(bucket, 0) + weight
    return found or None


def bucket_of(value: int) -> int:
    """The bucket of a value in a histogram."""
    return 0 if value < 1 else 1 + math.floor(math.log(value) / _LOG_BASE)


def distribution(measure: str, weights: Weights, names: Mapping[str, int]) -> dict[str, Any]:
    """`<measure>_<name>` of `names`, `<measure>_max` and `<measure>_hist`."""
    values = sorted(weights)
    figures = _percentiles(weights, values, names)
    return {
        **{f"{measure}_{name}": value for name, value in figures.items()},
        f"{measure}_max": largest(weights),
        f"{measure}_hist": _histogram(weights, values),
    }


def merged(histograms: Iterable[Weights | None]) -> dict[int, int] | None:
    """Histograms added up; None of none."""
    found: dict[int, int] = {}
    for each in histograms:
        for bucket, weight in (each or {}).items():
            found[bucket] = found.get(bucket, 0) + weight
    return {bucket: found[bucket] for bucket in sorted(found)} or None


def merged_figures(
    rows: Sequence[Mapping[str, Any]], measure: str, names: Mapping[str, int]
) -> dict[str, Any]:
    """`<measure>_max`, `<measure>_<name>` of `names` and `<measure>_hist` of several rows.

    A percentile is the upper end of a bucket of the histograms added up, never above the largest
    value; None when a row that has a largest value lacks its histogram.
    """
    maxima = [row[f"{measure}_max"] for row in rows if row[f"{measure}_max"] is not None]
    is_whole = all(row[f"{measure}_hist"] or row[f"{measure}_max"] is None for row in rows)
    every = merged(row[f"{measure}_hist"] for row in rows)
    top = max(maxima, default=None)
    found: dict[str, Any] = {f"{measure}_max": None if top is None else float(top)}
    for name, bucket in percentiles(every or {}, names).items():
        is_known = is_whole and bucket is not None and top is not None
        found[f"{measure}_{name}"] = _bucket_end(bucket, top) if is_known else None
    found[f"{measure}_hist"] = every
    return found


def _bucket_end(bucket: int | None, top: float | None) -> float | None:
    if bucket is None or top is None:
        return None
    return min(0.0 if bucket == 0 else math.pow(HISTOGRAM_BASE, bucket), float(top))


def send_count(row: Mapping[str, Any]) -> int | None:
    """All sends that had to wait, with any result; None where nothing is known."""
    counts = [row[f"sync_{result}"] for result in SYNC_RESULTS]
    return None if None in counts else sum(counts)


def send_ratio(row: Mapping[str, Any]) -> float | None:
    """The share of them that was answered with success."""
    sends = send_count(row)
    return row["sync_ok"] / sends if sends else None


def ack_figures(buckets: Mapping[float, int]) -> dict[str, Any]:
    """`ack_le`, `ack_counts` and quantiles from counts by the upper bound of their bucket, the last
    of which is infinite; all None without any bucket."""
    bounds = sorted(buckets)
    counts = [buckets[bound] for bound in bounds]
    finite = [bound for bound in bounds if bound != math.inf]
    found: dict[str, Any] = {
        f"ack_{name}_s": _quantile(share, bounds, counts) for name, share in ACK_QUANTILES.items()
    }
    found["ack_le"] = finite if bounds else None
    found["ack_counts"] = counts if bounds else None
    return found


def _quantile(share: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """Linear within the first bucket that reaches the rank; the last bucket's lower bound."""
    rank, up_to, lower = share * sum(counts), 0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count > 0 and up_to + count >= rank:
            if bound == math.inf:
                return lower
            return lower + (bound - lower) * ((rank - up_to) / count)
        up_to += count
        lower = bound
    return None


def whole_ns(seconds: float) -> int:
    """Rounded to ns, so that a sum does not depend on the order."""
    return math.floor(seconds * NANOSECONDS + 0.5)


def whole_ms(seconds: float | None) -> int:
    """Rounded to ms; 0 of nothing."""
    return round(seconds * 1000) if seconds else 0


def sum_of_seconds(seconds: Iterable[float | None]) -> float:
    """A sum in whole ms; the same in any order."""
    return sum(map(whole_ms, seconds)) / 1000
