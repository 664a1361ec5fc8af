"""The end of a process whose service or main function has failed, told where somebody reads it.

Runs on the thread that failed; ends the process at once, so that the supervisor starts it again
and recovery repairs. The log file has the stack trace; the terminal gets the one line without
which "ended 6 times, the broker stops" explains nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from ipc.service_thread import FailureHandler, ServiceThread

log = logging.getLogger(__name__)

EXIT_FAILED: Final = 1


def service_guard(
    process: str, exit_code: Callable[[Exception], int] = lambda _error: EXIT_FAILED
) -> FailureHandler:
    """What services of `process` call when they have failed (and logged it)."""

    def end(service: ServiceThread, error: Exception) -> None:
        log.critical("process %s ends: %s: %s", process, service.name, error)
        end_process(process, error, exit_code(error))

    return end


def end_process(process: str, error: BaseException, exit_code: int = EXIT_FAILED) -> NoReturn:
    """Tell stderr, which is the supervisor's, and end, whatever other threads do."""
    # Nothing keeps it from ending: stderr may be a pipe that nobody reads any more.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"mqbroker: process {process} failed: {_described(error)}\n")
        sys.stderr.flush()
    logging.shutdown()
    os._exit(exit_code)


def _described(error: BaseException) -> str:
    """One line; the class is named where the text alone, as that of a KeyError, says nothing."""
    text = " ".join(str(error).split())
    return text if isinstance(error, OSError) and text else f"{type(error).__name__}: {text}"
