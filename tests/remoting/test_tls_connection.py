"""A RemotingServer with TLS, asked by Python's own TLS sockets on loopback."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting import server_tls, tls_connection
from remoting.connection import Connection
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import RemotingServer, ServerLimits
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionLike, Route
from remoting.selector_loop import SelectorLoop
from remoting.server_tls import ServerTls
from remoting.tls_config import TlsConfig
from remoting.tls_connection import TlsConnection
from tests.support.deadline import wait_until
from tests.support.frame_decoder import FrameDecoder
from tests.support.key_updates import KeyUpdates, logging_context
from tests.support.readiness import events_of
from tests.support.tls_files import Authority, client_context

ECHO, VIEWS = 1, 2
DEADLINE_S = 20.0
LARGE = bytes(range(256)) * 16_384  # 4 MiB


class Processor:
    """Answers with what came, or with views as pulls do."""

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        if request.code == ECHO:
            return request.response(0, None, request.ext_fields, request.body)
        assert isinstance(connection, Connection)
        frame = memoryview(encode_command(request.response(0, None, None, LARGE)))
        connection.write_many(
            [frame[at : at + 300_000] for at in range(0, len(frame), 300_000)], len(frame)
        )
        return None


class World:
    """A server on its loop; `connections` and `closed` as its listener heard of them."""

    def __init__(self, config: TlsConfig, *, high_water: int = 4 << 20) -> None:
        self.opened: list[ConnectionLike] = []
        self.closed: list[str] = []
        self.loop = SelectorLoop("tls-test")
        self.tls = ServerTls(config, watch_interval_s=0.01)
        self.server = RemotingServer(
            self.loop,
            RequestDispatcher({code: Route(Processor()) for code in (ECHO, VIEWS)}),
            limits=ServerLimits(high_water=high_water),
            listener=self,
            tls=self.tls,
        )
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = self.listening.getsockname()
        self.server.add_listener(self.listening)
        self.server.start()
        self.loop.start()

    def on_open(self, connection: ConnectionLike) -> None:
        self.opened.append(connection)

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        self.closed.append(reason)

    def plain(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=DEADLINE_S)

    def secure(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        return (context or client_context()).wrap_socket(self.plain())

    def on_loop(self, function: object) -> None:
        done = threading.Event()
        assert callable(function)
        self.loop.call_soon_threadsafe(lambda: (function(), done.set()))  # type: ignore[arg-type,return-value]
        assert done.wait(DEADLINE_S)

    def stop(self) -> None:
        self.on_loop(self.server.shutdown)
        self.loop.stop()
        self.loop.close()
        self.listening.close()


@pytest.fixture
def files(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "files")


@pytest.fixture
def world() -> Iterator[World]:
    """Permissive, in test mode: nothing is configured."""
    made = World(TlsConfig())
    yield made
    made.stop()


@pytest.fixture
def slow_world() -> Iterator[World]:
    """Little may wait to be written."""
    made = World(TlsConfig(), high_water=10_000)
    yield made
    made.stop()


def ask(sock: socket.socket, code: int = ECHO, body: bytes = b"body") -> bytes:
    sock.sendall(encode_command(RemotingCommand.request(code, None, body)))
    return answer(sock)


def answer(sock: socket.socket, decoder: FrameDecoder | None = None) -> bytes:
    decoder = decoder or FrameDecoder()
    while (command := decoder.next_command()) is None:
        data = sock.recv(1 << 16)
        assert data, "closed"
        decoder.feed(data)
    return command.body


def is_closed(sock: socket.socket) -> bool:
    try:
        return not sock.recv(100)
    except (ConnectionResetError, BrokenPipeError):
        return True


# -- who is let in -------------------------------------------------------------------------------


def test_plain_and_tls_share_a_port(world: World) -> None:
    with world.plain() as plain, world.secure() as secure, world.secure() as other:
        for sock in (plain, secure, other, plain):
            assert ask(sock) == b"body"
        assert secure.version() == "TLSv1.3"


def test_tls_1_2_is_spoken_too(world: World) -> None:
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with world.secure(context) as sock:
        assert (ask(sock), sock.version()) == (b"body", "TLSv1.2")


def test_enforcing_closes_a_plain_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_tls, "_WARN_EVERY_MS", 1 << 40)
    enforcing = World(TlsConfig(tls_server_mode="enforcing"))
    try:
        with enforcing.plain() as sock, enforcing.plain() as other:
            port = sock.getsockname()[1]
            for each in (sock, other):
                each.sendall(encode_command(RemotingCommand.request(ECHO)))
                with pytest.raises(ConnectionResetError):
                    each.recv(100)
        wait_until(lambda: len(enforcing.closed) == 2)
        with enforcing.secure() as secure:
            assert ask(secure) == b"body"
    finally:
        enforcing.stop()
    reason = "the client does not use TLS, but tls.server.mode is enforcing"
    assert enforcing.closed[:2] == [reason] * 2
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == [f"127.0.0.1:{port}: rejected: {reason}"]  # and none for the second so soon


def test_disabled_closes_a_tls_connection(caplog: pytest.LogCaptureFixture) -> None:
    world = World(TlsConfig(tls_server_mode="disabled"))
    try:
        with pytest.raises((ssl.SSLError, OSError)):
            world.secure()
        wait_until(lambda: world.closed)
        assert world.closed == ["the client uses TLS, but tls.server.mode is disabled"]
        with world.plain() as sock:
            assert ask(sock) == b"body"
        assert f"rejected: {world.closed[0]}" in caplog.text
    finally:
        world.stop()


def test_files_that_cannot_be_used_refuse_tls_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = str(tmp_path / "none.pem")
    world = World(
        TlsConfig(
            tls_test_mode_enable=False, tls_server_cert_path=missing, tls_server_key_path=missing
        )
    )
    try:
        with pytest.raises((ssl.SSLError, OSError)):
            world.secure()
        with world.plain() as sock:
            assert ask(sock) == b"body"
        wait_until(lambda: world.closed)
        reason = "the client uses TLS and this server has no usable certificate, see its log"
        assert world.closed[0] == reason
        assert f"tls.server.certPath = {missing} cannot be read" in caplog.text
    finally:
        world.stop()


def test_a_connection_that_says_nothing_is_no_handshake(world: World) -> None:
    with world.plain():
        wait_until(lambda: world.opened)
    wait_until(lambda: world.closed)
    assert world.closed == ["closed by the peer"]


def test_a_reset_before_the_first_byte(world: World) -> None:
    sock = world.plain()
    wait_until(lambda: world.opened)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    wait_until(lambda: world.closed)
    assert world.closed == ["read failed: Connection reset by peer"]


# -- handshakes ----------------------------------------------------------------------------------


class SlowClient:
    """TLS by hand: what is to be sent is in `outgoing`."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client_context().wrap_bio(self._incoming, self.outgoing)
        self._rest = b""

    def shake(self, send: int) -> None:
        """The whole handshake, `send` bytes at a time; the last flight stays in `outgoing`."""
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self.send(send)
                self._incoming.write(self.sock.recv(1 << 16))

    def send(self, size: int) -> None:
        while data := self.outgoing.read(size):
            self.sock.sendall(data)

    def receive(self) -> bytes:
        return self.exchange([], 1)[0]

    def fill(self, frame: bytes) -> int:
        """Send it over and over until the socket takes no more; how many were begun."""
        self.sock.settimeout(0)
        count = 0
        while not self._rest:
            self.tls.write(frame)
            self._push()
            count += 1
        return count

    def exchange(self, frames: list[bytes], answers: int) -> list[bytes]:
        """Send what is left and `frames` while reading the bodies of so many answers. One thread:
        a TLS object is not for two."""
        self.sock.settimeout(0)
        decoder, found, queue = FrameDecoder(), [], deque(frames)
        while len(found) < answers:
            while queue and not self._rest:
                self.tls.write(queue.popleft())
                self._push()
            wanted = select.POLLIN | (select.POLLOUT if self._rest else 0)
            events = events_of(self.sock, wanted, DEADLINE_S)
            assert events, f"{len(found)} of {answers} answers came"
            self._push()
            if events & ~select.POLLOUT:
                self._incoming.write(self.sock.recv(1 << 16))
            decoder.feed(self._decrypted())
            while (command := decoder.next_command()) is not None:
                found.append(command.body)
        return found

    def _push(self) -> None:
        self._rest += self.outgoing.read()
        try:
            while self._rest:
                self._rest = self._rest[self.sock.send(self._rest) :]
        except BlockingIOError:
            return

    def _decrypted(self) -> bytes:
        data = b""
        try:
            while piece := self.tls.read(1 << 16):
                data += piece
        except ssl.SSLWantReadError:
            return data
        return data


def test_a_handshake_of_single_bytes(world: World) -> None:
    with world.plain() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = SlowClient(sock)
        client.shake(1)
        client.tls.write(encode_command(RemotingCommand.request(ECHO, None, b"slow")))
        client.send(1)
        assert client.receive() == b"slow"


def test_a_request_that_comes_with_the_end_of_the_handshake(world: World) -> None:
    """No event tells of it: it is there when the handshake is done."""
    with world.plain() as sock:
        client = SlowClient(sock)
        client.shake(1 << 20)
        client.tls.write(encode_command(RemotingCommand.request(ECHO, None, b"early")))
        client.send(1 << 20)
        assert client.receive() == b"early"


@pytest.mark.interpreted
def test_a_handshake_that_never_ends_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_connection, "HANDSHAKE_TIMEOUT_MS", 20)
    with world.plain() as sock:
        sock.sendall(b"\x16\x03\x01")
        assert is_closed(sock)
    wait_until(lambda: world.closed)
    assert world.closed == ["TLS handshake not completed within 20 ms"]
    assert "rejected: TLS handshake not completed within 20 ms" in caplog.text


def test_a_handshake_that_is_done_is_not_ended(world: World) -> None:
    with world.secure() as sock:
        assert ask(sock) == b"body"
        (connection,) = world.opened
        assert isinstance(connection, TlsConnection)
        assert connection._timer is not None
        assert connection._timer.cancelled


def test_a_peer_that_leaves_in_the_middle_of_a_handshake(world: World) -> None:
    with world.plain() as sock:
        sock.sendall(b"\x16\x03\x01")
        wait_until(lambda: world.opened)
    wait_until(lambda: world.closed)
    assert world.closed == ["TLS handshake failed: the peer closed the connection"]


def test_garbage_behind_the_first_byte(world: World) -> None:
    with world.plain() as sock:
        sock.sendall(b"\x16 is no handshake at all, as far as anybody can see")
        while not is_closed(sock):
            pass  # it is told why
    wait_until(lambda: world.closed)
    assert world.closed == ["TLS handshake failed: wrong version number"]


def test_a_peer_that_leaves_while_the_certificate_is_made(world: World) -> None:
    held: list[object] = []
    world.tls.with_context = held.append  # type: ignore[assignment,method-assign]
    with world.plain() as sock:
        sock.sendall(b"\x16")
        wait_until(lambda: held)
        world.on_loop(lambda: world.opened[0].close("end of test"))  # type: ignore[attr-defined]
    wait_until(lambda: world.closed)
    world.on_loop(lambda: held[0](None))  # type: ignore[operator]
    assert world.closed == ["end of test"]


# -- frames --------------------------------------------------------------------------------------


@pytest.fixture
def client(world: World) -> Iterator[SlowClient]:
    with world.plain() as sock:
        found = SlowClient(sock)
        found.shake(1 << 20)
        yield found


def request(body: bytes, code: int = ECHO) -> bytes:
    return encode_command(RemotingCommand.request(code, None, body))


def test_large_frames_both_ways(client: SlowClient) -> None:
    bodies = [b"small", LARGE, b"small", LARGE]
    assert client.exchange([request(body) for body in bodies], 4) == bodies
    together = b"".join(map(request, bodies))
    assert client.exchange([together, request(b"", VIEWS)], 5) == [*bodies, LARGE]


def test_many_frames_in_many_records(client: SlowClient) -> None:
    bodies = [str(number).encode() for number in range(2_000)]
    assert client.exchange([request(body) for body in bodies], 2_000) == bodies


def test_a_peer_that_does_not_read_is_not_read(slow_world: World) -> None:
    """And what it sent meanwhile, decrypted or not, is read once it reads again."""
    with slow_world.plain() as sock:
        client = SlowClient(sock)
        client.shake(1 << 20)
        count = client.fill(request(LARGE[: 1 << 20]))
        (connection,) = slow_world.opened
        assert isinstance(connection, Connection)
        wait_until(lambda: connection.pending_bytes > 10_000)
        assert client.exchange([], count) == [LARGE[: 1 << 20]] * count


def test_no_frame_closes_the_connection(world: World) -> None:
    with world.secure() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert is_closed(sock)
    wait_until(lambda: world.closed)
    assert world.closed[0].startswith("bad frame: ")


# -- ends ----------------------------------------------------------------------------------------


def test_the_peers_goodbye_is_answered(world: World) -> None:
    with world.secure() as sock:
        assert ask(sock) == b"body"
        sock.unwrap()  # waits for the server's own
    wait_until(lambda: world.closed)
    assert world.closed == ["closed by the peer"]


def test_a_half_closed_peer_is_gone(world: World) -> None:
    with world.secure() as sock:
        assert ask(sock) == b"body"
        socket.socket.shutdown(sock, socket.SHUT_WR)
        assert is_closed(sock)
    wait_until(lambda: world.closed)
    assert world.closed == ["closed by the peer"]


def test_a_server_that_closes_says_goodbye(world: World) -> None:
    with world.secure() as sock:
        assert ask(sock) == b"body"
        world.loop.call_soon_threadsafe(world.server.drain)
        assert sock.recv(100) == b""  # an end without goodbye would be an error


def test_broken_bytes_close_the_connection(world: World) -> None:
    with world.secure() as sock:
        assert ask(sock) == b"body"
        socket.socket.send(sock, b"\x17\x03\x03\x00\x20" + bytes(32))
        wait_until(lambda: world.closed)
    # OpenSSL's words: of 3.0, and since 3.2.
    assert world.closed in (
        ["read failed: decryption failed or bad record mac"],
        ["read failed: record layer failure"],
    )


# -- clients' certificates -----------------------------------------------------------------------


def guarded(files: Authority, auth: str, *, auth_client: bool = True) -> World:
    pair = files.issue("server")
    return World(
        TlsConfig(
            tls_test_mode_enable=False,
            tls_server_cert_path=str(pair.certificate),
            tls_server_key_path=str(pair.key),
            tls_server_need_client_auth=auth,
            tls_server_auth_client=auth_client,
            tls_server_trust_cert_path=str(files.trust),
        )
    )


@pytest.mark.parametrize(
    ("auth", "auth_client", "served"),
    [
        ("require", True, "known"),
        ("REQUIRE", False, "known"),
        ("optional", True, "known nameless"),
        ("optional", False, "known nameless stranger"),
        ("none", True, "known nameless stranger"),
    ],
)
def test_clients_certificates(
    files: Authority, tmp_path: Path, auth: str, auth_client: bool, served: str
) -> None:
    contexts = {
        "known": client_context(files.trust, files.issue("client")),
        "nameless": client_context(files.trust),
        "stranger": client_context(files.trust, Authority(tmp_path, "other").issue("stranger")),
    }
    world = guarded(files, auth, auth_client=auth_client)
    found = []
    try:
        for name, context in contexts.items():
            try:
                with world.secure(context) as sock:
                    assert ask(sock) == b"body"
                found.append(name)
            except OSError:
                wait_until(lambda: any("handshake failed" in reason for reason in world.closed))
    finally:
        world.stop()
    assert found == served.split()


# -- new files -----------------------------------------------------------------------------------


def test_new_files_are_for_new_connections(files: Authority) -> None:
    world = guarded(files, "none")
    try:
        with world.secure(client_context(files.trust)) as first:
            assert ask(first) == b"body"
            shown = first.getpeercert(binary_form=True)
            files.issue("server")

            def is_new() -> bool:
                with world.secure(client_context(files.trust)) as sock:
                    return ask(sock) == b"body" and sock.getpeercert(binary_form=True) != shown

            wait_until(is_new)
            assert ask(first) == b"body"
    finally:
        world.stop()


def test_a_flood_of_key_updates_is_closed_and_holds_up_nobody(world: World, tmp_path: Path) -> None:
    key_log = tmp_path / "keys"
    with world.secure(logging_context(key_log)) as hostile, world.secure() as other:
        cipher = hostile.cipher()
        assert cipher is not None
        flood = KeyUpdates(cipher[0], key_log).updates(10_000)
        with socket.socket(fileno=hostile.detach()) as raw:
            with contextlib.suppress(OSError):
                raw.sendall(flood)
            assert ask(other) == b"body"
            wait_until(lambda: world.closed)
        words = "read failed: the peer sends key updates or empty records in place of data"
        assert world.closed == [words]
        assert ask(other) == b"body"
