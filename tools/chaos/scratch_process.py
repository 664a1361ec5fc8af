"""ScratchProcess: a server of a run as a real process, started and ended, and seen by its output.

What all of them have in common, brokers and others: a directory of its own, the line by which it
says that it serves, signals. Used by one thread.

Tested by tests/tools/chaos/test_scratch_process.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
STOP_S: Final = 60.0
"""A process that was told to end, or killed, is gone after this."""


class ChaosError(Exception):
    """A group or a server cannot be started or does not obey: the text says what was seen."""


class ScratchProcess:
    """See the module; it may be started again as often as it has ended."""

    starts_within_s = 60.0

    def __init__(self, name: str, directory: Path, ready: str) -> None:
        """ready: a pattern of the line by which it says that it serves."""
        self.name = name
        self.directory = directory
        self._ready = re.compile(ready, re.MULTILINE)
        self._output = directory / "output.txt"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of its last life; 0: it was not started."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or stands still."""
        return self._process is not None and self._process.poll() is None

    def _launch(
        self,
        command: Sequence[str],
        on_begun: Callable[[], None],
        environment: Mapping[str, str] | None = None,
    ) -> re.Match[str]:
        """Start it and wait until it serves; the line that says so. on_begun: called once it has a
        pid. environment: besides this process's own. Raises ChaosError with what it printed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._output.open("ab") as output:
            begun = output.tell()
            self._process = subprocess.Popen(
                command,
                cwd=_ROOT,
                env={
                    "ROCKETMQ_HOME": str(_ROOT),
                    **os.environ,
                    # Of its own: mqshutdown must not take it for the user's.
                    "ROCKETMQ_RUN_DIR": str(self.directory / "run"),
                    **(environment or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        on_begun()

        def printed() -> str:
            return self._output.read_bytes()[begun:].decode(errors="replace")

        wait_for(
            lambda: self._ready.search(printed()) or not self.is_alive,
            self.starts_within_s,
            self.name,
        )
        found = self._ready.search(printed())
        if found is None:
            raise ChaosError(f"{self.name} did not start: {printed()[-2000:]}")
        return found


def wait_for(
    condition: Callable[[], object], timeout_s: float, what: str, *, poll_s: float = 0.02
) -> float:
    """Until it holds; how many seconds that took. Raises ChaosError."""
    began, pause = time.monotonic(), threading.Event()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise ChaosError(f"{what}: not within {timeout_s:.0f} s")
        pause.wait(poll_s)
    return time.monotonic() - began
