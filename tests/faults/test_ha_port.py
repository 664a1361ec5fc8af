"""The HA port of a real master with a real slave, and those who should not be there.

What each kind of wrong report does is tests/ha's; here: the whole broker says no, goes on serving
its slave, counts by reason, and lets no waiting send go.
"""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest

from ha.control_slots import HA_REFUSALS, REPLICA_COUNT
from ha.refusals import RefusalReason
from store.control_slots import MAX_PHY_OFFSET
from tests.support.broker_group import ASYNC_MASTER, SLAVE, SYNC_MASTER, TOPIC, Group, counters_of
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

SEND_OK, NO_SLAVE, FLUSH_SLAVE_TIMEOUT = 0, 11, 12
HIGHEST = (1 << 63) - 1


def connect(broker: OurBroker, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", broker.ports["ha"]), 10, source_address=(source, 0)
    )


def report(sock: socket.socket, offset: int) -> None:
    sock.sendall(struct.pack(">q", offset))


def everything_from(sock: socket.socket) -> bytes:
    """What comes until the peer closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65_536):
            received += data
    return received


@pytest.mark.fault(19)
def test_a_stranger_gets_no_byte_of_the_log(group: Group) -> None:
    master = group.start(group.first, ASYNC_MASTER, haTrustedAddresses="127.0.0.1/32")
    with master.client() as client:
        client.send(TOPIC, 0, b"secret")
    with connect(master, "127.0.0.2") as stranger, counters_of(master) as counters:
        report(stranger, 0)
        assert everything_from(stranger) == b""
        assert counters[HA_REFUSALS + RefusalReason.UNKNOWN_PEER] == 1
    with connect(master, "127.0.0.1") as friend:
        report(friend, 0)
        assert b"secret" in friend.recv(65_536)


@pytest.mark.fault(17, 20)
def test_a_forged_acknowledgement_lets_no_send_go(group: Group) -> None:
    """Eight random bytes on RocketMQ's HA port make every waiting send succeed: as the first
    report of a connection, as the first one while a send waits, and as a later one then."""
    master = group.start(group.first, SYNC_MASTER, slaveTimeout=1_000)
    with counters_of(master) as counters, master.client() as client:
        with connect(master) as liar:
            report(liar, HIGHEST)
            assert everything_from(liar) == b""
        assert counters[HA_REFUSALS + RefusalReason.BEYOND_MAX] == 1
        assert client.send(TOPIC, 0, b"x").code == NO_SLAVE
        with connect(master) as liar:
            report(liar, 0)
            wait_until(lambda: counters[REPLICA_COUNT] == 1)
            liar.recv(12)
            end = counters[MAX_PHY_OFFSET]
            waiting = client.post_send(TOPIC, 0, b"waits")
            wait_until(lambda: counters[MAX_PHY_OFFSET] > end)
            with connect(master) as other:
                report(other, HIGHEST)
                assert everything_from(other) == b""
            report(liar, HIGHEST)
            everything_from(liar)
            assert client.take_send(waiting).code in (NO_SLAVE, FLUSH_SLAVE_TIMEOUT)
        wait_until(lambda: counters[HA_REFUSALS + RefusalReason.BEYOND_SENT] == 1)
        wait_until(lambda: counters[REPLICA_COUNT] == 0)
        assert client.send(TOPIC, 0, b"y").code == NO_SLAVE


@pytest.mark.fault(21)
def test_a_crowd_at_the_port_does_not_keep_the_slave_out(group: Group) -> None:
    master = group.start(group.first, SYNC_MASTER, slaveTimeout=20_000)
    with contextlib.ExitStack() as crowd, counters_of(master) as counters:
        for _ in range(1_000):
            crowd.enter_context(connect(master))
        greedy = crowd.enter_context(connect(master))
        report(greedy, 0)  # It never reads.
        group.start(group.second, SLAVE)
        wait_until(lambda: counters[REPLICA_COUNT] >= 1, 30)
        with master.client(timeout_s=30) as client, counters_of(group.second) as slave:
            wait_until(lambda: client.send(TOPIC, 0, b"first").code == SEND_OK, 30)
            for _ in range(100):
                sent = client.send(TOPIC, 0, bytes(10_000))
                assert sent.code == SEND_OK
            wait_until(lambda: slave[MAX_PHY_OFFSET] > sent.phy_offset, 20)
        assert counters[HA_REFUSALS + RefusalReason.TOO_MANY_CONNECTIONS] > 0
