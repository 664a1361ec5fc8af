"""The frame of a program that is one process with one server: name server, controller.

Runs on the process's main thread, which becomes the server's: an unexpected exception ends the
process. Order of a start: settings, log, what the program opens (port, files), pid file, signals,
the boot line. A start that fails prints one clear line and exits with a nonzero code; SIGTERM and
SIGINT end the server in order. Knows no server.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from conf.command_line import check_home
from conf.errors import EXIT_CANNOT_START, EXIT_OK, StartupExitError
from conf.file_permissions import FilePermissionConfig, set_umask
from conf.logging_setup import LoggingConfig, configure_logging, log_directory
from conf.pid_file import remove_pid_file, write_pid_file


class Server(Protocol):
    """What a program runs."""

    def run(self) -> None:
        """Serve until `request_stop`, then close everything."""

    def request_stop(self) -> None:
        """End `run`. Any thread, signal handlers."""


class Options(Protocol):
    """What every program is told by its settings."""

    @property
    def home(self) -> str | None:
        """rocketmqHome."""

    @property
    def logging(self) -> LoggingConfig:
        """Where the log goes."""

    @property
    def files(self) -> FilePermissionConfig:
        """The umask."""

    @property
    def messages(self) -> tuple[str, ...]:
        """Printed to stdout before the boot line."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Logged once the log is open."""


OptionsT = TypeVar("OptionsT", bound=Options)


class Opened(NamedTuple):
    """A server that is open."""

    server: Server
    boot_line: str
    """For the user, and the log: it serves."""


@dataclass(frozen=True, slots=True)
class Program(Generic[OptionsT]):
    """One program, and how it starts."""

    name: str
    """In bin/, on pid files."""
    process_name: str
    """Of its log file."""
    load: Callable[[Sequence[str], Mapping[str, str]], OptionsT]
    """Command line and environment to options. Raises StartupExitError."""
    open: Callable[[OptionsT, ExitStack], Opened]
    """What the stack holds is undone at the end."""
    errors: tuple[type[Exception], ...]
    """Of `open`, OSError among them: one line for the user each."""


def run_program(program: Program[OptionsT]) -> int:
    """Run it with this process's command line; the exit code."""
    log = logging.getLogger(program.process_name)
    try:
        options = program.load(sys.argv[1:], os.environ)
        check_home(options.home)
        with ExitStack() as stack:
            server = _start(program, options, stack, log)
            try:
                server.run()
            except BaseException:  # the service guard: logged, then the process ends
                log.exception("%s failed", program.name)
                raise
    except StartupExitError as error:
        _say(error.text, to_stdout=error.to_stdout)
        return error.exit_code
    return EXIT_OK


def _start(
    program: Program[OptionsT], options: OptionsT, stack: ExitStack, log: logging.Logger
) -> Server:
    faulthandler.enable()
    for message in options.messages:
        _say(message)
    set_umask(options.files)
    try:
        configure_logging(
            program.process_name,
            log_directory(options.logging),
            level=options.logging.log_level,
            console=True,
        )
        server, boot_line = program.open(options, stack)
        stack.callback(remove_pid_file, write_pid_file(program.name, os.getpid()))
    except program.errors as error:
        raise StartupExitError(EXIT_CANNOT_START, str(error), to_stdout=False) from error
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: server.request_stop())
    for warning in options.warnings:
        log.warning("%s", warning)
    log.info("%s", boot_line)
    _say(boot_line)
    return server


def _say(text: str, *, to_stdout: bool = True) -> None:
    stream = sys.stdout if to_stdout else sys.stderr
    stream.write(f"{text}\n")
    stream.flush()
