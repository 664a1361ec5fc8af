"""tools.chaos.relay: what passes in each mode, over real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.deadline import wait_until
from tools.chaos.relay import Relay
from tools.chaos.schedule import FaultKind


class Link:
    """A slave's end and the master's end of one relayed connection."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.relay = Relay(self._listening.getsockname(), seed=3)
        self.slave, self.master = self.connect()

    def connect(self) -> tuple[socket.socket, socket.socket]:
        slave = socket.create_connection(("127.0.0.1", self.relay.port), timeout=10)
        master, _address = self._listening.accept()
        master.settimeout(10)
        return slave, master

    def close(self) -> None:
        self.relay.close()
        for sock in (self.slave, self.master, self._listening):
            sock.close()


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link()
    yield made
    made.close()


def receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


def nothing_comes(sock: socket.socket) -> bool:
    sock.settimeout(0.3)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(10)
    return False


@pytest.mark.parametrize("mode", [None, FaultKind.SLOW])
def test_everything_passes(link: Link, mode: FaultKind | None) -> None:
    link.relay.set_mode(mode)
    data = bytes(n % 251 for n in range(1 << 20))
    for source, target in ((link.slave, link.master), (link.master, link.slave)):
        for at in range(0, len(data), 1 << 16):
            source.sendall(data[at : at + (1 << 16)])
            assert receive(target, 1 << 16) == data[at : at + (1 << 16)]


def test_a_partition_holds_both_ways_and_heals(link: Link) -> None:
    link.relay.set_mode(FaultKind.PARTITION)
    assert nothing_comes(link.slave)
    link.slave.sendall(b"report")
    link.master.sendall(b"frame")
    assert nothing_comes(link.slave)
    assert nothing_comes(link.master)
    link.relay.set_mode(None)
    assert receive(link.master, 6) == b"report"
    assert receive(link.slave, 5) == b"frame"


def test_one_way_holds_the_slaves_reports_only(link: Link) -> None:
    link.relay.set_mode(FaultKind.ONE_WAY)
    assert nothing_comes(link.slave)
    link.slave.sendall(b"report")
    link.master.sendall(b"frame")
    assert receive(link.slave, 5) == b"frame"
    assert nothing_comes(link.master)


def test_one_way_log_holds_what_the_master_sends_only(link: Link) -> None:
    link.relay.set_mode(FaultKind.ONE_WAY_LOG)
    assert nothing_comes(link.slave)
    link.slave.sendall(b"report")
    link.master.sendall(b"frame")
    assert receive(link.master, 6) == b"report"
    assert nothing_comes(link.slave)
    link.relay.set_mode(None)
    assert receive(link.slave, 5) == b"frame"


def test_a_delay_is_a_round_trip(link: Link) -> None:
    link.relay.set_mode(FaultKind.DELAY, 20)
    for _ in range(20):
        began = time.monotonic()
        link.slave.sendall(b"report")
        assert receive(link.master, 6) == b"report"
        link.master.sendall(b"frame")
        assert receive(link.slave, 5) == b"frame"
        assert time.monotonic() - began >= 0.02


def test_a_lossy_link_loses_nothing_for_good(link: Link) -> None:
    """The stream stays whole and in order; what is lost comes late, and all that follows it."""
    link.relay.set_mode(FaultKind.LOSSY, 2)
    data = bytes(n % 251 for n in range(1 << 16))
    slowest = 0.0
    for _ in range(300):
        began = time.monotonic()
        link.master.sendall(data[:1460])
        assert receive(link.slave, 1460) == data[:1460]
        slowest = max(slowest, time.monotonic() - began)
    assert link.relay.lost > 0
    assert slowest > 0.2
    for _ in range(20):
        link.master.sendall(data)
        assert receive(link.slave, len(data)) == data


def test_it_leads_to_another_target(link: Link) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        link.relay.lead_to(other.getsockname())
        with socket.create_connection(("127.0.0.1", link.relay.port), timeout=10) as slave:
            master, _address = other.accept()
            with master:
                slave.sendall(b"report")
                assert receive(master, 6) == b"report"


def pour(link: Link) -> None:
    """Send to the slave, and read there. Raises OSError once the connection is gone."""
    link.slave.settimeout(0.0)
    for _ in range(1 << 10):
        link.master.sendall(bytes(1 << 16))
        try:
            if not link.slave.recv(1 << 20):
                raise ConnectionResetError("the end")
        except BlockingIOError:
            continue


def test_a_cut_ends_connections_in_the_middle(link: Link) -> None:
    link.relay.set_mode(FaultKind.CUT)
    with pytest.raises((ConnectionError, TimeoutError)):
        pour(link)
    assert link.relay.cuts >= 1


@pytest.mark.parametrize("to_slave", [True, False])
def test_flips_single_bits_in_both_directions(link: Link, to_slave: bool) -> None:
    link.relay.set_mode(FaultKind.FLIP)
    source, target = (link.master, link.slave) if to_slave else (link.slave, link.master)
    data = bytes(1 << 16 if to_slave else 24)
    wrong = 0
    for _ in range(100 if to_slave else 2_000):
        source.sendall(data)
        wrong += sum(byte.bit_count() for byte in receive(target, len(data)))
    assert wrong == link.relay.flipped
    assert wrong >= 5


def test_the_end_of_one_side_is_passed_on(link: Link) -> None:
    link.master.sendall(b"last")
    link.master.close()
    assert receive(link.slave, 5) == b"last"
    wait_until(lambda: not link.relay._ways)


def test_what_a_lost_master_had_under_way_never_arrives(link: Link) -> None:
    """A host that is lost during a partition sends nothing again when that is over."""
    link.relay.set_mode(FaultKind.PARTITION)
    link.master.sendall(b"log" * 1000)
    link.master.close()
    link.relay.drop()
    link.relay.set_mode(None)
    assert receive(link.slave, 1) == b""
    link.slave.close()
    link.slave, link.master = link.connect()
    link.master.sendall(b"another")
    assert receive(link.slave, 7) == b"another"
