"""Whether a replica met its objective: the worst of its criteria, what puts all of it in doubt, and
why; budgets and burn rates.

Plain functions over rows of replica_days and group_days; they run in the executors. The criteria
are in spark/figures/criteria.py, the rules in docs/sla_report.md ("Service level"): what is not
known is never `met`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spark.config.objectives import Objective
from spark.figures.consumer_lag import Lags
from spark.figures.contract_criteria import contract_criteria, contract_of_sends, of_elections
from spark.figures.criteria import Criterion, criteria, of_sends
from spark.figures.lag_criteria import lag_criteria
from spark.figures.report_data import BREACHED, INSUFFICIENT, MET
from spark.figures.result_tables import SPANS_S
from spark.vocabulary import FIRST_COPY, GROUP, IS_MASTER, MINUTE_MS, SYNC_MASTER

Row = Mapping[str, Any]

_NO_LAGS: Final = Lags()


def judged(
    row: Row,
    objective: Objective,
    group: Row | None,
    availability: Row | None = None,
    elections: Sequence[Row] = (),
    lags: Lags = _NO_LAGS,
) -> tuple[str, list[str]]:
    """The verdict of a replica's day, and the reasons: texts on what puts the whole day in doubt,
    on what is breached, then on what is not known; for `met` on how each criterion was met.

    `row` has the columns of replica_days up to the budget, `group` those of group_days; None
    without a sample of the group. `availability`: the row of group_availability of this objective;
    `elections`: the group's of the date; `lags`: of the consumer groups that its lines tell of.
    """
    is_asked = True
    if row["excluded_s"] >= row["window_s"]:
        reasons = [each["reason"] for each in row["exclusions"]]
        nothing = f"nothing was promised: all of it is excluded ({', '.join(reasons)})"
        found = [Criterion(MET, "", "", nothing)]
        is_asked = FIRST_COPY in reasons or IS_MASTER in reasons
        if is_asked:
            # Nothing of the replica; but those who send did not ask whether it is copied.
            found += [*of_sends(objective, group), *contract_of_sends(objective, group)]
            found += lag_criteria(objective, lags)
    else:
        found = [
            *criteria(row, objective, group),
            *contract_criteria(objective, group, availability),
            *lag_criteria(objective, lags),
        ]
    found += of_elections(elections)
    doubts = list(_doubts(group)) if group is not None and is_asked else []
    breaches = [each.breach for each in found if each.verdict == BREACHED]
    gaps = [each.gap for each in found if each.verdict == INSUFFICIENT]
    told = [each.told for each in found if each.verdict == MET]
    verdict = worst_of(each.verdict for each in found)
    if doubts and verdict == MET:
        verdict = INSUFFICIENT
    return verdict, list(dict.fromkeys(doubts + (breaches + gaps or told)))


def _doubts(group: Row) -> Iterator[str]:
    """What no criterion can be met beside."""
    if group["two_masters"]:
        yield (
            f"two masters at once: {group['two_masters']}; what one of them took the other may"
            " lack, or the clocks of their hosts differ"
        )
    if group["samples"] and group["ready_samples"] == 0:
        yield "no write was accepted: the broker was not ready in any line"


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
