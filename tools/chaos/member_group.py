"""MemberGroup: three brokers in controller mode, their controllers and a name server, as real
processes on loopback, with a network between them that can be cut (network.py).

What a node announces is its address in that network (127.0.1.x); its processes listen at 127.0.0.x,
where the clients of a run come to them directly: a broker that is cut off from the others still has
its clients. Used by one thread, apart from `kill_everything`.

    node            listens at        is announced as
    broker-N        127.0.0.(10+N)    127.0.1.(10+N)
    controller-N    127.0.0.1         127.0.1.N
    namesrv         127.0.0.1         127.0.1.9
    etcd-N          127.0.0.1         127.0.1.(20+N)

Tested by tests/tools/chaos/test_election_run.py.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.chaos.free_ports import free_port
from tools.chaos.network import Network
from tools.chaos.processes import children_of
from tools.chaos.scratch_group import BROKER_NAME, ScratchBroker
from tools.chaos.scratch_server import NAMESRV, ScratchServer, name_server, server_command

CLUSTER: Final = "ChaosCluster"
BROKERS: Final = 3
HEARTBEAT_TIMEOUT_S: Final = 3.0
_HEARTBEAT_TIMEOUT_MS: Final = int(HEARTBEAT_TIMEOUT_S * 1000)
MEMBER: Final[Mapping[str, object]] = {
    "brokerClusterName": CLUSTER,
    "brokerName": BROKER_NAME,
    "enableControllerMode": "true",
    # The safe mode.
    "allAckInSyncStateSet": "true",
    "minInSyncReplicas": 2,
    "controllerHeartBeatTimeoutMills": _HEARTBEAT_TIMEOUT_MS,
    "checkSyncStateSetPeriod": 500,
    # A slave that stands still leaves the set within a fault's length.
    "haMaxTimeSlaveNotCatchup": 2_000,
    "syncBrokerMetadataPeriod": 1_000,
    "slaveSyncInterval": 1_000,
}
CONTROLLER: Final[Mapping[str, object]] = {
    "scanNotActiveBrokerInterval": 500,
    "scanInactiveMasterInterval": 1_000,
    "leaderWarmUpMillis": _HEARTBEAT_TIMEOUT_MS,
    # Members are announced at their addresses in the network, and ask from others.
    "registerAllowedAddresses": "*",
    "etcdLeaseSeconds": 3,
}
_CONTROLLER_LINE: Final = r"boot success"
_ETCD_LINE: Final = r"ready to serve .*client requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """What a group is made of."""

    controllers: int = 1
    etcd_nodes: int = 0
    """0: the one controller keeps its groups in a file of its own."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of all brokers, over the group's."""
    fills_disks: bool = False
    """Whether disks of brokers can be full: hooks in each of their processes, which then starts as
    an interpreter of its own."""


class MemberGroup:
    """See the module."""

    whole_s = 15.0
    """So long a fault that waits for the whole SyncStateSet waits."""
    healed_s = 60.0
    """So long it may take, once nothing is broken any more, until it serves, and is whole."""

    def __init__(self, directory: Path, shape: GroupShape) -> None:
        """directory: exists. Raises OSError, NetworkError."""
        self.network = Network()
        self._directory = directory
        self._shape = shape
        self.namesrv = self._make_namesrv()
        self.etcd = self._make_etcd(shape.etcd_nodes)
        self.controllers = self._make_controllers(shape.controllers)
        self.brokers = [self._make_broker(number + 1, shape.settings) for number in range(BROKERS)]
        self.paused: set[str] = set()
        """Nodes whose processes stand still."""

    def _make_namesrv(self) -> ScratchServer:
        port = free_port()
        self.network.lead(("127.0.1.9", port), ("127.0.0.1", port), NAMESRV)
        return name_server(self._directory / NAMESRV, port)

    def _make_controllers(self, count: int) -> list[ScratchServer]:
        """One keeps its groups in a file, unless there is an etcd."""
        ports = [free_port() for _ in range(count)]
        peers = ";".join(f"n{n}-127.0.1.{n}:{port}" for n, port in enumerate(ports, 1))
        shared: dict[str, object] = {}
        if self.etcd:
            urls = [f"http://127.0.1.{20 + n}:{e.address[1]}" for n, e in enumerate(self.etcd, 1)]
            shared = {"controllerStore": "etcd", "etcdEndpoints": ",".join(urls)}
            shared["controllerDLegerPeers"] = peers
        return [self._make_controller(n, port, shared) for n, port in enumerate(ports, 1)]

    def _make_controller(
        self, number: int, port: int, shared: Mapping[str, object]
    ) -> ScratchServer:
        name = f"controller-{number}"
        directory = self._directory / name
        settings = {
            "listenPort": port,
            "bindAddress": "127.0.0.1",
            "controllerStorePath": directory / "store",
            "logDir": directory,
            **CONTROLLER,
            **shared,
            **({"controllerDLegerSelfId": f"n{number}"} if shared else {}),
        }
        command = self._controller_command(directory / "controller.properties", settings)
        self.network.lead((f"127.0.1.{number}", port), ("127.0.0.1", port), name)
        return ScratchServer(name, directory, command, _CONTROLLER_LINE, port=port)

    def _controller_command(self, path: Path, settings: Mapping[str, object]) -> Sequence[str]:
        """path: of its settings file, which is written."""
        return server_command("controller", path, settings)

    def _make_etcd(self, count: int) -> list[ScratchServer]:
        ports = [(free_port(), free_port()) for _ in range(count)]
        members = [
            f"etcd-{n}=http://127.0.1.{20 + n}:{peer}" for n, (_, peer) in enumerate(ports, 1)
        ]
        made = []
        for number, (port, peer) in enumerate(ports, 1):
            name, announced = f"etcd-{number}", f"127.0.1.{20 + number}"
            directory = self._directory / name
            command = [
                *("etcd", "--name", name, "--data-dir", str(directory / "data")),
                *("--listen-client-urls", f"http://127.0.0.1:{port}"),
                *("--advertise-client-urls", f"http://{announced}:{port}"),
                *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
                *("--initial-advertise-peer-urls", f"http://{announced}:{peer}"),
                *("--initial-cluster", ",".join(members)),
                *("--initial-cluster-token", str(directory.parent)),
            ]
            for each in (port, peer):
                self.network.lead((announced, each), ("127.0.0.1", each), name)
            made.append(ScratchServer(name, directory, command, _ETCD_LINE, port=port))
        return made

    def _make_broker(self, number: int, settings: Mapping[str, object]) -> ScratchBroker:
        port, ha, name = free_port(-2), free_port(), f"broker-{number}"
        announced, host = f"127.0.1.{10 + number}", f"127.0.0.{10 + number}"
        for each in (port, ha):
            self.network.lead((announced, each), (host, each), name)
        asked = [f"127.0.1.{n}:{each.address[1]}" for n, each in enumerate(self.controllers, 1)]
        own = {
            **MEMBER,
            "brokerIP1": announced,
            "brokerIP2": announced,
            "listenPort": port,
            "haListenPort": ha,
            "controllerAddr": ";".join(asked),
            "namesrvAddr": f"127.0.1.9:{self.namesrv.address[1]}",
            **settings,
        }
        return self._broker_of(name, own, host)

    def _broker_of(self, name: str, settings: Mapping[str, object], host: str) -> ScratchBroker:
        directory = self._directory / name
        has_hooks = self._shape.fills_disks
        return ScratchBroker(
            name, directory, settings, host, has_hooks=has_hooks, can_lose_power=False
        )

    # -- its life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Everything; who leads is not waited for. Raises ChaosError."""
        self.start_these([self.namesrv, *self.etcd])
        self.start_these(self.controllers)
        self.start_these(self.brokers)

    def start_these(self, ended: Sequence[ScratchServer | ScratchBroker]) -> None:
        """All at once. Raises ChaosError."""
        if not ended:
            return
        with concurrent.futures.ThreadPoolExecutor(len(ended)) as pool:
            starting = [pool.submit(each.start, self.know_owners) for each in ended]
        for begun in starting:
            begun.result()

    def know_owners(self) -> None:
        """Whose processes are whose now: the network asks where a connection comes from."""
        owners = {server.pid: server.name for server in self.servers if server.is_alive}
        owners |= {broker.pid: broker.name for broker in self.brokers if broker.is_alive}
        self.network.know(owners)

    def kill_everything(self) -> None:
        """The end, whatever happened before."""
        for broker in self.brokers:
            broker.kill_all()
        for server in self.servers:
            server.kill_all()
        self.network.close()

    # -- who is who ----------------------------------------------------------------------------

    @property
    def servers(self) -> list[ScratchServer]:
        """What is no broker."""
        return [*self.controllers, self.namesrv, *self.etcd]

    @property
    def nodes(self) -> list[str]:
        """The names of all."""
        return [*(each.name for each in self.servers), *(each.name for each in self.brokers)]

    @property
    def namesrv_address(self) -> tuple[str, int]:
        """Where clients ask."""
        return self.namesrv.address

    @property
    def controller_addresses(self) -> dict[str, tuple[str, int]]:
        """By the controllers' names."""
        return {controller.name: controller.address for controller in self.controllers}

    def client_address(self, announced: str) -> tuple[str, int] | None:
        """Where clients come to the broker that announces itself so; None: it is none of ours."""
        port = announced.rpartition(":")[2]
        for broker in self.brokers:
            if broker.ports and str(broker.ports["main"]) == port:
                return broker.address
        return None

    def tend(self, _in_sync: Sequence[tuple[str, int]], _master: tuple[str, int] | None) -> None:
        """Do for members what an operator has to; ours come back by themselves. in_sync: who is in
        the SyncStateSet. Called again and again while somebody is waited for."""

    # -- signals -------------------------------------------------------------------------------

    def pause(self, broker: ScratchBroker) -> None:
        """SIGSTOP to every process of it."""
        self.paused.add(broker.name)
        _signal_all(broker, signal.SIGSTOP)

    def resume(self, broker: ScratchBroker) -> None:
        """SIGCONT to every process of it."""
        _signal_all(broker, signal.SIGCONT)
        self.paused.discard(broker.name)


def _signal_all(broker: ScratchBroker, number: signal.Signals) -> None:
    if not broker.is_alive:
        return
    for pid in (broker.pid, *children_of(broker.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
