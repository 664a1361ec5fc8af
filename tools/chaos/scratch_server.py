"""ScratchServer: a process of a run that is no broker: a name server, a controller, a node of etcd.

It is started in a directory of its own, seen through what it prints, and hit with signals. Used by
one thread at a time.

Tested by tests/tools/chaos/test_election_run.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tools.chaos.scratch_group import ChaosError, wait_for

_ROOT: Final = Path(__file__).parents[2]
_START_S: Final = 60.0
_STOP_S: Final = 60.0


class ScratchServer:
    """See the module; start it again as often as you like."""

    def __init__(
        self, name: str, directory: Path, command: Sequence[str], ready: str, *, port: int
    ) -> None:
        """ready: a pattern of the line by which it says that it serves; port: of 127.0.0.1."""
        self.name = name
        self.directory = directory
        self.address = "127.0.0.1", port
        self._command = command
        self._ready = re.compile(ready)
        self._process: subprocess.Popen[bytes] | None = None
        self._output = directory / "output.txt"
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """Of its last life; 0: it had none."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or stands still."""
        return self._process is not None and self._process.poll() is None

    def start(self, on_begun: Callable[[], None] = lambda: None) -> None:
        """Start it and wait until it serves. on_begun: called once it has a pid. Raises ChaosError
        with what it printed."""
        with self._output.open("ab") as output:
            begun = output.tell()
            self._process = subprocess.Popen(
                self._command,
                cwd=_ROOT,
                env={
                    "ROCKETMQ_HOME": str(_ROOT),
                    **os.environ,
                    # Of its own: mqshutdown must not take it for the user's.
                    "ROCKETMQ_RUN_DIR": str(self.directory / "run"),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        on_begun()

        def printed() -> str:
            return self._output.read_bytes()[begun:].decode(errors="replace")

        wait_for(lambda: self._ready.search(printed()) or not self.is_alive, _START_S, self.name)
        if self._ready.search(printed()) is None:
            raise ChaosError(f"{self.name} did not start: {printed()[-2000:]}")

    def kill_all(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        return self._process.wait(_STOP_S)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.is_alive:
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if self.is_alive:
            os.kill(self.pid, signal.SIGCONT)
