"""ScratchGroup: a master and slaves as real processes in a directory of their own, on loopback.

The brokers are found through /proc and their titles, hit with signals, and seen through their ports
and files. Each slave has a loopback address of its own and reaches the master's HA port through a
Relay of its own. The name server is the master's embedded one, or, where brokers change their
roles, a process of its own. Whatever still lives is killed when this ends. Used by one thread,
apart from `kill_everything`.

Tested by tests/tools/chaos/test_file_judge.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.chaos.free_ports import free_port
from tools.chaos.processes import children_of, is_running, titled_children
from tools.chaos.relay import Relay
from tools.chaos.scratch_disk import ScratchDisk
from tools.chaos.scratch_process import STOP_S, ChaosError, ScratchProcess, wait_for
from tools.chaos.scratch_server import NAMESRV, ScratchServer, name_server, server_command

_BOOT_LINE: Final = r"boot success.*\(ports: (.*)\)$"
_WALL_OFFSET_VARIABLE: Final = "MQBROKER_WALL_OFFSET_FILE"
"""ipc/clock.py says what the file is."""
_WALL_OFFSET: Final = struct.Struct("<q")
SLAVE_SYNC_MS: Final = 1_000
SLAVE_SAVES_MS: Final = 600_000
"""flushConsumerOffsetInterval of slaves: what they copy has to be saved when it is copied."""
BROKER_NAME: Final = "chaos"
_SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 100_000,
    "flushConsumeQueueLeastPages": 10_000,
}
"""Many files in a short time; queues are flushed seldom, and whole: what the checkpoint says of
them is needed after a power cut."""


class ScratchBroker(ScratchProcess):
    """One broker and its directory."""

    _BOOTED = _BOOT_LINE

    def __init__(
        self,
        name: str,
        directory: Path,
        settings: Mapping[str, object],
        host: str = "127.0.0.1",
        *,
        has_hooks: bool = False,
        can_lose_power: bool = True,
    ) -> None:
        """settings: keys of broker.conf, on top of ports and directories. host: its address.
        has_hooks: its disk can misbehave. can_lose_power: and lose what was not synced."""
        super().__init__(name, directory, self._BOOTED)
        self.host = host
        self.store = directory / "store"
        self.disk: ScratchDisk | None = None
        if has_hooks:
            faults = directory / "disk-faults"
            self.disk = ScratchDisk(faults, self.store, keeps_copies=can_lose_power)
        self.ports: dict[str, int] = {}
        self._settings: dict[str, object] = {
            "brokerIP1": host,
            "brokerIP2": host,
            "bindAddress": host,
            "metricsAddress": "127.0.0.1",
            "metricsPort": 0,
            "storePathRootDir": self.store,
            "logDir": directory / "logs",
            "diskMaxUsedSpaceRatio": 95,
            "registerNameServerPeriod": 10_000,
            **_SMALL_FILES,
            **settings,
        }
        self._wall_offset = directory / "wall_offset"

    def configure(self, **settings: object) -> None:
        """Settings of its next start; None: not set any more."""
        self._settings.update(settings)
        self._settings = {key: found for key, found in self._settings.items() if found is not None}

    def setting(self, key: str) -> object:
        """Of its next start; None: not set."""
        return self._settings.get(key)

    def set_clock(self, ahead_ms: int) -> None:
        """Set its wall clock: so far from the machine's."""
        with self._wall_offset.open("r+b") as file:
            file.write(_WALL_OFFSET.pack(ahead_ms))

    @property
    def address(self) -> tuple[str, int]:
        """Of its remoting port."""
        return self.host, self.ports["main"]

    def start(self, on_begun: Callable[[], None] = lambda: None) -> None:
        """Start it and wait for its boot line. on_begun: called once it has a pid. Raises
        ChaosError with what it printed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._wall_offset.exists():
            self._wall_offset.write_bytes(_WALL_OFFSET.pack(0))
        found = self._launch(self._command(), on_begun, self._environment())
        self.ports = self._ports_of(found)

    def _command(self) -> Sequence[str]:
        """For its next life; its settings are written."""
        return server_command("broker", self.directory / "broker.conf", self._settings)

    def _environment(self) -> dict[str, str]:
        return {
            _WALL_OFFSET_VARIABLE: str(self._wall_offset),
            **({} if self.disk is None else self.disk.environment),
        }

    def _ports_of(self, booted: re.Match[str]) -> dict[str, int]:
        """booted: its boot line."""
        pairs = booted[1].split(", ")
        return {name: int(port) for name, port in (pair.split(" ") for pair in pairs)}

    def processes(self) -> dict[str, int]:
        """Name to pid: the supervisor and the children that have given themselves a title."""
        if self._process is None:
            return {}
        pid = self._process.pid
        return {"supervisor": pid, **titled_children(pid)}

    def signal(self, process: str, number: int) -> bool:
        """Send a signal to one process; False when it is not there at the moment."""
        pid = self.processes().get(process)
        if pid is None or not self.is_alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def kill_supervisor(self) -> None:
        """SIGKILL; its children have to end by themselves. Raises ChaosError: they do not."""
        if self._process is None or not self.is_alive:
            return
        children = children_of(self._process.pid)
        self._process.kill()
        self._process.wait(STOP_S)
        wait_for(
            lambda: not any(map(is_running, children)),
            STOP_S,
            f"the end of {self.name}, whose supervisor was killed",
        )

    def kill_all(self) -> None:
        """SIGKILL to every process at once."""
        if self._process is None:
            return
        if self.is_alive:
            os.kill(self._process.pid, signal.SIGSTOP)  # it starts no child meanwhile
        pids = [*children_of(self._process.pid), self._process.pid]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(STOP_S)
        wait_for(lambda: not any(map(is_running, pids)), STOP_S, f"the end of {self.name}")

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self._process is None:
            return 0
        children = children_of(self._process.pid)
        self._process.terminate()
        code = self._process.wait(STOP_S)
        wait_for(lambda: not any(map(is_running, children)), STOP_S, f"the end of {self.name}")
        return code

    def wait_ended(self) -> int:
        """Until it has ended by itself; the exit code. Raises ChaosError."""
        if self._process is None:
            raise ChaosError(f"{self.name} was not started")
        children = children_of(self._process.pid)
        wait_for(lambda: not self.is_alive, STOP_S, f"the end of {self.name} by itself")
        wait_for(lambda: not any(map(is_running, children)), STOP_S, f"the end of {self.name}")
        return self._process.wait()

    def log_files(self) -> list[Path]:
        """The commit log's, in the order of their offsets."""
        return sorted((self.store / "commitlog").glob("[0-9]*"))


class ScratchGroup:
    """The group: a master, its slaves, and the links between them."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        slaves: int,
        settings: Mapping[str, object],
        role: str,
        changes_roles: bool = False,
        has_hooks: bool = False,
    ) -> None:
        """role: the master's brokerRole. settings: for all. changes_roles: a master may go, and
        the name server must not go with it. has_hooks: disks can misbehave."""
        namesrv, ha = free_port(), free_port()
        self.role = role
        self.name_server: ScratchServer | None = None
        if changes_roles:
            self.name_server = name_server(directory / NAMESRV, namesrv)
        at_name_server = {"namesrvAddr": f"127.0.0.1:{namesrv}"}
        common = {"brokerName": BROKER_NAME, "slaveSyncInterval": SLAVE_SYNC_MS, **settings}
        self.master = ScratchBroker(
            "master",
            directory / "master",
            {
                **common,
                "brokerRole": role,
                "brokerId": 0,
                "listenPort": free_port(-2),
                "haListenPort": ha,
                **(at_name_server if changes_roles else {"embeddedNamesrvPort": namesrv}),
            },
            has_hooks=has_hooks,
        )
        self.relays = [Relay(("127.0.0.1", ha), seed + number) for number in range(slaves)]
        self.slaves = [
            ScratchBroker(
                "slave" if number == 0 else f"slave{number + 1}",
                directory / ("slave" if number == 0 else f"slave{number + 1}"),
                {
                    **common,
                    "brokerRole": "SLAVE",
                    "brokerId": number + 1,
                    "listenPort": free_port(-2),
                    "haListenPort": free_port() if changes_roles else 0,
                    **at_name_server,
                    "haMasterAddress": f"127.0.0.1:{relay.port}",
                    "haReconnectInterval": 200,
                    "flushConsumerOffsetInterval": SLAVE_SAVES_MS,
                },
                host=f"127.0.0.{number + 2}",
                has_hooks=has_hooks,
            )
            for number, relay in enumerate(self.relays)
        ]

    @property
    def brokers(self) -> list[ScratchBroker]:
        """The living and the dead, the master first."""
        return [self.master, *self.slaves]

    @property
    def slave(self) -> ScratchBroker | None:
        """The first one."""
        return self.slaves[0] if self.slaves else None

    @property
    def address(self) -> tuple[str, int]:
        """The master's, for clients."""
        return self.master.address

    def start(self) -> None:
        """All. Raises ChaosError."""
        if self.name_server is not None:
            self.name_server.start()
        for broker in self.brokers:
            broker.start()

    def kill_everything(self) -> None:
        """The end, whatever happened before."""
        for broker in self.brokers:
            broker.kill_all()
        for relay in self.relays:
            relay.close()
        if self.name_server is not None:
            self.name_server.kill_all()
