"""Whether a replica met its objective: each criterion's verdict, the worst of them, and why.

Plain functions over rows of replica_days and group_days; they run in the executors. The rules are
in docs/sla_report.md ("Service level"): what is not known is never `met`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark.config.objectives import Objective
from spark.figures import wording
from spark.figures.distributions import send_count
from spark.figures.report_data import BREACHED, INSUFFICIENT, MET
from spark.figures.result_tables import SPANS_S
from spark.vocabulary import GROUP, MINUTE_MS, SYNC_MASTER

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Criterion:
    """`breach`: by what it is breached; `told`: how it was met; `gap`: what is not known."""

    verdict: str
    breach: str
    gap: str
    told: str


def judged(row: Row, objective: Objective, group: Row | None) -> tuple[str, list[str]]:
    """The verdict of a replica's day, and the reasons: texts on what is breached, then on what is
    not known; for `met` on how each criterion was met.

    `row` has the columns of replica_days up to the budget, `group` those of group_days; None
    without a sample of the group.
    """
    if row["excluded_s"] >= row["window_s"]:
        reasons = ", ".join(f"{each['reason']}" for each in row["exclusions"])
        return MET, [f"nothing was promised: all of it is excluded ({reasons})"]
    criteria = list(_criteria(row, objective, group))
    breaches = [each.breach for each in criteria if each.verdict == BREACHED]
    gaps = [each.gap for each in criteria if each.verdict == INSUFFICIENT]
    told = [each.told for each in criteria if each.verdict == MET]
    verdict = worst_of(each.verdict for each in criteria)
    return verdict, list(dict.fromkeys(breaches + gaps or told))


def worst_of(verdicts: Iterable[str]) -> str:
    """The worst of several; `insufficient data` of none."""
    found = set(verdicts)
    if BREACHED in found:
        return BREACHED
    return MET if found == {MET} else INSUFFICIENT


def waiting_groups(groups: Iterable[Row], replicas: Iterable[Row]) -> list[Row]:
    """Groups of a date whose SYNC_MASTER has no slave: nothing could be met."""
    with_replicas = {tuple(row[name] for name in GROUP) for row in replicas}
    return [
        row
        for row in groups
        if row["role"] == SYNC_MASTER and tuple(row[name] for name in GROUP) not in with_replicas
    ]


def budget_s(availability_percent: float, length_s: float) -> float:
    """Seconds that may be bad; whole ms, so that 0.1 % of a day is 86.4 s and nothing else."""
    return round((100 - availability_percent) * length_s / 100, 3)


def budget_columns(budget: float, bad_s: float) -> dict[str, float | None]:
    """What a budget of seconds became, of a day or of several."""
    return {
        "budget_s": budget,
        "budget_left_s": budget - bad_s,
        "budget_used_ratio": bad_s / budget if budget > 0 else None,
    }


def availability_verdict(bad_s: float, unknown_s: float, budget: float, *, is_covered: bool) -> str:
    """Of a day or of several: met only if the budget would hold had all unknown time been bad."""
    if bad_s > budget:
        return BREACHED
    return MET if round(bad_s + unknown_s, 3) <= budget and is_covered else INSUFFICIENT


def is_covered(coverage: float | None, min_coverage_percent: float) -> bool:
    """Whether enough of the time is known."""
    return coverage is not None and round(coverage * 100, 9) >= min_coverage_percent


# -- criteria --------------------------------------------------------------------------------


def _criteria(row: Row, objective: Objective, group: Row | None) -> Iterator[_Criterion]:
    covered = is_covered(row["coverage"], objective.min_coverage_percent)
    yield _availability(row, objective, covered=covered)
    if objective.lag_p99_seconds is not None:
        yield _lag_p99(row, objective, objective.lag_p99_seconds, covered=covered)
    role = group["role"] if group is not None else None
    wanted = objective.sync_ok_wanted(is_sync_master=role == SYNC_MASTER)
    if wanted is not None:
        yield from _sync_ok(row, objective, group, wanted, covered=covered)
    if objective.rpo_bytes is not None:
        yield _rpo(row, objective, group, objective.rpo_bytes, covered=covered)
    limit = objective.metadata_age_seconds
    if limit is not None and (row["metadata"] or objective.metadata_required):
        yield _metadata_age(row, objective, limit, covered=covered)


def _verdict(*, is_breached: bool, is_known: bool) -> str:
    if is_breached:
        return BREACHED
    return MET if is_known else INSUFFICIENT


def _coverage_gap(row: Row, objective: Objective) -> str:
    return (
        f"coverage {_floored(row['coverage'] or 0)} % < {_plain(objective.min_coverage_percent)} %:"
        f" {_duration(row['unknown_s'])} unknown"
    )


def _availability(row: Row, objective: Objective, *, covered: bool) -> _Criterion:
    bad_s, unknown_s, budget = row["bad_s"], row["unknown_s"], row["budget_s"]
    seconds = f"{_plain(bad_s)} s bad of {_plain(budget)} s allowed"
    share, wanted = _floored(row["availability"]), _plain(objective.availability_percent)
    gap = (
        f"availability not proved: {_plain(bad_s)} s bad and {_duration(unknown_s)} unknown of"
        f" {_plain(budget)} s allowed"
    )
    return _Criterion(
        availability_verdict(bad_s, unknown_s, budget, is_covered=covered),
        f"availability {share} % < {wanted} %: {seconds}",
        gap if round(bad_s + unknown_s, 3) > budget else _coverage_gap(row, objective),
        f"availability {share} %, objective {wanted} %: {seconds}",
    )


def _lag_p99(row: Row, objective: Objective, limit: float, *, covered: bool) -> _Criterion:
    lag_ms = row["lag_ms_p99"]
    # A share of what is known proves nothing when next to nothing is known.
    is_known = lag_ms is not None and covered
    figure = None if lag_ms is None else lag_ms / 1000
    if figure is None:
        gap = f"lag p99 not known, objective {_plain(limit)} s"
    else:
        gap = _coverage_gap(row, objective)
    return _Criterion(
        _verdict(is_breached=is_known and figure is not None and figure > limit, is_known=is_known),
        f"lag p99 {_plain(figure)} s > {_plain(limit)} s",
        gap,
        f"lag p99 {_plain(figure)} s, objective {_plain(limit)} s",
    )


def _sync_ok(
    row: Row, objective: Objective, group: Row | None, wanted: float, *, covered: bool
) -> Iterator[_Criterion]:
    ratio = group["sync_ok_ratio"] if group is not None else None
    if ratio is None and group is not None and group["samples"]:
        return  # nobody sent synchronously
    is_known = ratio is not None and covered
    sends = send_count(group) if group is not None and group["samples"] else None
    failed = None if sends is None or group is None else sends - group["sync_ok"]
    numbers = f"{_whole(failed)} of {_whole(sends)} sends failed"
    share = _floored(ratio)
    gap = f"sync ok not known, objective {_plain(wanted)} %"
    yield _Criterion(
        _verdict(
            is_breached=is_known and ratio is not None and round(ratio * 100, 9) < wanted,
            is_known=is_known,
        ),
        f"sync ok {share} % < {_plain(wanted)} %: {numbers}",
        gap if ratio is None else _coverage_gap(row, objective),
        f"sync ok {share} %, objective {_plain(wanted)} %: {numbers}",
    )


def _rpo(
    row: Row, objective: Objective, group: Row | None, limit: int, *, covered: bool
) -> _Criterion:
    figure = group["unreplicated_bytes_max"] if group is not None else None
    exposure_s = (group["exposure_covered_s"] if group is not None else None) or 0.0
    own = exposure_s / row["window_s"]
    is_own_covered = is_covered(own, objective.min_coverage_percent)
    if figure is None:
        gap = f"unreplicated bytes not known, objective {limit} bytes"
    elif not is_own_covered:
        gap = (
            f"unreplicated bytes known for {_floored(own)} % <"
            f" {_plain(objective.min_coverage_percent)} % of the time"
        )
    else:
        gap = _coverage_gap(row, objective)
    return _Criterion(
        _verdict(
            is_breached=figure is not None and figure > limit,
            is_known=figure is not None and covered and is_own_covered,
        ),
        f"unreplicated at worst {_whole(figure)} bytes > {limit} bytes",
        gap,
        f"unreplicated at worst {_whole(figure)} bytes, objective {limit} bytes",
    )


def _metadata_age(row: Row, objective: Objective, limit: float, *, covered: bool) -> _Criterion:
    """Of the slave's own samples, which may cover another part of the day than the master's."""
    kinds = row["metadata"] or []
    ages = [kind["max_age_ms"] for kind in kinds if kind["max_age_ms"] is not None]
    oldest = max(ages, default=None)
    all_known = bool(kinds) and all(
        kind["max_age_ms"] is not None
        and is_covered(kind["covered_s"] / row["window_s"], objective.min_coverage_percent)
        for kind in kinds
    )
    shown = _plain(None if oldest is None else oldest / 1000)
    gap = f"metadata age not known for the whole day, objective {_plain(limit)} s"
    return _Criterion(
        _verdict(
            is_breached=oldest is not None and oldest > limit * 1000,
            is_known=all_known and covered,
        ),
        f"metadata age {shown} s > {_plain(limit)} s",
        _coverage_gap(row, objective) if all_known else gap,
        f"metadata age {shown} s, objective {_plain(limit)} s",
    )


# -- words -----------------------------------------------------------------------------------


def _plain(number: float | None) -> str:
    """A number with at most three decimals and no trailing zeros."""
    if number is None:
        return "unknown"
    return f"{number:.3f}".rstrip("0").rstrip(".")


def _floored(ratio: float | None) -> str:
    """Per cent, cut and not rounded: 99.8999 of 99.9 must not read 99.9."""
    return _plain(None if ratio is None else math.floor(round(ratio * 100_000, 6)) / 1000)


def _whole(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _duration(seconds: float) -> str:
    """As on the page, with plain blanks: programs read it as well."""
    return wording.duration(seconds).replace("\u00a0", " ")


# -- burn rates ------------------------------------------------------------------------------


def burn_rates(
    today: Sequence[tuple[int, int]],
    before: Iterable[tuple[int, int]],
    availability_percent: float,
) -> dict[str, float | None]:
    """`burn_1h` and so on: the most bad time of any such span that ends with a minute of D, as a
    multiple of what may be bad in it; None where the objective leaves no budget.

    `today`: (minute, bad_ms) of D's minutes in order; `before`: of stored minutes of the days
    before, those with bad time.
    """
    first = today[0][0]
    bad = sorted((minute, ms) for minute, ms in before if ms and minute < first)
    bad += [(minute, ms) for minute, ms in today if ms]
    sums = [0]
    for _, ms in bad:
        sums.append(sums[-1] + ms)
    allowed = (100 - availability_percent) / 100
    found: dict[str, float | None] = {}
    for name, span_s in SPANS_S.items():
        worst, begin = 0, 0
        # The largest sum is that of a span that ends with a bad minute, or with D's first one.
        ends = [(first, sum(1 for minute, _ in bad if minute <= first))]
        ends += [(minute, place + 1) for place, (minute, _) in enumerate(bad) if minute >= first]
        for minute, end in ends:
            while begin < end and bad[begin][0] <= minute - span_s * 1000:
                begin += 1
            worst = max(worst, sums[end] - sums[begin])
        found[f"burn_{name}"] = worst / (allowed * span_s * 1000) if allowed > 0 else None
    return found


def burnt_minutes(first_minute: int, bad_ms: Iterable[int]) -> list[tuple[int, int]]:
    """(minute, bad_ms) of minutes one behind the other."""
    return [(first_minute + place * MINUTE_MS, ms) for place, ms in enumerate(bad_ms)]
