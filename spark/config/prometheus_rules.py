"""`mqreport rules`: Prometheus rules that watch the objectives of sla.yaml.

Plain Python, run as its own command; starts no Spark. Recording rules give each replica's share of
bad time by what the report judges by: the broker's own count of time out of sync, and lag above
the objective while in sync; and each group's share of synchronous sends that failed. Alerts look at
them over two windows each (the SRE workbook's multi-window, multi-burn-rate alerts). As in the
report the first objective that matches a replica counts. Equal objectives give an equal text.

Tested by tests/spark/config/test_openslo.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from spark.config.objectives import Objective, SlaConfig

_BY: Final = "by (cluster, node_id, replica)"
_BY_GROUP: Final = "by (cluster, node_id)"
_STATE_SECONDS: Final = 'rocketmq_ha_state_seconds_total{state!="in_sync"}'
_SENDS: Final = "rocketmq_ha_sync_result_total"
_LABELS: Final = ("cluster", "node_id", "replica")
"""Of Prometheus, for the patterns of cluster, broker and replica."""
_HOURS: Final = {"5m": 5 / 60, "30m": 0.5, "1h": 1, "6h": 6, "3d": 72}
_IN_WORDS: Final = {"1h": "hour", "6h": "6 hours", "3d": "3 days"}
_SHARE: Final = "{{ $value | humanizePercentage }}"
_SPECIAL: Final = re.compile(r"([\\.+*?()|\[\]{}^$])")

_HEAD: Final = """\
# Recording rules and alerts for the objectives of sla.yaml, written by: bin/mqreport rules
# Change sla.yaml and write this file again instead of editing it. What each alert means and what
# to do about it: docs/monitoring.md
"""


@dataclass(frozen=True, slots=True)
class _Burn:
    """An alert for a budget that is used up too fast: `share` of it over `long`, and still now."""

    suffix: str
    severity: str
    share: Decimal
    long: str
    short: str

    def rate(self, days: int) -> Decimal:
        """How many times as fast as the budget of so many days allows; at least once."""
        return max(self.share * days * 24 / Decimal(_HOURS[self.long]), Decimal(1))

    def part(self, days: int) -> Decimal:
        """The part of the budget, per cent, that is gone after the long window at that rate."""
        return self.rate(days) * Decimal(_HOURS[self.long]) / (days * 24) * 100


_BURNS: Final = (
    _Burn("BurnFast", "critical", Decimal("0.02"), "1h", "5m"),
    _Burn("Burn", "critical", Decimal("0.05"), "6h", "30m"),
    _Burn("BurnSlow", "warning", Decimal("0.10"), "3d", "6h"),
)


def rules_text(sla: SlaConfig) -> str:
    """A file of rules, YAML. The budgets are those of the longest window."""
    lines = [_HEAD]
    for group in (*_time_groups(sla), _send_group(), *_alert_groups(sla)):
        lines += ["", *group] if len(lines) > 1 else ["groups:", *group]
    return "\n".join(lines) + "\n"


def _time_groups(sla: SlaConfig) -> Iterator[list[str]]:
    """Each replica's share of bad time, without `instance`: whichever broker is its master.

    The rules of a group are evaluated in order, each sees what those before it recorded.
    """
    yield [
        *_group("rocketmq_replication_time", "30s"),
        *_lag_rule(sla.objectives),
        *(line for window in ("5m", "30m", "1h", "6h") for line in _share_rules(window)),
    ]
    yield [
        *_group("rocketmq_replication_time_3d", "2m"),  # reads three days each time
        *_share_rules("3d"),
        *_send_rule("3d"),
    ]


def _lag_rule(objectives: Sequence[Objective]) -> list[str]:
    """1 while a replica that is in sync lags more than its objective: `or` takes the first."""
    expr = []
    for objective in objectives:
        own = _selector(objective)
        lag = f"rocketmq_ha_replica_lag_seconds{own} > bool {_number(objective.lag_seconds)}"
        expr.append(f"max {_BY} (({lag}) * rocketmq_ha_replica_in_sync{own})")
    return _record(
        "replica:rocketmq_ha_lag_above_objective:bool", [expr[0], *_each("or", expr[1:])]
    )


def _each(operator: str, operands: Iterable[str]) -> Iterator[str]:
    return (f"  {operator} {operand}" for operand in operands)


def _share_rules(window: str) -> list[str]:
    out_of_sync = f"replica:rocketmq_ha_out_of_sync:ratio{window}"
    lagging = f"avg_over_time(replica:rocketmq_ha_lag_above_objective:bool[{window}])"
    return [
        *_record(out_of_sync, [f"sum {_BY} (rate({_STATE_SECONDS}[{window}]))"]),
        # The count needs no scrape in between, the lag does: without it the count is left.
        *_record(_bad(window), [f"{out_of_sync} + {lagging}", f"  or {out_of_sync}"]),
    ]


def _bad(window: str) -> str:
    return f"replica:rocketmq_ha_bad:ratio{window}"


def _send_group() -> list[str]:
    rules = (line for window in ("5m", "30m", "1h", "6h") for line in _send_rule(window))
    return [*_group("rocketmq_sync_sends", "30s"), *rules]


def _send_rule(window: str) -> list[str]:
    failed = f'sum {_BY_GROUP} (rate({_SENDS}{{result!="ok"}}[{window}]))'
    return _record(_failed(window), [failed, f"  / sum {_BY_GROUP} (rate({_SENDS}[{window}]))"])


def _failed(window: str) -> str:
    return f"group:rocketmq_ha_sync_failed:ratio{window}"


def _alert_groups(sla: SlaConfig) -> Iterator[list[str]]:
    for index, objective in enumerate(sla.objectives):
        yield [
            *_group(f"rocketmq_objective: {objective.name}", "30s"),
            *_availability_alerts(sla, index),
            *_lag_alert(sla, index),
            *_send_alerts(sla, index),
        ]


def _availability_alerts(sla: SlaConfig, index: int) -> Iterator[str]:
    objective = sla.objectives[index]
    allowed = _allowed(objective.availability_percent)
    bad = f"It was out of sync, or its lag above {_number(objective.lag_seconds)} s, for"
    for burn in _possible(allowed, sla):
        above = f"> ({_number(burn.rate(sla.windows[-1]))} * {_number(allowed)})"
        others = (f"{_bad(burn.long)}{_selector(other)}" for other in sla.objectives[:index])
        yield from _alert(
            f"RocketMQBudget{burn.suffix}",
            [
                f"{_bad(burn.long)}{_selector(objective)} {above}",
                f"  and {_bad(burn.short)} {above}",
                *_each("unless", others),
            ],
            burn.severity,
            objective,
            f"Replica {{{{ $labels.replica }}}} uses up {_part(burn, sla, 'its')}",
            f"{bad} {_SHARE} of the last {_IN_WORDS[burn.long]}; {_permitted(allowed)}",
        )


def _lag_alert(sla: SlaConfig, index: int) -> list[str]:
    objective = sla.objectives[index]
    lag = "rocketmq_ha_replica_lag_seconds"
    others = (f"last_over_time({lag}{_selector(other)}[2m])" for other in sla.objectives[:index])
    return _alert(
        "RocketMQReplicaLagHigh",
        [
            f"min_over_time({lag}{_selector(objective)}[2m]) > {_number(objective.lag_seconds)}",
            *_each("unless", others),
        ],
        "warning",
        objective,
        "Replica {{ $labels.replica }} lags",
        "The oldest record that it lacks was at least {{ $value | humanizeDuration }} old at every"
        " look of the last 2 minutes.",
        wait="1m",
    )


def _send_alerts(sla: SlaConfig, index: int) -> Iterator[str]:
    """Of groups with a replica of this objective; the default applies only to a SYNC_MASTER."""
    objective = sla.objectives[index]
    percent = objective.sync_ok_wanted(is_sync_master=True)
    if percent is None:
        return
    role = "" if objective.sync_ok_given else 'role="SYNC_MASTER"'
    allowed = _allowed(percent)
    others = (_known(other) for other in sla.objectives[:index])
    members = [_known(objective, role), *_each("  unless on (cluster, node_id, replica)", others)]
    members = [f"  and on (cluster, node_id) ({members[0]}", *members[1:]]
    members[-1] += ")"
    for burn in _possible(allowed, sla):
        above = f"> ({_number(burn.rate(sla.windows[-1]))} * {_number(allowed)})"
        yield from _alert(
            f"RocketMQSyncBudget{burn.suffix}",
            [
                f"{_failed(burn.long)} {above}",
                f"  and {_failed(burn.short)} {above}",
                *members,
            ],
            burn.severity,
            objective,
            "Failed synchronous sends to {{ $labels.node_id }} use up"
            f" {_part(burn, sla, 'their')}",
            f"{_SHARE} of those of the last {_IN_WORDS[burn.long]} were not confirmed;"
            f" {_permitted(allowed)}",
        )


def _known(objective: Objective, *more: str) -> str:
    return f"last_over_time(rocketmq_ha_replica_connected{_selector(objective, *more)}[5m])"


def _possible(allowed: Decimal, sla: SlaConfig) -> list[_Burn]:
    """Without those that could never fire: all of the time bad is not above their threshold."""
    days = sla.windows[-1]
    return [
        burn for burn in _BURNS if burn.rate(days) * allowed < 1 and _HOURS[burn.long] <= days * 24
    ]


def _part(burn: _Burn, sla: SlaConfig, whose: str) -> str:
    days = sla.windows[-1]
    over = "an hour" if burn.long == "1h" else _IN_WORDS[burn.long]
    return f"{float(burn.part(days)):.3g} % of {whose} {days} days' budget in {over}"


def _permitted(allowed: Decimal) -> str:
    return f"the objective allows {_number(allowed * 100)} %."


def selector(patterns: Sequence[str], *more: str) -> str:
    """Label matchers for patterns of cluster, broker, replica; Prometheus anchors expressions."""
    matchers = [
        f"{label}{_matcher(pattern)}"
        for label, pattern in zip(_LABELS, patterns, strict=False)
        if pattern != "*"
    ]
    matchers += filter(None, more)
    return f"{{{','.join(matchers)}}}" if matchers else ""


def _selector(objective: Objective, *more: str) -> str:
    return selector(objective.patterns, *more)


def _matcher(pattern: str) -> str:
    if not re.search(r"[*?|]", pattern):
        return f"={_quoted(pattern)}"
    wild = {"*": ".*", "?": ".", "|": "|"}
    regex = "".join(wild.get(char) or _SPECIAL.sub(r"\\\1", char) for char in pattern)
    return f"=~{_quoted(regex)}"


def _allowed(percent: float) -> Decimal:
    """The share that may be bad: 0.001 of 99.9, and not what binary fractions make of it."""
    return (100 - Decimal(repr(percent))) / 100


def _number(value: float | Decimal) -> str:
    plain = value if isinstance(value, Decimal) else Decimal(repr(value))
    text = f"{plain:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _group(name: str, interval: str) -> list[str]:
    return [f"  - name: {_quoted(name)}", f"    interval: {interval}", "    rules:"]


def _record(name: str, expr: Sequence[str]) -> list[str]:
    return [f"      - record: {name}", *_expression(expr)]


def _expression(expr: Sequence[str]) -> list[str]:
    return ["        expr: |", *(f"          {line}" for line in expr)]


def _alert(
    name: str,
    expr: Sequence[str],
    severity: str,
    objective: Objective,
    summary: str,
    description: str,
    *,
    wait: str | None = None,
) -> list[str]:
    annotations = {
        "summary": summary,
        "description": description,
        "runbook": f"docs/monitoring.md#{name.lower()}",
    }
    if objective.runbook_url is not None:
        annotations["runbook_url"] = _literal(objective.runbook_url)
    return [
        f"      - alert: {name}",
        *_expression(expr),
        *([f"        for: {wait}"] if wait else []),
        "        labels:",
        f"          severity: {severity}",
        f"          objective: {_quoted(_literal(objective.name))}",
        "        annotations:",
        *(f"          {key}: {_quoted(text)}" for key, text in annotations.items()),
    ]


def _quoted(text: str) -> str:
    """A text within double quotes: the same for JSON, YAML and PromQL."""
    return json.dumps(text, ensure_ascii=False)


def _literal(text: str) -> str:
    """A text that Prometheus' templates leave as it is."""
    return text.replace("{{", '{{ "{{" }}')
