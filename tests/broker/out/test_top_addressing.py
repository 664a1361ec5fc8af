"""Looking up name servers: an address server over real HTTP, and the resolver."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker.out.top_addressing import (
    LookupFailedError,
    NamedServers,
    address_server_url,
    fetch_name_servers,
)


class AddressServer:
    """Answers every GET with `body`; `paths`: what was asked for."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.paths: list[str] = []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.paths.append(self.path)
                self.send_response(owner.status)
                if owner.status == 302:
                    self.send_header("Location", "file:///etc/hostname")
                self.end_headers()
                self.wfile.write(owner.body)

            def log_message(self, *_arguments: Any) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def domain(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return address_server_url(self.domain, "nsaddr")

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[AddressServer]:
    server = AddressServer()
    yield server
    server.close()


@pytest.mark.parametrize(
    ("domain", "url"),
    [
        ("jmenv.tbsite.net", "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"),
        ("10.0.0.1:80", "http://10.0.0.1:80/rocketmq/nsaddr"),
    ],
)
def test_the_url(domain: str, url: str) -> None:
    """Of MixAll.getWSAddr."""
    assert address_server_url(domain, "nsaddr") == url


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"10.0.0.1:9876", ["10.0.0.1:9876"]),
        (b" 10.0.0.1:9876;ns-2.example:9877;\n", ["10.0.0.1:9876", "ns-2.example:9877"]),
        (b"10.0.0.1:9876\r\nand more\r\n", ["10.0.0.1:9876"]),
        (b"\n10.0.0.1:9876;10.0.0.1:9876;[::1]:1\nx", ["10.0.0.1:9876", "[::1]:1"]),
    ],
)
def test_answers(server: AddressServer, body: bytes, expected: list[str]) -> None:
    server.body = body
    assert fetch_name_servers(server.url) == expected
    assert server.paths == ["/rocketmq/nsaddr"]


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"", "'' is not a list of name servers"),
        (200, b";;", "';;' is not a list"),
        (200, b"<html>Welcome</html>", "'<html>Welcome</html>' is not a list"),
        (200, b"10.0.0.1:9876;10.0.0.2", "is not a list"),
        (200, b"10.0.0.1:0", "is not a list"),
        (200, b"10.0.0.1:65536", "is not a list"),
        (200, b"\xff\xfe:1", "is not a list"),
        (200, b"a:1;" * 50_000, "more than 65536 bytes"),
        (404, b"10.0.0.1:9876", "status 404"),
        (500, b"10.0.0.1:9876", "status 500"),
        (204, b"", "status 204"),
        (302, b"", "status 302"),
    ],
)
def test_what_is_no_list(server: AddressServer, status: int, body: bytes, words: str) -> None:
    server.status, server.body = status, body
    with pytest.raises(LookupFailedError, match=words):
        fetch_name_servers(server.url)


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        domain = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(LookupFailedError, match="refused"):
        fetch_name_servers(address_server_url(domain, "nsaddr"))


def test_one_that_never_answers_and_one_that_talks_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = address_server_url(f"127.0.0.1:{listener.getsockname()[1]}", "nsaddr")
        with pytest.raises(LookupFailedError, match="timed out"):
            fetch_name_servers(url, timeout_ms=50)
        stop = threading.Event()

        def talk() -> None:
            listener.accept()[0].close()  # The one that was given up.
            peer = listener.accept()[0]
            with peer:
                peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not stop.wait(0.02):
                    try:
                        peer.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(LookupFailedError, match="timed out"):
            fetch_name_servers(url, timeout_ms=300)
        stop.set()
        thread.join()


def test_no_http_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as peer:
                peer.recv(1000)
                peer.sendall(b"\0\0\0\1not http\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(LookupFailedError):
            fetch_name_servers(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        thread.join()


class Resolver:
    """`gone`: names that it does not know."""

    def __init__(self) -> None:
        self.gone: set[str] = set()

    def __call__(self, host: str, port: int, *_kinds: int) -> list[Any]:
        if host in self.gone:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (ip, port)) for ip in ("10.0.0.2", "10.0.0.1", "10.0.0.2")]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    return resolver


def test_the_dns(resolver: Resolver) -> None:
    assert NamedServers(["ns.example:9876", "ns.example:1"]).look_up() == [
        *("10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.1:1", "10.0.0.2:1"),
    ]
    resolver.gone = {"ns.example"}
    with pytest.raises(LookupFailedError, match=r"ns.example:1: .*not known; ns.example:2: "):
        NamedServers(["ns.example:1", "ns.example:2"]).look_up()


def test_one_name_that_the_dns_lacks_takes_no_other_with_it(
    resolver: Resolver, caplog: pytest.LogCaptureFixture
) -> None:
    servers = NamedServers(["a.example:1", "b.example:2"])
    resolver.gone = {"b.example"}
    for _ in range(2):
        assert servers.look_up() == ["10.0.0.1:1", "10.0.0.2:1"]
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "b.example:2: " in line.getMessage()
    resolver.gone = set()
    both = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:2", "10.0.0.2:2"]
    assert servers.look_up() == both
    resolver.gone = {"a.example"}
    assert servers.look_up() == both, "what it had before stays"
