"""A broker container of ours as real processes, and settings files for its brokers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from tests.support.deadline import wait_until
from tests.support.our_broker import HOME, SMALL_FILES, FrameClient
from tools.chaos.free_ports import free_port
from tools.chaos.processes import children_of, is_running, titled_children

CLUSTER: Final = "ContainerCluster"
START_S: Final = 60.0
STOP_S: Final = 60.0
_BOOT_LINE: Final = re.compile(
    r"^The broker container boot success.*name server is [\d.]+:(\d+) \(container: [\d.]+:(\d+),",
    re.MULTILINE,
)


def broker_settings(root: Path, name: str, **settings: object) -> dict[str, object]:
    """Those of a small broker on loopback; listenPort 0 unless given."""
    return {
        "brokerClusterName": CLUSTER,
        "brokerName": name,
        "brokerIP1": "127.0.0.1",
        "listenPort": 0,
        "storePathRootDir": root / name,
        "diskMaxUsedSpaceRatio": 95,
        **SMALL_FILES,
        **settings,
    }


def write_settings(path: Path, settings: dict[str, object]) -> Path:
    """A properties file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def broker_file(root: Path, name: str, **settings: object) -> Path:
    """The settings file of such a broker."""
    return write_settings(root / f"{name}.conf", broker_settings(root, name, **settings))


class OurContainer:
    """A container under `root`; start it again as often as you like."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root
        self.log_dir = root / "logs"
        self.conf = root / "container.conf"
        self._output = root / "output.txt"
        self.settings: dict[str, object] = {
            "bindAddress": "127.0.0.1",
            "brokerContainerIP": "127.0.0.1",
            "listenPort": 0,
            "embeddedNamesrvPort": 0,
            "logDir": self.log_dir,
            **settings,
        }
        self.port = 0
        self.namesrv_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *files: Path, options: tuple[str, ...] = (), wait: bool = True) -> OurContainer:
        """With the brokers of `files`; waits until all of them serve."""
        paths = {"brokerConfigPaths": ":".join(map(str, files))} if files else {}
        write_settings(self.conf, {**self.settings, **paths})
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "broker.processes.container", "-c", self.conf, *options],
                cwd=HOME,
                env={
                    **os.environ,
                    "ROCKETMQ_HOME": str(HOME),
                    "ROCKETMQ_RUN_DIR": str(self.root / "run"),
                    "HOME": str(self.root),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            wait_until(lambda: not self.is_alive or _BOOT_LINE.search(self.output()), START_S)
            found = _BOOT_LINE.search(self.output())
            assert found, self.output()
            self.namesrv_port, self.port = map(int, found.groups())
            wait_until(lambda: not self.is_alive or self.boots() >= len(files), START_S)
            assert self.is_alive, self.output()
        return self

    def boots(self) -> int:
        """How many brokers have said that they serve."""
        return self.output().count("] boot success.")

    def output(self) -> str:
        """What it has printed since its start."""
        return self._output.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The container's own process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether that runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def address(self) -> str:
        """Where mqadmin finds it."""
        return f"127.0.0.1:{self.port}"

    @property
    def namesrv(self) -> str:
        """The address of its name server."""
        return f"127.0.0.1:{self.namesrv_port}"

    def client(self) -> FrameClient:
        """A connection to its port."""
        return FrameClient(("127.0.0.1", self.port))

    def client_of_name_server(self) -> FrameClient:
        """A connection to its name server."""
        return FrameClient(("127.0.0.1", self.namesrv_port))

    def supervisors(self) -> dict[str, int]:
        """Broker name to the pid of its supervisor."""
        found = {}
        for title, pid in titled_children(self.pid).items():
            match = re.fullmatch(rf"supervisor {CLUSTER}_(.+)_\d+", title)
            if match:
                found[match[1]] = pid
        return found

    def registered(self) -> dict[str, str]:
        """Broker name to the master's address at the name server."""
        with self.client_of_name_server() as client:
            body = loads_lenient(client.call(RequestCode.GET_BROKER_CLUSTER_INFO, {}).body)
        table = body.get("brokerAddrTable") or {}
        return {name: str(data["brokerAddrs"]["0"]) for name, data in table.items()}

    def broker_client(self, name: str) -> FrameClient:
        """A connection to a registered broker."""
        host, _, port = self.registered()[name].rpartition(":")
        return FrameClient((host, int(port)))

    def wait_registered(self, *names: str) -> dict[str, str]:
        """Until exactly these brokers are registered."""
        wait_until(lambda: self.registered().keys() == set(names), START_S)
        return self.registered()

    def all_pids(self) -> list[int]:
        """Of the container and everything under it."""
        pids = [self.pid]
        for pid in pids:
            pids += children_of(pid)
        return pids

    def terminate(self) -> int:
        """SIGTERM; the exit code once every process is gone."""
        pids = self.all_pids()
        os.kill(self.pid, signal.SIGTERM)
        code = self.wait_ended()
        wait_until(lambda: not any(map(is_running, pids)), STOP_S)
        return code

    def wait_ended(self) -> int:
        """Until it has ended; its exit code."""
        process = self._process
        assert process is not None
        wait_until(lambda: process.poll() is not None, STOP_S)
        return process.wait()

    def end(self) -> None:
        """The end of a test: whatever still lives is killed."""
        if self._process is None:
            return
        for pid in self.all_pids() if self.is_alive else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def our_container(root: Path, **settings: object) -> Iterator[OurContainer]:
    """A container that does not outlive the test."""
    container = OurContainer(root, **settings)
    try:
        yield container
    finally:
        container.end()


def fixed_port() -> int:
    """A free listenPort whose neighbours (VIP, HA) are free, too."""
    return free_port(-2, 1)
