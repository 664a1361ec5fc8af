"""`python -m controller` as a process: boot line, kills, SIGTERM, and starts that fail."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controller.controller_peer import DEADLINE_S, Peer
from tests.support.own_process import Start, boot_port, started
from tools.chaos.free_ports import free_port

GROUP = {"clusterName": "C", "brokerName": "b"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a controller with these settings; kills what is left at the end."""
    with started("controller", tmp_path, {"controllerStorePath": f"{tmp_path}/store"}) as start:
        yield start


def test_what_it_has_answered_outlives_a_kill(start: Start, tmp_path: Path) -> None:
    """Ids and epochs are in brokers' files: neither may be given twice."""
    given = 0
    for life in range(3):
        process = start()
        with Peer(boot_port(process, "Controller")) as peer:
            names = [path.name for path in (tmp_path / "run").iterdir()]
            assert f"mqcontroller-{process.pid}.pid" in names
            for _ in range(4):
                offered = int(peer.call(1012, GROUP).ext_fields["nextBrokerId"])
                assert offered == given + 1
                code = f"127.0.0.1:{offered};1"
                applied = {**GROUP, "appliedBrokerId": offered, "registerCheckCode": code}
                assert peer.call(1013, applied).code == 0
                given = offered
            register = {**GROUP, "brokerId": given, "brokerAddress": "127.0.0.1:7"}
            assert peer.call(1003, {**register, "invokeTime": 1}).code == 0
            elect = {**GROUP, "brokerId": given, "designateElect": "false", "invokeTime": 1}
            answer = peer.call(1002, elect)
            assert answer.code == (0 if life == 0 else 2011)
            assert answer.ext_fields["masterBrokerId"] == "4"
            assert answer.ext_fields["masterEpoch"] == "1"
        process.kill()
        process.wait(DEADLINE_S)


def test_it_serves_until_a_signal(start: Start) -> None:
    process = start()
    with Peer(boot_port(process, "Controller")) as peer:
        assert peer.call(1005, {}).code == 0
        process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(("use_tls", "first"), [("true", 0x16), ("false", 0)])
def test_notices_go_as_the_settings_say(start: Start, use_tls: str, first: int) -> None:
    """0x16 begins a TLS handshake, 0 a frame's length."""
    process = start(useTLS=use_tls)
    with (
        socket.create_server(("127.0.0.1", 0)) as broker,
        Peer(boot_port(process, "Controller")) as peer,
    ):
        broker.settimeout(DEADLINE_S)
        address = f"127.0.0.1:{broker.getsockname()[1]}"
        applied = {**GROUP, "appliedBrokerId": 1, "registerCheckCode": f"{address};1"}
        register = {**GROUP, "brokerId": 1, "brokerAddress": address, "invokeTime": 1}
        beat = {**GROUP, "brokerId": 1, "brokerAddr": address}
        elect = {**GROUP, "brokerId": 1, "designateElect": "false", "invokeTime": 1}
        for code, fields in ((1013, applied), (1003, register), (904, beat), (1002, elect)):
            assert peer.call(code, fields).code == 0
        connection, _ = broker.accept()
        with connection:
            connection.settimeout(DEADLINE_S)
            assert connection.recv(1)[0] == first


def test_a_damaged_file_stops_the_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "groups.json").write_bytes(b"{}")
    process = start()
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 255
    assert "groups.json: it does not end with its check sum" in errors


def test_the_port_of_its_peer_counts(start: Start) -> None:
    """As in RocketMQ, whose listenPort is not used."""
    port = free_port()
    process = start(controllerDLegerPeers=f"n0-localhost:{port}", listenPort="1")
    assert boot_port(process, "Controller") == port
    with Peer(port) as peer:
        fields = peer.call(1005, {}).ext_fields
        assert fields["controllerLeaderAddress"] == f"localhost:{port}"
        answer = peer.call(1009, {}, b"enableElectUncleanMaster=true\n")
        assert answer.code == 0, answer.remark
        assert b"enableElectUncleanMaster=true" in peer.call(1010, {}).body
        assert peer.call(1009, {}, b"controllerStorePath=/x\n").code == 16
