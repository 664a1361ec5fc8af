"""TlsSocket over a wire whose chunks the test chooses."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remoting.selector_loop import EVENT_READ, EVENT_WRITE
from remoting.tls_socket import CHUNK_SIZE, TlsError, TlsSocket
from tests.support.key_updates import UPDATE_SIZE, KeyUpdates, logging_context
from tests.support.tls_files import Authority, client_context, server_context


class Wire:
    """One end of an in-memory connection; bytes go in pieces, and only so many wait."""

    def __init__(self, pieces: Callable[[], int], capacity: int) -> None:
        self.peer: Wire | None = None
        self._pieces = pieces
        self._capacity = capacity
        self._arrived: bytearray = bytearray()
        self._ended = False
        self.closed = False

    def recv_into(self, view: memoryview) -> int:
        count = min(len(view), len(self._arrived), self._pieces())
        if not count:
            if self._ended:
                return 0
            raise BlockingIOError
        view[:count] = self._arrived[:count]
        del self._arrived[:count]
        return count

    def send(self, data: bytes | memoryview) -> int:
        assert self.peer is not None
        count = min(len(data), self._pieces(), self._capacity - len(self.peer._arrived))
        if count <= 0:
            raise BlockingIOError
        self.peer._arrived += data[:count]
        return count

    def close(self) -> None:
        assert self.peer is not None
        self.closed = self.peer._ended = True

    def damage(self) -> None:
        """Spoil what has arrived here."""
        self._arrived[-1] ^= 0xFF


class Ends:
    """A client and a server over a wire."""

    def __init__(
        self,
        contexts: tuple[ssl.SSLContext, ssl.SSLContext],
        pieces: Callable[[], int] = lambda: 1 << 30,
        capacity: int = 1 << 30,
    ) -> None:
        self.wires = Wire(pieces, capacity), Wire(pieces, capacity)
        self.wires[0].peer, self.wires[1].peer = self.wires[1], self.wires[0]
        self.client, self.server = (
            TlsSocket(
                wire,  # type: ignore[arg-type]
                context,
                server_side=bool(number),
                receive=memoryview(bytearray(1 << 16)),
            )
            for number, (wire, context) in enumerate(zip(self.wires, contexts, strict=True))
        )

    def shake(self) -> Ends:
        waits = {self.client: True, self.server: True}
        for _ in range(100_000):
            for end, waiting in waits.items():
                if waiting and not end.handshake():
                    waits[end] = False
            if not any(waits.values()):
                return self
        raise AssertionError("the handshake did not end")


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    return client_context(authority.trust), server_context(authority.issue("server"))


@pytest.fixture
def ends(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Ends:
    return Ends(contexts).shake()


def receive(end: TlsSocket, size: int = 1 << 20) -> bytes:
    """All that can be read now."""
    view, found = memoryview(bytearray(size)), b""
    try:
        while count := end.recv_into(view):
            found += view[:count]
    except BlockingIOError:
        assert not end.has_more
    return found


def transfer(source: TlsSocket, target: TlsSocket, pieces: list[bytes]) -> bytes:
    """Send as Connection does: the rest is offered again until all has been taken."""
    found, left = b"", deque(memoryview(piece) for piece in pieces if piece)
    for _ in range(1_000_000):
        if not left:
            break
        try:
            sent = source.sendmsg(list(left)) if len(left) > 1 else source.send(left[0])
        except BlockingIOError:
            sent = 0
        while sent:
            piece = left.popleft()
            if sent < len(piece):
                left.appendleft(piece[sent:])
            sent -= min(sent, len(piece))
        found += receive(target)
    assert not left
    return found + receive(target)


def test_a_handshake_in_pieces_of_one_byte(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    ends = Ends(contexts, pieces=lambda: 1, capacity=1).shake()
    assert transfer(ends.client, ends.server, [b"hello"]) == b"hello"
    assert transfer(ends.server, ends.client, [b"to", b"", b"you"]) == b"toyou"


def test_a_handshake_says_what_it_waits_for(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    ends = Ends(contexts, capacity=100)
    assert ends.server.handshake() == EVENT_READ
    assert ends.client.handshake() == EVENT_WRITE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chunks=st.lists(st.integers(1, 5000), min_size=1, max_size=20),
    capacity=st.integers(100, 100_000),
    asked=st.lists(st.binary(max_size=40_000), max_size=6),
    answered=st.lists(st.binary(max_size=40_000), max_size=6),
)
def test_every_chunking_gives_the_same_bytes(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    chunks: list[int],
    capacity: int,
    asked: list[bytes],
    answered: list[bytes],
) -> None:
    sizes = itertools.cycle(chunks)
    ends = Ends(contexts, pieces=lambda: next(sizes), capacity=capacity).shake()
    assert _flow(ends.client, ends.server, asked) == b"".join(asked)
    assert _flow(ends.server, ends.client, answered) == b"".join(answered)


def _flow(source: TlsSocket, target: TlsSocket, pieces: list[bytes]) -> bytes:
    """`transfer`, and then read until all is there."""
    found, size = transfer(source, target, pieces), sum(map(len, pieces))
    for _ in range(1_000_000):
        if len(found) >= size:
            break
        found += receive(target)
    return found


def test_one_call_encrypts_no_more_than_a_chunk(ends: Ends) -> None:
    data = bytes(range(256)) * 4096
    assert ends.client.send(data) == CHUNK_SIZE
    assert ends.client.sendmsg([data[:100], memoryview(data)[100:]]) == CHUNK_SIZE
    assert receive(ends.server) == data[:CHUNK_SIZE] * 2


def test_what_does_not_leave_is_offered_again(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """Encrypted once: the second offer finds it, even when more has come behind it."""
    ends = Ends(contexts, capacity=6_000).shake()
    receive(ends.client)
    data = bytes(10_000)
    with pytest.raises(BlockingIOError):
        ends.server.send(data)
    assert receive(ends.client) == b""
    assert ends.server.sendmsg([data, b"and more"]) == len(data)
    assert receive(ends.client) == data


def test_more_than_the_view_holds_is_announced(ends: Ends) -> None:
    ends.client.send(b"123456")
    view = memoryview(bytearray(4))
    assert (ends.server.recv_into(view), bytes(view), ends.server.has_more) == (4, b"1234", True)
    assert (ends.server.recv_into(view), bytes(view[:2])) == (2, b"56")
    assert not ends.server.has_more


def test_a_goodbye_behind_data_is_announced(ends: Ends) -> None:
    ends.client.send(b"last")
    ends.client.close()
    view = memoryview(bytearray(100))
    assert (ends.server.recv_into(view), ends.server.has_more) == (4, True)
    assert ends.server.recv_into(view) == 0
    assert ends.wires[0].closed


def test_an_end_without_goodbye_is_an_end(ends: Ends) -> None:
    ends.wires[0].close()
    assert ends.server.recv_into(memoryview(bytearray(100))) == 0


def test_damaged_bytes_are_an_error(ends: Ends) -> None:
    ends.client.send(b"data")
    ends.wires[1].damage()
    with pytest.raises(TlsError, match=r"decryption failed or bad record mac|record layer failure"):
        ends.server.recv_into(memoryview(bytearray(100)))


def test_nothing_can_be_sent_before_the_handshake(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    with pytest.raises(TlsError):
        Ends(contexts).client.send(b"too early")


def test_a_peer_without_tls_fails_the_handshake(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    ends = Ends(contexts)
    ends.wires[0].send(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(TlsError, match="http request"):
        ends.server.handshake()
    ends.server.close()


def test_a_peer_that_leaves_fails_the_handshake(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    ends = Ends(contexts)
    ends.wires[0].close()
    with pytest.raises(TlsError, match="the peer closed the connection"):
        ends.server.handshake()


def test_a_certificate_of_another_authority_is_explained(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], tmp_path: Path
) -> None:
    ends = Ends((client_context(Authority(tmp_path, "other").trust), contexts[1]))
    with pytest.raises(TlsError) as caught:
        ends.shake()
    assert str(caught.value) == (
        "the peer's certificate is not accepted: unable to get local issuer certificate"
    )
    with pytest.raises(TlsError, match="unknown ca"):  # it was told why
        ends.server.handshake()


def test_it_stands_for_its_socket(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        end = TlsSocket(ours, contexts[0], server_side=False, receive=memoryview(bytearray(9)))
        assert end.fileno() == ours.fileno()
        found: tuple[Any, Any] = (end.getpeername(), end.getsockname())
        assert found == (ours.getpeername(), ours.getsockname())
        end.close()
        assert ours.fileno() == -1


# -- messages of TLS itself -----------------------------------------------------------------------


def updating(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], key_log: Path
) -> tuple[Ends, KeyUpdates]:
    """Ends whose client the test writes records for, behind its back."""
    ends = Ends((logging_context(key_log), contexts[1])).shake()
    return ends, KeyUpdates(ends.client._channel._tls.cipher()[0], key_log)


def test_key_updates_are_answered_and_change_nothing(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], tmp_path: Path
) -> None:
    ends, records = updating(contexts, tmp_path / "keys")
    # Far more than are refused in a row.
    for _ in range(20):
        ends.wires[1]._arrived += records.updates(300) + records.data(b"x" * 16_000)
        found = b""
        while len(found) < 16_000:
            found += receive(ends.server)
        assert found == b"x" * 16_000
    answered = len(ends.wires[0]._arrived) // UPDATE_SIZE
    assert answered >= 20 * 300 - 1, "OpenSSL holds the last one back"


@pytest.mark.parametrize("wants_answer", [True, False])
def test_nothing_but_key_updates(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], tmp_path: Path, wants_answer: bool
) -> None:
    """14 s of the loop were had for 8 MB, of anybody who could connect."""
    ends, records = updating(contexts, tmp_path / "keys")
    ends.wires[1]._arrived += records.updates(10_000, wants_answer=wants_answer)
    view = memoryview(bytearray(1 << 16))
    with pytest.raises(BlockingIOError):
        ends.server.recv_into(view)
    left = len(ends.wires[1]._arrived)
    assert left == 10_000 * UPDATE_SIZE - CHUNK_SIZE, "one read, then it is others' turn"
    with pytest.raises(TlsError, match="key updates or empty records in place of data"):
        ends.server.recv_into(view)


def test_answers_to_key_updates_do_not_pile_up(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], tmp_path: Path
) -> None:
    """The client sends enough data among them, and reads nothing."""
    ends, records = updating(contexts, tmp_path / "keys")
    ends.wires[1]._capacity = ends.wires[0]._capacity = 0
    view, largest = memoryview(bytearray(1 << 20)), 0

    def send_on() -> None:
        nonlocal largest
        for _ in range(100):
            ends.wires[1]._arrived += records.updates(300) + records.data(b"x" * 16_000)
            while ends.wires[1]._arrived:
                ends.server.recv_into(view)
                largest = max(largest, ends.server._channel._outgoing.pending)

    with pytest.raises(TlsError, match="does not read the answers to its key updates"):
        send_on()
    assert CHUNK_SIZE < largest <= 2 * CHUNK_SIZE
