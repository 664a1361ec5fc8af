"""The reached steps of the error-budget policy in words: for a line, for the page, for programs.

Called on the driver with the finished ReportData. Must not know Spark or HTML.
"""

from __future__ import annotations

from typing import Any, Final

from spark.figures import wording
from spark.figures.budget_policy import ReachedStep
from spark.figures.report_data import ReportData

_MAX_NAMED: Final = 3


def by_label(data: ReportData) -> list[str]:
    """`freeze at 100 %: c/b/b:1 (123 % of 30 days' budget used)`: the highest step first, of each
    the replicas whose budget is used most."""
    found = []
    reached = data.budget_steps
    for step in sorted({one.step for one in reached}, key=lambda step: -step.at_percent):
        there = [one for one in reached if one.step == step]
        named = [
            f"{'/'.join(map(wording.name, one.key))} ({used(one)} of {one.window.budget} used)"
            for one in there[:_MAX_NAMED]
        ]
        more = len(there) - len(named)
        named += [f"and {more:,} more"] if more else []
        found.append(f"{step.label} at {step.at_percent:g} %: {'; '.join(named)}")
    return found


def used(one: ReachedStep) -> str:
    """`123 %`, or `all` of a budget that is nothing."""
    return "all" if one.used_ratio is None else wording.used(one.used_ratio)


def notices(data: ReportData) -> list[str]:
    """For the top of the page."""
    return [f"Error-budget policy: {text}." for text in by_label(data)]


def for_programs(data: ReportData) -> list[dict[str, Any]]:
    """Of each replica and window that reached one, its highest step."""
    return [
        {
            "cluster": one.cluster,
            "broker": one.broker,
            "replica": one.replica,
            **one.window.fields,
            "used_ratio": one.used_ratio,
            "at_percent": one.step.at_percent,
            "label": one.step.label,
            "exit_code": one.step.exit_code,
            "notify": one.step.notify,
        }
        for one in data.budget_steps
    ]
