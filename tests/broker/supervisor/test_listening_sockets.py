"""The broker's ports: bound before any child, told clearly when they are taken."""

from __future__ import annotations

import socket

import pytest

from broker.supervisor import listening_sockets
from broker.supervisor.listening_sockets import (
    VIP_DISTANCE,
    PortTakenError,
    bind_listener,
    bind_remoting,
    own_address,
    port_of,
)

HOST = "127.0.0.1"


def free_pair() -> int:
    """A port whose VIP port is free too."""
    main, vip = bind_remoting(HOST, 0, 5)
    port = port_of(main)
    main.close()
    vip.close()
    return port


def test_a_listener_listens_and_does_not_block() -> None:
    with bind_listener(HOST, 0, 5, "listenPort") as sock:
        assert not sock.getblocking()
        with pytest.raises(BlockingIOError):
            sock.accept()
        with socket.create_connection((HOST, port_of(sock)), timeout=5):
            pass


def test_a_taken_port_is_named_with_its_setting() -> None:
    with bind_listener(HOST, 0, 5, "listenPort") as sock:
        port = port_of(sock)
        with pytest.raises(PortTakenError, match=f"port {port} is in use.*metricsPort"):
            bind_listener(HOST, port, 5, "metricsPort")


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(PortTakenError, match=r"cannot listen on 192\.0\.2\.1:0 \(bindAddress\)"):
        bind_listener("192.0.2.1", 0, 5, "bindAddress")


def test_main_and_vip_are_a_fixed_distance_apart() -> None:
    for listen_port in (0, free_pair()):
        main, vip = bind_remoting(HOST, listen_port, 5)
        assert port_of(main) - port_of(vip) == VIP_DISTANCE == 2
        assert listen_port in (0, port_of(main))
        main.close()
        vip.close()


def test_a_taken_vip_port_gives_the_main_port_back() -> None:
    port = free_pair()
    with bind_listener(HOST, port - 2, 5, "x"):
        with pytest.raises(PortTakenError, match=r"listenPort \(minus 2\)"):
            bind_remoting(HOST, port, 5)
        bind_listener(HOST, port, 5, "free again").close()


def test_a_search_without_result_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(address: str, port: int, backlog: int, setting: str) -> socket.socket:
        if port:
            raise PortTakenError("taken")
        return bind_listener(address, port, backlog, setting)

    monkeypatch.setattr(listening_sockets, "bind_listener", bind)
    with pytest.raises(PortTakenError, match="no free pair"):
        bind_remoting(HOST, 0, 5)


def test_the_own_address_of_a_socket_is_one_that_can_be_reached() -> None:
    for bound, expected in (("0.0.0.0", "127.0.0.1"), ("127.0.0.3", "127.0.0.3")):
        with bind_listener(bound, 0, 5, "x") as sock:
            assert own_address(sock) == f"{expected}:{port_of(sock)}"
