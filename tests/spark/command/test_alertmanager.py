"""Alerts: as Alertmanager's API wants them, the same alert for the same trouble, resolved when it
is over; the last test asks a real Alertmanager."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from spark.command.alerts import VALID_MS
from spark.command.notifier import Notifier
from spark.command.receiver import Receiver, receiver_of
from spark.config.objectives import PolicyStep
from spark.figures.report_data import GROUP_DAY_COLUMNS, ReportData
from spark.reported_day import midnight_ms
from spark.vocabulary import DAY_MS
from tests.spark.hook_server import HookServer, receiving
from tests.spark.local_results import LocalFiles
from tests.spark.told_reports import HOSTILE, PAGE, RUNBOOK, Notes, calendar_row, told_report
from tests.support.deadline import wait_until
from tools.chaos.free_ports import free_port

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
FREEZE = PolicyStep(100, "freeze", exit_code=1, notify=True)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
Alerts = dict[tuple[tuple[str, str], ...], dict[str, Any]]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def check(posted: Any) -> None:
    """postableAlerts of api/v2/openapi.yaml, and what Alertmanager validates beside it."""
    assert isinstance(posted, list)
    assert posted
    for alert in posted:
        assert set(alert) <= {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}
        for kind in ("labels", "annotations"):
            for name, value in alert[kind].items():
                assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name)
                assert isinstance(value, str)
                assert value
                value.encode()
        assert alert["labels"]["alertname"]
        start, end = alert["startsAt"], alert["endsAt"]
        assert _RFC3339.fullmatch(start)
        assert _RFC3339.fullmatch(end)
        assert moment(start) <= moment(end)
        assert urlsplit(alert.get("generatorURL", "file:///x")).scheme in ("file", "https", "s3a")
    identities = [tuple(sorted(alert["labels"].items())) for alert in posted]
    assert len(set(identities)) == len(identities)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() * 1000


class World:
    """One --out and one Alertmanager; each `tell` is a run of its own, the night after the date."""

    def __init__(self, receiver: Receiver, server: HookServer, out: Path) -> None:
        self.receiver = receiver
        self.server = server
        self.out = out
        self.notes = Notes()
        self.now_ms = 0

    def notifier(self, date: str) -> Notifier:
        self.now_ms = midnight_ms(datetime.fromisoformat(date).date()) + DAY_MS + 1_200_000
        files = LocalFiles()
        return Notifier(
            self.receiver, lambda: files, str(self.out), self.notes, lambda: self.now_ms
        )

    def tell(self, data: ReportData, page: str = PAGE) -> tuple[Alerts, Alerts]:
        """The alerts that were posted: those that fire, those that are resolved."""
        before = len(self.server.requests)
        self.notifier(data.date).tell(data, page)
        return self._posted(before)

    def fail(self, date: str) -> tuple[Alerts, Alerts]:
        before = len(self.server.requests)
        self.notifier(date).tell_failure(date, "the disk is full")
        return self._posted(before)

    def _posted(self, before: int) -> tuple[Alerts, Alerts]:
        firing: Alerts = {}
        over: Alerts = {}
        for _, path, _, body in self.server.requests[before:]:
            assert path == "/api/v2/alerts"
            posted = json.loads(body)
            check(posted)
            for alert in posted:
                kind = firing if moment(alert["endsAt"]) > self.now_ms else over
                kind[tuple(sorted(alert["labels"].items()))] = alert
        return firing, over


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with receiving(HookServer()) as server:
        receiver = receiver_of(f"alertmanager+{server.address('/')}", None, None)
        yield World(receiver, server, tmp_path)


def names(alerts: Alerts) -> list[tuple[str, ...]]:
    keys = ("alertname", "severity", "replica", "window", "step")
    found = [{**dict.fromkeys(keys, ""), **alert["labels"]} for alert in alerts.values()]
    return sorted(tuple(labels[key] for key in keys) for labels in found)


BREACHED = ("RocketMQReplicationBreached", "critical", "b:1")


def test_an_alert_for_each_replica_and_window_that_is_breached(world: World) -> None:
    firing, over = world.tell(told_report(day="breached", window="breached"))
    assert over == {}
    assert names(firing) == [(*BREACHED, "1d", ""), (*BREACHED, "30d", "")]
    alert = next(one for one in firing.values() if one["labels"]["window"] == "1d")
    assert alert == {
        "labels": {
            "alertname": BREACHED[0],
            "severity": "critical",
            "cluster": "c",
            "broker": "b",
            "replica": "b:1",
            "window": "1d",
        },
        "annotations": {
            "summary": "c/b/b:1: breached on 2026-03-10",
            "description": "availability low",
            "runbook_url": RUNBOOK,
        },
        "startsAt": "2026-03-10T00:00:00.000Z",
        "endsAt": "2026-03-13T02:20:00.000Z",
        "generatorURL": "file:///o/report.html",
    }
    assert moment(alert["endsAt"]) == world.now_ms + VALID_MS


def test_nothing_is_posted_where_nothing_is_wrong(world: World) -> None:
    assert world.tell(told_report()) == ({}, {})
    assert world.server.requests == []


def test_it_is_the_same_alert_until_it_is_over(world: World) -> None:
    first, _ = world.tell(told_report("2026-03-10", "breached"))
    second, over = world.tell(told_report("2026-03-11", "breached"), "https://r/x")
    assert over == {}
    assert first.keys() == second.keys()
    (again,) = second.values()
    assert again["startsAt"] == "2026-03-10T00:00:00.000Z"
    assert again["endsAt"] == "2026-03-14T02:20:00.000Z"
    assert again["generatorURL"] == "https://r/x"
    firing, over = world.tell(told_report("2026-03-12"))
    assert (firing, over.keys()) == ({}, first.keys())
    (done,) = over.values()
    assert done["annotations"]["summary"] == "c/b/b:1: over, as of 2026-03-12"
    assert done["annotations"]["runbook_url"] == RUNBOOK
    assert moment(done["endsAt"]) == world.now_ms
    assert world.tell(told_report("2026-03-13")) == ({}, {})


def test_a_verdict_that_changes_ends_one_alert_and_begins_another(world: World) -> None:
    world.tell(told_report("2026-03-10", "breached"))
    firing, over = world.tell(told_report("2026-03-11", "insufficient data"))
    unproved = ("RocketMQReplicationUnproved", "warning", "b:1", "1d", "")
    assert names(firing) == [unproved]
    assert names(over) == [(*BREACHED, "1d", "")]


def test_a_month_is_an_alert_of_its_own(world: World) -> None:
    def on(date: str, name: str, verdict: str) -> tuple[Alerts, Alerts]:
        return world.tell(told_report(date, calendar_windows=[calendar_row(name, verdict)]))

    firing, _ = on("2026-03-30", "2026-03", "breached")
    ((labels, alert),) = firing.items()
    assert {("window", "month"), ("period", "2026-03")} <= set(labels)
    assert alert["annotations"]["summary"] == "c/b/b:1: breached over 2026-03 so far"
    assert alert["annotations"]["description"] == "availability of 2026-03"
    again, over = on("2026-03-31", "2026-03", "breached")
    assert (again.keys(), over) == (firing.keys(), {})
    april, over = on("2026-04-01", "2026-04", "breached")
    assert over.keys() == firing.keys()
    assert april.keys().isdisjoint(firing)


def test_a_step_of_a_month_is_an_alert_of_its_own(world: World) -> None:
    step = PolicyStep(50, "slow", notify=True)
    rows = [calendar_row("2026-03", used=0.6)]
    firing, _ = world.tell(told_report(used=0.7, policy=(step,), calendar_windows=rows))
    assert {dict(labels)["window"] for labels in firing} == {"30d", "month"}
    descriptions = {
        alert["annotations"]["description"].replace("\u00a0", " ") for alert in firing.values()
    }
    text = "60 % of the error budget of 2026-03 is used up; agreed at 50 %: slow"
    assert text in descriptions


def test_what_was_not_accepted_is_resolved_by_the_next_run(world: World) -> None:
    world.tell(told_report("2026-03-10", "breached"))
    world.server.status = 500
    world.tell(told_report("2026-03-11"))
    world.server.status = 200
    assert len(world.tell(told_report("2026-03-12"))[1]) == 1


def test_an_older_date_does_not_say_what_is_wrong_now(world: World) -> None:
    world.tell(told_report("2026-03-10", "breached"))
    assert world.tell(told_report("2026-03-09")) == ({}, {})
    assert world.tell(told_report("2026-03-08", "breached")) == ({}, {})
    # The date itself does.
    assert len(world.tell(told_report("2026-03-10"))[1]) == 1


@pytest.mark.parametrize(("exit_on", "count"), [("day", 1), ("window", 1), ("both", 2)])
def test_insufficient_data_of_the_verdicts_that_exit_on_names(
    world: World, exit_on: str, count: int
) -> None:
    data = told_report(day="insufficient data", window="insufficient data", exit_on=exit_on)
    firing, _ = world.tell(data)
    assert len(firing) == count
    assert {alert["labels"]["severity"] for alert in firing.values()} == {"warning"}


def test_a_verdict_that_is_no_replicas(world: World) -> None:
    """No dump at all, and a master that waits for slaves that nobody knows."""
    empty = ReportData("2026-03-10", 0, DAY_MS, "insufficient data")
    firing, _ = world.tell(empty)
    assert names(firing) == [("RocketMQReplicationUnproved", "warning", "", "1d", "")]
    group = dict.fromkeys(GROUP_DAY_COLUMNS) | {"cluster": "c", "broker": "b2"}
    waiting = ReportData(
        *("2026-03-11", DAY_MS, 2 * DAY_MS, "insufficient data"),
        group_days=[{**group, "role": "SYNC_MASTER"}],
    )
    firing, over = world.tell(waiting)
    assert [alert["labels"].get("broker") for alert in firing.values()] == ["b2"]
    assert [alert["labels"].get("broker") for alert in over.values()] == [None]


def test_a_step_of_the_error_budget_policy(world: World) -> None:
    policy = (PolicyStep(50, "slow down", notify=True), PolicyStep(90, "quiet"), FREEZE)
    steps = []
    for day, used in (("10", 0.5), ("11", 0.95), ("12", 1.0), ("13", 0.1)):
        found = world.tell(told_report(f"2026-03-{day}", used=used, policy=policy))
        steps.append(tuple([name[4] for name in names(alerts)] for alerts in found))
    assert steps == [
        *((["slow down"], []), (["slow down"], []), (["freeze"], ["slow down"]), ([], ["freeze"])),
    ]


def test_a_date_without_a_report(world: World) -> None:
    breached, _ = world.tell(told_report("2026-03-10", "breached"))
    firing, over = world.fail("2026-03-11")
    (alert,) = firing.values()
    assert over == {}
    assert alert["labels"] == {
        "alertname": "RocketMQReplicationReportFailed",
        "severity": "warning",
        "date": "2026-03-11",
    }
    assert alert["annotations"]["description"] == "the disk is full"
    # Another date has its own; the report of this one ends it.
    firing, over = world.tell(told_report("2026-03-12", "breached"))
    assert (firing.keys(), over) == (breached.keys(), {})
    _, over = world.tell(told_report("2026-03-11", "breached"))
    assert [alert["labels"]["date"] for alert in over.values()] == ["2026-03-11"]


def test_hostile_names(world: World) -> None:
    data = told_report(day="breached", window="breached", used=3, replica=HOSTILE, policy=(FREEZE,))
    firing, _ = world.tell(data, f"/o/{HOSTILE[:40]}/report.html".replace("\x00", ""))
    assert len(firing) == 3
    # The whole name, as a silence has to match it; a lone surrogate has no UTF-8 form.
    wanted = HOSTILE[:-1] + "?"
    assert {alert["labels"]["replica"] for alert in firing.values()} == {wanted}
    _, over = world.tell(told_report("2026-03-11"))
    assert over.keys() == firing.keys()


# -- a real Alertmanager -----------------------------------------------------------------------


@contextlib.contextmanager
def alertmanager(directory: Path, hook: str) -> Iterator[str]:
    """Its address; it tells `hook` of every alert by itself, and of its end."""
    assert PROGRAM is not None
    config = directory / "alertmanager.yml"
    config.write_text(
        "route: {receiver: hook, group_by: ['...'], group_wait: 100ms, group_interval: 200ms,"
        " repeat_interval: 24h}\n"
        f"receivers: [{{name: hook, webhook_configs: [{{url: '{hook}', send_resolved: true}}]}}]\n"
    )
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *(PROGRAM, f"--config.file={config}", f"--storage.path={directory / 'data'}"),
                *(f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="),
            ],
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: process.poll() is not None or _answers(f"{address}/-/ready"), 30)
            assert process.poll() is None, (directory / "log").read_text()
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


@pytest.mark.slow
def test_a_real_alertmanager_tells_once_and_again_when_it_is_over(tmp_path: Path) -> None:
    if PROGRAM is None:
        pytest.skip("no Alertmanager: install Debian's package prometheus-alertmanager")
    today = datetime.now(UTC).date()
    out = tmp_path / "o"
    with receiving(HookServer()) as hook, alertmanager(tmp_path, hook.address()) as address:
        world = World(receiver_of(f"alertmanager+{address}", None, "change"), hook, out)

        def tell(**wrong: Any) -> None:
            data = told_report(str(today), replica=HOSTILE, policy=(FREEZE,), **wrong)
            notifier = world.notifier(data.date)
            world.now_ms = round(datetime.now(UTC).timestamp() * 1000)
            notifier.tell(data, "/reports/a b/report.html")
            assert world.notes.told == []

        def told() -> list[tuple[str, str]]:
            found = [json.loads(body) for _, _, _, body in hook.requests]
            return [
                (one["status"], alert["labels"]["alertname"])
                for one in found
                for alert in one["alerts"]
            ]

        tell(day="breached", window="breached", used=2.0)
        wait_until(lambda: len(told()) == 3, 30)
        with urllib.request.urlopen(f"{address}/api/v2/alerts", timeout=10) as answer:
            known = json.loads(answer.read())
        assert {alert["labels"]["replica"] for alert in known} == {HOSTILE[:-1] + "?"}
        assert {alert["status"]["state"] for alert in known} == {"active"}
        fingerprints = {alert["fingerprint"] for alert in known}
        # The same again, as after a killed run, is no news; what is over is.
        shutil.rmtree(out)
        tell(day="breached", window="breached", used=2.0)
        with urllib.request.urlopen(f"{address}/api/v2/alerts", timeout=10) as answer:
            assert {alert["fingerprint"] for alert in json.loads(answer.read())} == fingerprints
        tell(window="breached")
        wait_until(lambda: len(told()) == 5, 30)
        tell()
        wait_until(lambda: len(told()) == 6, 30)
    step, breached = "RocketMQErrorBudgetUsed", BREACHED[0]
    assert sorted(told()) == sorted(
        [
            *[("firing", breached)] * 2,
            ("firing", step),
            *[("resolved", breached)] * 2,
            ("resolved", step),
        ]
    )
