"""AcceptSocketService: who gets out of the lobby, which way, and when."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.ha_config import HaConfig
from ha.refusals import RefusalReason
from ha.transport import make_tls_context
from tests.ha.master_world import MASTER, Certificates, FakeSlave, MasterWorld
from tests.support.deadline import wait_until
from tests.support.key_updates import KeyUpdates
from tests.support.manual_clock import ManualClock

SECRET = b"a secret of the group"
ONLY_ONE = HaConfig(ha_trusted_addresses="127.0.0.1/32")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def crowd() -> Iterator[list[FakeSlave]]:
    slaves: list[FakeSlave] = []
    yield slaves
    for slave in slaves:
        slave.close()


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# -- first reports -------------------------------------------------------------------------------


@pytest.mark.fault(17, 18)
@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (-1, RefusalReason.NEGATIVE),
        (-(1 << 63), RefusalReason.NEGATIVE),
        (2001, RefusalReason.BEYOND_MAX),
        ((1 << 63) - 1, RefusalReason.BEYOND_MAX),
        (999, RefusalReason.BELOW_MIN),
        (1, RefusalReason.BELOW_MIN),
    ],
)
def test_wrong_first_reports_are_refused(
    tmp_path: Path, report: int, reason: RefusalReason, caplog: pytest.LogCaptureFixture
) -> None:
    with MasterWorld(tmp_path, start=1000, file_size=1000) as world:
        world.log.append(1000)
        with FakeSlave(world.address, report) as slave:
            assert slave.is_closed_by_master()
            wait_until(lambda: world.refusals() == {reason.name.lower(): 1})
        assert world.group_transfer.added == []
        assert f"first report {report}" in caplog.text
        assert world.refusal_log.rejected_handshakes() == {reason: 1}


@pytest.mark.parametrize("report", [0, 1000, 1500, 2000])
def test_right_first_reports_are_served(tmp_path: Path, report: int) -> None:
    with MasterWorld(tmp_path, start=1000, file_size=1000) as world:
        end = world.log.append(1000)
        with FakeSlave(world.address, report, file_size=1000) as slave:
            slave.read_up_to(end)
            assert slave.received == world.log.bytes_from(report or 1000)
        assert world.refusals().keys() <= {"network"}


@pytest.mark.fault(18)
def test_a_report_that_comes_byte_by_byte(tmp_path: Path) -> None:
    with MasterWorld(tmp_path) as world:
        world.log.append(0x0102)
        with FakeSlave(world.address) as slave:
            for value in (0, 0, 0, 0, 0, 0, 1, 2):
                slave.sock.sendall(bytes((value,)))
            wait_until(lambda: world.group_transfer.added)
            assert world.group_transfer.added[0].ack_offset == 0x0102


def test_two_reports_at_once(tmp_path: Path) -> None:
    """The second is read by the connection, not lost in the lobby."""
    with MasterWorld(tmp_path) as world:
        world.log.append(100)
        with FakeSlave(world.address) as slave:
            slave.sock.sendall((70).to_bytes(8, "big") * 2)
            wait_until(lambda: world.group_transfer.acknowledged == [70])


def test_health_probes_leave_nothing_behind(tmp_path: Path) -> None:
    with MasterWorld(tmp_path) as world:
        before = _open_descriptors()
        for _ in range(300):
            socket.create_connection(world.address).close()
        world.wait_for_refusal(RefusalReason.NETWORK, 300)
        wait_until(lambda: _open_descriptors() <= before)


def test_the_silent_are_closed(tmp_path: Path) -> None:
    with (
        MasterWorld(tmp_path, HaConfig(ha_housekeeping_interval=50)) as world,
        FakeSlave(world.address) as slave,
    ):
        assert slave.is_closed_by_master()
        world.wait_for_refusal(RefusalReason.SILENT)


def test_shutdown_closes_the_lobby(tmp_path: Path) -> None:
    with MasterWorld(tmp_path) as world, FakeSlave(world.address) as slave:
        wait_until(lambda: len(world.accept._lobby) == 1)
        assert world.accept.shutdown()
        assert slave.is_closed_by_master()
        world.accept.interrupt()  # nothing, any more


# -- how many ------------------------------------------------------------------------------------


def test_more_slaves_than_allowed(tmp_path: Path, crowd: list[FakeSlave]) -> None:
    with MasterWorld(tmp_path, HaConfig(ha_max_connections=2)) as world:
        end = world.log.append(10)
        crowd += [FakeSlave(world.address, 0) for _ in range(2)]
        for slave in crowd:
            slave.read_up_to(end)
        with FakeSlave(world.address, 0) as third:
            assert third.is_closed_by_master()
        world.wait_for_refusal(RefusalReason.TOO_MANY_CONNECTIONS)
        crowd.pop().close()
        wait_until(lambda: len(world.connections._connections) == 1)
        with FakeSlave(world.address, 0) as third:
            third.read_up_to(end)


@pytest.mark.fault(21)
@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_a_thousand_idle_connections(tmp_path: Path, crowd: list[FakeSlave], source: str) -> None:
    """A slave gets in, from another address and from the same; the lobby stays small."""
    with MasterWorld(tmp_path, lobby_size=20) as world:
        end = world.log.append(100)
        crowd += [FakeSlave(world.address) for _ in range(410)]
        with FakeSlave(world.address, source=source) as slave:  # silent at first, as Java's
            crowd += [FakeSlave(world.address, source="127.0.0.3") for _ in range(590)]
            world.wait_for_refusal(RefusalReason.TOO_MANY_CONNECTIONS, 981)
            assert len(world.accept._lobby) == 20
            slave.report(0)
            slave.read_up_to(end)
        assert world.group_transfer.added[0].ip == source


def test_no_stranger_displaces_a_trusted_peer(tmp_path: Path, crowd: list[FakeSlave]) -> None:
    """A silent slave, as Java's is for 5 s, is the oldest of many addresses with one peer each."""
    own = dataclasses.replace(MASTER, secret=SECRET)
    with MasterWorld(tmp_path, ONLY_ONE, clock=ManualClock(), lobby_size=8, own=own) as world:
        end = world.log.append(100)
        with FakeSlave(world.address) as slave:
            wait_until(lambda: len(world.accept._lobby) == 1)
            crowd += [FakeSlave(world.address, source=f"127.0.1.{n}") for n in range(1, 21)]
            world.wait_for_refusal(RefusalReason.TOO_MANY_CONNECTIONS, 13)
            # Neither does it keep another one out.
            crowd += [FakeSlave(world.address) for _ in range(7)]
            world.wait_for_refusal(RefusalReason.TOO_MANY_CONNECTIONS, 20)
            assert {peer.ip for peer in world.accept._lobby} == {"127.0.0.1"}
            crowd.append(FakeSlave(world.address, source="127.0.1.30"))
            assert crowd[-1].is_closed_by_master()
            slave.report(0)
            slave.read_up_to(end)


# -- strangers -----------------------------------------------------------------------------------


def test_a_stranger_is_refused_at_once_without_a_byte(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, ONLY_ONE, clock=ManualClock()) as world:
        world.log.append(100)
        with FakeSlave(world.address, 0, source="127.0.0.2") as slave:
            assert slave.is_closed_by_master()
            world.wait_for_refusal(RefusalReason.UNKNOWN_PEER)
        assert world.group_transfer.added == []
        assert world.refusal_log.rejected_handshakes() == {RefusalReason.UNKNOWN_PEER: 1}


@pytest.mark.fault(19)
def test_any_peer_when_allowed(tmp_path: Path) -> None:
    config = HaConfig(ha_trusted_addresses="127.0.0.1/32", ha_allow_any_peer=True)
    with MasterWorld(tmp_path, config) as world:
        end = world.log.append(100)
        with FakeSlave(world.address, 0, source="127.0.0.2") as slave:
            slave.read_up_to(end)


# -- TLS -----------------------------------------------------------------------------------------


def test_tls_slaves_get_the_log(tmp_path: Path, certificates: Certificates) -> None:
    server = make_tls_context(certificates.config(), server_side=True)
    client = make_tls_context(certificates.config(), server_side=False)
    size = 6 << 20
    with MasterWorld(tmp_path, tls=server, file_size=size) as world:
        end = world.log.append(size - 10)
        with FakeSlave(world.address, 0, tls=client, file_size=size) as slave:
            for _ in range(3):
                slave.read_up_to(end, report=True)
                wait_until(lambda: world.group_transfer.acknowledged[-1:] == [slave.offset])
                end = world.log.append(500)
            slave.read_up_to(end)
            assert slave.received == world.log.content


def test_peers_without_tls_are_refused(tmp_path: Path, certificates: Certificates) -> None:
    server = make_tls_context(certificates.config(), server_side=True)
    with MasterWorld(tmp_path, tls=server) as world:
        world.log.append(100)
        with FakeSlave(world.address, 0) as slave:
            slave.skip_to_end()
        world.wait_for_refusal(RefusalReason.TLS)
        assert world.group_transfer.added == []


@pytest.mark.parametrize("who", ["stranger", "nobody"])
def test_peers_without_a_good_certificate_are_refused(
    tmp_path: Path, certificates: Certificates, who: str
) -> None:
    if who == "nobody":
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.load_verify_locations(certificates.authority)
    else:
        config = certificates.config(
            ha_tls_certificate=certificates.stranger, ha_tls_private_key=certificates.stranger_key
        )
        context = make_tls_context(config, server_side=False)
        assert context is not None
        client = context
    server = make_tls_context(certificates.config(), server_side=True)
    with MasterWorld(tmp_path, tls=server) as world:
        world.log.append(100)
        with FakeSlave(world.address, tls=client) as slave:
            slave.report_until_refused()
        world.wait_for_refusal(RefusalReason.TLS)
        assert world.group_transfer.added == []


def test_a_tls_peer_where_tls_is_off(tmp_path: Path, certificates: Certificates) -> None:
    client = make_tls_context(certificates.config(), server_side=False)
    with MasterWorld(tmp_path) as world:
        with pytest.raises(OSError):  # noqa: PT011 - reset, or end of stream
            FakeSlave(world.address, 0, tls=client)
        world.wait_for_refusal(RefusalReason.BEYOND_MAX)


@pytest.mark.parametrize("reports_first", [False, True])
def test_a_flood_of_key_updates_is_closed_and_holds_up_nobody(
    tmp_path: Path,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    reports_first: bool,
) -> None:
    """By one who has a certificate. The accept thread, which is everybody's, was in one call of
    TLS's for as long as the flood lasted; a served slave's was never closed."""
    server = make_tls_context(certificates.config(), server_side=True)
    client = make_tls_context(certificates.config(), server_side=False)
    logging = make_tls_context(certificates.config(), server_side=False)
    assert logging is not None
    logging.keylog_filename = str(tmp_path / "keys")
    with MasterWorld(tmp_path, tls=server) as world:
        end = world.log.append(100)
        with FakeSlave(world.address, tls=logging) as hostile:
            assert isinstance(hostile.sock, ssl.SSLSocket)
            cipher = hostile.sock.cipher()
            assert cipher is not None
            records = KeyUpdates(cipher[0], tmp_path / "keys")
            flood = records.data(end.to_bytes(8)) if reports_first else b""
            flood += records.updates(20_000, wants_answer=False)
            with socket.socket(fileno=hostile.sock.detach()) as raw:
                with contextlib.suppress(OSError):
                    raw.sendall(flood)
                with FakeSlave(world.address, 0, tls=client) as slave:
                    slave.read_up_to(end)
                    # Before its own end, which may be the one of the two that is logged.
                    wait_until(lambda: "sends key updates or empty records" in caplog.text)
        assert world.refusals()["network"] >= 1
