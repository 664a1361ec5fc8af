"""The HA port's lobby and the handshake: who proves what, what those get who do not."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from pathlib import Path

import pytest

from ha.frame import FRAME_HEADER
from ha.ha_config import HaConfig
from ha.handshake import OwnIdentity, SlaveHandshake, SlaveHello
from ha.master_hello import MasterHello
from ha.pending_peer import PROOF_MS
from ha.refusals import RefusalReason
from ha.reports import Reports
from ha.transport import make_tls_context
from tests.ha.master_world import MASTER, Certificates, FakeSlave, MasterWorld, OwnSlave
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock

SECRET = b"a secret of the group"
WITH_SECRET = dataclasses.replace(MASTER, secret=SECRET)
NEEDS_PROOF = HaConfig(ha_shared_secret_file="/read/by/the/composition/root")
HALF_OPEN = HaConfig(ha_shared_secret_file="/as/above", ha_trusted_addresses="127.0.0.9")


def hello_of(secret: bytes | None) -> SlaveHandshake:
    return SlaveHandshake(OwnIdentity("b", 7, "127.0.0.1:7", secret))


def everything_from(sock: socket.socket) -> bytes:
    received = b""
    try:
        while data := sock.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return received


def test_who_proves_the_secret_gets_checked_frames(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, NEEDS_PROOF, own=WITH_SECRET, start=4096) as world:
        end = world.log.append(300)
        with OwnSlave(world.address, 4096, SECRET) as slave:
            slave.read_up_to(end, report=True)
            end = world.log.append(200_000)  # by sendfile
            slave.read_up_to(end, report=True)
            assert slave.received == world.log.content
            assert slave.hello == MasterHello(4096, 4396, MASTER.broker_address, is_proved=True)
            wait_until(lambda: world.group_transfer.acknowledged[-1:] == [end])
        ((remote, named),) = world.named
        assert remote == world.group_transfer.added[0].remote
        assert named == SlaveHello("b", 5, is_proved=True)


def test_heartbeats_are_checked_too(tmp_path: Path) -> None:
    config = HaConfig(ha_send_heartbeat_interval=20)
    with MasterWorld(tmp_path, config) as world, OwnSlave(world.address, 0) as slave:
        assert [slave.read_frame() for _ in range(3)] == [0, 0, 0]


def test_checked_frames_in_pieces(tmp_path: Path) -> None:
    """Sockets that are full in the middle of headers and bodies."""
    size = 8 << 20
    with MasterWorld(tmp_path, HaConfig(ha_transfer_batch_size=50_000), file_size=size) as world:
        end = world.log.append(size - 7)
        with OwnSlave(world.address, 0, file_size=size) as slave:
            slave.read_up_to(end)
            assert slave.received == world.log.content


def test_a_wrong_secret_gets_the_hello_and_nothing_else(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, NEEDS_PROOF, own=WITH_SECRET) as world:
        world.log.append(300)
        shaking = hello_of(b"another secret of 16")
        with FakeSlave(world.address) as liar:
            liar.sock.sendall(shaking.hello)
            hello_size = 62 + len(MASTER.broker_address) + 32
            liar.sock.sendall(bytes(32) + bytes(8))
            assert len(everything_from(liar.sock)) <= hello_size
        world.wait_for_refusal(RefusalReason.NOT_PROVED)
        assert world.group_transfer.added == []


@pytest.mark.parametrize("first", [0, 300])
def test_rocketmqs_protocol_proves_nothing(tmp_path: Path, first: int) -> None:
    with MasterWorld(tmp_path, HALF_OPEN, own=WITH_SECRET) as world:
        world.log.append(300)
        with FakeSlave(world.address, first) as stranger:
            assert everything_from(stranger.sock) == b""
        world.wait_for_refusal(RefusalReason.NOT_PROVED)
        assert world.group_transfer.added == []
        # A Java slave's address can be named.
        with FakeSlave(world.address, first, source="127.0.0.9") as slave:
            slave.read_up_to(300 if not first else world.log.append(5))


def test_a_peer_without_a_secret_is_told_nothing(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, HALF_OPEN, own=WITH_SECRET) as world:
        world.log.append(300)
        with FakeSlave(world.address) as stranger:
            stranger.sock.sendall(hello_of(None).hello)
            assert everything_from(stranger.sock) == b""
        world.wait_for_refusal(RefusalReason.NOT_PROVED)
        with OwnSlave(world.address, 0, source="127.0.0.9") as slave:
            slave.read_up_to(300)
            assert slave.hello is not None
            assert not slave.hello.is_proved


def test_cut_at_every_byte(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, NEEDS_PROOF, own=WITH_SECRET) as world:
        world.log.append(300)
        whole = hello_of(SECRET).hello
        for count in range(len(whole) + 40):
            with FakeSlave(world.address) as slave:
                slave.sock.sendall((whole + bytes(40))[:count])
                # A master that has refused these bytes may have closed the connection by now.
                with contextlib.suppress(OSError):
                    slave.sock.shutdown(socket.SHUT_WR)
                received = everything_from(slave.sock)
                # From its last byte on the hello is answered; a frame never comes.
                assert (len(received) > 0) == (count >= len(whole)), count
                assert len(received) <= 62 + len(MASTER.broker_address) + 32
        assert world.group_transfer.added == []
        wait_until(lambda: sum(world.refusals().values()) == len(whole) + 40)
        assert world.accept._lobby == {}


def test_byte_by_byte(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, NEEDS_PROOF, own=WITH_SECRET) as world:
        end = world.log.append(300)
        with FakeSlave(world.address) as slave:
            shaking = hello_of(SECRET)
            data = shaking.hello
            while shaking.missing:
                for value in data:
                    slave.sock.sendall(bytes((value,)))
                data = shaking.receive(slave._read(shaking.missing))
            for value in data + Reports(shaking.report_key).pack(end):
                slave.sock.sendall(bytes((value,)))
            wait_until(lambda: world.group_transfer.added)
            assert world.group_transfer.added[0].ack_offset == end


def test_the_first_report_may_come_later_than_the_proof(tmp_path: Path) -> None:
    """haAckLevel=flushed: it waits for a disk. It is known already."""
    clock = ManualClock()
    with MasterWorld(tmp_path, NEEDS_PROOF, own=WITH_SECRET, clock=clock) as world:
        world.log.append(300)
        with FakeSlave(world.address) as slave:
            shaking = hello_of(SECRET)
            slave.sock.sendall(shaking.hello)
            while shaking.missing:
                slave.sock.sendall(shaking.receive(slave._read(shaking.missing)))
            wait_until(lambda: [peer.is_known for peer in world.accept._lobby] == [True])
            clock.advance(PROOF_MS)
            world.accept.interrupt()
            slave.reports = Reports(shaking.report_key)
            slave.report(300)
            wait_until(lambda: world.group_transfer.added)


@pytest.mark.parametrize("count", [0, 5, 50])
def test_a_peer_that_does_not_go_on_is_closed(tmp_path: Path, count: int) -> None:
    clock = ManualClock()
    with MasterWorld(tmp_path, NEEDS_PROOF, own=WITH_SECRET, clock=clock) as world:
        with FakeSlave(world.address) as slave, FakeSlave(world.address) as other:
            slave.sock.sendall(hello_of(SECRET).hello[:count])
            wait_until(lambda: len(world.accept._lobby) == 2)
            other.close()
            wait_until(lambda: len(world.accept._lobby) == 1)
            clock.advance(PROOF_MS)
            world.accept.interrupt()
            assert everything_from(slave.sock) == b""
        world.wait_for_refusal(RefusalReason.NOT_PROVED)


def test_slow_strangers_keep_nobody_waiting(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, NEEDS_PROOF, own=WITH_SECRET, clock=ManualClock()) as world:
        end = world.log.append(300)
        strangers = [FakeSlave(world.address, source="127.0.0.2") for _ in range(50)]
        for stranger in strangers:
            stranger.sock.sendall(hello_of(SECRET).hello[:30])
        with OwnSlave(world.address, 0, SECRET) as slave:
            slave.read_up_to(end)
        for stranger in strangers:
            stranger.close()


def test_a_certificate_is_a_proof_and_a_secret_besides_is_needed_too(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = make_tls_context(certificates.config(), server_side=True)
    client = make_tls_context(certificates.config(), server_side=False)
    (tmp_path / "1").mkdir()
    with MasterWorld(tmp_path / "1", certificates.config(), tls=server) as world:
        end = world.log.append(300)
        with OwnSlave(world.address, 0, tls=client) as slave:
            slave.read_up_to(end)
        with FakeSlave(world.address, 0, tls=client) as old:
            old.read_up_to(end)
    (tmp_path / "2").mkdir()
    config = certificates.config(ha_shared_secret_file="/as/above")
    with MasterWorld(tmp_path / "2", config, tls=server, own=WITH_SECRET) as world:
        end = world.log.append(300)
        with OwnSlave(world.address, 0, SECRET, tls=client) as slave:
            slave.read_up_to(end)
        with FakeSlave(world.address, 0, tls=client) as old:
            old.report_until_refused()
        world.wait_for_refusal(RefusalReason.NOT_PROVED)


def test_java_slaves_see_rocketmqs_bytes(tmp_path: Path) -> None:
    """Frame for frame what they always were, beside a slave of ours on the same log."""
    with MasterWorld(tmp_path) as world:
        end = world.log.append(100)
        with FakeSlave(world.address, 40) as java, OwnSlave(world.address, 0) as ours:
            ours.read_up_to(end)
            raw = java._read(FRAME_HEADER.size + 60)
            assert raw == FRAME_HEADER.pack(40, 60) + world.log.bytes_from(40)
            java.sock.settimeout(0.2)
            with pytest.raises(TimeoutError):
                java.sock.recv(1)
