"""The bar on a terminal that shows a report's progress; spark/command/progress.py has the lines.

Runs on the driver; rich draws in a thread of its own. Knows neither Spark nor what the stages are.
"""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from spark.command.progress import Tasks
from spark.figures import wording


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
