"""Criteria of contracts, beside those of replication: sends, slow sends, availability of a group.

Plain functions over rows of group_days and group_availability; they run in the executors. The rule
of spark/figures/criteria.py holds here, too: met only if the promise would hold had everything
unknown been bad, breached only if that is proved (docs/sla_report.md, "Service level").
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark.config.objectives import Objective, SlowSends
from spark.figures import wording
from spark.figures.criteria import Criterion, criterion_verdict
from spark.figures.report_data import BREACHED, INSUFFICIENT
from spark.vocabulary import LED_TWICE, PROMISE_LOST

Row = Mapping[str, Any]


def contract_criteria(
    objective: Objective, group: Row | None, availability: Row | None
) -> Iterator[Criterion]:
    """Those that the objective sets. `group`: the row of group_days, None without a sample;
    `availability`: that of group_availability for this objective."""
    yield from contract_of_sends(objective, group)
    if availability is not None:
        yield group_criterion(availability)


def contract_of_sends(objective: Objective, group: Row | None) -> Iterator[Criterion]:
    """Those of the group's sends: they are promised whatever its replicas do."""
    known = group if group is not None and group["samples"] else None
    if objective.sends_ok_percent is not None:
        yield from _sends_ok(known, objective.sends_ok_percent)
    if objective.sends_slower_than is not None:
        yield from _slow_sends(known, objective.sends_slower_than)


def of_elections(elections: Sequence[Row]) -> Iterator[Criterion]:
    """SEND_OK is a promise that no objective has to ask for: what an election lost breaks it. Where
    nobody knows nothing is said: what was at risk has a criterion of its own (`rpo_bytes`)."""
    lost = [row for row in elections if row["promise"] == PROMISE_LOST]
    if lost:
        size = sum(row["lost_bytes"] for row in lost)
        epochs = ", ".join(str(row["epoch"]) for row in lost)
        text = f"{size} bytes that were answered SEND_OK are lost: by election of epoch {epochs}"
        yield Criterion(BREACHED, text, "", "")
    twice = [row["epoch"] for row in elections if row["why"] == LED_TWICE]
    if twice:
        yield Criterion(INSUFFICIENT, "", f"{LED_TWICE}: {', '.join(map(str, twice))}", "")


def _sends_ok(group: Row | None, wanted: float) -> Iterator[Criterion]:
    """Unknown answers count as failed for `met`, as good ones for `breached`."""
    objective = f"objective {_percent(wanted)}"
    if group is None or group["sends_ok_most"] is None:
        yield Criterion(INSUFFICIENT, "", f"sends ok not known, {objective}", "")
        return
    ok_least, ok_most = group["sends_ok_least"], group["sends_ok_most"]
    failed_least, failed_most = group["sends_failed_least"], group["sends_failed_most"]
    if not ok_most + failed_most:
        return  # nobody sent
    share = wording.share(_ratio(ok_least, failed_least)).replace("\u00a0", " ")
    known = f"{failed_least} of {ok_least + failed_least} sends were not answered well"
    if failed_most > failed_least:
        known += f", and {failed_most - failed_least} more may not have been"
    yield Criterion(
        criterion_verdict(
            is_breached=_below(_ratio(ok_most, failed_least), wanted),
            is_proved=not _below(_ratio(ok_least, failed_most), wanted),
        ),
        f"sends ok {share} < {_percent(wanted)}: {known}",
        f"sends ok not proved, {objective}: {known}{_uncounted(group)}",
        f"sends ok {share}, {objective}: {known}",
    )


def _slow_sends(group: Row | None, wanted: SlowSends) -> Iterator[Criterion]:
    """Answers in a bucket that the limit divides are unknown, as are those that nobody counted."""
    limit = f"{_number(wanted.ms)} ms"
    objective = f"objective {_percent(wanted.percent)}"
    name = f"sends slower than {limit}"
    if group is None or group["sends_le"] is None:
        yield Criterion(INSUFFICIENT, "", f"{name}: not known, {objective}", "")
        return
    le, least, most = group["sends_le"], group["sends_least"], group["sends_most"]
    if not sum(most) + group["sends_unmeasured"]:
        return  # nobody sent
    bounds_ms = [round(bound * 1000, 6) for bound in le]
    place = bisect_left(bounds_ms, wanted.ms)
    divided = not (place < len(bounds_ms) and bounds_ms[place] == wanted.ms)
    # Up to the bound, or the one below it, an answer was in time; above the bound, or the one
    # above it, it was late.
    in_time = place if divided else place + 1
    late = place + 1
    either = most[place] if divided else 0
    fast_least, fast_most = sum(least[:in_time]), sum(most[:in_time])
    slow_least, slow_most = sum(least[late:]), sum(most[late:])
    unknown = either + group["sends_unmeasured"]
    best = _ratio(slow_least, fast_most + unknown)
    worst = _ratio(slow_most + unknown, fast_least)
    known = f"{slow_least} of {slow_least + fast_least}"
    more = slow_most + unknown - slow_least
    if more:
        known += f", and {more} more may have been"
    gap = f"{name} not proved, {objective}: {known}"
    if divided:
        near = [f"{_number(bound)} ms" for bound in bounds_ms[max(0, place - 1) : place + 1]]
        gap += f"; the lines count by other bounds ({' and '.join(near)})"
    yield Criterion(
        criterion_verdict(
            is_breached=_above(best, wanted.percent), is_proved=not _above(worst, wanted.percent)
        ),
        f"{name}: {known}, {objective}",
        f"{gap}{_uncounted(group)}",
        f"{name}: {known}, {objective}",
    )


def group_criterion(row: Row) -> Criterion:
    """Of a row of table group_availability."""
    copies = row["in_sync_replicas"]
    name = "group availability" if copies == 2 else f"group availability with {copies} copies"
    wanted = _percent(row["availability_percent"])
    share, bad = wording.share(row["availability"]), wording.duration(row["bad_s"])
    unknown, budget = wording.duration(row["unknown_s"]), wording.duration(row["budget_s"])
    texts = (
        f"{name} {share} < {wanted}: {bad} bad of {budget} allowed",
        f"{name} not proved: {bad} bad and {unknown} unknown of {budget} allowed,"
        f" coverage {wording.share(row['coverage'])}",
        f"{name} {share}, objective {wanted}: {bad} bad of {budget} allowed",
    )
    breach, gap, told = (text.replace("\u00a0", " ") for text in texts)
    return Criterion(row["verdict"], breach, gap, told)


def _uncounted(group: Row) -> str:
    lines = group["sends_uncounted"]
    return f"; {lines} lines are of a version that does not count sends" if lines else ""


def _ratio(some: int, others: int) -> float | None:
    return some / (some + others) if some + others else None


def _below(ratio: float | None, percent: float) -> bool:
    return ratio is not None and round(ratio * 100, 9) < percent


def _above(ratio: float | None, percent: float) -> bool:
    return ratio is not None and round(ratio * 100, 9) > percent


def _number(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")


def _percent(percent: float) -> str:
    return f"{wording.per_cent(percent)}".replace("\u00a0", " ")
