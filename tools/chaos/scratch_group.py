"""ScratchGroup: a master and a slave as real processes in a directory of their own, on loopback.

The brokers are found through /proc and their titles, hit with signals, and seen through their ports
and files. The slave reaches the master's HA port through a Relay. Whatever still lives is killed
when this ends. Used by one thread, apart from `kill_everything`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.chaos.relay import Relay

_ROOT: Final = Path(__file__).parents[2]
_BOOT_LINE: Final = re.compile(r"boot success.*\(ports: (.*)\)$", re.MULTILINE)
_TITLE: Final = "mqbroker: "
_START_S: Final = 60.0
_STOP_S: Final = 60.0
_SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 100_000,
}


class ChaosError(Exception):
    """The group cannot be started or does not obey: the text says what was seen."""


class ScratchBroker:
    """One broker and its directory."""

    def __init__(self, name: str, directory: Path, settings: Mapping[str, object]) -> None:
        """settings: keys of broker.conf, on top of ports and directories."""
        self.name = name
        self.directory = directory
        self.store = directory / "store"
        self.ports: dict[str, int] = {}
        self._settings: dict[str, object] = {
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "metricsAddress": "127.0.0.1",
            "metricsPort": 0,
            "storePathRootDir": self.store,
            "logDir": directory / "logs",
            "diskMaxUsedSpaceRatio": 95,
            "registerNameServerPeriod": 10_000,
            **_SMALL_FILES,
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._output = directory / "output.txt"

    @property
    def is_alive(self) -> bool:
        """Whether its supervisor runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait for its boot line. Raises ChaosError with what it printed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        conf = self.directory / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        with self._output.open("ab") as output:
            begun = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "broker", "-c", str(conf)],
                cwd=_ROOT,
                env={
                    "ROCKETMQ_HOME": str(_ROOT),
                    **os.environ,
                    # Of its own: mqshutdown must not take these brokers for the user's.
                    "ROCKETMQ_RUN_DIR": str(self.directory / "run"),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def printed() -> str:
            return self._output.read_bytes()[begun:].decode(errors="replace")

        wait_for(lambda: _BOOT_LINE.search(printed()) or not self.is_alive, _START_S, self.name)
        found = _BOOT_LINE.search(printed())
        if found is None:
            raise ChaosError(f"{self.name} did not start: {printed()[-2000:]}")
        self.ports = {
            name: int(port) for name, port in (pair.split(" ") for pair in found[1].split(", "))
        }

    def processes(self) -> dict[str, int]:
        """Name to pid: the supervisor and the children that have given themselves a title."""
        if self._process is None:
            return {}
        found = {"supervisor": self._process.pid}
        for pid in _children_of(self._process.pid):
            title = _title(pid)
            if title.startswith(_TITLE):
                found[title.removeprefix(_TITLE).strip()] = pid
        return found

    def signal(self, process: str, number: int) -> bool:
        """Send a signal to one process; False when it is not there at the moment."""
        pid = self.processes().get(process)
        if pid is None or not self.is_alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def kill_all(self) -> None:
        """SIGKILL to every process at once."""
        if self._process is None:
            return
        if self.is_alive:
            os.kill(self._process.pid, signal.SIGSTOP)  # it starts no child meanwhile
        pids = [*_children_of(self._process.pid), self._process.pid]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(_STOP_S)
        wait_for(lambda: not any(map(_is_running, pids)), _STOP_S, f"the end of {self.name}")

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self._process is None:
            return 0
        children = _children_of(self._process.pid)
        self._process.terminate()
        code = self._process.wait(_STOP_S)
        wait_for(lambda: not any(map(_is_running, children)), _STOP_S, f"the end of {self.name}")
        return code

    def log_bytes(self) -> bytes:
        """All bytes of the commit log without the zeros at its end."""
        files = sorted((self.store / "commitlog").glob("[0-9]*"))
        return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


class ScratchGroup:
    """The group: a master, a slave unless there shall be none, and the link between them."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        has_slave: bool,
        settings: Mapping[str, object],
        role: str,
    ) -> None:
        """role: the master's brokerRole. settings: for both."""
        namesrv, listen, ha = free_port(), free_port(-2), free_port()
        common = {"brokerName": "chaos", **settings}
        self.master = ScratchBroker(
            "master",
            directory / "master",
            {
                **common,
                "brokerRole": role,
                "brokerId": 0,
                "listenPort": listen,
                "haListenPort": ha,
                "embeddedNamesrvPort": namesrv,
            },
        )
        self.relay = Relay(("127.0.0.1", ha), seed) if has_slave else None
        self.slave: ScratchBroker | None = None
        if self.relay is not None:
            self.slave = ScratchBroker(
                "slave",
                directory / "slave",
                {
                    **common,
                    "brokerRole": "SLAVE",
                    "brokerId": 1,
                    "listenPort": free_port(-2),
                    "haListenPort": 0,
                    "namesrvAddr": f"127.0.0.1:{namesrv}",
                    "haMasterAddress": f"127.0.0.1:{self.relay.port}",
                    "haReconnectInterval": 200,
                    "slaveSyncInterval": 1_000,
                },
            )

    @property
    def brokers(self) -> list[ScratchBroker]:
        """The living and the dead."""
        return [self.master] if self.slave is None else [self.master, self.slave]

    @property
    def port(self) -> int:
        """The master's, for clients."""
        return self.master.ports["main"]

    def start(self) -> None:
        """Both. Raises ChaosError."""
        for broker in self.brokers:
            broker.start()

    def kill_everything(self) -> None:
        """The end, whatever happened before."""
        for broker in self.brokers:
            broker.kill_all()
        if self.relay is not None:
            self.relay.close()


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> float:
    """Until it holds; how many seconds that took. Raises ChaosError."""
    began, pause = time.monotonic(), threading.Event()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise ChaosError(f"{what}: not within {timeout_s:.0f} s")
        pause.wait(0.02)
    return time.monotonic() - began


def free_port(*also: int) -> int:
    """A free port of loopback, with those at these distances from it, below the range from which
    the kernel takes ports for outgoing connections."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in _candidates(low):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for offset in (0, *also):
                sock = stack.enter_context(socket.socket())
                sock.bind(("127.0.0.1", port + offset))
            return port
    raise ChaosError("there is no free port below the range of outgoing connections")


_next_candidate = os.getpid() * 7


def _candidates(low: int) -> list[int]:
    global _next_candidate
    _next_candidate += 5
    first, count = 10_000, max(low - 10_000, 100)
    return [first + (_next_candidate + step * 5) % count for step in range(count // 5)]


# -- /proc -----------------------------------------------------------------------------------------


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _is_running(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and (fields[0] not in "ZX" or int(fields[17]) > 1)


def _children_of(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else []
        if fields and int(fields[1]) == parent and fields[0] not in "ZX":
            found.append(int(name))
    return found


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
