"""The whole name server over real sockets on port 0, with a clock that the test turns."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from namesrv import registration_rules
from namesrv.kv_config_manager import KVConfigError
from namesrv.namesrv_config import NamesrvConfig
from namesrv.namesrv_controller import NamesrvController, run_embedded
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from tests.namesrv.namesrv_peer import DEADLINE_S, Peer, address_of, registration, route
from tests.support.deadline import wait_until


def listening_socket() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@dataclass
class Running:
    """A name server on a thread of the test."""

    config: NamesrvConfig
    now_ms: int = 0
    listening: socket.socket = field(default_factory=listening_socket)

    def __post_init__(self) -> None:
        self.port: int = self.listening.getsockname()[1]
        self.controller = NamesrvController(
            self.config, RemotingServerConfig(), self.listening, lambda: self.now_ms
        )
        self.controller.open()
        self._thread = threading.Thread(target=self.controller.run)
        self._thread.start()

    def stop(self) -> None:
        self.controller.request_stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def brokers(self) -> int:
        return self.controller.route_info_manager.sizes()["brokerLiveTable"]


@pytest.fixture
def config(tmp_path: Path) -> NamesrvConfig:
    return NamesrvConfig(
        kv_config_path=str(tmp_path / "kvConfig.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )


@pytest.fixture
def running(config: NamesrvConfig) -> Iterator[Running]:
    server = Running(config)
    yield server
    server.stop()


def addresses(peer: Peer, topic: str = "T") -> dict[str, dict[str, str]]:
    answer = peer.ask(route(topic))
    if answer.code == 17:
        return {}
    return {
        data["brokerName"]: data["brokerAddrs"] for data in json.loads(answer.body)["brokerDatas"]
    }


def test_two_brokers_and_a_slave_come_and_go(running: Running) -> None:
    with Peer(running.port) as client:
        assert addresses(client) == {}
        with Peer(running.port) as a, Peer(running.port) as b, Peer(running.port) as slave:
            assert a.ask(registration("a")).code == 0
            assert b.ask(registration("b")).code == 0
            told = slave.ask(registration("a", 1)).ext_fields
            assert told == {
                "masterAddr": address_of("a"),
                "haServerAddr": address_of("a", port=10912),
            }
            assert addresses(client) == {
                "a": {"0": address_of("a"), "1": address_of("a", 1)},
                "b": {"0": address_of("b")},
            }
            fields = {"brokerName": "b", "brokerAddr": address_of("b"), "clusterName": "C"}
            assert b.ask(RemotingCommand.request(104, {**fields, "brokerId": "0"})).code == 0
            assert set(addresses(client)) == {"a"}
            a.__exit__(None, None, None)
            wait_until(lambda: addresses(client) == {"a": {"1": address_of("a", 1)}}, DEADLINE_S)
        wait_until(lambda: addresses(client) == {}, DEADLINE_S)


def test_a_holder_that_does_not_answer_is_succeeded(
    config: NamesrvConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over real connections: one holder answers as our client does, one never reads."""
    running = Running(replace(config, register_allowed_addresses="127.0.0.1"))
    ports: dict[str, str] = {}
    monkeypatch.setattr(
        registration_rules, "origin_of", lambda peer: ports.get(peer.remote_address, "one host")
    )
    client = RemotingClient(RemotingClientConfig(), name="Holder")
    client.start()
    try:
        with Peer(running.port) as dead, Peer(running.port) as other:
            for name, ask in (
                (
                    "lives",
                    lambda request: client.invoke_sync(f"127.0.0.1:{running.port}", request, 9_000),
                ),
                ("dead", dead.ask),
            ):
                request = registration(name)
                assert ask(request).code == 0
            ports[other.local] = "another host"
            codes = []
            for name in ("lives", "dead"):
                codes.append(other.ask(registration(name)).code)
            wait_until(lambda: len(running.controller._server.responses) == 1, DEADLINE_S)
            running.now_ms += 5_000
            for name in ("lives", "dead"):
                codes.append(other.ask(registration(name)).code)
            assert codes == [16, 16, 16, 0]
        client.shutdown()
        wait_until(lambda: len(running.controller._server.responses) == 0, DEADLINE_S)
    finally:
        client.shutdown()
        running.stop()


def test_a_silent_broker_is_dropped_and_its_connection_closed(running: Running) -> None:
    with Peer(running.port) as silent, Peer(running.port) as alive:
        silent.ask(registration("silent"))
        running.now_ms = 100_000
        alive.ask(registration("alive"))
        running.now_ms = 120_001
        running.controller.scan_not_active_broker()
        silent.wait_for_close()
        assert set(addresses(alive)) == {"alive"}


def test_a_oneway_registration_counts_and_is_not_answered(running: Running) -> None:
    with Peer(running.port) as broker:
        broker.send(registration("a", oneway=True))
        wait_until(lambda: running.brokers() == 1, DEADLINE_S)
        assert broker.ask(route()).code == 0


def test_nobody_registers_an_address_of_another_host(running: Running) -> None:
    with Peer(running.port) as peer, Peer(running.port) as broker:
        broker.ask(registration("a"))
        request = registration("a")
        request.ext_fields["brokerAddr"] = "192.0.2.1:10911"
        assert peer.ask(request).code == 16
        fields = {"brokerName": "a", "brokerAddr": "192.0.2.1:10911", "clusterName": "C"}
        for code in (104, 322, 904):
            assert peer.ask(RemotingCommand.request(code, {**fields, "brokerId": "0"})).code == 16
        assert addresses(peer) == {"a": {"0": address_of("a")}}


def test_what_a_broker_says_is_taken_in_order(running: Running) -> None:
    with Peer(running.port) as broker:
        for number in range(20):
            broker.send(registration("a", topics=(f"T{number}",), oneway=True))
        fields = {"brokerName": "a", "brokerAddr": address_of("a"), "clusterName": "C"}
        assert broker.ask(RemotingCommand.request(104, {**fields, "brokerId": "0"})).code == 0
        assert running.brokers() == 0


def test_unknown_codes_and_bad_bodies_are_answered_and_the_connection_lives(
    running: Running,
) -> None:
    with Peer(running.port) as peer:
        answer = peer.ask(RemotingCommand.request(310))
        assert (answer.code, answer.remark) == (3, " request type 310 not supported")
        assert peer.ask(RemotingCommand.request(103, {"brokerName": "x"})).code == 1
        assert peer.ask(RemotingCommand.request(106)).code == 0


def test_operators_are_let_in_by_their_address_only(config: NamesrvConfig) -> None:
    server = Running(replace(config, admin_allowed_addresses="10.0.0.0/8"))
    with Peer(server.port) as peer:
        assert peer.ask(registration("a")).code == 0
        for request in (
            RemotingCommand.request(318, body=b"orderMessageEnable=true"),
            RemotingCommand.request(100, {"namespace": "n", "key": "k", "value": "v"}),
            RemotingCommand.request(205, {"brokerName": "a"}),
            RemotingCommand.request(216, {"topic": "T"}),
        ):
            answer = peer.ask(request)
            assert answer.code == 16
            assert "adminAllowedAddresses (now 10.0.0.0/8)" in (answer.remark or "")
        assert set(addresses(peer)) == {"a"}
        assert b"orderMessageEnable=false\n" in peer.ask(RemotingCommand.request(319)).body
    server.stop()


def test_bytes_that_are_no_frame_close_only_their_connection(running: Running) -> None:
    with Peer(running.port) as client, Peer(running.port) as stranger:
        client.ask(registration("a"))
        stranger._sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        stranger.wait_for_close()
        assert set(addresses(client)) == {"a"}


def test_key_values_and_settings_outlive_a_restart(config: NamesrvConfig) -> None:
    put = {"namespace": "n", "key": "k", "value": "v"}
    first = Running(config)
    with Peer(first.port) as peer:
        assert peer.ask(RemotingCommand.request(100, put)).code == 0
        assert peer.ask(RemotingCommand.request(318, body=b"orderMessageEnable=true")).code == 0
        assert peer.ask(RemotingCommand.request(318, body=b"kvConfigPath=/tmp/x")).code == 16
        assert b"orderMessageEnable=true\n" in peer.ask(RemotingCommand.request(319)).body
    first.stop()
    assert Path(config.config_store_path).read_text() == "orderMessageEnable=true\n"
    second = Running(config)
    with Peer(second.port) as peer:
        answer = peer.ask(RemotingCommand.request(101, {"namespace": "n", "key": "k"}))
        assert answer.ext_fields == {"value": "v"}
    second.stop()


def test_a_stop_closes_the_connections(config: NamesrvConfig) -> None:
    server = Running(config)
    with Peer(server.port) as peer:
        peer.ask(registration("a"))
        server.stop()
        peer.wait_for_close()
    with pytest.raises(OSError, match="refused"):
        Peer(server.port)


def test_a_damaged_kv_file_stops_the_start(config: NamesrvConfig) -> None:
    Path(config.kv_config_path).write_text("{")
    with listening_socket() as listening:
        controller = NamesrvController(config, RemotingServerConfig(), listening)
        with pytest.raises(KVConfigError):
            controller.open()


def test_embedded_it_serves_an_inherited_socket_beats_and_stops(config: NamesrvConfig) -> None:
    stops: list[Callable[[], None]] = []
    beats: list[int] = []
    with listening_socket() as kept:
        thread = threading.Thread(
            target=run_embedded,
            args=(os.dup(kept.fileno()), config),
            kwargs={"on_stop": stops.append, "beat": lambda: beats.append(1), "beat_ms": 5},
        )
        thread.start()
        with Peer(kept.getsockname()[1]) as peer:
            assert peer.ask(registration("a")).code == 0
            assert set(addresses(peer)) == {"a"}
            wait_until(lambda: len(beats) > 2, DEADLINE_S)
            stops[0]()
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
            peer.wait_for_close()
