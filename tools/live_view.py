"""LiveView: a command's text redrawn in place on a terminal, each reading with its time.

Runs in the command's main thread. Imported only by a command that repeats on a terminal: rich takes
longer to import than a command runs. A reading replaces the one before in a single write, so that
nothing flickers, and the last one stays when the command ends.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import NoReturn, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tools.report import safe_text


class LiveView:
    """A context manager: inside it the cursor is hidden, and what goes to stderr of the same
    terminal is put above the reading."""

    def __init__(self) -> None:
        console = Console(file=sys.stdout, color_system=None, highlight=False, markup=False)
        self._live = Live(console=console, auto_refresh=False, redirect_stderr=sys.stderr.isatty())

    def __enter__(self) -> Self:
        # The default action would leave the terminal without a cursor (timeout(1) sends it).
        self._sigterm = signal.signal(signal.SIGTERM, _end)
        self._live.__enter__()
        return self

    def show(self, text: str) -> None:
        """Draw this in place of the current text; longer lines are folded, not cut."""
        with _held_back(signal.SIGINT, signal.SIGTERM):
            self._live.update(Text(safe_text(text), overflow="fold"), refresh=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)
        signal.signal(signal.SIGTERM, self._sigterm)


@contextmanager
def _held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Delivers these signals after the block: half a redraw would overwrite the lines above."""
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda n, _frame: received.append(n)) for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for found in received:
        signal.raise_signal(found)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """Exits with a shell's code for this signal, after the contexts have been left."""
    raise SystemExit(128 + number)
