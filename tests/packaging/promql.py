"""What is shipped for Prometheus and Grafana, read for the tests: queries, and what they mention.

PromQL is read roughly: strings taken out, names of metrics and of labels found by their place.
Whether an expression is PromQL at all is for promtool to say.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from broker.metrics import metrics_table as table
from controller import controller_metrics
from remoting.metrics.metric import Kind

PACKAGING: Final = Path(__file__).parents[2] / "packaging"
RULES: Final = PACKAGING / "prometheus" / "rocketmq_rules.yml"
SLO_RULES: Final = PACKAGING / "prometheus" / "rocketmq_slo_rules.yml"
"""What `mqreport rules` writes for conf/sla.yaml."""
RULES_TEST: Final = PACKAGING / "prometheus" / "rocketmq_rules_test.yml"
RULES_HOURS_TEST: Final = PACKAGING / "prometheus" / "rocketmq_rules_hours_test.yml"
"""Cases of many hours, evaluated each minute: each 15 s they were half of promtool's work."""
DASHBOARDS: Final = tuple(sorted((PACKAGING / "grafana").glob("*.json")))

VARIABLES: Final = {
    "$cluster": ".*",
    "$node_id": ".*",
    "$instance": ".*",
    "$objective": "99.9",
    "$__rate_interval": "5s",
    "$__range": "1m",
    "$__interval": "5s",
}
SCRAPED: Final = frozenset(("job", "instance"))
"""Labels that Prometheus adds to what it scrapes."""

_STRING: Final = re.compile(r'"[^"]*"')
_SELECTOR: Final = re.compile(
    r"(?<![\w:$])((?:rocketmq_|\w+:rocketmq_)[\w:]*|up|role(?=\{))\b(\{[^}]*\})?"
)
_GROUPING: Final = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_BY: Final = re.compile(r"\bby\s*\(([^)]*)\)")
_TEMPLATE: Final = re.compile(r"{{\s*(?:\$labels\.)?(\w+)\s*}}")


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a dashboard."""

    board: str
    panel: str
    expr: str
    legend: str

    @property
    def filled_in(self) -> str:
        """With a value for each variable."""
        return fill_in(self.expr)

    def __str__(self) -> str:
        return f"{self.board}: {self.panel}: {self.expr}"


def fill_in(text: str) -> str:
    """`text` with a value for each variable of the dashboards."""
    for name in sorted(VARIABLES, key=len, reverse=True):
        text = text.replace(name, VARIABLES[name])
    return text


def dashboard(path: Path) -> dict[str, Any]:
    """A dashboard's JSON."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels, those in collapsed rows too."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def queries(path: Path) -> list[Query]:
    """Every expression of a dashboard: panels and annotations."""
    board = dashboard(path)
    found = [
        Query(path.stem, panel["title"], target["expr"], target["legendFormat"])
        for panel in panels(board)
        for target in panel.get("targets", ())
    ]
    for note in board["annotations"]["list"]:
        if "expr" in note:
            found.append(Query(path.stem, note["name"], note["expr"], note["titleFormat"]))
    return found


@functools.cache
def rules() -> Sequence[dict[str, Any]]:
    """All recording and alert rules; read once, for each name in an expression asks."""
    files = (yaml.safe_load(path.read_text()) for path in (RULES, SLO_RULES))
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def records() -> dict[str, str]:
    """Name to expression of each recording rule."""
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def alerts() -> dict[str, dict[str, Any]]:
    """The alert rules by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def without_records(expr: str) -> str:
    """`expr` with each recording rule's expression in place of its name; a range of it becomes a
    subquery. The later rules are made of the earlier ones."""
    for name, meaning in reversed(records().items()):
        expr = re.sub(rf"{name}\[(\w+)\]", rf"({meaning})[\1:]".replace("\n", " "), expr)
        expr = re.sub(rf"{name}\b", f"({meaning})", expr)
    return expr


def labels_of(metric: str) -> frozenset[str]:
    """Labels of a metric, a histogram's part, or a recording rule. KeyError: none such."""
    if metric == "up":
        return SCRAPED
    if metric in records():
        return _outermost_labels(records()[metric])
    of_broker = [(one, table.BASE_LABELS) for one in table.METRICS]
    of_controller = [(one, controller_metrics.BASE_LABELS) for one in controller_metrics.METRICS]
    for known, base in (*of_broker, *of_controller):
        labels = SCRAPED | {*base, *known.labels}
        if known.kind is Kind.HISTOGRAM:
            if metric == f"{known.name}_bucket":
                return labels | {"le"}
            if metric in (f"{known.name}_sum", f"{known.name}_count"):
                return labels
        elif metric == known.name:
            return labels
    raise KeyError(metric)


def _outermost_labels(expr: str) -> frozenset[str]:
    found = _BY.search(expr)
    if found is None:
        return frozenset().union(*(labels_of(metric) for metric, _ in selectors(expr)))
    return frozenset(_names(found[1]))


def selectors(expr: str) -> list[tuple[str, frozenset[str]]]:
    """Each metric of an expression, with the labels that it is selected by."""
    text = _STRING.sub('""', expr)
    return [
        (found[1], frozenset(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", found[2] or "")))
        for found in _SELECTOR.finditer(text)
    ]


def wrong_names(expr: str, template: str = "") -> list[str]:
    """What an expression, and a text with its labels in {{}}, mention that does not exist."""
    found = selectors(expr)
    wrong = [] if found else [f"no metric in {expr}"]
    known: set[str] = set()
    for metric, used in found:
        try:
            labels = labels_of(metric)
        except KeyError:
            wrong.append(f"no metric {metric}")
            continue
        known |= labels
        wrong += [f"{metric} has no label {label}" for label in used - labels]
    text = _STRING.sub('""', expr)
    grouped = {name for names in _GROUPING.findall(text) for name in _names(names)}
    wrong += [f"no metric of {expr} has the label {label}" for label in grouped - known]
    # What the result still has: where it is a sum, only what the sum is by.
    by = _BY.search(text)
    left = _names(by[1]) if by and text.index("by") < text.index(found[0][0]) else known
    wrong += [
        f"{template!r}: no label {label} is left"
        for label in _TEMPLATE.findall(template)
        if label not in left and not label.startswith("value")
    ]
    return wrong


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")} - {""}
