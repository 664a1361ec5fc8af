"""A stranger that registers as the master of a slave, and ports that listen where they were told.

Real brokers. The stranger is at another address of this machine and plays a master by hand: its
remoting port says that its log begins far behind the slave's end, its HA port waits.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ha.control_slots import HA_REFUSALS
from ha.refusals import RefusalReason
from remoting.body.kv_table import KVTable
from remoting.remoting_command import RemotingCommand
from tests.remoting.fake_peer import FakePeer, PeerConnection
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group, counters_of, log_of
from tests.support.deadline import wait_until
from tests.support.scripted_master import ScriptedMaster

REGISTER_BROKER, RUNTIME_INFO = 103, 28
STRANGER = "127.0.0.9"


def answer(connection: PeerConnection, request: RemotingCommand) -> None:
    bounds = {"commitLogMinOffset": str(1 << 30), "commitLogMaxOffset": str(1 << 31)}
    body = KVTable(table=bounds).to_json_bytes()
    connection.send(request.response(0, None, {}, body))


@pytest.mark.parametrize("by", ["addresses", "secret"])
def test_a_stranger_registered_as_the_master_makes_a_slave_do_nothing(
    group: Group, tmp_path: Path, by: str
) -> None:
    settings: dict[str, object] = {"haTrustedAddresses": "127.0.0.1"}
    if by == "secret":
        secret = tmp_path / "secret"
        secret.write_text("the secret of this group")
        secret.chmod(0o600)
        settings = {"haSharedSecretFile": secret}
    first, second = group.first, group.second
    group.start(first, ASYNC_MASTER, **settings)
    group.start(second, SLAVE, **settings)
    with first.client() as client:
        for number in range(5):
            client.send(TOPIC, 0, f"kept-{number}".encode())
    wait_until(lambda: log_of(second) == log_of(first), 20)
    wait_until((second.store_dir / "replica.json").exists, 20)
    assert second.terminate() == first.terminate() == 0
    before = log_of(second)
    tables = {path.name: path.read_bytes() for path in (second.store_dir / "config").glob("*.json")}
    del second.settings["namesrvAddr"]
    with FakePeer(answer, STRANGER) as stranger, ScriptedMaster(STRANGER) as ha:
        group.start(second, SLAVE, registerNameServerPeriod=10_000, **settings)
        fields = {
            "brokerName": "broker-a",
            "brokerAddr": stranger.address,
            "clusterName": "DefaultCluster",
            "haServerAddr": ha.address,
            "brokerId": 0,
            "compressed": "false",
            "bodyCrc32": 0,
        }
        reason = RefusalReason.UNKNOWN_PEER if by == "addresses" else RefusalReason.NETWORK
        with second.client("namesrv") as client, counters_of(second) as counters:
            assert client.call(REGISTER_BROKER, fields, b"").code == 0
            if by == "secret":
                ha.accept().close()  # It cannot answer the handshake.
            wait_until(lambda: counters[HA_REFUSALS + reason] > 0, 30)
            wait_until(lambda: "anybody may be, and has not proved" in second.log("remoting"), 30)
    assert "our log stays as it is" in second.log("ha")
    assert {command.code for command in stranger.commands} == {RUNTIME_INFO}
    assert second.terminate() == 0
    assert log_of(second) == before
    assert not list(second.store_dir.glob("backup-*"))
    assert not (second.store_dir / "resync.json").exists()
    for name, content in tables.items():
        assert (second.store_dir / "config" / name).read_bytes() == content, name
    assert stranger.address not in (second.store_dir / "replica.json").read_text()


def test_every_port_listens_at_bind_address(group: Group) -> None:
    """The embedded name server's and that of the metrics, too."""
    broker = group.first
    del broker.settings["metricsAddress"]
    group.start(broker, ASYNC_MASTER)
    assert {"main", "vip", "ha", "metrics", "namesrv"} <= broker.ports.keys()
    for port in broker.ports.values():
        socket.create_connection(("127.0.0.1", port), 5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), 5)
    with broker.client() as client:
        assert client.send(TOPIC, 0, b"it reached its name server").code == 0
