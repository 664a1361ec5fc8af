"""Objectives as the text of an sla.yaml: the way back of spark/config/sla_config.py.

Plain Python for `mqreport openslo`, which makes such files from other documents. What has its
default is left out; reading the text again gives equal objectives.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

import yaml

from spark.config.calendar_periods import UTC
from spark.config.exclusions import WEEKDAYS, Exclusion
from spark.config.objectives import (
    DEFAULT_WINDOWS,
    EXIT_POLICIES,
    Objective,
    PolicyStep,
    SlaConfig,
)
from spark.config.sla_values import SWITCHED_OFF
from spark.vocabulary import DAY_MS

_PATTERNS: Final = ("cluster", "broker", "replica")
_ANY: Final = ("topic", "*")


def sla_text(sla: SlaConfig) -> str:
    """YAML that `parse_sla` reads as `sla`, whatever its source."""
    sections = {"objectives": [objective_entry(one) for one in sla.objectives]}
    return str(yaml.safe_dump(sections | settings(sla), sort_keys=False, allow_unicode=True))


def settings(sla: SlaConfig) -> dict[str, Any]:
    """The sections beside the objectives, as far as they say anything."""
    found: dict[str, Any] = {
        "windows": _windows(sla),
        "timezone": sla.timezone if sla.timezone != UTC else None,
        "expect": [asdict(name) for name in sla.expect],
        "retired": [_names(pattern.patterns) for pattern in sla.retired],
        "maintenance": [_maintenance(one) for one in sla.exclusions],
        "exit_on": sla.exit_policy if sla.exit_policy != EXIT_POLICIES[0] else None,
        "error_budget_policy": [_policy_step(step) for step in sla.budget_policy],
    }
    return {key: value for key, value in found.items() if value}


def objective_entry(objective: Objective) -> dict[str, Any]:
    """An entry of `objectives`: its name, and what is not as it is without being written."""
    defaults = {field.name: field.default for field in fields(Objective)}
    entry = {key: value for key, value in asdict(objective).items() if value != defaults[key]}
    for key in ("sends_slower_than", "group_availability"):
        if key in entry:
            entry[key] = {name: v for name, v in entry[key].items() if v is not None}
    if objective.consumer_lag:
        entry["consumer_lag"] = [
            {name: v for name, v in asdict(one).items() if v is not None and (name, v) != _ANY}
            for one in objective.consumer_lag
        ]
    if entry.pop("sync_ok_given", False) and objective.sync_ok_percent is None:
        entry["sync_ok_percent"] = SWITCHED_OFF
    return {"name": objective.name, **entry}


def _windows(sla: SlaConfig) -> list[int | str] | None:
    is_default = sla.windows == DEFAULT_WINDOWS and not sla.calendars
    return None if is_default else [*sla.windows, *sla.calendars]


def _policy_step(step: PolicyStep) -> dict[str, Any]:
    return {key: value for key, value in asdict(step).items() if value not in (None, False)}


def _names(patterns: tuple[str, str, str]) -> dict[str, str]:
    return {key: text for key, text in zip(_PATTERNS, patterns, strict=True) if text != "*"}


def _maintenance(exclusion: Exclusion) -> Mapping[str, str]:
    entry: dict[str, str] = {}
    if exclusion.once_ms is not None:
        entry["from"], entry["to"] = map(_moment, exclusion.once_ms)
    if exclusion.weekly_ms is not None:
        begin_ms, end_ms = exclusion.weekly_ms
        day, since_midnight = divmod(begin_ms, DAY_MS)
        entry["weekly"] = (
            f"{WEEKDAYS[day]} {_clock_time(since_midnight)}-{_clock_time(end_ms - day * DAY_MS)}"
        )
    return {**entry, **_names(exclusion.patterns), "reason": exclusion.reason}


def _moment(epoch_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(epoch_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds")


def _clock_time(day_ms: int) -> str:
    minutes = day_ms // 60_000
    if minutes > 24 * 60:
        minutes -= 24 * 60
    return f"{minutes // 60:02}:{minutes % 60:02}"
