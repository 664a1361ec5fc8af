"""CompileProgram: a checkout's broker has its modules compiled once, for its next start.

Runs on the supervisor's main thread. The launchers in bin/ name the command (COMMAND); a broker of
an installed wheel, and one that tests or mqchaos start, has none. The command decides whether this
machine can compile now, says so in one line on the broker's stderr if it does, and takes only the
processor time that nobody else wants (tools/background_compile.py); it ends with the broker. Must
not know what is compiled, nor how.

Tested by tests/broker/supervisor/test_compile_program.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.supervisor.dependent_program import last_words, start_dependent, stop_dependent
from conf.compiled_modules import VARIABLE, modules_in_use

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger(__name__)

COMMAND: Final = "ROCKETMQ_MQCOMPILE"
"""Set by bin/mqbroker and bin/mqbrokercontainer: the path of bin/mqcompile."""
OUTPUT: Final = "mqcompile.out"
"""In the directory of the log files: what the newest one says and pip says to it."""


class CompileProgram:
    """Starts it once, says how it ended, stops it. Owned by: the supervisor's main thread."""

    def __init__(self, command: Sequence[str], log_dir: Path) -> None:
        """command: what the process becomes; empty: there is none. log_dir: gets its output."""
        self._command = command
        self._output = log_dir / OUTPUT
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The broker serves."""
        if not self._command:
            return
        try:
            self._process = start_dependent(self._command, self._output, keeps_stderr=True)
        except OSError as error:  # no memory, no process, a full disk
            log.info("modules are not compiled in the background: %s", error)

    def tick(self) -> None:
        """Look whether it has ended."""
        if self._process is None or self._process.poll() is None:
            return
        failed = self._process.returncode != 0
        self._process = None
        level = logging.WARNING if failed else logging.INFO
        log.log(level, "compiling in the background: %s", last_words(self._output) or "no word")

    def stop(self) -> None:
        """End it, within two seconds; what it has made so far is gone."""
        process, self._process = self._process, None
        if process is not None:
            stop_dependent(process)


def compile_program(
    environment: Mapping[str, str], log_dir: Path, *, is_wanted: bool
) -> CompileProgram:
    """The one of this process. is_wanted: what the setting compileModules says."""
    path = environment.get(COMMAND, "")
    # Set to anything, the variable says what shall run.
    wanted = is_wanted and path and not environment.get(VARIABLE) and not modules_in_use().compiled
    return CompileProgram([path, "--background"] if wanted else (), log_dir)
