"""The frame of a program that is one process with one server: name server, controller.

Runs on the process's main thread, which becomes the server's: an unexpected exception ends the
process. A failed start prints one clear line and exits with a nonzero code; SIGTERM and SIGINT end
it in order. Knows no server.
"""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple, Protocol

from conf.errors import EXIT_OK, StartupExitError


class Server(Protocol):
    """What a program runs."""

    def run(self) -> None:
        """Serve until `request_stop`, then close everything."""

    def request_stop(self) -> None:
        """End `run`. Any thread, signal handlers."""


class Started(NamedTuple):
    """A server that is open."""

    server: Server
    boot_line: str
    """For the user, and the log: it serves."""
    warnings: tuple[str, ...]
    """For the log."""


def run_program(start: Callable[[ExitStack], Started], log: logging.Logger) -> int:
    """The exit code. start: all steps that may fail, with StartupExitError, which is printed; what
    the stack holds is undone at the end."""
    try:
        with ExitStack() as stack:
            faulthandler.enable()
            server, boot_line, warnings = start(stack)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda _number, _frame: server.request_stop())
            for warning in warnings:
                log.warning("%s", warning)
            log.info("%s", boot_line)
            say(boot_line)
            try:
                server.run()
            except BaseException:  # the service guard: logged, then the process ends
                log.exception("the %s failed", log.name)
                raise
    except StartupExitError as error:
        say(error.text, to_stdout=error.to_stdout)
        return error.exit_code
    return EXIT_OK


def say(text: str, *, to_stdout: bool = True) -> None:
    """Print a line for the user who started the program."""
    stream = sys.stdout if to_stdout else sys.stderr
    stream.write(f"{text}\n")
    stream.flush()
