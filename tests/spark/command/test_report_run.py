"""One run of the command, without Spark: its line on stdout, the lock, words for Spark's errors."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from spark.command import report_run
from spark.command.arguments import parse_arguments
from spark.command.report_run import ReportRun, RunError, _locked, _scratch_directory, verdict_line
from spark.config.objectives import EXIT_POLICIES
from spark.figures.report_data import (
    EXIT_ERROR,
    GROUP_DAY_COLUMNS,
    REPLICA_DAY_COLUMNS,
    WINDOW_COLUMNS,
    ReportData,
)
from tests.spark.local_results import LocalFiles, dumps
from tests.spark.local_results import report as stored_report
from tests.spark.told_reports import Notes


def day(replica: str, verdict: str, bad_s: float = 0.0, *reasons: str) -> dict[str, Any]:
    key = {"cluster": "c", "broker": "b", "replica": replica}
    figures = {"verdict": verdict, "bad_s": bad_s, "unknown_s": 0.0, "reasons": list(reasons)}
    return dict.fromkeys(REPLICA_DAY_COLUMNS) | key | figures


def group(broker: str, role: str) -> dict[str, Any]:
    return dict.fromkeys(GROUP_DAY_COLUMNS) | {"cluster": "c", "broker": broker, "role": role}


def window(replica: str, verdict: str, days: int = 30, bad_s: float = 0.0) -> dict[str, Any]:
    key = {"cluster": "c", "broker": "b", "replica": replica}
    figures = {"days": days, "days_with_data": 3, "verdict": verdict, "bad_s": bad_s}
    known = {"availability": 0.99, "unknown_s": 100_000.0, "budget_s": 2592.0}
    return dict.fromkeys(WINDOW_COLUMNS) | key | figures | known


def line(
    verdict: str,
    days: list[dict[str, Any]],
    groups: Sequence[dict[str, Any]] = (),
    page: str = "/o/report.html",
    windows: Sequence[dict[str, Any]] = (window("b:1", "met"),),
) -> str:
    data = ReportData(
        *("2026-03-10", 0, 1000, verdict), replica_days=days, group_days=groups, windows=windows
    )
    return verdict_line(data, page)


def test_the_line_says_verdict_reason_and_page() -> None:
    days = [
        day("b:1", "met"),
        day("b:2", "breached", 5, "availability low", "sync ok low"),
        day("b:3", "insufficient data", 0, "coverage low"),
    ]
    assert line("breached", days) == (
        "2026-03-10 breached: c/b/b:2: availability low, sync ok low; and 1 with insufficient data;"
        " 30 days met; page: /o/report.html"
    )


def test_the_worst_come_first_and_the_rest_is_counted() -> None:
    days = [day(f"b:{n}", "breached", n, "low") for n in range(1, 6)]
    assert line("breached", days) == (
        "2026-03-10 breached: c/b/b:5: low; c/b/b:4: low; c/b/b:3: low; and 2 more;"
        " 30 days met; page: /o/report.html"
    )


def test_a_revised_date_and_one_that_is_met() -> None:
    assert line("met", [day("b:1", "met"), day("b:2", "met") | {"revision": 2}]) == (
        "2026-03-10 met (revision 2): 2 replicas; 30 days met; page: /o/report.html"
    )


def test_a_date_without_replicas() -> None:
    assert line("insufficient data", [], windows=[]) == (
        "2026-03-10 insufficient data: no dump and no earlier result names a replica;"
        " 30 days insufficient data; page: /o/report.html"
    )


def test_the_longest_window_has_its_verdict_and_its_reasons() -> None:
    windows = [window(f"b:{n}", "breached", bad_s=10_000.0 + n) for n in range(5)]
    windows += [window("b:6", "insufficient data", bad_s=60.0), window("b:0", "met", days=7)]
    why = "availability 99 %: 2 h 46 min bad of 43 min 12 s allowed"
    assert line("met", [day("b:1", "met")], windows=windows) == (
        f"2026-03-10 met: 1 replica; 30 days breached: c/b/b:4: {why}; c/b/b:3: {why};"
        f" c/b/b:2: {why}; and 2 more; and 1 with insufficient data; page: /o/report.html"
    )
    assert line("met", [day("b:1", "met")], windows=windows[5:]) == (
        "2026-03-10 met: 1 replica; 30 days insufficient data: c/b/b:6: availability not proved:"
        " 1 min bad and 1 d 03 h unknown of 43 min 12 s allowed; 3 of 30 days have data;"
        " page: /o/report.html"
    )


@pytest.mark.parametrize(
    ("of_day", "of_window", "codes"),
    [
        ("met", "met", (0, 0, 0)),
        ("breached", "met", (1, 0, 1)),
        ("met", "breached", (0, 1, 1)),
        ("met", "insufficient data", (0, 2, 2)),
        ("insufficient data", "breached", (2, 1, 1)),
        ("breached", "insufficient data", (1, 2, 1)),
    ],
)
def test_whose_verdict_the_exit_code_tells(
    of_day: str, of_window: str, codes: tuple[int, int, int]
) -> None:
    found = [
        ReportData(
            *("2026-03-10", 0, 1000, of_day),
            replica_days=[day("b:1", of_day)],
            windows=[window("b:1", of_window), window("b:1", "met", days=7)],
            exit_on=policy,
        ).exit_code
        for policy in EXIT_POLICIES
    ]
    assert tuple(found) == codes


def test_a_window_that_nobody_is_in_is_not_met() -> None:
    data = ReportData("2026-03-10", 0, 1000, "met", replica_days=[day("b:1", "met")])
    assert data.window_verdict == "insufficient data"
    waiting = ReportData(
        *("2026-03-10", 0, 1000, "insufficient data"),
        windows=[window("b:1", "met")],
        group_days=[group("b2", "SYNC_MASTER")],
    )
    assert waiting.window_verdict == "insufficient data"


def test_names_that_others_chose_do_no_harm_to_a_terminal() -> None:
    evil = {"broker": "\x1b[2J" + "x" * 20_000, "cluster": "a\nb"}
    days = [day("\u202eb:1", "breached", 5, "\x07 low", "y" * 5_000) | evil]
    told = line("breached", days)
    assert told.isprintable()
    assert len(told) < 600
    assert told.startswith("2026-03-10 breached: a\\u000ab/\\u001b[2Jxxx")
    assert "/\\u202eb:1: \\u0007 low, yyy" in told


def test_the_page_is_told_as_it_lies_there() -> None:
    told = line("met", [day("b:1", "met")], page="/a  b/report.html")
    assert told.endswith("; page: /a  b/report.html")


@pytest.mark.parametrize("days", [[], [day("b:1", "met")]], ids=["alone", "beside"])
def test_a_master_that_waits_for_slaves_nobody_has_seen(days: list[dict[str, Any]]) -> None:
    groups = [group("b2", "SYNC_MASTER"), group("b", "ASYNC_MASTER")]
    assert line("insufficient data", days, groups) == (
        "2026-03-10 insufficient data: c/b2: a SYNC_MASTER without a replica; 30 days insufficient"
        " data: c/b2: a SYNC_MASTER without a replica; page: /o/report.html"
    )


def test_a_full_scratch_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_names: str) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/x']")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(RunError, match=r"No usable temporary .*; make room, or set TMPDIR"):
        _scratch_directory()


def test_a_second_try_tells_the_breach_that_the_first_one_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Job's: the first try fails on its second date, the second try makes that one alone."""
    dates = {"2026-03-09": 1, "2026-03-10": EXIT_ERROR}
    out = tmp_path / "o"
    given = ["--dumps", dumps(tmp_path / "d", *dates), "--out", str(out), "--catch-up", "7"]
    made = []

    def make(_run: ReportRun, date: datetime.date) -> list[int]:
        made.append(str(date))
        code = dates[str(date)]
        if code != EXIT_ERROR:
            stored_report(out, str(date), exit_code=code)
        return [code]

    def attempt() -> tuple[list[int], list[str]]:
        notes = Notes()
        run = ReportRun(parse_arguments(given, {}), notes, lambda: 0)
        run._files = LocalFiles()  # type: ignore[assignment]
        return run.exit_codes(datetime.date(2026, 3, 10)), notes.told

    monkeypatch.setattr(ReportRun, "_report", make)
    assert attempt() == ([1, EXIT_ERROR], [])
    dates["2026-03-10"] = 0
    codes, told = attempt()
    assert (codes, made) == ([1, 0], ["2026-03-09", "2026-03-10", "2026-03-10"])
    (note,) = told
    assert note.startswith("2026-03-09: its exit code 1 counts as well: ")
    assert note.endswith("/report/dt=2026-03-09/summary.json")
    codes, told = attempt()
    assert codes == []
    assert told[0].startswith("nothing to catch up: none of the 7 dates up to 2026-03-10")


def test_an_interrupted_call_of_spark_is_no_failure_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """py4j closes the connection of a call that was interrupted: the clean-up fails like a dead
    JVM."""

    def interrupted(_run: ReportRun, _date: datetime.date) -> ReportData:
        try:
            raise KeyboardInterrupt
        finally:
            raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(ReportRun, "_compute", interrupted)
    given = ["--dumps", dumps(tmp_path / "d", "2026-03-10"), "--out", str(tmp_path / "o")]
    notes = Notes()
    with pytest.raises(KeyboardInterrupt):
        ReportRun(parse_arguments(given, {}), notes, lambda: 0)._made(datetime.date(2026, 3, 10))
    assert notes.told == []


def test_one_run_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    with (
        _locked(out),
        pytest.raises(RunError, match="another mqreport is writing to it"),
        _locked(out),
    ):
        raise AssertionError("unreachable")
    with _locked(out), _locked(None):
        pass


def test_an_out_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file: cannot be written: "), _locked(tmp_path / "file"):
        raise AssertionError("unreachable")


DAY_BEFORE, DATE = datetime.date(2026, 3, 9), datetime.date(2026, 3, 10)


@pytest.mark.parametrize(
    ("groups", "options", "verdicts", "made", "codes"),
    [
        ([], [], ["met"], [DATE], [0]),
        (["c/b"], ["--between", "01:00", "02:00"], ["met"], [DATE], [0]),
        (["c/b"], [], ["met", "breached", "met"], [DATE, DAY_BEFORE, DATE], [1, 0]),
        (["c/b"], [], ["met", None], [DATE, DAY_BEFORE], [EXIT_ERROR, 0]),
        (["c/b"], [], ["met", "met", None], [DATE, DAY_BEFORE, DATE], [0, EXIT_ERROR]),
        (["c/b"], [], [None], [DATE], [EXIT_ERROR]),
    ],
)
def test_the_day_before_is_revised_by_the_lines_that_tell_its_end(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    groups: list[str],
    options: list[str],
    verdicts: list[str | None],
    made: list[datetime.date],
    codes: list[int],
) -> None:
    """Once, whatever comes of it; then the date itself, for its windows. Each date's line is
    printed once, as it is in the end."""
    asked: list[datetime.date] = []

    def make(_run: ReportRun, date: datetime.date) -> ReportData | None:
        verdict = verdicts[len(asked)]
        asked.append(date)
        return None if verdict is None else ReportData(str(date), 0, 1000, verdict)

    monkeypatch.setattr(ReportRun, "_made", make)
    monkeypatch.setattr(ReportRun, "_page", lambda *_: "page")
    monkeypatch.setattr(report_run, "groups_to_revise", lambda *_: groups)
    notes = Notes()
    run = ReportRun(parse_arguments(["--dumps", "d", "--out", "o", *options], {}), notes, lambda: 0)
    run._spark = None  # type: ignore[assignment]
    assert run.exit_codes(DATE) == codes
    assert asked == made
    again = f"reporting {DAY_BEFORE} again, then {DATE}: there are lines now that show how"
    assert notes.told == ([f"{again} it ended for c/b"] if len(made) > 1 else [])
    told = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    dates = [DAY_BEFORE, DATE][-len(codes) :]
    pairs = zip(dates, codes, strict=True)
    assert told == [str(date) for date, code in pairs if code != EXIT_ERROR]


def test_a_full_stdout_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next date is made, too, and the exit codes are the verdicts; a long test of
    test_command_line.py has a shell redirect a whole run."""
    verdicts = {DAY_BEFORE: "breached", DATE: "met"}
    monkeypatch.setattr(
        ReportRun, "_made", lambda _run, date: ReportData(str(date), 0, 1000, verdicts[date])
    )
    monkeypatch.setattr(ReportRun, "_page", lambda *_: "page")
    monkeypatch.setattr(report_run, "groups_to_revise", lambda *_: [])
    given = ["--dumps", dumps(tmp_path / "d", *map(str, verdicts)), "--out", str(tmp_path / "o")]
    notes = Notes()
    run = ReportRun(parse_arguments([*given, "--catch-up", "2"], {}), notes, lambda: 0)
    run._spark, run._files = None, LocalFiles()  # type: ignore[assignment]
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert run.exit_codes(DATE) == [1, 0]
    unwritten = "cannot write to stdout: "
    assert [note.removeprefix(unwritten).split(":")[0] for note in notes.told] == [
        "2026-03-09 breached",
        "2026-03-10 met",
    ]
