"""The bar on a terminal; elsewhere nothing is shown. rich draws it, in a thread of its own."""

from __future__ import annotations

from typing import TextIO

from adopt.log_survey import Progress


class Bar:
    """One bar that moves with each step; use in a `with`."""

    def __init__(self, stream: TextIO) -> None:
        self._bar = None
        if stream.isatty():
            # Imported here: 45 ms that nobody waits for without a terminal.
            from rich.console import Console
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                console=Console(file=stream),
                transient=True,
                redirect_stdout=False,  # else stdout's lines would go to stderr
                redirect_stderr=False,
            )
            self._bar.start()

    def __call__(self, what: str) -> Progress:
        """Begin a step; the result is told of its progress: done, and all (0: not known)."""
        bar = self._bar
        if bar is None:
            return lambda _done, _all: None
        task = bar.add_task(what, total=None)
        return lambda done, all_: bar.update(task, completed=done, total=all_ or None)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()
