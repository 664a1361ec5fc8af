"""A controller that takes TLS only, and only from peers with a certificate of its authority.

The member of a group is our broker as real processes; mqadmin is a process, too. Whoever may not
come is told why in a log at both ends, and waits for nothing.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.controller_config import ControllerConfig
from controller.controller_server import ControllerServer
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from remoting.server_tls import ServerTls
from remoting.tls_config import TlsConfig
from tests.controller.controller_peer import DEADLINE_S, Peer, running
from tests.controller.test_life import GROUP
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.tls_files import Authority

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Guarded:
    """The controller, who signs for it, and the groups in its file."""

    port: int
    authority: Authority
    groups: Path


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    authority = Authority(tmp_path / "keys")
    pair = authority.issue("controller")
    tls = TlsConfig(
        tls_server_mode="enforcing",
        tls_test_mode_enable=False,
        tls_server_cert_path=str(pair.certificate),
        tls_server_key_path=str(pair.key),
        tls_server_need_client_auth="require",
        tls_server_auth_client=True,
        tls_server_trust_cert_path=str(authority.trust),
    )
    listening = socket.create_server(("127.0.0.1", 0))
    config = ControllerConfig(
        controller_store_path=str(tmp_path / "controller"), leader_warm_up_millis=500
    )
    server = ControllerServer(
        config, RemotingServerConfig(), RemotingClientConfig(), listening, tls=ServerTls(tls)
    )
    server.open()
    thread = threading.Thread(target=server.run)
    thread.start()
    port = int(listening.getsockname()[1])
    yield Guarded(port, authority, tmp_path / "controller" / "groups.json")
    server.request_stop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def member(guarded: Guarded, root: Path, settings: dict[str, str]) -> OurBroker:
    return OurBroker(
        root,
        brokerName="b",
        enableControllerMode="true",
        controllerAddr=f"127.0.0.1:{guarded.port}",
        controllerHeartBeatTimeoutMills=3_000,
        syncControllerMetadataPeriod=500,
        **({"tls.server.mode": "disabled"} | settings),
    )


def test_a_member_with_a_certificate_is_elected(guarded: Guarded, tmp_path: Path) -> None:
    settings = guarded.authority.client_settings(guarded.authority.issue("member"))
    with member(guarded, tmp_path / "m", settings).start():
        wait_until(
            lambda: guarded.groups.exists() and '"masterBrokerId":1' in guarded.groups.read_text(),
            30,
        )


@pytest.mark.parametrize("kind", ["plain", "another authority", "none"])
def test_a_member_that_may_not_come_is_told_at_both_ends(
    guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level("INFO")
    settings = {
        "plain": {},
        "another authority": guarded.authority.client_settings(
            Authority(tmp_path / "x", "x").issue("stranger")
        ),
        "none": guarded.authority.client_settings(None),
    }[kind]
    with member(guarded, tmp_path / "m", settings).start() as broker:
        address = f"127.0.0.1:{guarded.port}"
        wait_until(
            lambda: any(
                address in line and "WARN" in line for line in broker.log("ha").splitlines()
            ),
            30,
        )
        assert not guarded.groups.exists(), "it has got no id"
        lines = [line for line in broker.log("ha").splitlines() if address in line]
        assert "closed" in "".join(lines) if kind == "plain" else "alert" in "".join(lines)
    assert any("TLS" in record.message for record in caplog.records), "the controller's"


def test_mqadmin_needs_one_as_well(guarded: Guarded) -> None:
    def ask(settings: dict[str, str]) -> str:
        options = " ".join(f"-D{key}={text}" for key, text in settings.items())
        command = [sys.executable, "-m", "tools.mqadmin", "getControllerMetaData"]
        done = subprocess.run(
            [*command, "-a", f"127.0.0.1:{guarded.port}"],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
            env={**os.environ, "JAVA_OPT_EXT": options},
            check=False,
        )
        return done.stdout + done.stderr

    pair = guarded.authority.issue("operator")
    assert "ControllerLeaderAddress" in ask(guarded.authority.client_settings(pair))
    refused = ask({})
    assert f"127.0.0.1:{guarded.port}" in refused
    assert "ControllerLeaderAddress" not in refused


def test_a_signature_changes_nothing(tmp_path: Path) -> None:
    """Brokers with access control sign what they send to controllers, which have no accounts: nor
    has 5.3.3's controller."""
    signed = {"AccessKey": "somebody", "Signature": "c2lnbmVk", "SecurityToken": ""}
    with running(tmp_path) as port, Peer(port) as peer:
        apply = {"appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:1;1"}
        assert peer.call(1013, {**GROUP, **apply, **signed}).code == 0
        register = {"brokerId": 1, "brokerAddress": "127.0.0.1:1", "invokeTime": 1}
        assert peer.call(1003, {**GROUP, **register, **signed}).code == 0
        beat = {"brokerId": 1, "brokerAddr": "127.0.0.1:1"}
        assert peer.call(904, {**GROUP, **beat, **signed}).code == 0
        elect = {"brokerId": 1, "designateElect": "false", "invokeTime": 1}
        assert peer.call(1002, {**GROUP, **elect, **signed}).code == 0
