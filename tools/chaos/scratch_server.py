"""ScratchServer: a process of a run that is no broker: a name server, a controller, a node of etcd.

One process without children, hit with signals. Used by one thread at a time.

Tested by tests/tools/chaos/test_scratch_process.py.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.chaos.scratch_process import STOP_S, ScratchProcess

NAMESRV: Final = "namesrv"
_NAMESRV_LINE: Final = r"Name Server boot success"


class ScratchServer(ScratchProcess):
    """See the module; start it again as often as you like."""

    def __init__(
        self, name: str, directory: Path, command: Sequence[str], ready: str, *, port: int
    ) -> None:
        """ready: a pattern of the line by which it says that it serves; port: of 127.0.0.1."""
        super().__init__(name, directory, ready)
        self.address = "127.0.0.1", port
        self._command = command

    def start(self, on_begun: Callable[[], None] = lambda: None) -> None:
        """Start it and wait until it serves. on_begun: called once it has a pid. Raises ChaosError
        with what it printed."""
        self._launch(self._command, on_begun)

    def kill_all(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.is_alive:
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if self.is_alive:
            os.kill(self.pid, signal.SIGCONT)


def name_server(directory: Path, port: int) -> ScratchServer:
    """One of ours, whose files are in the directory, at this port of loopback."""
    settings = {
        "listenPort": port,
        "bindAddress": "127.0.0.1",
        "logDir": directory,
        "kvConfigPath": directory / "kvConfig.json",
    }
    command = server_command("namesrv", directory / "namesrv.properties", settings)
    return ScratchServer(NAMESRV, directory, command, _NAMESRV_LINE, port=port)


def server_command(module: str, path: Path, settings: Mapping[str, object]) -> Sequence[str]:
    """Of a server of ours, whose settings this writes to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return [sys.executable, "-m", module, "-c", str(path)]
