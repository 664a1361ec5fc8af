"""Reads OpenSLO v1 documents as the sections of an sla.yaml; refuses by name what cannot be kept.

Plain Python over parsed YAML; knows no file. Ignored is only what judges nothing: labels,
descriptions, display names, connection details.

Tested by tests/spark/config/test_openslo.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from spark.config.calendar_periods import CALENDARS
from spark.config.objectives import DEFAULT_WINDOWS
from spark.config.openslo_queries import Patterns, find_criterion, is_written_for
from spark.config.openslo_windows import TimeWindow, WindowRefusedError, time_window

_KINDS: Final = ("SLO", "SLI", "Service", "DataSource")
_SLO_KEYS: Final = {
    *("description", "service", "indicator", "indicatorRef", "timeWindow", "budgetingMethod"),
    *("objectives", "alertPolicies"),
}
_OBJECTIVE_KEYS: Final = {"displayName", "target", "targetPercent"}
_OF_OBJECTIVE: Final = {
    *("lag_seconds", "min_coverage_percent", "lag_p99_seconds", "sync_ok_percent", "rpo_bytes"),
    *("sends_ok_percent", "sends_slower_than", "group_availability", "consumer_lag"),
    *("metadata_age_seconds", "metadata_required", "first_copy_hours", "runbook_url"),
}
_TEXTS: Final = {"objective", "runbook_url"}
_OF_FILE: Final = {
    *("windows", "timezone", "expect", "retired", "maintenance", "exit_on", "error_budget_policy"),
}


class OpenSloError(Exception):
    """Documents that cannot be read; `problems` has one text for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _RefusedError(Exception):
    """Why one document cannot be taken over."""


@dataclass(slots=True)
class _Slo:
    label: str
    criterion: str
    patterns: Patterns
    queries: Mapping[str, str]
    percent: float
    window: TimeWindow
    name: str
    annotations: dict[str, Any] = field(default_factory=dict)


def read_documents(
    documents: Sequence[tuple[str, Any]], api_version: str, prefix: str
) -> dict[str, Any]:
    """The sections of an sla.yaml. `documents` are labels, for errors, and parsed YAML.

    Raises OpenSloError with everything that is refused.
    """
    return _Documents(documents, api_version, prefix).sections()


class _Documents:
    """All documents of one import."""

    def __init__(self, documents: Sequence[tuple[str, Any]], api_version: str, prefix: str) -> None:
        self._documents = documents
        self._api_version = api_version
        self._prefix = prefix
        self._problems: list[str] = []
        self._indicators: dict[str, Any] = {}
        self._sections: dict[str, Any] = {}

    def sections(self) -> dict[str, Any]:
        """See `read_documents`."""
        slos: list[tuple[str, Mapping[str, Any]]] = []
        for place, document in self._documents:
            try:
                label, kind = self._checked(place, document)
            except _RefusedError as refused:
                self._problems.append(f"{place}: {refused}")
                continue
            if kind == "SLI":
                self._indicators[document["metadata"]["name"]] = document
            elif kind == "SLO":
                slos.append((label, document))
            elif kind == "Service":
                self._take_settings(label, document)
        found = [slo for label, document in slos if (slo := self._find_slo(label, document))]
        objectives = self._objectives(found)
        if not slos and not self._problems:
            self._problems.append("no SLO is among the documents")
        if self._problems:
            raise OpenSloError(self._problems)
        return {"objectives": objectives, **self._sections, **self._windows(found)}

    def _checked(self, place: str, document: Any) -> tuple[str, str]:
        """Label and kind of a document of a kind that is read."""
        if not isinstance(document, Mapping):
            raise _RefusedError(
                "is not an OpenSLO document: write apiVersion, kind, metadata and spec"
            )
        kind, metadata = document.get("kind"), document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str) or not isinstance(document.get("spec"), Mapping | None):
            raise _RefusedError(f"{kind} lacks metadata.name, or its spec is not a mapping")
        label = f"{place}, {kind} {name!r}"
        if document.get("apiVersion") != self._api_version:
            raise _RefusedError(
                f"{kind} {name!r} has apiVersion {document.get('apiVersion')!r}: only"
                f" {self._api_version} is read"
            )
        if str(kind).startswith("Alert"):
            raise _RefusedError(f"{kind} {name!r}: alerts come from `mqreport rules`; remove it")
        if kind not in _KINDS:
            raise _RefusedError(f"{kind} {name!r}: only {', '.join(_KINDS)} are read")
        return label, str(kind)

    def _take_settings(self, label: str, document: Mapping[str, Any]) -> None:
        try:
            for key, value in self._annotations(document, _OF_FILE).items():
                if key in self._sections:
                    raise _RefusedError(f"{self._prefix}{key} is given twice")
                self._sections[key] = value
        except _RefusedError as refused:
            self._problems.append(f"{label}: {refused}")

    def _annotations(self, document: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
        """Ours, without the prefix; those of others mean nothing to us."""
        annotations = document["metadata"].get("annotations") or {}
        if not isinstance(annotations, Mapping):
            raise _RefusedError("metadata.annotations is not a mapping")
        found = {}
        for full_key, text in annotations.items():
            if not str(full_key).startswith(self._prefix):
                continue
            key = str(full_key).removeprefix(self._prefix)
            if key not in known:
                raise _RefusedError(
                    f"{full_key} is not known; known are {', '.join(sorted(known))}"
                )
            found[key] = str(text) if key in _TEXTS else _value(str(text))
        return found

    def _find_slo(self, label: str, document: Mapping[str, Any]) -> _Slo | None:
        try:
            return self._slo(label, document)
        except _RefusedError as refused:
            self._problems.append(f"{label}: {refused}")
            return None

    def _slo(self, label: str, document: Mapping[str, Any]) -> _Slo:
        spec = document.get("spec") or {}
        if unknown := sorted(set(spec) - _SLO_KEYS):
            raise _RefusedError(f"spec.{unknown[0]} is not known")
        if spec.get("alertPolicies"):
            raise _RefusedError(
                "spec.alertPolicies: alerts come from `mqreport rules`; remove them"
            )
        if spec.get("budgetingMethod") != "Occurrences":
            raise _RefusedError(
                f"spec.budgetingMethod is {spec.get('budgetingMethod')!r}: only Occurrences is"
                " judged, of seconds and of sends"
            )
        queries = _queries(self._ratio_metric(spec))
        found = find_criterion(queries)
        if found is None:
            raise _RefusedError(
                f"its queries are not about replication as mqreport judges it: {queries['total']!r}"
            )
        metadata = document["metadata"]
        annotations = self._annotations(document, {"objective", *_OF_OBJECTIVE})
        name = str(annotations.pop("objective", metadata.get("displayName") or metadata["name"]))
        percent = _percent(spec.get("objectives"))
        try:
            window = time_window(spec.get("timeWindow"))
        except WindowRefusedError as refused:
            raise _RefusedError(str(refused)) from None
        return _Slo(label, *found, queries, percent, window, name, annotations)

    def _ratio_metric(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        indicator = spec.get("indicator")
        if indicator is None:
            reference = spec.get("indicatorRef")
            indicator = self._indicators.get(str(reference))
            if indicator is None:
                raise _RefusedError(f"spec.indicatorRef {reference!r}: there is no such SLI")
        of_indicator = indicator.get("spec") if isinstance(indicator, Mapping) else None
        metric = of_indicator.get("ratioMetric") if isinstance(of_indicator, Mapping) else None
        if not isinstance(metric, Mapping):
            raise _RefusedError("its indicator has no ratioMetric: nothing else is judged")
        return metric

    def _objectives(self, slos: Sequence[_Slo]) -> list[dict[str, Any]]:
        """Entries in the order of the availability SLOs; the others add to them."""
        entries: list[tuple[_Slo, dict[str, Any]]] = []
        for slo in slos:
            if slo.criterion != "availability":
                continue
            cluster, broker, replica = slo.patterns
            entry: dict[str, Any] = {
                "name": slo.name,
                "cluster": cluster,
                "broker": broker,
                "replica": replica,
            }
            entry["availability_percent"] = slo.percent
            entries.append((slo, {**entry, **slo.annotations}))
            self._check_queries(slo, [one.patterns for one, _ in entries])
        for slo in slos:
            if slo.criterion == "availability":
                continue
            index = _index_of(slo, [one for one, _ in entries])
            if index is None:
                self._problems.append(
                    f"{slo.label}: there is no SLO for the availability of the same broker groups"
                )
                continue
            entry = entries[index][1]
            if "sync_ok_percent" in entry:
                self._problems.append(f"{slo.label}: {entry['name']!r} has sync_ok_percent already")
            entry["sync_ok_percent"] = slo.percent
            self._check_queries(slo, [one.patterns for one, _ in entries[: index + 1]])
        return [entry for _, entry in entries]

    def _check_queries(self, slo: _Slo, patterns: Sequence[Patterns]) -> None:
        if not is_written_for(slo.criterion, patterns, slo.queries):
            self._problems.append(
                f"{slo.label}: its queries are not those that `mqreport openslo export` writes for"
                " these replicas behind the SLOs before it"
            )

    def _windows(self, slos: Sequence[_Slo]) -> dict[str, Any]:
        """The common time window as the longest one of its kind in sla.yaml."""
        found = {slo.window for slo in slos}
        if len(found) > 1:
            different = ", ".join(sorted(map(str, found)))
            raise OpenSloError(
                [f"the SLOs have different time windows: {different}; give them one"]
            )
        window = found.pop()
        written, timezone = self._sections.get("windows"), self._sections.get("timezone")
        if timezone is not None and window.timezone != timezone:
            raise OpenSloError(
                [f"the SLOs have a time window of {window}, {self._prefix}timezone is {timezone}"]
            )
        of_zone = {} if window.timezone is None else {"timezone": window.timezone}
        if written is None:
            shorter = [day for day in DEFAULT_WINDOWS if not window.days or day < window.days]
            return {"windows": [*shorter, window.days or window.calendar], **of_zone}
        if not isinstance(written, list) or not _is_longest(window, written):
            raise OpenSloError(
                [f"the SLOs have a time window of {window}, {self._prefix}windows says {written}"]
            )
        return of_zone


def _is_longest(window: TimeWindow, written: Sequence[Any]) -> bool:
    """Whether it is what an export of these windows would say."""
    calendars = [name for name in CALENDARS if name in written]
    if window.calendar is not None or calendars:
        return calendars[-1:] == [window.calendar]
    return window.days in written and window.days == max(written)


def _value(text: str) -> Any:
    """What an annotation says: JSON, or a word such as `off`."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _queries(metric: Mapping[str, Any]) -> dict[str, str]:
    if metric.get("raw") is not None:
        raise _RefusedError("ratioMetric.raw: give good or bad, and total")
    found = {}
    for kind in ("good", "bad", "total"):
        part = metric.get(kind)
        if part is None:
            continue
        source = part.get("metricSource") if isinstance(part, Mapping) else None
        spec = source.get("spec") if isinstance(source, Mapping) else None
        query = spec.get("query") if isinstance(spec, Mapping) else None
        if not isinstance(query, str):
            raise _RefusedError(f"ratioMetric.{kind} has no metricSource.spec.query")
        found[kind] = query
    if "total" not in found or len(found) != 2:
        raise _RefusedError("its ratioMetric needs total, and one of good and bad")
    return found


def _percent(objectives: Any) -> float:
    if not isinstance(objectives, list) or len(objectives) != 1:
        raise _RefusedError("spec.objectives needs exactly one entry")
    (objective,) = objectives
    if not isinstance(objective, Mapping):
        raise _RefusedError("spec.objectives has an entry that is not a mapping")
    if unknown := sorted(set(objective) - _OBJECTIVE_KEYS):
        raise _RefusedError(f"spec.objectives: {unknown[0]} is not judged")
    targets = [objective[key] for key in ("target", "targetPercent") if key in objective]
    if len(targets) != 1 or isinstance(targets[0], bool) or not isinstance(targets[0], int | float):
        raise _RefusedError("spec.objectives needs one number: target or targetPercent")
    # Decimal: 0.9995 is 99.95 %, and not what binary fractions make of it.
    scale = 100 if "target" in objective else 1
    return float(Decimal(repr(targets[0])) * scale)


def _index_of(slo: _Slo, objectives: Sequence[_Slo]) -> int | None:
    """The objective that an SLO of sends belongs to: by name, else the first of its groups."""
    same = [i for i, one in enumerate(objectives) if one.patterns[:2] == slo.patterns]
    named = [i for i in same if objectives[i].name == slo.name]
    return next(iter([*named, *same]), None)
