"""Our ends of an HA connection in controller mode, with 5.3.3 brokers under a 5.3.3 controller.

Our slave at a Java master: the truth is the bytes of the Java broker's commit log, and the offsets
that it answered to sends. A Java slave at our master: the bytes that its files have then, and the
set that the controller names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.failover.messages import (
    Lead,
    Moved,
    ReplicaConnected,
    ReplicaGone,
    ReplicaReported,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.ha.member_world import Member
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.interop.test_controller_member import Broker
from tests.remoting.fake_peer import PeerConnection
from tests.support.our_broker import FrameClient

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(180)]

FILE_SIZE = 1 << 20
SETTINGS = {
    "brokerClusterName": "LinkCluster",
    "brokerRole": "SLAVE",
    "brokerId": "-1",
    "enableControllerMode": "true",
    "mappedFileSizeCommitLog": str(FILE_SIZE),
}
_WAIT_S = 30


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    """The master, alone in its group."""
    root = tmp_path_factory.mktemp("links")
    controller = harness.controller(root / "controller").start()
    conf = {**SETTINGS, "controllerAddr": controller.address}
    try:
        broker = harness.broker(
            harness.JAVA_5, root / "java", None, name="links", conf=conf
        ).start()
        yield broker
        broker.kill()
    finally:
        controller.kill()


def files_of(java: harness.Broker) -> list[Path]:
    return sorted((java.store_dir / "commitlog").iterdir())


def master_bytes(java: harness.Broker, end: int) -> bytes:
    """The log up to there, as far as its files are kept."""
    return b"".join(path.read_bytes() for path in files_of(java))[:end]


def send(java: harness.Broker, count: int, size: int) -> int:
    """Where the last of these messages begins in the Java broker's log."""
    with java.client() as client:
        sent = [client.send("T", 0, b"%d" % number * size) for number in range(count)]
    return sent[-1].phy_offset


def caught_up(slave: Member, last: int) -> None:
    wait_until(lambda: slave.end > last, f"{slave.end}, {last}; {slave.error_text}", _WAIT_S)


def test_the_log_of_a_java_master_to_the_byte(java: harness.Broker, tmp_path: Path) -> None:
    """Several files, links that are cut while it sends, heartbeats, and frames that end anywhere in
    a record."""
    last = send(java, 600, 1_000)
    with Member(
        tmp_path, 7, files=12, file_size=FILE_SIZE, ha_send_heartbeat_interval=500
    ) as slave:
        slave.follow(f"127.0.0.1:{java.port + 1}", 1)
        caught_up(slave, last)
        for _ in range(5):
            last = send(java, 200, 1_500)
            slave.service.stop()
            slave.follow(f"127.0.0.1:{java.port + 1}", 1)
        caught_up(slave, last)
        assert slave.end > 3 * FILE_SIZE
        assert slave.bytes_of(0, slave.end) == master_bytes(java, slave.end)
        (epoch, epochs, _), *_ = slave.hellos
        assert (epoch, epochs.entries) == (1, ((1, 0),))
        wait_until(lambda: slave.confirmed[-1] == slave.end, f"{slave.confirmed[-3:]}", _WAIT_S)
        assert slave.refusals() == {}


def test_a_java_master_waits_for_the_decision(java: harness.Broker, tmp_path: Path) -> None:
    """It sends nothing before the first report, however long that takes."""
    last = send(java, 20, 100)
    with Member(tmp_path, 8, files=12, file_size=FILE_SIZE) as slave:
        slave.decides = "nothing"
        slave.follow(f"127.0.0.1:{java.port + 1}", 1)
        wait_until(lambda: bool(slave.hellos), "the master's answer", _WAIT_S)
        assert slave.end == 0
        slave.service.transfer()
        caught_up(slave, last)
        assert slave.bytes_of(0, slave.end) == master_bytes(java, slave.end)


class ServedMember(Broker):
    """A member that is asked more than 1008: a slave wants its master's tables, and gets none."""

    def _served(self, connection: PeerConnection, command: RemotingCommand) -> None:
        if command.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
            super()._served(connection, command)
        elif not command.is_oneway and not command.is_response:
            connection.send(command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not here"))


class MemberWithLog(Member):
    """Its HA connections tell the member of the group what happens."""

    group: Broker

    def replica_connected(self, connection: int, broker_id: int, async_learner: bool) -> None:
        super().replica_connected(connection, broker_id, async_learner)
        self.group.service.deliver(ReplicaConnected(connection, broker_id, async_learner))

    def replica_reported(self, connection: int, ack_offset: int) -> None:
        super().replica_reported(connection, ack_offset)
        self.group.service.deliver(ReplicaReported(connection, ack_offset))

    def replica_gone(self, connection: int) -> None:
        super().replica_gone(connection)
        self.group.service.deliver(ReplicaGone(connection))

    def log_grew(self) -> None:
        self.group.log_end = self.end
        self.group.service.deliver(Moved())


def register(namesrv: str, group: str, address: str, ha_address: str) -> FrameClient:
    """The master's registration, from which a Java slave learns the HA address. It ends with the
    connection."""
    version = {"stateVersion": 1, "timestamp": 1, "counter": 1}
    tables = {"topicConfigTable": {}, "dataVersion": version}
    body = json.dumps({"topicConfigSerializeWrapper": tables, "filterServerList": []}).encode()
    fields = {
        "brokerName": group,
        "brokerAddr": address,
        "clusterName": SETTINGS["brokerClusterName"],
        "haServerAddr": ha_address,
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
    }
    host, _, port = namesrv.rpartition(":")
    client = FrameClient((host, int(port)))
    assert client.call(RequestCode.REGISTER_BROKER, fields, body).code == 0
    return client


def test_a_java_slave_follows_our_master(tmp_path: Path) -> None:
    """From our handshake's answer to its files; it joins the set by its reports."""
    controller = harness.controller(tmp_path / "controller").start()
    name_server = harness.name_server("ours", tmp_path / "names").start()
    root = tmp_path / "group"
    root.mkdir()
    ours = ServedMember(root, controller.address, "ledbyus")
    conf = {**SETTINGS, "brokerClusterName": "MemberCluster", "controllerAddr": controller.address}
    java = harness.broker(
        harness.JAVA_5, tmp_path / "java", name_server.address, name="ledbyus", conf=conf
    )
    try:
        ours.wait_for(Lead(1))
        with MemberWithLog(tmp_path, 1, files=4, file_size=FILE_SIZE) as master:
            master.group = ours
            master.append(900, size=1_500)
            master.lead(ours.epochs)
            registered = register(name_server.address, "ledbyus", ours.port.address, master.address)
            java.start()
            for _ in range(10):
                end = master.append(20, size=300)
                wait_until(lambda end=end: master.acked() == end, f"{end}", _WAIT_S)
            assert end > FILE_SIZE
            assert [*master.connected.values()][-1] == 2
            assert master_bytes(java, end) == master.bytes_of(0, end)
            wait_until(lambda: ours.status.sync_state_set == {1, 2}, "both in the set", _WAIT_S)
            wait_until(lambda: ours.status.acknowledged_offset == end, "acknowledged", _WAIT_S)
            assert set(master.refusals()) <= {"network"}
            java.kill()
            wait_until(lambda: len(master.gone) == len(master.connected), "gone", _WAIT_S)
            registered.close()
    finally:
        java.kill()
        ours.end()
        name_server.stop()
        controller.kill()
