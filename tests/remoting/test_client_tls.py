"""RemotingClient over TLS: handshakes that work, fail, or never end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remoting.client_tls import ClientTls
from remoting.errors import RemotingConnectError, RemotingError, RemotingSendRequestError
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig
from remoting.remoting_server import RemotingServer
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionLike, Route
from remoting.selector_loop import SelectorLoop
from remoting.server_tls import ServerTls
from remoting.tls_config import TlsConfig
from tests.support.deadline import wait_until
from tests.support.tls_files import Authority

TIMEOUT_MS = 20_000
BODY = bytes(range(256)) * 4096


class Echo:
    """Answers with what came."""

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        return request.response(0, None, request.ext_fields, request.body)


@pytest.fixture
def serve() -> Iterator[Callable[[TlsConfig | None], str]]:
    """Starts servers; the function gives the address of one with these settings."""
    running: list[tuple[SelectorLoop, RemotingServer, socket.socket]] = []

    def start(config: TlsConfig | None) -> str:
        loop = SelectorLoop("client-tls-test")
        tls = None if config is None else ServerTls(config)
        server = RemotingServer(loop, RequestDispatcher({1: Route(Echo())}), tls=tls)
        listening = socket.create_server(("127.0.0.1", 0))
        server.add_listener(listening)
        server.start()
        loop.start()
        running.append((loop, server, listening))
        return f"127.0.0.1:{listening.getsockname()[1]}"

    yield start
    for loop, server, listening in running:
        ended = threading.Event()
        loop.call_soon_threadsafe(
            lambda server=server, ended=ended: (server.shutdown(), ended.set())
        )  # type: ignore[misc]
        assert ended.wait(10)
        loop.stop()
        loop.close()
        listening.close()


@pytest.fixture
def connect() -> Iterator[Callable[..., RemotingClient]]:
    """Starts clients with these settings."""
    running: list[RemotingClient] = []

    def start(config: TlsConfig, timeout_ms: int = TIMEOUT_MS) -> RemotingClient:
        settings = RemotingClientConfig(connect_timeout_millis=timeout_ms)
        running.append(RemotingClient(settings, tls=ClientTls(config)))
        running[-1].start()
        return running[-1]

    yield start
    for client in running:
        client.shutdown()


@pytest.fixture
def files(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "files")


def server_config(files: Authority, **settings: object) -> TlsConfig:
    pair = files.issue("server")
    return TlsConfig(
        **{  # type: ignore[arg-type]
            "tls_server_mode": "enforcing",
            "tls_test_mode_enable": False,
            "tls_server_cert_path": str(pair.certificate),
            "tls_server_key_path": str(pair.key),
            **settings,
        }
    )


def client_config(files: Authority, *, name: str | None = None) -> TlsConfig:
    settings = {}
    if name is not None:
        pair = files.issue(name)
        settings = {
            "tls_client_cert_path": str(pair.certificate),
            "tls_client_key_path": str(pair.key),
        }
    return TlsConfig(
        tls_test_mode_enable=False,
        tls_client_auth_server=True,
        tls_client_trust_cert_path=str(files.trust),
        **settings,
    )


def ask(client: RemotingClient, address: str, body: bytes = b"body") -> bytes:
    command = RemotingCommand.request(1, None, body)
    return client.invoke_sync(address, command, TIMEOUT_MS).body


def failure(client: RemotingClient, address: str) -> str:
    with pytest.raises(RemotingConnectError) as caught:
        ask(client, address)
    return str(caught.value).replace(address, "PEER")


HINT = "; check that the peer has TLS enabled (tls.server.mode) and that the certificates match"


def test_two_of_test_mode(
    serve: Callable[[TlsConfig | None], str], connect: Callable[..., RemotingClient]
) -> None:
    address, client = serve(TlsConfig(tls_server_mode="enforcing")), connect(TlsConfig())
    assert [ask(client, address, body) for body in (b"small", BODY, b"small")] == [
        b"small",
        BODY,
        b"small",
    ]


def test_certificates_on_both_sides(
    serve: Callable[[TlsConfig | None], str],
    connect: Callable[..., RemotingClient],
    files: Authority,
) -> None:
    address = serve(
        server_config(
            files,
            tls_server_need_client_auth="require",
            tls_server_auth_client=True,
            tls_server_trust_cert_path=str(files.trust),
        )
    )
    assert ask(connect(client_config(files, name="client")), address, BODY) == BODY
    with pytest.raises((RemotingSendRequestError, RemotingConnectError), match=r"closed|failed"):
        ask(connect(client_config(files)), address)


def test_a_server_of_another_authority(
    serve: Callable[[TlsConfig | None], str],
    connect: Callable[..., RemotingClient],
    files: Authority,
    tmp_path: Path,
) -> None:
    address = serve(server_config(files))
    other = Authority(tmp_path, "other")
    assert failure(connect(client_config(other)), address) == (
        "PEER: TLS handshake failed: the peer's certificate is not accepted: unable to get local "
        "issuer certificate" + HINT
    )


@pytest.mark.parametrize("config", [None, TlsConfig(tls_server_mode="disabled")])
def test_a_server_without_tls(
    serve: Callable[[TlsConfig | None], str],
    connect: Callable[..., RemotingClient],
    config: TlsConfig | None,
) -> None:
    found = failure(connect(TlsConfig()), serve(config))
    assert found.startswith("PEER: TLS handshake failed: ")
    assert found.endswith(HINT)


def test_a_handshake_that_never_ends(connect: Callable[..., RemotingClient]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        found = failure(connect(TlsConfig(), 50), address)
        assert found == f"PEER: TLS handshake failed: not completed within 50 ms{HINT}"


def test_a_shutdown_in_the_middle_of_a_handshake(connect: Callable[..., RemotingClient]) -> None:
    found: list[Exception | None] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        client = connect(TlsConfig())
        command = RemotingCommand.request(1)
        client.invoke_async(address, command, TIMEOUT_MS, lambda _, error: found.append(error))
        peer, _ = silent.accept()
        with peer:
            assert peer.recv(1) == b"\x16"
            client.shutdown()
        wait_until(lambda: found)
    assert isinstance(found[0], RemotingError)


def test_settings_that_cannot_be_used_until_they_can(
    serve: Callable[[TlsConfig | None], str],
    connect: Callable[..., RemotingClient],
    files: Authority,
) -> None:
    address, client = serve(server_config(files)), connect(client_config(files))
    text = files.trust.read_bytes()
    files.trust.unlink()
    assert failure(client, address) == (
        f"PEER: cannot use TLS: tls.client.trustCertPath = {files.trust} cannot be read: No such "
        "file or "
        "directory; set tls.client.trustCertPath to a file that this user may read"
    )
    files.trust.write_bytes(text)
    assert ask(client, address) == b"body"
