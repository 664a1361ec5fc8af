"""Our member of a group under a 5.3.3 controller: identity, election, set, failover, restart.

One controller for all tests; each test has a group of its own. The member is ours down to its
files and its connections; around it is a log that only has ends, or the bytes of a Java master, as
the HA link of this mode is not wired. What counts is what the controller says: the body of its
answer to 1006, which mqadmin's getSyncStateSet prints.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.failover.controller_messages import role_notice_of
from broker.failover.member import Stage
from broker.failover.member_parts import MemberPlace, build_member
from broker.failover.member_service import MemberService, MemberStatus
from broker.failover.messages import (
    Follow,
    FrameTaken,
    HangUp,
    Lead,
    LogEnds,
    MasterHello,
    NameServersAnswered,
    RegisterAtNameServers,
    ReplicaConnected,
    ReplicaReported,
    Role,
    RoleNotified,
    Step,
    Transfer,
)
from broker.settings.broker_config import BrokerConfig
from broker.settings.controller_mode_config import ControllerModeConfig
from ha.autoswitch_frame import MasterFrame, MasterHandshakeFrame, SlaveHandshakeFrame
from ha.autoswitch_slave import AutoSwitchSlave
from ha.epoch_file import decode_epochs
from ha.epochs import EpochList
from ipc.clock import SystemClock
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.controller import BrokerReplicasInfo, ReplicasInfo
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig
from remoting.remoting_serializable import dumps_java
from remoting.request_code import RequestCode
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.remoting.fake_peer import FakePeer, PeerConnection
from tests.support.members import ids_in_sync

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

CLUSTER = "MemberCluster"
_WAIT_S = 30


class Broker:
    """A member with a service port that takes 1008, and a log of which only the ends are known."""

    def __init__(self, root: Path, controller: str, group: str, log_end: int = 0) -> None:
        self.root = root
        self.log_end = log_end
        self.roles: list[Role] = []
        self.notices: list[RoleNotified] = []
        self.registered: list[RegisterAtNameServers] = []
        self.port = FakePeer(self._served)
        self.client = RemotingClient(RemotingClientConfig())
        clock = SystemClock()
        self.executor = ScheduledExecutor(clock, threads=1)
        self.member = build_member(
            ControllerModeConfig(
                controller_addr=f"127.0.0.1:1;{controller}",
                all_ack_in_sync_state_set=True,
                check_sync_state_set_period=200,
                controller_heart_beat_timeout_mills=3_000,
            ),
            BrokerConfig(
                broker_cluster_name=CLUSTER, broker_name=group, broker_heartbeat_interval=200
            ),
            MemberPlace(self.port.address, root, 1, 0),
            self,
            self.client,
            clock,
        )
        self.has_ended = False
        self.client.start()
        self.executor.start()
        self.member.start(self.executor)

    def fall_silent(self) -> None:
        """To the controller it is a stopped machine: the connections stay, and say nothing."""
        self.service.shutdown()

    def end(self) -> None:
        """To the controller it is a kill: the connections end without a word."""
        if self.has_ended:
            return
        self.has_ended = True
        self.service.shutdown()
        self.executor.shutdown(5_000)
        self.client.shutdown()
        self.port.stop()

    def _served(self, connection: PeerConnection, command: RemotingCommand) -> None:
        assert command.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED
        notice = role_notice_of(command.ext_fields, command.body)
        assert notice is not None
        self.notices.append(notice)
        host, port = connection.sock.getpeername()
        self.service.notified(notice, f"{host}:{port}")

    # The member's host

    def log_ends(self) -> LogEnds:
        return LogEnds(self.log_end, self.log_end)

    def do(self, step: Step) -> None:
        """There are no bytes and no connections."""

    def show(self, status: MemberStatus) -> None:
        """Nobody looks."""

    def take_role(self, role: Role) -> None:
        self.roles.append(role)

    def register(self, registration: RegisterAtNameServers) -> None:
        self.registered.append(registration)
        self.service.deliver(NameServersAnswered(registration.state_version))

    # What tests look at

    @property
    def service(self) -> MemberService:
        return self.member.service

    @property
    def status(self) -> MemberStatus:
        return self.service.status

    @property
    def epochs(self) -> EpochList:
        return decode_epochs((self.root / "epochFileCheckpoint").read_bytes())

    def wait_for(self, role: Role) -> None:
        def is_taken() -> bool:
            return role in self.roles and self.status.stage is Stage.RUNNING

        wait_until(is_taken, f"{role}; has {self.roles}, {self.status}", _WAIT_S)

    def follow(self, master: Broker, connection: int) -> None:
        """What the HA link does: handshake, the bytes, the report."""
        hello = MasterHello(master.status.master_epoch, master.epochs, master.log_end)
        self.service.deliver(hello)
        wait_until(lambda: isinstance(self.roles[-1], Transfer | HangUp), "the handshake", _WAIT_S)
        assert isinstance(self.roles[-1], Transfer), self.status.trouble
        self.log_end = master.log_end
        broker_id = self.status.broker_id
        assert broker_id is not None
        master.service.deliver(ReplicaConnected(connection, broker_id))
        master.service.deliver(ReplicaReported(connection, self.log_end))


Start = Callable[..., Broker]


@pytest.fixture(scope="module", params=[harness.JAVA_5, "ours"])
def controller(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[harness.Controller]:
    settings = {"scanNotActiveBrokerInterval": "500", "scanInactiveMasterInterval": "1000"}
    if request.param == "ours":
        settings["leaderWarmUpMillis"] = "1000"
    directory = tmp_path_factory.mktemp("controller")
    server = harness.controller(directory, settings, kind=request.param).start()
    yield server
    server.kill()


@pytest.fixture
def start(controller: harness.Controller, tmp_path: Path) -> Iterator[Start]:
    """start(name, group, log_end): a broker whose files are under `name`."""
    brokers: list[Broker] = []

    def begin(name: str, group: str, log_end: int = 0) -> Broker:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        brokers.append(Broker(root, controller.address, group, log_end))
        return brokers[-1]

    yield begin
    for broker in brokers:
        broker.end()


@pytest.fixture(scope="module")
def asker() -> Iterator[RemotingClient]:
    client = RemotingClient(RemotingClientConfig())
    client.start()
    yield client
    client.shutdown()


Info = Callable[[str], ReplicasInfo | None]


@pytest.fixture
def info(controller: harness.Controller, asker: RemotingClient) -> Info:
    """What the controller says of a group."""

    def ask(group: str) -> ReplicasInfo | None:
        command = RemotingCommand.request(
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=dumps_java([group])
        )
        answer = asker.invoke_sync(controller.address, command, 5_000)
        return BrokerReplicasInfo.from_json_bytes(answer.body).replicas_info_table.get(group)

    return ask


def test_a_first_member_gets_an_id_and_is_elected(start: Start, info: Info) -> None:
    one = start("1", "alone")
    one.wait_for(Lead(1))
    assert (one.root / "brokerIdentity").read_bytes() == f"{CLUSTER}#alone#1".encode()
    assert not (one.root / "brokerIdentity-temp").exists()
    assert one.epochs.entries == ((1, 0),)
    assert {*one.registered} == {RegisterAtNameServers(0, 1)}, "again until it is taken"
    found = info("alone")
    assert found is not None
    assert (found.master_broker_id, found.master_address) == (1, one.port.address)
    assert (found.master_epoch, found.sync_state_set_epoch) == (1, 1)
    assert [(each.broker_id, each.alive) for each in found.in_sync_replicas] == [(1, True)]
    assert found.not_in_sync_replicas == []


def test_a_lone_master_that_comes_back_leads_in_a_new_epoch(start: Start, info: Info) -> None:
    """Under another address, with the same id: what it had not flushed may be gone, so that it must
    not go on in its old epoch."""
    one = start("1", "restarted")
    one.wait_for(Lead(1))
    assert one.epochs.entries == ((1, 0),)
    one.end()
    again = start("1", "restarted", 100)
    wait_until(lambda: again.status.is_master, "master again", _WAIT_S)
    epoch = again.status.master_epoch
    assert epoch > 1, "which one, Java's tries to find another master decide (P17)"
    assert again.status.broker_id == 1
    assert again.epochs.entries == ((1, 0), (epoch, 100))
    found = info("restarted")
    assert found is not None
    assert (found.master_epoch, found.master_address) == (epoch, again.port.address)


def test_a_lone_master_comes_back_while_it_is_taken_for_alive(start: Start) -> None:
    """The controller names it master of the old epoch, and refuses it a new one until it has been
    silent for its heartbeat timeout."""
    one = start("1", "hidden")
    one.wait_for(Lead(1))
    one.fall_silent()
    again = start("1", "hidden", 100)
    wait_until(lambda: again.status.is_master, "master again", _WAIT_S)
    assert again.status.master_epoch > 1


def test_a_slave_joins_takes_over_and_is_followed(start: Start, info: Info) -> None:
    one = start("1", "pair", 0)
    one.wait_for(Lead(1))
    two = start("2", "pair")
    two.wait_for(Follow(1, one.port.address, 1))
    assert (two.root / "brokerIdentity").read_bytes() == f"{CLUSTER}#pair#2".encode()
    assert ids_in_sync(info("pair")) == {1}

    one.log_end = 693
    two.follow(one, connection=1)
    wait_until(lambda: ids_in_sync(info("pair")) == {1, 2}, "both in the set", _WAIT_S)
    wait_until(lambda: one.status.acknowledged_offset == 693, "acknowledged", _WAIT_S)

    one.end()
    two.wait_for(Lead(2))
    # It may have asked by itself before.
    wait_until(lambda: bool(two.notices), "the controller's own word", _WAIT_S)
    assert two.epochs.entries == ((1, 0), (2, 693))
    assert two.registered[-1] == RegisterAtNameServers(0, 2)
    assert ids_in_sync(info("pair")) == {2}

    again = start("1", "pair", 693)
    again.wait_for(Follow(2, two.port.address, 2))
    again.follow(two, connection=1)
    assert again.epochs == two.epochs
    wait_until(lambda: ids_in_sync(info("pair")) == {1, 2}, "back in the set", _WAIT_S)


class Link:
    """An HA connection of our member to a Java master: its bytes, kept in memory."""

    def __init__(self, member: Broker, ha_port: int) -> None:
        self._member = member
        self._socket = socket.create_connection(("127.0.0.1", ha_port))
        self._socket.settimeout(0.1)
        self._clock = SystemClock()
        broker_id = member.status.broker_id
        assert broker_id is not None
        self._end = AutoSwitchSlave(SlaveHandshakeFrame(broker_id), report_interval_ms=5_000)
        self._socket.sendall(self._end.hello())
        self.log = b""

    def close(self) -> None:
        self._socket.close()

    def read(self) -> None:
        """What comes within a tenth of a second."""
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return
        assert data, "the master has closed the connection"
        for frame in self._end.receive(data):
            self._take(frame)
        self._socket.sendall(self._end.due_report(len(self.log), self._clock.monotonic_ms()))

    def _take(self, frame: MasterFrame) -> None:
        member = self._member
        if isinstance(frame, MasterHandshakeFrame):
            epoch = member.status.master_epoch
            member.service.deliver(MasterHello(epoch, frame.epochs, frame.max_offset))
            wait_until(lambda: isinstance(member.roles[-1], Transfer), "the handshake", _WAIT_S)
            self._socket.sendall(self._end.follow(0, self._clock.monotonic_ms()))
        else:
            self.log += frame.body
            member.log_end = len(self.log)
            member.service.deliver(FrameTaken(frame.confirm_offset))


@pytest.mark.long
def test_a_member_follows_a_java_master_and_takes_over(
    start: Start, info: Info, controller: harness.Controller, tmp_path: Path
) -> None:
    """From the controller's word to the master's bytes, all of it is Java's but the member."""
    settings = {
        "brokerClusterName": CLUSTER,
        "brokerRole": "SLAVE",
        "brokerId": "-1",
        "enableControllerMode": "true",
        "controllerAddr": controller.address,
        "allAckInSyncStateSet": "true",
        "mappedFileSizeCommitLog": str(1 << 20),
    }
    java = harness.broker(
        harness.JAVA_5, tmp_path / "java", None, name="mixed", conf=settings
    ).start()
    try:
        with java.client() as client:
            sent = [client.send("T", 0, b"%d" % number) for number in range(20)]
        ours = start("ours", "mixed")
        ours.wait_for(Follow(1, java.address, 1))
        link = Link(ours, java.port + 1)

        def has_joined() -> bool:
            link.read()
            return ids_in_sync(info("mixed")) == {1, 2}

        wait_until(has_joined, "our member in the set of a Java master", _WAIT_S)
        assert 0 < sent[-1].phy_offset < len(link.log)
        first, *_ = sorted((java.store_dir / "commitlog").iterdir())
        assert first.read_bytes()[: len(link.log)] == link.log
    finally:
        java.kill()
    ours.wait_for(Lead(2))
    link.close()
    assert ours.epochs.entries == ((1, 0), (2, len(link.log)))
    assert ids_in_sync(info("mixed")) == {2}
