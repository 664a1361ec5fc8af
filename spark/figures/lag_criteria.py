"""Whether consumer groups kept what is promised of their lag: each one that an objective names.

Plain functions over rows of table consumer_lag; they run in the executors. The rule of
spark/figures/criteria.py holds here, too: met only if the promise would hold had everything unknown
been bad, breached only if that is proved (docs/sla_report.md, "Consumer lag").

Tested by tests/spark/figures/test_consumer_lag.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spark.config.objectives import ConsumerLag, Objective, alternatives, is_named_by
from spark.figures import wording
from spark.figures.consumer_lag import Lags
from spark.figures.criteria import Criterion, criterion_verdict
from spark.figures.report_data import BREACHED, INSUFFICIENT, MET

Row = Mapping[str, Any]

_NAMED: Final = 3
"""Consumer groups of a promise and a verdict; the rest is a number."""
_WILD: Final = frozenset("*?|")


def lag_criteria(objective: Objective, lags: Lags) -> Iterator[Criterion]:
    """Of each promise, and of each consumer group in a topic that it names."""
    for wanted in objective.consumer_lag or ():
        rows = [row for row in lags.rows if _is_meant(row, wanted)]
        found = [each for row in rows for each in criteria_of_row(row, wanted, objective)]
        for verdict in (BREACHED, INSUFFICIENT, MET):
            yield from _first_of([each for each in found if each.verdict == verdict], wanted)
        if not rows:
            yield Criterion(INSUFFICIENT, "", _nobody(wanted, lags), "")
        elif unseen := _unseen(rows, wanted):
            text = f"{_promise_of(wanted)} not known of all: no line tells of {unseen}"
            yield Criterion(INSUFFICIENT, "", text, "")
        elif lags.left_out and _WILD.intersection("".join(wanted.patterns)):
            names = f"{lags.left_out} more consumer groups in topics have no row in the lines"
            text = f"{_promise_of(wanted)} not known of all: {names}, and may be meant"
            yield Criterion(INSUFFICIENT, "", text, "")


def _unseen(rows: Sequence[Row], wanted: ConsumerLag) -> str:
    """A group, or topic, that a promise names beside others, of which no row is there."""
    for pattern, column in zip(wanted.patterns, ("consumer_group", "topic"), strict=True):
        seen = {row[column] for row in rows}
        for name in alternatives(pattern):
            if not _WILD.intersection(name) and name not in seen:
                return wording.name(name)
    return ""


def _first_of(found: Sequence[Criterion], wanted: ConsumerLag) -> Iterator[Criterion]:
    """Some of one verdict, and how many more there are: all are in table consumer_lag."""
    yield from found[:_NAMED]
    if len(found) > _NAMED:
        more = wording.plural(len(found) - _NAMED, "promise more", "promises more")
        text = f"{_promise_of(wanted)}: {more} {found[0].verdict}"
        yield Criterion(found[0].verdict, text, text, text)


def judged_rows(rows: Iterable[Row], objectives: Iterable[Objective]) -> Iterator[list[Criterion]]:
    """Of each row the criteria of all promises that name it, once each."""
    promises = {
        (wanted, percent_of(wanted, objective)): objective
        for objective in objectives
        for wanted in objective.consumer_lag or ()
    }
    for row in rows:
        yield [
            criterion
            for (wanted, _), objective in promises.items()
            if _is_meant(row, wanted)
            for criterion in criteria_of_row(row, wanted, objective)
        ]


def percent_of(wanted: ConsumerLag, objective: Objective) -> float:
    """Of the time."""
    return objective.availability_percent if wanted.percent is None else wanted.percent


def criteria_of_row(row: Row, wanted: ConsumerLag, objective: Objective) -> Iterator[Criterion]:
    """Of its age, and of its messages, whichever is promised."""
    percent = percent_of(wanted, objective)
    if wanted.seconds is not None:
        limit = wording.lag(wanted.seconds * 1000)
        yield _criterion(row, "age", wanted.seconds * 1000, limit, percent)
    if wanted.messages is not None:
        limit = wording.plural(wanted.messages, "message", "messages")
        yield _criterion(row, "messages", wanted.messages, limit, percent)


def _is_meant(row: Row, wanted: ConsumerLag) -> bool:
    return is_named_by(wanted.patterns, (row["consumer_group"], row["topic"]))


def _criterion(row: Row, kind: str, limit: float, limit_text: str, percent: float) -> Criterion:
    # Clients chose these names.
    group, topic = wording.name(row["consumer_group"]), wording.name(row["topic"])
    name = f"consumer lag of {group} in {topic} above {limit_text}"
    objective = f"objective {wording.per_cent(percent)} of the time"
    bounds: Sequence[int] = row[f"{kind}_le"]
    place = bisect_left(bounds, limit)
    if place == len(bounds) or bounds[place] != limit:
        near = ", ".join(_bound(each, kind) for each in bounds[max(0, place - 1) : place + 1])
        gap = f"{name}: not known, {objective}; the lines count by other bounds ({near})"
        return Criterion(INSUFFICIENT, "", _plain(gap), "")
    asked_ms = (row["window_s"] - row["absent_s"]) * 1000
    beyond_ms, unknown_ms = row[f"{kind}_beyond_ms"][place], row[f"{kind}_unknown_ms"][place]
    allowed_ms = round((100 - percent) * asked_ms / 100, 3)
    beyond, allowed = wording.duration(beyond_ms / 1000), wording.duration(allowed_ms / 1000)
    unknown = wording.duration(unknown_ms / 1000)
    told = f"{name} for {beyond} of {allowed} allowed"
    return Criterion(
        criterion_verdict(
            is_breached=beyond_ms > allowed_ms, is_proved=beyond_ms + unknown_ms <= allowed_ms
        ),
        _plain(f"{told}, {objective}"),
        _plain(f"{name}: not proved, {beyond} and {unknown} unknown of {allowed} allowed"),
        _plain(f"{told}, {objective}"),
    )


def _bound(bound: int, kind: str) -> str:
    return wording.lag(bound) if kind == "age" else f"{bound:,} messages"


def _promise_of(wanted: ConsumerLag) -> str:
    return f"consumer lag of {wanted.group} in {wanted.topic}"


def _nobody(wanted: ConsumerLag, lags: Lags) -> str:
    promise = f"{_promise_of(wanted)} not known"
    if not lags.lines:
        return f"{promise}: no line tells of consumer groups (metricsDumpGroups of the broker)"
    if lags.left_out:
        return f"{promise}: {lags.left_out} consumer groups in topics have no row in the lines"
    return f"{promise}: no line has such a consumer group (metricsDumpGroups of the broker)"


def _plain(text: str) -> str:
    return text.replace("\u00a0", " ")
