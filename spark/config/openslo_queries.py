"""The Prometheus queries of OpenSLO indicators, and which replicas such a query is about.

Plain Python. A query is `sum(<selector> unless <selector> …)`: the series of an objective's
replicas, less those that an earlier objective has.

Tested by tests/spark/config/test_openslo.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark.config.prometheus_rules import selector

Patterns = tuple[str, ...]
"""Of cluster, broker group and, for availability, replica."""
Matcher = tuple[str, str, str]
"""Label, operator, value."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """What is counted, how good and bad are distinguished, and which patterns it knows."""

    title: str
    description: str
    metric: str
    good: str
    bad: str
    written: str
    """Which of the two is written."""
    labels: tuple[str, ...]


CRITERIA: Final[Mapping[str, Criterion]] = {
    "availability": Criterion(
        "time in sync",
        "Share of the time that a replica is in sync, counted by its master. mqreport also counts"
        " as bad a lag above its lag_seconds, and the time in which the master was down.",
        "rocketmq_ha_state_seconds_total",
        'state="in_sync"',
        'state!="in_sync"',
        "bad",
        ("cluster", "node_id", "replica"),
    ),
    "sync-ok": Criterion(
        "synchronous sends",
        "Share of the sends that waited for replicas and were confirmed in time.",
        "rocketmq_ha_sync_result_total",
        'result="ok"',
        'result!="ok"',
        "good",
        ("cluster", "node_id"),
    ),
}

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_SELECTOR: Final = rf"[a-zA-Z_:][\w:]*(?:\{{(?:[^\"{{}}]|{_STRING})*\}})?"
_QUERY: Final = re.compile(rf"sum\(\s*{_SELECTOR}(?:\s+unless\s+{_SELECTOR})*\s*\)")
_MATCHER: Final = re.compile(rf"\s*(\w+)\s*(=~|!~|!=|=)\s*({_STRING})\s*(?:,|$)")


def queries_of(criterion: str, patterns: Sequence[Patterns]) -> dict[str, str]:
    """`good` or `bad`, and `total`, of the last of `patterns` less those before it.

    Sends are a group's and know no replicas: only objectives for whole groups are taken out.
    """
    what = CRITERIA[criterion]
    count = len(what.labels)
    *before, own = patterns
    others = [one[:count] for one in before if all(rest == "*" for rest in one[count:])]
    fixed = {"good": what.good, "bad": what.bad}[what.written]
    return {
        what.written: _query(what.metric, own[:count], others, fixed),
        "total": _query(what.metric, own[:count], others),
    }


def _query(metric: str, own: Patterns, others: Sequence[Patterns], *fixed: str) -> str:
    selectors = [f"{metric}{selector(patterns, *fixed)}" for patterns in (own, *others)]
    return f"sum({' unless '.join(selectors)})"


def find_criterion(queries: Mapping[str, str]) -> tuple[str, Patterns] | None:
    """Which criterion, and the patterns of whose replicas: of `good` or `bad`, and `total`.

    None for queries about anything else. Whether the `unless` parts fit the objectives
    before this one, `is_written_for` says.
    """
    total = _parsed(queries.get("total", ""))
    for name, what in CRITERIA.items():
        if total and total[0][0] == what.metric:
            patterns = [_pattern(total[0][1], label) for label in what.labels]
            known = all(label in what.labels for label, _, _ in total[0][1])
            if known and all(pattern is not None for pattern in patterns):
                return name, tuple(pattern for pattern in patterns if pattern is not None)
    return None


def is_written_for(
    criterion: str, patterns: Sequence[Patterns], queries: Mapping[str, str]
) -> bool:
    """Whether the queries are those of `queries_of`, in any order of their matchers, with or
    without the `unless` parts."""
    what = CRITERIA[criterion]
    for which in (patterns, patterns[-1:]):
        expected = queries_of(criterion, which)
        if what.written not in queries:
            opposite = {what.good: what.bad, what.bad: what.good}
            fixed = {"good": what.good, "bad": what.bad}[what.written]
            other = "bad" if what.written == "good" else "good"
            text = expected.pop(what.written).replace(fixed, opposite[fixed])
            expected[other] = text
        if {key: _parsed(text) for key, text in expected.items()} == {
            key: _parsed(text) for key, text in queries.items()
        }:
            return True
    return False


def _parsed(query: str) -> list[tuple[str, frozenset[Matcher]]] | None:
    """Metric and matchers of each selector; None for another kind of query."""
    if not _QUERY.fullmatch(query.strip()):
        return None
    found = []
    inside = query.strip().removeprefix("sum(").removesuffix(")")
    for text in re.findall(_SELECTOR, inside):
        if text == "unless":
            continue
        metric, _, matchers = text.partition("{")
        found.append((metric, frozenset(_matchers(matchers.removesuffix("}")))))
    return found


def _matchers(text: str) -> list[Matcher]:
    found = []
    for label, operator, quoted in _MATCHER.findall(text):
        try:
            found.append((label, operator, str(json.loads(quoted))))
        except ValueError:  # an escape that only Prometheus knows
            found.append((label, operator, quoted))
    return found


def _pattern(matchers: frozenset[Matcher], label: str) -> str | None:
    """The pattern of a label; `*` where nothing is said of it, None for what no pattern says."""
    own = [(operator, value) for name, operator, value in matchers if name == label]
    if not own:
        return "*"
    if len(own) > 1 or own[0][0] not in ("=", "=~"):
        return None
    operator, value = own[0]
    return _glob(value) if operator == "=~" else (None if re.search(r"[*?|]", value) else value)


def _glob(regex: str) -> str | None:
    pattern = ""
    for token in re.findall(r"\\.|\.\*|.", regex, re.DOTALL):
        plain = token[1] if len(token) == 2 and token[0] == "\\" else token
        if token in (".*", ".", "|"):
            pattern += {".*": "*", ".": "?", "|": "|"}[token]
        elif plain in "*?|" or (token == plain and token in "+*?()[]{}^$\\"):
            return None
        else:
            pattern += plain
    return pattern
