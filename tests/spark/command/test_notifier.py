"""When a receiver is told, with which key, and what is remembered of it: a real HTTP server, real
files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark.command.arguments import UsageError, parse_arguments
from spark.command.notifier import Notifier, key_of_event, told_of
from spark.command.receiver import CHANGE, Receiver
from spark.command.webhook import Webhook
from spark.config.objectives import PolicyStep
from spark.figures.report_data import ReportData
from tests.spark.hook_server import HookServer, receiving
from tests.spark.local_results import LocalFiles
from tests.spark.told_reports import PAGE, Notes, calendar_row, told_report

QUIET, LOUD = PolicyStep(50, "slow"), PolicyStep(100, "freeze", notify=True)
STEPS = (QUIET, LOUD)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[HookServer]:
    with receiving(HookServer()) as found:
        yield found


@dataclasses.dataclass
class World:
    """One --out and a server; each `tell` is a run of its own."""

    server: HookServer
    out: Path
    format: str = "json"
    occasion: str = CHANGE
    notes: Notes = dataclasses.field(default_factory=Notes)
    files: LocalFiles = dataclasses.field(default_factory=LocalFiles)

    @property
    def state(self) -> Path:
        return self.out / "report" / "_notified.json"

    def notifier(self) -> Notifier:
        receiver = Receiver(Webhook(self.server.address()), self.format, self.occasion)
        return Notifier(receiver, lambda: self.files, str(self.out), self.notes, lambda: 0)

    def tell(self, data: ReportData) -> bool:
        """Whether something was posted."""
        before = len(self.server.requests)
        self.notifier().tell(data, PAGE)
        return len(self.server.requests) > before

    def fail(self, date: str, why: str = "disk") -> bool:
        before = len(self.server.requests)
        self.notifier().tell_failure(date, why)
        return len(self.server.requests) > before

    @property
    def keys(self) -> list[str]:
        return [headers["Idempotency-Key"] for _, _, headers, _ in self.server.requests]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, _, body in self.server.requests]


@pytest.fixture
def world(server: HookServer, tmp_path: Path) -> World:
    return World(server, tmp_path)


def test_always_is_after_each_date(world: World) -> None:
    world.occasion = "always"
    assert [world.tell(told_report()), world.tell(told_report())] == [True, True]
    assert world.keys[0] == world.keys[1]
    assert world.keys[0] == f'"{world.bodies[0]["key"]}"'


@pytest.mark.parametrize("kind", ["json", "slack"])
def test_only_a_change_of_verdict(world: World, kind: str) -> None:
    world.format = kind
    days = [
        *(("2026-03-10", "met", "met", True), ("2026-03-11", "met", "met", False)),
        ("2026-03-12", "breached", "met", True),
        *(("2026-03-13", "breached", "met", False), ("2026-03-14", "breached", "breached", True)),
        *(("2026-03-15", "met", "breached", True), ("2026-03-16", "met", "breached", False)),
        ("2026-03-17", "met", "insufficient data", True),
    ]
    told = [world.tell(told_report(date, day, window)) for date, day, window, _ in days]
    assert told == [expected for *_, expected in days]
    assert len(set(world.keys)) == sum(told)
    assert world.notes.told == []


def test_a_date_that_is_revised_is_compared_with_what_was_told_of_it(world: World) -> None:
    assert world.tell(told_report("2026-03-10", "met"))
    assert world.tell(told_report("2026-03-11", "breached"))
    assert not world.tell(told_report("2026-03-10", "met"))
    assert world.tell(told_report("2026-03-10", "breached"))
    assert not world.tell(told_report("2026-03-11", "breached"))
    # Before the first date that was told nothing is known.
    assert world.tell(told_report("2026-03-09", "breached"))


def test_only_steps_with_notify_are_a_change(world: World) -> None:
    def on(date: str, used: float) -> bool:
        return world.tell(told_report(date, used=used, policy=STEPS))

    assert on("2026-03-10", 0.1)
    assert not on("2026-03-11", 0.7)
    assert on("2026-03-12", 1.0)
    assert not on("2026-03-13", 1.5)
    assert on("2026-03-14", 0.9)
    (step,) = world.bodies[1]["budget_steps"]
    assert (step["label"], step["replica"], step["used_ratio"]) == ("freeze", "b:1", 1.0)


def test_a_step_that_is_told_although_a_higher_one_is_not(world: World) -> None:
    policy = (PolicyStep(50, "slow", notify=True), PolicyStep(100, "freeze"))
    assert told_of(told_report(used=2.0, policy=policy)).steps == (("c", "b", "b:1", "slow"),)
    assert world.tell(told_report("2026-03-10", used=0.6, policy=policy))
    assert not world.tell(told_report("2026-03-11", used=2.0, policy=policy))


def test_calendar_periods_are_a_change_by_their_name_and_verdict(world: World) -> None:
    days = [
        *(("2026-03-10", "2026-03", "met", True), ("2026-03-11", "2026-03", "breached", True)),
        # Until the month is over it is the same breach, the last day included.
        *(
            ("2026-03-12", "2026-03", "breached", False),
            ("2026-03-31", "2026-03", "breached", False),
        ),
        # That of the next month is another one, though no date between them was met.
        *(
            ("2026-04-01", "2026-04", "breached", True),
            ("2026-04-30", "2026-04", "breached", False),
        ),
        *(("2026-05-01", "2026-05", "met", True), ("2026-06-01", "2026-06", "met", False)),
    ]
    told = [
        world.tell(told_report(date, calendar_windows=[calendar_row(name, verdict)]))
        for date, name, verdict, _ in days
    ]
    assert told == [expected for *_, expected in days]
    assert len(set(world.keys)) == sum(told)


def test_the_key_of_a_calendar_verdict_is_the_same_for_the_same_event(world: World) -> None:
    world.occasion = "always"
    breached = told_report(calendar_windows=[calendar_row("2026-03", "breached")])
    for data in (breached, breached, told_report()):
        world.tell(data)
    key, again, met = world.keys
    assert again == key != met
    # Who has no calendar period has the keys of earlier versions.
    assert met == '"798bf844-f221-5efe-9175-293370b9d06c"'


def test_a_month_and_30_days_are_steps_of_their_own(world: World) -> None:
    def on(date: str, used: float, of_month: float) -> bool:
        rows = [calendar_row("2026-03", used=of_month)]
        return world.tell(told_report(date, used=used, policy=STEPS, calendar_windows=rows))

    assert on("2026-03-10", 1.0, 0.1)
    assert on("2026-03-11", 1.0, 1.0)
    assert not on("2026-03-12", 1.5, 1.5)
    assert on("2026-03-13", 0.9, 1.5)


def test_what_an_earlier_version_remembered_is_read(world: World) -> None:
    world.tell(told_report("2026-03-10"))
    stored = json.loads(world.state.read_text())
    for receiver in stored["receivers"].values():
        for one in receiver["dates"].values():
            del one["periods"]
    world.state.write_text(json.dumps(stored))
    assert not world.tell(told_report("2026-03-11"))
    rows = [calendar_row("2026-03", "breached")]
    assert world.tell(told_report("2026-03-12", calendar_windows=rows))
    assert world.notes.told == []


def test_a_run_that_is_killed_before_it_remembers_tells_again_with_the_same_key(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            world.tell(told_report(day="breached"))
    assert world.tell(told_report(day="breached"))
    assert world.keys[0] == world.keys[1]
    assert not world.tell(told_report(day="breached"))


def test_what_was_not_accepted_is_told_by_the_next_run(world: World) -> None:
    world.server.status = 503
    assert world.tell(told_report(day="breached"))
    assert not world.state.exists()
    assert len(world.notes.told) == 1
    assert world.notes.told[0].startswith("2026-03-10: notification failed: http://127.0.0.1:")
    world.server.status = 200
    assert world.tell(told_report("2026-03-11", "breached"))


def test_a_failure_is_always_told_and_what_comes_next_is_news(world: World) -> None:
    assert world.tell(told_report("2026-03-10"))
    assert world.fail("2026-03-11")
    assert world.fail("2026-03-11", "another reason")
    assert world.keys[1] == world.keys[2]
    assert world.tell(told_report("2026-03-11"))
    assert not world.tell(told_report("2026-03-12"))
    world.notifier().remember_failure("2026-03-13")
    assert world.tell(told_report("2026-03-14"))


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "null", "{}", '{"version": 1}', '{"version": 2, "receivers": {}}'),
        *('{"version": 1, "receivers": []}', '{"version": 1, "receivers": {"x": 1}}', "\x00"),
    ],
)
def test_a_file_that_cannot_be_used(world: World, content: str) -> None:
    world.tell(told_report())
    world.state.write_text(content)
    assert world.tell(told_report())
    assert not world.tell(told_report())
    (name,) = {*json.loads(world.state.read_text())["receivers"]} - {"x"}
    stored = json.loads(world.state.read_text())
    broken: tuple[Any, ...] = ({"dates": 1}, {"dates": {"2026-03-10": {}}}, None, [], "x")
    for damaged in broken:
        stored["receivers"][name] = damaged
        world.state.write_text(json.dumps(stored))
        assert world.tell(told_report()) is True, damaged


def test_each_receiver_has_its_own_memory_and_the_file_has_no_secrets(world: World) -> None:
    files, notes = LocalFiles(), Notes()
    for path in ("/services/T0/B1", "/services/T0/B2"):
        address = world.server.address(path, "me:word@")
        receiver = Receiver(Webhook(address), "json", CHANGE)
        notifier = Notifier(receiver, lambda: files, str(world.out), notes, lambda: 0)
        for _ in range(2):
            notifier.tell(told_report(), PAGE)
    assert [path for _, path, _, _ in world.server.requests] == [
        *("/services/T0/B1", "/services/T0/B2")
    ]
    text = world.state.read_text()
    assert len(json.loads(text)["receivers"]) == 2
    assert not any(secret in text for secret in ("word", "T0", "B1", "services"))


def test_only_the_newest_dates_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.command.notifier.MOST_DATES", 2)
    for day in ("10", "11", "12"):
        world.tell(told_report(f"2026-03-{day}"))
    ((_, found),) = json.loads(world.state.read_text())["receivers"].items()
    assert list(found["dates"]) == ["2026-03-11", "2026-03-12"]


def test_a_step_to_tell_and_nobody_to_be_told(tmp_path: Path) -> None:
    notes = Notes()
    notifier = Notifier(None, LocalFiles, str(tmp_path), notes, lambda: 0)
    notifier.tell(told_report(used=0.9, policy=STEPS), PAGE)
    assert notes.told == []
    notifier.tell(told_report(used=1.0, policy=STEPS), PAGE)
    assert notes.told == [
        "2026-03-10: error_budget_policy: a step with notify: true is reached; give --notify URL"
    ]
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        lambda data: dataclasses.replace(data, date="2026-03-11"),
        lambda data: dataclasses.replace(data, verdict="breached"),
        lambda data: dataclasses.replace(data, windows=()),
        lambda data: dataclasses.replace(data, exit_on="window", windows=()),
        lambda data: dataclasses.replace(
            data, replica_days=[{**row, "revision": 2} for row in data.replica_days]
        ),
        lambda _: told_report(used=1.0, policy=(LOUD,)),
    ],
)
def test_another_event_has_another_key(change: Callable[[ReportData], ReportData]) -> None:
    def key(data: ReportData) -> str:
        return key_of_event(data.date, told_of(data), data.exit_code, data.revision)

    assert key(told_report()) == key(told_report())
    assert key(change(told_report())) != key(told_report())


def test_the_arguments() -> None:
    def asked(*arguments: str, **environment: str) -> Any:
        return parse_arguments(["--dumps", "a", "--out", "o", *arguments], environment).notify

    url = "https://h/x"
    assert asked() is None
    assert asked("--notify", url) == Receiver(Webhook(url), "json", "always")
    assert asked("--notify", f"slack+{url}").format == "slack"
    assert asked("--notify", f"slack+{url}").webhook.address == url
    assert asked("--notify", f"slack+{url}", "--notify-format", "slack").format == "slack"
    assert asked("--notify-on", "change", MQREPORT_NOTIFY_URL=f"json+{url}").occasion == "change"
    for given, address in (
        ("http://am:9093", "http://am:9093/api/v2/alerts"),
        ("http://me:w@am:9093/", "http://me:w@am:9093/api/v2/alerts"),
        ("https://am/prefix?x=1", "https://am/prefix/api/v2/alerts?x=1"),
        ("https://am/api/v2/alerts", "https://am/api/v2/alerts"),
    ):
        found = asked("--notify", given, "--notify-format", "alertmanager")
        assert found == asked("--notify", f"alertmanager+{given}")
        assert found.webhook.address == address
    for arguments, told in (
        (
            ["--notify-on", "change"],
            "--notify-on change: needs --notify URL",
        ),
        (
            ["--notify-format", "slack"],
            "--notify-format slack: needs --notify URL",
        ),
        (["--notify", url, "--notify-on", "never"], "argument --notify-on: invalid choice"),
        (["--notify", "pager+secret"], "--notify: is not an http or https address"),
        (
            ["--notify", "slack+https://h/secret", "--notify-format", "json"],
            "--notify: begins with slack+, but --notify-format is json",
        ),
    ):
        with pytest.raises(UsageError) as caught:
            asked(*arguments)
        assert str(caught.value).startswith(told)
        assert "secret" not in str(caught.value)


def test_a_remembering_that_fails_is_a_note(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with contextlib.ExitStack() as patched:
        monkeypatch.setattr(LocalFiles, "write", full)
        patched.callback(monkeypatch.undo)
        assert world.tell(told_report())
    assert world.notes.told == ["No space left on device; what was told now is told again"]
