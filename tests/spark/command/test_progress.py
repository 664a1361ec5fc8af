"""What stderr shows: lines for logs, a bar on a terminal, and never a word on stdout."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re

import pytest

from spark.command.progress import LineReporter, Reporter, make_reporter
from spark.command.progress_bar import BarReporter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_run(reporter: Reporter) -> None:
    with contextlib.closing(reporter):
        reporter.note("objectives: x [not markup]")
        reporter.watch(lambda: (12, 48))
        reporter.heading("2026-03-10")
        reporter.stage("reading [dumps]", 1, 2)
        reporter.stage("figures", 2, 2)
        reporter.pause()
        reporter.note("after the pause")
    reporter.close()


def test_lines() -> None:
    stream = io.StringIO()
    a_run(make_reporter("mqreport", stream))
    assert stream.getvalue().splitlines() == [
        "mqreport: objectives: x [not markup]",
        "mqreport: 2026-03-10: 1/2 reading [dumps]",
        "mqreport: 2026-03-10: 2/2 figures",
        "mqreport: after the pause",
    ]


def test_a_log_that_cannot_be_written_does_not_end_the_run() -> None:
    with open("/dev/full", "w", encoding="utf-8") as stream:
        a_run(make_reporter("mqreport", stream))
    a_run(make_reporter("mqreport", None))


def test_the_kind_of_stream_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_reporter("m", io.StringIO()), LineReporter)
    bar = make_reporter("m", Terminal())
    bar.close()
    assert isinstance(bar, BarReporter)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_reporter("m", Terminal()), LineReporter)


def _read_all(terminal: int) -> str:
    """What was written to a terminal; one read gives no more than 4 KiB."""
    os.set_blocking(terminal, False)
    pieces = []
    while True:
        try:
            pieces.append(os.read(terminal, 1 << 20))
        except BlockingIOError:
            return b"".join(pieces).decode()


def test_the_bar(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        a_run(make_reporter("mqreport", stream))
        stream.flush()
        shown = _read_all(ours)
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "mqreport: objectives: x [not markup]" in text
    assert re.search(r"2026-03-10: figures .*2/2.*12 of 48 tasks", text)
    assert "mqreport: after the pause" in text
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")  # the cursor is back
    assert capfd.readouterr() == ("", "")
