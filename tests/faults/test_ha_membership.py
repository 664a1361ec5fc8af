"""Membership of a group is proved: a stranger that registered, wrong secrets, a bad link.

Real brokers. The stranger does what anybody can who reaches the name server and the HA port; what
it gets is read off its sockets, what it achieves off the answers to a producer.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.control_slots import HA_REFUSALS, REPLICA_COUNT
from ha.handshake import OwnIdentity, SlaveHandshake
from ha.refusals import RefusalReason
from store.control_slots import MAX_PHY_OFFSET
from tests.support.broker_group import (
    SLAVE,
    SYNC_MASTER,
    TOPIC,
    Group,
    counters_of,
    log_of,
)
from tests.support.deadline import wait_until
from tests.support.flipping_relay import FlippingRelay
from tests.support.our_broker import OurBroker

SEND_OK, FLUSH_SLAVE_TIMEOUT, NO_SLAVE = 0, 12, 11
REGISTER_BROKER = 103
MAX_HELLO = 62 + 32 + len("255.255.255.255:65535")


def secret_file(directory: Path, text: str = "the secret of this group") -> str:
    path = directory / f"secret-{len(text)}"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


@contextlib.contextmanager
def registered(master: OurBroker, broker_id: int) -> Iterator[None]:
    """What a stranger tells the name server; it counts while the connection is open."""
    fields = {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:39999",
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:39998",
        "brokerId": broker_id,
        "compressed": "false",
        "bodyCrc32": 0,
    }
    with master.client("namesrv") as client:
        assert client.call(REGISTER_BROKER, fields, b"").code == 0
        yield


def everything_from(sock: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError, TimeoutError):
        while data := sock.recv(65_536):
            received += data
    return received


@pytest.mark.fault(19)
@pytest.mark.parametrize("by", ["addresses", "secret"])
def test_a_stranger_that_registers_is_a_stranger(group: Group, tmp_path: Path, by: str) -> None:
    settings: dict[str, object] = {"haTrustedAddresses": "192.0.2.1"}
    if by == "secret":
        settings = {"haSharedSecretFile": secret_file(tmp_path)}
    master = group.start(group.first, SYNC_MASTER, slaveTimeout=300, **settings)
    with (
        master.client() as client,
        counters_of(master) as counters,
        registered(master, 7),
    ):
        assert client.send(TOPIC, 0, b"secret").code == NO_SLAVE
        hello = SlaveHandshake(OwnIdentity("broker-a", 7, "127.0.0.1:39999")).hello
        lie = SlaveHandshake(OwnIdentity("broker-a", 7, "127.0.0.1:39999", b"x" * 16)).hello
        report = struct.pack(">q", counters[MAX_PHY_OFFSET])
        for said in (bytes(8), report, hello + bytes(32) + report, lie + bytes(32) + report):
            with socket.create_connection(("127.0.0.1", master.ports["ha"]), 5) as stranger:
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(said)
                received = everything_from(stranger)
                assert client.send(TOPIC, 0, b"after it").code == NO_SLAVE
                assert len(received) <= (
                    MAX_HELLO if by == "secret" and said.startswith(lie) else 0
                )
                assert b"after it" not in received
        assert counters[REPLICA_COUNT] == 0
        refused = RefusalReason.NOT_PROVED if by == "secret" else RefusalReason.UNKNOWN_PEER
        wait_until(lambda: counters[HA_REFUSALS + refused] == 4)


def test_the_secret_opens_the_way_and_a_wrong_one_does_not(group: Group, tmp_path: Path) -> None:
    right, wrong = secret_file(tmp_path), secret_file(tmp_path, "another secret of some group")
    master = group.start(group.first, SYNC_MASTER, slaveTimeout=20_000, haSharedSecretFile=right)
    slave = group.start(group.second, SLAVE, haSharedSecretFile=wrong)
    with counters_of(slave) as counters:
        wait_until(lambda: counters[HA_REFUSALS + RefusalReason.NOT_PROVED] > 0, 20)
        assert counters[MAX_PHY_OFFSET] == 0
    assert "haSharedSecretFile must hold the same secret" in slave.log("ha")
    assert slave.terminate() == 0
    slave = group.start(group.second, SLAVE, haSharedSecretFile=right)
    with counters_of(master) as counters, master.client(timeout_s=30) as client:
        wait_until(lambda: counters[REPLICA_COUNT] == 1, 20)
        assert client.send(TOPIC, 0, b"for the slave").code == SEND_OK
    assert b"for the slave" in log_of(slave)
    assert "prove themselves by the secret of haSharedSecretFile" in master.log("ha")
    for broker, text in ((master, "the secret of this group"), (slave, "another secret")):
        assert text not in broker.logs() + broker.output()


@pytest.mark.parametrize("flips", [8, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "level", ["received", pytest.param("validated", marks=pytest.mark.long), "flushed"]
)
def test_a_link_that_flips_bits(group: Group, level: str, flips: int) -> None:
    """No damaged byte is acknowledged or kept, whatever the seeded positions (tests/ha has 60)."""
    chance = random.Random(f"{level}-5")
    master = group.start(group.first, SYNC_MASTER, slaveTimeout=20_000)
    with FlippingRelay(("127.0.0.1", master.ports["ha"])) as relay:
        settings = {"haMasterAddress": relay.address, "haAckLevel": level}
        slave = group.start(group.second, SLAVE, **settings)
        with (
            counters_of(master) as counters,
            counters_of(slave) as slave_counters,
            master.client(timeout_s=30) as client,
        ):
            wait_until(lambda: counters[REPLICA_COUNT] == 1, 20)
            assert client.send(TOPIC, 0, b"first").code == SEND_OK
            for number in range(flips):
                if number % 2:
                    relay.flip(chance.randrange(24), chance.randrange(8), towards_client=False)
                else:
                    relay.flip(chance.randrange(200), chance.randrange(8))
                sent = client.send(TOPIC, number % 4, bytes(chance.randrange(100)))
                assert sent.code == SEND_OK
                assert slave_counters[MAX_PHY_OFFSET] > sent.phy_offset
            refused = slave_counters[HA_REFUSALS + RefusalReason.BAD_CHECKSUM]
            assert 0 < refused <= relay.flipped
            of_reports = counters[HA_REFUSALS + RefusalReason.BAD_CHECKSUM]
            assert 0 < of_reports <= relay.flipped
            end = counters[MAX_PHY_OFFSET]
            wait_until(lambda: slave_counters[MAX_PHY_OFFSET] == end, 20)
        assert log_of(slave) == log_of(master)
        assert slave.terminate() == 0
        assert slave.check().is_clean
