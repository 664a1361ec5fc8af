"""Progress of a report: named stages on stderr, as a bar on a terminal, otherwise as plain lines.

Runs on the driver. The bar (spark/command/progress_bar.py) also shows the tasks of running jobs,
through a callable: nothing here knows Spark or what the stages are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, TextIO

from spark.command.output import say

Tasks = Callable[[], tuple[int, int]]
"""Finished and all tasks of the jobs that run now."""


class Reporter(Protocol):
    """What a user sees of a run."""

    def stage(self, name: str, number: int, count: int) -> None:
        """The stage `number` (1 to `count`) begins; `name` says in a few words what it does."""

    def note(self, text: str) -> None:
        """Writes a line that stays."""

    def heading(self, text: str) -> None:
        """Sets what the next stages are about: the date."""

    def watch(self, tasks: Tasks) -> None:
        """Shows the tasks of running jobs from now on."""

    def pause(self) -> None:
        """Hides the bar, so that stdout may be written; the next stage shows it again."""

    def close(self) -> None:
        """Removes the bar; may be called twice."""


def make_reporter(program: str, stream: TextIO | None) -> Reporter:
    """The bar when `stream` is a terminal that can show one, else lines; None is a closed one."""
    if stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        # Only now: the night's run has no terminal, and needs no rich.
        from spark.command.progress_bar import BarReporter

        return BarReporter(program, stream)
    return LineReporter(program, stream)


class LineReporter:
    """A line for each stage, for logs of cron and systemd; a full one does not end the run."""

    def __init__(self, program: str, stream: TextIO | None) -> None:
        self._program = program
        self._stream = stream
        self._heading = ""

    def note(self, text: str) -> None:
        """See Reporter."""
        say(self._stream, f"{self._program}: {text}")

    def heading(self, text: str) -> None:
        """See Reporter."""
        self._heading = text

    def stage(self, name: str, number: int, count: int) -> None:
        """See Reporter."""
        self.note(f"{self._heading}: {number}/{count} {name}".removeprefix(": "))

    def watch(self, tasks: Tasks) -> None:
        """Lines do not show tasks."""

    def pause(self) -> None:
        """Lines need no pause."""

    def close(self) -> None:
        """Nothing is open."""
