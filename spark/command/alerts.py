"""A report as alerts of a Prometheus Alertmanager: what POST /api/v2/alerts takes.

Pure functions, run on the driver. An alert is the same one as long as its labels are: Alertmanager
tells people of a new one once, and again when it is resolved. So the labels have no date (but those
of a date without a report), and whoever posts has to know which alerts it has posted before:
spark/command/notifier.py.

The API: github.com/prometheus/alertmanager, api/v2/openapi.yaml (postableAlerts).

Tested by tests/spark/command/test_alertmanager.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from spark.config.sla_values import is_web_address
from spark.figures import wording
from spark.figures.budget_policy import ReachedStep
from spark.figures.judged_windows import WindowName
from spark.figures.report_data import BREACHED, INSUFFICIENT, ReportData, Row, key_of
from spark.page import budget_steps
from spark.page.headlines import one_line, reasons_of
from spark.vocabulary import HOUR_MS, REPLICA

PATH: Final = "/api/v2/alerts"
VALID_MS: Final = 50 * HOUR_MS
"""An alert ends by itself so long after it was posted: each night posts it again, and one night may
be missed."""
VERDICT_NAMES: Final = {
    BREACHED: "RocketMQReplicationBreached",
    INSUFFICIENT: "RocketMQReplicationUnproved",
}
STEP_NAME: Final = "RocketMQErrorBudgetUsed"
FAILURE_NAME: Final = "RocketMQReplicationReportFailed"
_DAY: Final = WindowName(days=1)
_SEVERITY: Final = {BREACHED: "critical", INSUFFICIENT: "warning"}


@dataclass(frozen=True, slots=True)
class Alert:
    """`start_ms`: since when, epoch ms. Labels and annotations are texts by name."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    start_ms: int
    page: str

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """What Alertmanager makes its fingerprint of."""
        return tuple(sorted(self.labels.items()))

    def posted(self, end_ms: int) -> dict[str, Any]:
        """As the API wants it; it is resolved when `end_ms` is not in the future."""
        url = {"generatorURL": _url(self.page)} if self.page else {}
        return {
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "startsAt": rfc3339(self.start_ms),
            "endsAt": rfc3339(max(self.start_ms, end_ms)),
            **url,
        }

    def stored(self) -> dict[str, Any]:
        """For a file; `restored` reads it."""
        return {
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "start_ms": self.start_ms,
            "page": self.page,
        }


def restored(value: Any) -> Alert:
    """An alert from what `stored` gave. Raises KeyError, TypeError and ValueError."""
    labels = {str(name): str(text) for name, text in value["labels"].items()}
    annotations = {str(name): str(text) for name, text in value["annotations"].items()}
    return Alert(labels, annotations, int(value["start_ms"]), str(value["page"]))


def api_address(address: str) -> str:
    """Of an Alertmanager's address (`http://host:9093`, also with a prefix) that of its alerts."""
    parts = urlsplit(address)
    path = parts.path.rstrip("/")
    path = path if path.endswith(PATH) else path + PATH
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def alerts_of(data: ReportData, page: str, steps: Iterable[ReachedStep]) -> list[Alert]:
    """What is wrong, as of one date: every breached replica of the day and of each window that
    counts beside it, of the verdicts that `exit_on` names also those without sufficient data; and
    budget `steps`."""
    runbooks = {
        key_of(row): data.objective_of(row).get("runbook_url")
        for row in data.replica_days
        if data.objectives
    }
    found = []
    for row, length in _rows(data):
        found.append(
            _alert(
                data,
                page,
                _verdict_labels(row["verdict"], row, length.name),
                f"{'/'.join(map(wording.name, key_of(row)))}: {row['verdict']} {length.words}",
                "; ".join(map(wording.excerpt, reasons_of(row))),
                runbooks.get(key_of(row)),
            )
        )
    found += [_waiting(data, page, row) for row in data.waiting_groups]
    found += _without_a_replica(data, page, found)
    for one in steps:
        names = dict(zip(REPLICA, one.key, strict=True))
        used = f"{budget_steps.used(one)} of the error budget of {one.window.text}"
        found.append(
            _alert(
                data,
                page,
                {
                    "alertname": STEP_NAME,
                    "severity": "critical" if one.step.at_percent >= 100 else "warning",
                    **_names(names),
                    **one.window.labels,
                    "step": one.step.label,
                },
                f"{'/'.join(map(wording.name, one.key))}: {one.step.label}",
                f"{used} is used up; agreed at {one.step.at_percent:g} %: {one.step.label}",
                runbooks.get(one.key),
            )
        )
    return found


def failure_alert(date: str, why: str, start_ms: int) -> Alert:
    """Of a date that has no report; `why` is empty when it has one now."""
    labels = {"alertname": FAILURE_NAME, "severity": "warning", "date": date}
    summary = f"{date}: no replication report" if why else f"{date}: there is a report now"
    return Alert(labels, _annotations(summary, why, None), start_ms, "")


def resolved(alert: Alert, data: ReportData, page: str) -> Alert:
    """What is posted of an alert that is over."""
    names = [alert.labels[name] for name in REPLICA if name in alert.labels]
    whose = f"{'/'.join(map(wording.name, names))}: " if names else ""
    summary = f"{whose}over, as of {data.date}"
    runbook = alert.annotations.get("runbook_url")
    annotations = _annotations(summary, one_line(data), runbook)
    return Alert(alert.labels, annotations, alert.start_ms, page)


def rfc3339(epoch_ms: int) -> str:
    """`2026-03-14T00:00:00.000Z`."""
    moment = datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class _Length:
    """The day or a window: all replicas' rows, and which verdicts of theirs are told."""

    name: WindowName
    verdict: str
    words: str
    rows: Sequence[Row]
    wanted: frozenset[str]


def _lengths(data: ReportData) -> Iterator[_Length]:
    yield _Length(_DAY, data.verdict, f"on {data.date}", data.replica_days, _wanted(data, "day"))
    for one in data.judged_windows:
        words = f"over {one.name.text}{'' if one.is_final else ' so far'}"
        yield _Length(one.name, one.verdict, words, one.rows, _wanted(data, "window"))


def _wanted(data: ReportData, name: str) -> frozenset[str]:
    counts = data.exit_on in (name, "both")
    return frozenset({BREACHED, INSUFFICIENT} if counts else {BREACHED})


def _rows(data: ReportData) -> Iterator[tuple[Row, _Length]]:
    for length in _lengths(data):
        yield from ((row, length) for row in length.rows if row["verdict"] in length.wanted)


def _without_a_replica(data: ReportData, page: str, found: Sequence[Alert]) -> Iterator[Alert]:
    """A verdict that is no replica's and no waiting group's: nobody is known, for example."""
    there = {(alert.labels["alertname"], alert.labels["window"]) for alert in found}
    for one in _lengths(data):
        if one.verdict not in one.wanted:
            continue
        labels = _verdict_labels(one.verdict, {}, one.name)
        if (labels["alertname"], labels["window"]) not in there:
            yield _alert(data, page, labels, f"{one.verdict} {one.words}", one_line(data), None)


def _waiting(data: ReportData, page: str, row: Row) -> Alert:
    labels = _verdict_labels(INSUFFICIENT, row, _DAY)
    group = f"{wording.name(row['cluster'])}/{wording.name(row['broker'])}"
    why = "a SYNC_MASTER without a replica"
    return _alert(data, page, labels, f"{group}: {INSUFFICIENT} on {data.date}", why, None)


def _verdict_labels(verdict: str, row: Row, window: WindowName) -> dict[str, str]:
    names = {"alertname": VERDICT_NAMES[verdict], "severity": _SEVERITY[verdict]}
    return {**names, **_names(row), **window.labels}


def _alert(
    data: ReportData,
    page: str,
    labels: Mapping[str, str],
    summary: str,
    description: str,
    runbook: str | None,
) -> Alert:
    return Alert(labels, _annotations(summary, description, runbook), data.w0_ms, page)


def _names(row: Row) -> dict[str, str]:
    """Whole names, as routes and silences match them; an empty label is none. A lone surrogate has
    no UTF-8 form."""
    names = {name: row[name] for name in REPLICA if row.get(name)}
    return {name: text.encode(errors="replace").decode() for name, text in names.items()}


def _annotations(summary: str, description: str, runbook: str | None) -> dict[str, str]:
    texts = {"summary": summary, "description": description, "runbook_url": runbook or ""}
    return {name: " ".join(text.split()) for name, text in texts.items() if text}


def _url(page: str) -> str:
    """A path of this machine as a URI."""
    is_uri = "://" in page or is_web_address(page)
    return page if is_uri else Path(page).absolute().as_uri()
