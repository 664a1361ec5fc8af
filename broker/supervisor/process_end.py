"""Ends a process whose service or main function has failed, and reports why on stderr.

Runs on the failed thread and ends the process at once, so that the supervisor restarts it and
recovery repairs the files. The log file has the stack trace; the terminal gets one line, since
"ended 6 times, the broker stops" would explain nothing by itself. The supervisor is told the same
(`say_last_words_with`), for its own last line.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from conf.logging_setup import one_line
from ipc.service_thread import FailureHandler, ServiceThread

log = logging.getLogger(__name__)

EXIT_FAILED: Final = 1
_told: Final[list[Callable[[str], None]]] = []
"""Filled once, when a child begins."""


def say_last_words_with(say: Callable[[str], None]) -> None:
    """How this process tells the supervisor why it ends."""
    _told[:] = [say]


def service_guard(
    process: str, exit_code: Callable[[Exception], int] = lambda _error: EXIT_FAILED
) -> FailureHandler:
    """The failure handler of the services of `process`, called after the error was logged."""

    def end(service: ServiceThread, error: Exception) -> None:
        log.critical("process %s ends: %s: %s", process, service.name, error)
        end_process(process, error, exit_code(error))

    return end


def end_process(process: str, error: BaseException, exit_code: int = EXIT_FAILED) -> NoReturn:
    """Report on stderr, which is the supervisor's, and exit regardless of other threads."""
    for say in _told:
        say(f"{_described(error)}{_place(error)}")
    # Errors are ignored: stderr may be a pipe that is no longer read.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"mqbroker: process {process} failed: {_described(error)}\n")
        sys.stderr.flush()
    logging.shutdown()
    os._exit(exit_code)


def _place(error: BaseException) -> str:
    """Where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f" ({'/'.join(Path(last.filename).parts[-3:])}:{last.lineno} in {last.name})"


def _described(error: BaseException) -> str:
    """One line, with the exception's class unless its text is self-explanatory."""
    text = one_line(" ".join(str(error).split()))
    return text if isinstance(error, OSError) and text else f"{type(error).__name__}: {text}"
