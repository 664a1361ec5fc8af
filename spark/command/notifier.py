"""Tells a webhook of each report: in which format, and whether there is news.

Runs on the driver's main thread, within the run that holds --out; the only writer of
`report/_notified.json` below it, which has what each receiver was told. It is written after the
receiver has accepted a message: a run that is killed between the two tells again, with the same
key, rather than never. A failure here is a note and never the report's failure.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark.command.alerts import (
    VALID_MS,
    Alert,
    alerts_of,
    failure_alert,
    resolved,
    restored,
)
from spark.command.progress import Reporter
from spark.command.receiver import ALERTMANAGER, CHANGE, JSON, SLACK, Receiver
from spark.command.slack import failure_payload, report_payload
from spark.command.webhook import message_of, message_of_failure
from spark.figures.budget_policy import ReachedStep
from spark.figures.report_data import EXIT_ERROR, MET, ReportData
from spark.job.hadoop_files import FilesError, HadoopFiles

VERSION: Final = 1
"""Of the file: one of another version is not read, and everything is told again."""
MOST_DATES: Final = 400
"""So many dates are remembered, the newest."""
_NAMESPACE: Final = uuid.UUID("0d5e5c2c-6d0e-5d0f-9a53-5f3f3f1b7c55")
"""Of our keys; drawn once."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is news when it changes; `verdict` is None when there is no report. `steps`: of replicas
    and labels of the steps with `notify`, of a calendar period also its name. `periods`: name and
    verdict of each calendar period that is not met: that of one month is no news of the next."""

    verdict: str | None
    window_verdict: str | None = None
    steps: tuple[tuple[str, ...], ...] = ()
    periods: tuple[tuple[str, ...], ...] = ()


def told_of(data: ReportData) -> Told:
    """Of a report."""
    steps = sorted(
        (*one.key, one.step.label, *([one.window.name] if one.window.name is not None else []))
        for one in steps_to_tell(data)
    )
    periods = (
        (str(one.name.name), one.verdict) for one in data.judged_windows[1:] if one.verdict != MET
    )
    return Told(data.verdict, data.window_verdict, tuple(steps), tuple(periods))


def steps_to_tell(data: ReportData) -> list[ReachedStep]:
    """Of each replica and window the highest step with `notify` that it has reached."""
    return data.steps_reached_of([step for step in data.budget_policy if step.notify])


def key_of_event(date: str, told: Told, exit_code: int, revision: int = 0) -> str:
    """The same for the same event, whoever tells it how often: a UUID. Not part of it is where the
    page is, and why there is no report."""
    parts = [date, told.verdict, told.window_verdict, told.steps, exit_code, revision]
    if told.periods:  # else the key is that of versions without them
        parts.append(told.periods)
    return str(uuid.uuid5(_NAMESPACE, json.dumps(parts)))


@dataclass(slots=True)
class _Memory:
    """What one receiver was told: by date; `alerts` are those that fire as of `alerts_of`; `failed`
    are dates whose failure fires."""

    dates: dict[str, Told] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)
    alerts_date: str = ""
    failed: dict[str, int] = field(default_factory=dict)

    def before(self, date: str) -> Told | None:
        """What was told last of this date, else of the newest one before it."""
        newest = max((one for one in self.dates if one <= date), default=None)
        return None if newest is None else self.dates[newest]


class Notifier:
    """Tells one receiver, or nobody; `files` gives those of the run once it has begun."""

    def __init__(
        self,
        receiver: Receiver | None,
        files: Callable[[], HadoopFiles],
        out: str,
        reporter: Reporter,
        now_ms: Callable[[], int],
    ) -> None:
        self._receiver = receiver
        self._files = files
        self._path = f"{out.rstrip('/')}/report/_notified.json"
        self._reporter = reporter
        self._now_ms = now_ms

    def tell(self, data: ReportData, page: str) -> None:
        """Of a report, unless nothing changed and that is what was asked for."""
        receiver = self._receiver
        if receiver is None:
            if steps_to_tell(data):
                text = "error_budget_policy: a step with notify: true is reached; give --notify URL"
                self._reporter.note(f"{data.date}: {text}")
            return
        memory, told = self._memory(receiver), told_of(data)
        payload: Any = None
        if receiver.format == ALERTMANAGER:
            payload = self._take_alerts(memory, data, page)
        elif receiver.occasion != CHANGE or memory.before(data.date) != told:
            make = report_payload if receiver.format == SLACK else message_of
            payload = make(data, page)
        key = key_of_event(data.date, told, data.exit_code, data.revision)
        if payload is None or self._is_accepted(receiver, data.date, payload, key):
            memory.dates[data.date] = told
            self._remember(receiver, memory)

    def tell_failure(self, date: str, why: str) -> None:
        """Of a date that has no report: always, and what comes next is news."""
        if self._receiver is not None and self._is_failure_accepted(date, why):
            self.remember_failure(date)

    def remember_failure(self, date: str) -> None:
        """What is known of the date next is news; somebody else tells the failure."""
        if self._receiver is None:
            return
        memory = self._memory(self._receiver)
        memory.dates[date] = Told(None)
        memory.failed.setdefault(date, self._now_ms())
        self._remember(self._receiver, memory)

    def _is_failure_accepted(self, date: str, why: str) -> bool:
        assert self._receiver is not None
        failure = find_failure_of_telling(self._receiver, date, why, self._now_ms())
        if failure is not None:
            self._reporter.note(f"{date}: notification failed: {failure}")
        return failure is None

    def _is_accepted(self, receiver: Receiver, date: str, payload: Any, key: str) -> bool:
        failure = find_failure(receiver, payload, key)
        if failure is not None:
            self._reporter.note(f"{date}: notification failed: {failure}")
        return failure is None

    def _take_alerts(
        self, memory: _Memory, data: ReportData, page: str
    ) -> list[dict[str, Any]] | None:
        """All that fire as of this date, and those before that are over; None without any. An
        older date says nothing of what is wrong now."""
        now_ms = self._now_ms()
        posted = []
        if data.date in memory.failed:
            start_ms = memory.failed.pop(data.date)
            posted.append(failure_alert(data.date, "", start_ms).posted(now_ms))
        if data.date >= memory.alerts_date:
            before = {alert.identity: alert for alert in memory.alerts}
            firing = {one.identity: one for one in alerts_of(data, page, steps_to_tell(data))}
            for identity, alert in firing.items():
                if identity in before:
                    start_ms = min(alert.start_ms, before[identity].start_ms)
                    firing[identity] = Alert(alert.labels, alert.annotations, start_ms, page)
            posted += [alert.posted(now_ms + VALID_MS) for alert in firing.values()]
            posted += [
                resolved(alert, data, page).posted(now_ms)
                for identity, alert in before.items()
                if identity not in firing
            ]
            memory.alerts, memory.alerts_date = list(firing.values()), data.date
        return posted or None

    def _memory(self, receiver: Receiver) -> _Memory:
        """Nothing, after a note, when the file cannot be used."""
        try:
            found = self._receivers().get(receiver.name)
            return _Memory() if found is None else _memory_of(found)
        except (FilesError, OSError) as error:
            self._reporter.note(f"{error}; what was told before is not known, and told again")
        except (ValueError, TypeError, KeyError, AttributeError):
            self._reporter.note(
                f"{self._path}: is damaged; what was told before is not known, and told again"
            )
        return _Memory()

    def _receivers(self) -> dict[str, Any]:
        if not self._files().exists(self._path):
            return {}
        stored = json.loads(self._files().read_text(self._path))
        return dict(stored["receivers"]) if stored["version"] == VERSION else {}

    def _remember(self, receiver: Receiver, memory: _Memory) -> None:
        try:
            receivers = self._receivers()
        except (FilesError, OSError, ValueError, TypeError, KeyError):
            receivers = {}  # `_memory` has said so
        receivers[receiver.name] = _stored(memory)
        text = json.dumps({"version": VERSION, "receivers": receivers}, indent=1)
        try:
            self._files().write(self._path, text.encode())
        except (FilesError, OSError) as error:
            self._reporter.note(f"{error}; what was told now is told again")


def find_failure(receiver: Receiver, payload: Any, key: str) -> str | None:
    """Posts; None when it was accepted, else why not. The key is a header, a String of RFC 8941 as
    draft-ietf-httpapi-idempotency-key-header wants it; our own JSON has it, too."""
    if receiver.format == JSON:
        payload = {**payload, "key": key}
    return receiver.webhook.find_failure(payload, headers={"Idempotency-Key": f'"{key}"'})


def find_failure_of_telling(receiver: Receiver, date: str, why: str, now_ms: int) -> str | None:
    """Posts that a date has no report; remembers nothing. An alert ends by itself then."""
    payloads: Mapping[str, Callable[[], Any]] = {
        JSON: lambda: message_of_failure(date, why),
        SLACK: lambda: failure_payload(date, why),
        ALERTMANAGER: lambda: [failure_alert(date, why, now_ms).posted(now_ms + VALID_MS)],
    }
    key = key_of_event(date, Told(None), EXIT_ERROR)
    return find_failure(receiver, payloads[receiver.format](), key)


def tell_failure(
    receiver: Receiver | None, date: str, why: str, reporter: Reporter, now_ms: int
) -> None:
    """Outside of a run, where nothing may be written below --out."""
    if receiver is None:
        return
    failure = find_failure_of_telling(receiver, date, why, now_ms)
    if failure is not None:
        reporter.note(f"{date}: notification failed: {failure}")


def _memory_of(stored: Mapping[str, Any]) -> _Memory:
    """Raises KeyError, TypeError, ValueError and AttributeError."""
    return _Memory(
        {
            str(date): Told(
                one["verdict"],
                one["window_verdict"],
                _texts(one["steps"]),
                _texts(one.get("periods", ())),  # earlier versions did not tell of them
            )
            for date, one in stored["dates"].items()
        },
        [restored(alert) for alert in stored["alerts"]],
        str(stored["alerts_date"]),
        {str(date): int(since_ms) for date, since_ms in stored["failed"].items()},
    )


def _texts(stored: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(str, one)) for one in stored)


def _stored(memory: _Memory) -> dict[str, Any]:
    newest = sorted(memory.dates)[-MOST_DATES:]
    return {
        "dates": {
            date: {
                "verdict": memory.dates[date].verdict,
                "window_verdict": memory.dates[date].window_verdict,
                "steps": memory.dates[date].steps,
                "periods": memory.dates[date].periods,
            }
            for date in newest
        },
        "alerts": [alert.stored() for alert in memory.alerts],
        "alerts_date": memory.alerts_date,
        "failed": {date: memory.failed[date] for date in sorted(memory.failed)[-MOST_DATES:]},
    }
