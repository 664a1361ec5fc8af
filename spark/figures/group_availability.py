"""When a broker group had enough copies in sync: the time of its replicas, laid one over another.

Runs in the executors, over what was laid out for each replica (spark/figures/replica_time.py). Bad
is only what is proved: too few replicas can have been good; what is unknown of a replica is never
good. The rule is in docs/sla_report.md ("Availability of a group"). Must not know stored results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from spark.config.objectives import Objective
from spark.figures.contract_criteria import group_criterion
from spark.figures.criteria import availability_verdict, is_covered
from spark.figures.report_data import BREACHED, MET
from spark.figures.time_pieces import (
    BAD,
    EXCLUDED,
    GOOD,
    UNKNOWN,
    ReplicaTime,
)
from spark.figures.verdicts import budget_columns, budget_s
from spark.reported_day import Day
from spark.vocabulary import FIRST_COPY, IS_MASTER, NOT_YET

Row = dict[str, Any]


def group_availability(
    objective: Objective, times: Mapping[str, ReplicaTime], day: Day, untold: int = 0
) -> Row | None:
    """A row of table group_availability without the group's name; None where the objective does
    not ask for it, or the group has no replica. `times`: of the replicas of the group, by name;
    `untold`: so many more were not looked at."""
    asked = objective.group_availability
    if asked is None or not times:
        return None
    sums = _sums(list(times.values()), asked.in_sync_replicas - 1, untold)
    window_ms = day.window_ms - sums[EXCLUDED]
    # What the wall clock has no room for: the other replicas' state then nobody knows.
    hidden_ms = sum(extra.ms for time in times.values() for extra in time.extras)
    bad_ms = sums[BAD]
    good_ms = max(0, sums[GOOD] - hidden_ms)
    known_ms = good_ms + bad_ms
    percent = objective.availability_percent if asked.percent is None else asked.percent
    row: Row = {
        "objective": objective.name,
        "in_sync_replicas": asked.in_sync_replicas,
        "replicas": len(times) + untold,
        "window_s": day.window_ms / 1000,
        "good_s": good_ms / 1000,
        "bad_s": bad_ms / 1000,
        "unknown_s": (window_ms - known_ms) / 1000,
        "excluded_s": sums[EXCLUDED] / 1000,
        "coverage": known_ms / window_ms if window_ms else None,
        "availability": good_ms / known_ms if known_ms else None,
        "availability_percent": percent,
    }
    budget = budget_s(percent, window_ms / 1000)
    row |= budget_columns(budget, row["bad_s"])
    row["verdict"] = availability_verdict(
        row["bad_s"],
        row["unknown_s"],
        budget,
        # Where all is excluded nothing was promised.
        is_covered=not window_ms or is_covered(row["coverage"], objective.min_coverage_percent),
    )
    criterion = group_criterion(row)
    words = {BREACHED: criterion.breach, MET: criterion.told}
    return row | {"reason": words.get(row["verdict"], criterion.gap)}


def _sums(times: Sequence[ReplicaTime], wanted: int, untold: int) -> dict[str, int]:
    """Ms of the window by quality."""
    sums = dict.fromkeys((GOOD, BAD, UNKNOWN, EXCLUDED), 0)
    others = [UNKNOWN] * min(untold, wanted)
    for length_ms, qualities in _laid_over(times):
        sums[_quality(qualities + others, wanted)] += length_ms
    return sums


def _laid_over(times: Sequence[ReplicaTime]) -> Iterator[tuple[int, list[str]]]:
    """(ms, qualities of the replicas that have their copy): the window, cut wherever that of some
    replica changes."""
    every = [time.pieces for time in times]
    places = [0] * len(every)
    at_ms = every[0][0].start_ms
    while all(place < len(pieces) for place, pieces in zip(places, every, strict=True)):
        current = [pieces[place] for place, pieces in zip(places, every, strict=True)]
        end_ms = min(piece.end_ms for piece in current)
        yield end_ms - at_ms, [each.quality for each in current if each.reason not in _WITHOUT_COPY]
        at_ms = end_ms
        for number, piece in enumerate(current):
            if piece.end_ms == end_ms:
                places[number] += 1


_WITHOUT_COPY: Final = (NOT_YET, FIRST_COPY, IS_MASTER)
"""Such a replica saves nothing, whatever its own promise excludes; the master's copy counts as the
master's."""


def _quality(qualities: Sequence[str], wanted: int) -> str:
    """Of the group, where `wanted` replicas have to be in sync."""
    good, unknown = qualities.count(GOOD), qualities.count(UNKNOWN)
    excluded = qualities.count(EXCLUDED)
    if good >= wanted:
        return GOOD
    if excluded == len(qualities):
        return EXCLUDED
    if unknown + excluded == len(qualities):
        return UNKNOWN  # nobody saw anything: not even that there are no further replicas
    if good + unknown + excluded < wanted:
        return BAD
    return UNKNOWN if good + unknown >= wanted else EXCLUDED
