"""The criteria of an objective: each one's verdict, and its reason in words.

Plain functions over rows of replica_days and group_days; they run in the executors. One rule holds
for all of them (docs/sla_report.md, "Service level"): met only if the promise would hold had
everything unknown been bad, breached only if that is proved.

Tested by tests/spark/figures/test_contract_criteria.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark.config.objectives import Objective
from spark.figures import wording
from spark.figures.report_data import BREACHED, INSUFFICIENT, MET
from spark.vocabulary import SYNC_MASTER

Row = Mapping[str, Any]

P99_SHARE: Final = 0.01
"""Of the time may have a lag above the limit of lag p99."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """`breach`: by what it is breached; `told`: how it was met; `gap`: what is not known."""

    verdict: str
    breach: str
    gap: str
    told: str

    @property
    def text(self) -> str:
        """Why it has its verdict."""
        return {BREACHED: self.breach, INSUFFICIENT: self.gap}.get(self.verdict, self.told)


def criteria(row: Row, objective: Objective, group: Row | None) -> Iterator[Criterion]:
    """Those that the objective sets and that the day can be judged by."""
    yield _availability(row, objective)
    if objective.lag_p99_seconds is not None:
        yield _lag_p99(row, group, objective.lag_p99_seconds)
    yield from of_sends(objective, group)
    known = group if group is not None and group["samples"] else None
    if objective.rpo_bytes is not None:
        yield _rpo(row, known, objective.rpo_bytes)
    limit = objective.metadata_age_seconds
    if limit is not None and (row["metadata"] or objective.metadata_required):
        yield _metadata_age(row, limit)


def of_sends(objective: Objective, group: Row | None) -> Iterator[Criterion]:
    """Of the group's synchronous sends, if the objective asks for them and there were any."""
    role = group["role"] if group is not None else None
    wanted = objective.sync_ok_wanted(is_sync_master=role == SYNC_MASTER)
    if wanted is not None:
        yield from _sync_ok(group if group is not None and group["samples"] else None, wanted)


def availability_verdict(bad_s: float, unknown_s: float, budget: float, *, is_covered: bool) -> str:
    """Of a day or of several: met only if the budget would hold had all unknown time been bad."""
    if bad_s > budget:
        return BREACHED
    return MET if round(bad_s + unknown_s, 3) <= budget and is_covered else INSUFFICIENT


def is_covered(coverage: float | None, min_coverage_percent: float) -> bool:
    """Whether enough of the time is known."""
    return coverage is not None and round(coverage * 100, 9) >= min_coverage_percent


def criterion_verdict(*, is_breached: bool, is_proved: bool) -> str:
    """Breached if that is proved, met if that is, else nobody knows."""
    if is_breached:
        return BREACHED
    return MET if is_proved else INSUFFICIENT


def _coverage_gap(row: Row, objective: Objective) -> str:
    return (
        f"coverage {_floored(row['coverage'] or 0)} % < {_plain(objective.min_coverage_percent)} %:"
        f" {_duration(row['unknown_s'])} unknown"
    )


def _availability(row: Row, objective: Objective) -> Criterion:
    bad_s, unknown_s, budget = row["bad_s"], row["unknown_s"], row["budget_s"]
    covered = is_covered(row["coverage"], objective.min_coverage_percent)
    seconds = f"{_plain(bad_s)} s bad of {_plain(budget)} s allowed"
    share, wanted = _floored(row["availability"]), _plain(objective.availability_percent)
    gap = (
        f"availability not proved: {_plain(bad_s)} s bad and {_duration(unknown_s)} unknown of"
        f" {_plain(budget)} s allowed"
    )
    unproved_s = row["lag_unproved_s"] or 0.0
    if unproved_s and objective.lag_seconds < (row["interval_s"] or 0.0):
        gap += (
            f"; in {_duration(unproved_s)} of it the replica was in sync, but that its lag stayed"
            f" within {_plain(objective.lag_seconds)} s between the lines"
            f" {_cannot_be_proved(row)}"
        )
    return Criterion(
        availability_verdict(bad_s, unknown_s, budget, is_covered=covered),
        f"availability {share} % < {wanted} %: {seconds}",
        gap if round(bad_s + unknown_s, 3) > budget else _coverage_gap(row, objective),
        f"availability {share} %, objective {wanted} %: {seconds}",
    )


def _cannot_be_proved(row: Row) -> str:
    return f"cannot be proved at this interval ({_plain(row['interval_s'])} s)"


def _has_no_marks(group: Row | None) -> bool:
    """Whether most lines are of version 1, which shows moments only."""
    if group is None or not group["samples"]:
        return False
    return bool(2 * (group["exposure_unmarked"] or 0) > group["samples"])


def _lag_p99(row: Row, group: Row | None, limit: float) -> Criterion:
    above_s, unknown_s = row["lag_p99_above_s"], row["lag_p99_unknown_s"]
    wanted = f"lag p99, objective {_plain(limit)} s"
    if above_s is None or unknown_s is None:
        return Criterion(INSUFFICIENT, "", f"lag p99 not known, objective {_plain(limit)} s", "")
    asked_s = row["window_s"] - row["excluded_s"] - row["state_down_s"]
    allowed_s = round(P99_SHARE * asked_s, 3)
    gap = (
        f"{wanted}: not proved, {_plain(above_s)} s above it and {_duration(unknown_s)} unknown of"
        f" {_plain(allowed_s)} s allowed"
    )
    if row["lag_p99_bounds_ms"]:
        bounds = " and ".join(f"{_plain(each / 1000)} s" for each in row["lag_p99_bounds_ms"])
        gap += f"; the lines count lags by other bounds ({bounds})"
    elif limit < (row["interval_s"] or 0.0) and _has_no_marks(group):
        gap += f"; {_cannot_be_proved(row)}"
    return Criterion(
        criterion_verdict(
            is_breached=above_s > allowed_s,
            is_proved=asked_s > 0 and round(above_s + unknown_s, 3) <= allowed_s,
        ),
        f"{wanted}: above it for {_plain(above_s)} s of {_plain(allowed_s)} s allowed",
        gap,
        f"{wanted}: above it for at most {_plain(round(above_s + unknown_s, 3))} s of"
        f" {_plain(allowed_s)} s allowed",
    )


def _sync_ok(group: Row | None, wanted: float) -> Iterator[Criterion]:
    """Unknown sends count as failed for `met`, as answered well for `breached`."""
    objective = f"objective {_plain(wanted)} %"
    if group is None or group["sync_ok_most"] is None:
        yield Criterion(INSUFFICIENT, "", f"sync ok not known, {objective}", "")
        return
    ok_least, ok_most = group["sync_ok_least"], group["sync_ok_most"]
    failed_least, failed_most = group["sync_failed_least"], group["sync_failed_most"]
    if not ok_most + failed_most:
        return  # nobody sent synchronously
    best, worst = _ratio(ok_most, failed_least), _ratio(ok_least, failed_most)
    known = f"{failed_least} of {ok_least + failed_least} sends failed"
    more = failed_most - failed_least
    open_ = f", and {more} more may have" if more else ""
    told = f"sync ok {_floored(_ratio(ok_least, failed_least))} %"
    yield Criterion(
        criterion_verdict(
            is_breached=round(best * 100, 9) < wanted, is_proved=round(worst * 100, 9) >= wanted
        ),
        f"{told} < {_plain(wanted)} %: {known}{open_}",
        f"sync ok not proved, {objective}: {known}{open_}",
        f"{told}, {objective}: {known}{open_}",
    )


def _ratio(ok: int, failed: int) -> float:
    return ok / (ok + failed) if ok + failed else 1.0


def _rpo(row: Row, group: Row | None, limit: int) -> Criterion:
    objective = f"objective {limit} bytes"
    if group is None or (group["exposure_at_least"] is None and group["exposure_at_most"] is None):
        return Criterion(INSUFFICIENT, "", f"unreplicated bytes not known, {objective}", "")
    at_least, at_most = group["exposure_at_least"] or 0, group["exposure_at_most"]
    unbounded_s = group["exposure_unbounded_s"]
    if at_most is not None and at_most > limit:
        gap = f"unreplicated at worst between {at_least} and {at_most} bytes, {objective}"
        if group["exposure_unmarked"]:
            gap += f"; less {_cannot_be_proved(row)}"
    else:
        gap = f"unreplicated bytes not known for {_duration(unbounded_s)}, {objective}"
    exactly = f"{at_most}" if at_least == at_most else f"at most {at_most}"
    return Criterion(
        criterion_verdict(
            is_breached=at_least > limit,
            is_proved=at_most is not None and at_most <= limit and not unbounded_s,
        ),
        f"unreplicated at worst {at_least} bytes > {limit} bytes",
        gap,
        f"unreplicated at worst {exactly} bytes, {objective}",
    )


def _metadata_age(row: Row, limit: float) -> Criterion:
    """Of the slave's own samples, which may cover another part of the day than the master's."""
    kinds = row["metadata"] or []
    limit_ms = limit * 1000
    oldest = max((each["at_least_ms"] or 0 for each in kinds), default=0)
    most = [each["at_most_ms"] for each in kinds]
    unbounded_s = max((each["unbounded_s"] or 0.0 for each in kinds), default=0.0)
    objective = f"objective {_plain(limit)} s"
    at_most = max((each for each in most if each is not None), default=None)
    is_whole = bool(kinds) and None not in most and not unbounded_s
    if is_whole and at_most is not None and at_most > limit_ms:
        gap = (
            f"metadata age at worst between {_plain(oldest / 1000)} and {_plain(at_most / 1000)} s,"
            f" {objective}: less {_cannot_be_proved(row)}"
        )
    else:
        gap = f"metadata age not known for the whole day, {objective}"
    return Criterion(
        criterion_verdict(
            is_breached=oldest > limit_ms,
            is_proved=is_whole and at_most is not None and at_most <= limit_ms,
        ),
        f"metadata age {_plain(oldest / 1000)} s > {_plain(limit)} s",
        gap,
        f"metadata age at most {_plain(None if at_most is None else at_most / 1000)} s,"
        f" {objective}",
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


def _duration(seconds: float) -> str:
    """As on the page, with plain blanks: programs read it as well."""
    return wording.duration(seconds).replace("\u00a0", " ")
