"""ConsoleProgram: the console in the browser as a program beside the broker (consoleEnable).

Runs on the supervisor's main thread. The console is a program that the broker does not need
(broker/supervisor/dependent_program.py): it is started again however often it ends, each time
later. It listens on loopback only. Must not import console: its packages need not be installed.

Tested by tests/broker/supervisor/test_console_program.py.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from broker.supervisor.dependent_program import last_words, start_dependent, stop_dependent
from ipc.clock import Clock

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger(__name__)

OUTPUT: Final = "console.out"
"""In the directory of the log files: what the console prints, of its newest start."""
PACKAGES: Final = ("starlette", "uvicorn", "jinja2", "itsdangerous", "python_multipart")
MISSING: Final = (
    "consoleEnable=true, but the console's packages are not installed: start bin/mqconsole once, "
    "which installs them, or pip install 'rocketmq-python-broker[console]'; the broker serves "
    "without it"
)
NO_NAME_SERVER: Final = (
    "consoleEnable=true, but this broker has no name server for the console to ask; the broker "
    "serves without it"
)
_DELAYS_MS: Final = (1_000, 5_000, 30_000, 300_000)
_STEADY_MS: Final = 600_000
"""One that ran for so long begins with the shortest delay again."""


class ConsoleProgram:
    """Starts it, starts it again, stops it. Owned by: the supervisor's main thread."""

    def __init__(self, command: Sequence[str], log_dir: Path, now_ms: Callable[[], int]) -> None:
        """command: what the process becomes; empty: there is none. log_dir: gets its output.
        now_ms: monotonic."""
        self._command = command
        self._output = log_dir / OUTPUT
        self._now_ms = now_ms
        self._process: subprocess.Popen[bytes] | None = None
        self._start_at_ms = now_ms() if command else None
        self._started_ms = 0
        self._ends = 0

    def tick(self) -> None:
        """Start it when that is due, and look whether it has ended."""
        now_ms = self._now_ms()
        if self._process is not None and self._process.poll() is not None:
            self._ended(self._process.returncode, now_ms)
        elif self._start_at_ms is not None and now_ms >= self._start_at_ms:
            self._start(now_ms)

    def stop(self) -> None:
        """End it, within two seconds; it is not started again."""
        self._start_at_ms = None
        process, self._process = self._process, None
        if process is not None:
            stop_dependent(process)

    def _start(self, now_ms: int) -> None:
        self._start_at_ms, self._started_ms = None, now_ms
        try:
            self._process = start_dependent(self._command, self._output)
        except OSError as error:  # no memory, no process, a full disk
            self._again(f"cannot be started: {error}", now_ms)
        else:
            log.info("console: started, pid %s; it says in %s", self._process.pid, self._output)

    def _ended(self, code: int, now_ms: int) -> None:
        self._process = None
        words = last_words(self._output)
        self._again(f"ended with code {code}" + (f": {words}" if words else ""), now_ms)

    def _again(self, what: str, now_ms: int) -> None:
        if now_ms - self._started_ms > _STEADY_MS:
            self._ends = 0
        delay_ms = _DELAYS_MS[min(self._ends, len(_DELAYS_MS) - 1)]
        self._ends += 1
        self._start_at_ms = now_ms + delay_ms
        log.warning(
            "console: %s; starting it again in %s s, the broker serves without it meanwhile",
            what,
            delay_ms // 1000,
        )


class Settings(Protocol):
    """Of SupervisorConfig."""

    @property
    def console_enable(self) -> bool:
        """Whether there shall be one."""

    @property
    def console_port(self) -> int:
        """Where it listens; 0: any free port."""


def console_program(
    settings: Settings, namesrv_addresses: str, log_dir: str, clock: Clock
) -> ConsoleProgram:
    """The console of these name servers (separated by `;`). One without a command is never started:
    it is not wanted, or cannot run here, which a warning says with the way out."""
    reason = _reason_against(namesrv_addresses) if settings.console_enable else ""
    if reason:
        log.warning(reason)
    command = [sys.executable, "-m", "console", "-n", namesrv_addresses]
    command += ["--port", str(settings.console_port)]
    wanted = settings.console_enable and not reason
    return ConsoleProgram(command if wanted else (), Path(log_dir), clock.monotonic_ms)


def _reason_against(namesrv_addresses: str) -> str:
    if any(importlib.util.find_spec(name) is None for name in PACKAGES):
        return MISSING
    return "" if namesrv_addresses else NO_NAME_SERVER
