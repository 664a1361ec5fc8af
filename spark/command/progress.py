"""Progress of a report: named stages on stderr, as a bar on a terminal, otherwise as plain lines.

Runs on the driver. The bar also shows the tasks of running jobs, through a callable: nothing here
knows Spark or what the stages are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from spark.command.output import say
from spark.figures import wording

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


class BarReporter:
    """One bar that moves with the stages, the tasks of the running jobs beside it."""

    def __init__(self, program: str, stream: TextIO) -> None:
        self._program = program
        self._tasks_column = _TasksColumn()
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[step]}", markup=False),
            self._tasks_column,
            TimeElapsedColumn(),
            console=Console(file=stream),
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,  # else stdout's lines would go to stderr
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(f"{program}: starting", total=None, step="")
        self._heading = program
        self._bar.start()

    def note(self, text: str) -> None:
        """See Reporter."""
        self._bar.console.print(
            f"{self._program}: {wording.visible(text)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    def heading(self, text: str) -> None:
        """See Reporter."""
        self._heading = text

    def stage(self, name: str, number: int, count: int) -> None:
        """See Reporter."""
        self._bar.update(
            self._task,
            description=f"{self._heading}: {name}",
            completed=number - 1,
            total=count,
            step=f"{number}/{count}",
        )
        self._bar.start()

    def watch(self, tasks: Tasks) -> None:
        """See Reporter."""
        self._tasks_column.tasks = tasks

    def pause(self) -> None:
        """See Reporter."""
        self._bar.stop()

    def close(self) -> None:
        """See Reporter."""
        self._tasks_column.tasks = None
        self._bar.stop()


class _TasksColumn(ProgressColumn):
    """ "12 of 48 tasks", drawn by rich's thread; `tasks` is set by the main thread."""

    max_refresh = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.tasks: Tasks | None = None

    def render(self, task: Task) -> Text:
        """See ProgressColumn."""
        tasks = self.tasks
        done, count = tasks() if tasks else (0, 0)
        return Text(f"{done} of {count} tasks" if count else "")
