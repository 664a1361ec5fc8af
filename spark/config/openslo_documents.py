"""`mqreport openslo`: the objectives of sla.yaml as OpenSLO v1 documents, and such documents read.

Plain Python, run as its own command; starts no Spark. Written is an SLO for each objective's
availability and one for its synchronous sends, with Prometheus queries over the broker's own
counters. What OpenSLO has no word for is kept in annotations `mqreport.rocketmq/…`: an objective's
other promises with its SLO, what belongs to the whole file with the Service. Reading is strict:
what would be lost or judged differently is refused, naming the document.

Tested by tests/spark/config/test_openslo.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from spark.config.objectives import Objective, SlaConfig
from spark.config.openslo_queries import CRITERIA, queries_of
from spark.config.openslo_reader import OpenSloError, read_documents
from spark.config.openslo_windows import CALENDAR_DURATIONS, CALENDAR_START
from spark.config.sla_config import parse_sla
from spark.config.sla_text import objective_entry, settings

API_VERSION: Final = "openslo/v1"
PREFIX: Final = "mqreport.rocketmq/"
SERVICE: Final = "rocketmq-replication"
_LONGEST_NAME: Final = 63
_SAID: Final = ("name", "cluster", "broker", "replica", "availability_percent")
"""Of an objective, by the SLO itself."""


def documents_text(sla: SlaConfig) -> str:
    """YAML documents; equal objectives give an equal text."""
    return str(
        yaml.safe_dump_all(
            documents(sla), sort_keys=False, allow_unicode=True, explicit_start=True, width=1000
        )
    )


def documents(sla: SlaConfig) -> Iterator[dict[str, Any]]:
    """A Service, then the SLOs in the order of the objectives: the first that matches counts."""
    yield {
        "apiVersion": API_VERSION,
        "kind": "Service",
        "metadata": {
            "name": SERVICE,
            **_annotations({key: json.dumps(value) for key, value in settings(sla).items()}),
        },
        "spec": {"description": "Replication of RocketMQ brokers, as mqreport judges it."},
    }
    names: set[str] = set()
    for index, objective in enumerate(sla.objectives):
        name = _unique_name(objective.name, names)
        annotations = _kept(objective)
        percent = objective.availability_percent
        yield _slo(sla, index, "availability", name, percent, annotations)
        if _can_say(objective.sync_ok_percent):
            yield _slo(sla, index, "sync-ok", name, objective.sync_ok_percent, {})


def _can_say(percent: float | None) -> bool:
    """A target is below 100 % in OpenSLO."""
    return percent is not None and percent < 100


def _kept(objective: Objective) -> dict[str, str]:
    entry = objective_entry(objective)
    if _can_say(objective.sync_ok_percent):
        entry.pop("sync_ok_percent")
    entry.setdefault("lag_seconds", objective.lag_seconds)
    others = {key: value for key, value in entry.items() if key not in _SAID}
    return {key: v if isinstance(v, str) else json.dumps(v) for key, v in others.items()}


def _slo(
    sla: SlaConfig,
    index: int,
    criterion: str,
    name: str,
    percent: float | None,
    annotations: Mapping[str, str],
) -> dict[str, Any]:
    objective = sla.objectives[index]
    patterns = [one.patterns for one in sla.objectives[: index + 1]]
    full_name = f"{name}-{criterion}"
    return {
        "apiVersion": API_VERSION,
        "kind": "SLO",
        "metadata": {
            "name": full_name,
            "displayName": f"{objective.name}: {CRITERIA[criterion].title}",
            **_annotations({"objective": objective.name, **annotations}),
        },
        "spec": {
            "description": CRITERIA[criterion].description,
            "service": SERVICE,
            "indicator": {
                "metadata": {"name": full_name},
                "spec": {
                    "ratioMetric": {
                        "counter": True,
                        **{
                            kind: {"metricSource": {"type": "Prometheus", "spec": {"query": query}}}
                            for kind, query in queries_of(criterion, patterns).items()
                        },
                    }
                },
            },
            "timeWindow": [_time_window(sla)],
            "budgetingMethod": "Occurrences",
            "objectives": [{"displayName": objective.name, "targetPercent": percent}],
        },
    }


def _time_window(sla: SlaConfig) -> dict[str, Any]:
    """There is one: the longest calendar period, without any the longest rolling window."""
    if not sla.calendars:
        return {"duration": f"{sla.windows[-1]}d", "isRolling": True}
    calendar = {"startTime": CALENDAR_START, "timeZone": sla.timezone}
    duration = CALENDAR_DURATIONS[sla.calendars[-1]]
    return {"duration": duration, "isRolling": False, "calendar": calendar}


def _annotations(values: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {"annotations": {f"{PREFIX}{key}": v for key, v in values.items()}} if values else {}


def _unique_name(name: str, taken: set[str]) -> str:
    """As OpenSLO wants names: a DNS label, here with room for what comes behind it."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "objective"
    number = 1
    label = plain = plain[: _LONGEST_NAME - len("-availability") - 4].strip("-")
    while label in taken:
        number += 1
        label = f"{plain}-{number}"
    taken.add(label)
    return label


def read_sla_of(paths: Sequence[str]) -> SlaConfig:
    """The objectives of files with documents. Raises OpenSloError, OSError and SlaError."""
    found: list[tuple[str, Any]] = []
    for path in paths:
        try:
            loaded = list(yaml.safe_load_all(Path(path).read_bytes()))
        except yaml.YAMLError as error:
            raise OpenSloError(
                [f"{path}: not valid YAML: {' '.join(str(error).split())}"]
            ) from error
        except RecursionError as error:
            raise OpenSloError([f"{path}: nested too deeply"]) from error
        found += [
            (f"{path}: document {number}", document)
            for number, document in enumerate(loaded, 1)
            if document is not None
        ]
    sections = read_documents(found, API_VERSION, PREFIX)
    text = yaml.safe_dump(sections, sort_keys=False, allow_unicode=True)
    return parse_sla(text, "the documents, written as sla.yaml")
