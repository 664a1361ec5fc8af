"""Connection over real sockets: partial reads and writes, back-pressure, phases, threads."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from remoting.connection import Connection, Phase
from remoting.frame import MAX_FRAME, pack_head, split_frames
from remoting.receive_buffer import SHARED_BUFFER_SIZE, ReceiveBuffer
from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import RemotingServer
from remoting.request_dispatcher import RequestDispatcher
from remoting.selector_loop import SelectorLoop
from tests.support.deadline import wait_until
from tests.support.frame_decoder import FrameDecoder

DEADLINE_S = 10.0


class Sink:
    """Takes frames as the server does; `answer` is written for each."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed: list[str] = []
        self.calls: list[int] = []
        self.answer: Any = None

    def on_data(self, connection: Connection, view: memoryview, end: int) -> int:
        self.calls.append(end)
        return split_frames(view, end, self._take_frame, connection)

    def _take_frame(
        self, connection: Connection, _serialize_type: int, header: bytes, body: memoryview
    ) -> bool:
        self.frames.append(header + body)
        if self.answer is not None:
            self.answer(connection)
        return connection.takes_frames

    def on_closed(self, connection: Connection, reason: str) -> None:
        self.closed.append(reason)


class Pair:
    """A connection on its loop's thread, and the peer's blocking socket."""

    def __init__(
        self, *, high_water: int = 1 << 20, send_buffer: int = 0, peer_host: str = "127.0.0.1"
    ) -> None:
        self.loop = SelectorLoop("connection-test")
        self.sink = Sink()
        self.flush_list: list[Connection] = []
        listening = socket.create_server(("127.0.0.1", 0))
        self.peer = socket.create_connection(
            listening.getsockname(), timeout=DEADLINE_S, source_address=(peer_host, 0)
        )
        sock, _ = listening.accept()
        listening.close()
        sock.setblocking(False)
        if send_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self.sock = sock
        self.receive_buffer = ReceiveBuffer()
        self.connection = Connection(
            self.loop,
            sock,
            self.sink,
            receive=self.receive_buffer,
            flush_list=self.flush_list,
            high_water=high_water,
        )
        self.connection.open()
        self.loop.add_turn_end(self.flush)
        self.loop.start()

    def flush(self) -> None:
        batch = self.flush_list[:]
        self.flush_list.clear()
        for connection in batch:
            connection.flush()

    def run(self, function: Any) -> Any:
        """The result of `function` on the loop's thread."""
        done, result = threading.Event(), []

        def call() -> None:
            result.append(function())
            done.set()

        self.loop.call_soon_threadsafe(call)
        assert done.wait(DEADLINE_S)
        return result[0]

    def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.peer.recv(min(size - len(data), 1 << 20))
            if not piece:
                break
            data += piece
        return bytes(data)

    def wait_frames(self, count: int) -> list[bytes]:
        wait_until(lambda: len(self.sink.frames) >= count)
        return self.sink.frames

    def close(self) -> None:
        self.run(lambda: self.connection.close("end of test"))
        self.loop.stop()
        self.loop.close()
        self.peer.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


@pytest.fixture
def tight() -> Iterator[Pair]:
    """A tiny send buffer and a low high-water mark."""
    pair = Pair(high_water=100_000, send_buffer=4096)
    yield pair
    pair.close()


@pytest.fixture
def low() -> Iterator[Pair]:
    """A low high-water mark, and a send buffer as usual."""
    pair = Pair(high_water=100_000)
    yield pair
    pair.close()


def frame(body: bytes) -> bytes:
    return pack_head(0, 0, len(body)) + body


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.fault(37)
@pytest.mark.parametrize("step", [1, 3, 7, 8, 9, 50, 10_000])
def test_frames_cut_anywhere_come_whole(pair: Pair, step: int) -> None:
    pair.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bodies = [b"", b"x", b"hello" * 10, bytes(range(200))]
    stream = b"".join(map(frame, bodies))
    for at in range(0, len(stream), step):
        pair.peer.sendall(stream[at : at + step])
    assert pair.wait_frames(4) == bodies


@pytest.mark.parametrize(
    "size",
    [
        SHARED_BUFFER_SIZE // 2 - 9,
        SHARED_BUFFER_SIZE // 2 - 8,
        SHARED_BUFFER_SIZE // 2,
        SHARED_BUFFER_SIZE,
        3 << 20,
    ],
)
def test_large_frames_between_small_ones(pair: Pair, size: int) -> None:
    bodies = [b"before", b"ab" * (size // 2), b"after", b"cd" * (size // 2), b"end"]
    pair.peer.sendall(b"".join(map(frame, bodies)))
    assert pair.wait_frames(5) == bodies


def test_the_largest_frame(pair: Pair) -> None:
    body = bytes(MAX_FRAME - 8)
    pair.peer.sendall(frame(body))
    assert pair.wait_frames(1) == [body]


def held(pair: Pair) -> int:
    return int(pair.run(lambda: pair.receive_buffer.total))


@pytest.mark.fault(35)
@pytest.mark.parametrize("announced", [1 << 17, 1 << 20, MAX_FRAME - 4])
def test_memory_follows_the_bytes_that_came(pair: Pair, announced: int) -> None:
    """Of a frame of up to 16 MiB: nearly nothing for its length, at most twice what arrived."""
    pair.peer.sendall(struct.pack(">i", announced))
    wait_until(lambda: pair.run(lambda: len(pair.connection._partial)) == 4)
    assert held(pair) == 0
    came = 4
    for piece in (1000, 10_000, 80_000):
        pair.peer.sendall(bytes(piece))
        came += piece
        wait_until(lambda have=came: pair.run(lambda: pair.connection._have) == have)
        assert came <= held(pair) <= max(2 * came, 4096)
    pair.peer.sendall(bytes(announced - came + 4))
    assert pair.wait_frames(1) == [bytes(announced - 4)]
    assert held(pair) == 0


def test_bytes_one_by_one_of_a_large_frame(pair: Pair) -> None:
    body = bytes(n % 251 for n in range(1 << 17))
    stream = frame(body)
    for at in range(20):
        pair.peer.sendall(stream[at : at + 1])
        wait_until(lambda: pair.run(lambda: pair.connection.last_read_ms) > 0)
    pair.peer.sendall(stream[20:])
    assert pair.wait_frames(1) == [body]


@pytest.mark.parametrize("waits", [False, True])
def test_an_incomplete_frame_has_an_age(pair: Pair, waits: bool) -> None:
    """Each byte of a slow peer is a sign of life of the connection, but not of its frame."""
    pair.peer.sendall(frame(b"whole") + (b"\0" if waits else b""))
    pair.wait_frames(1)
    begun_ms = pair.run(lambda: pair.loop.now_ms)
    if waits:
        pair.peer.sendall(b"\0")
        wait_until(lambda: len(pair.sink.calls) == 2)
    assert pair.run(lambda: pair.connection.is_incomplete_since(begun_ms + 1)) == waits


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">i", MAX_FRAME - 3),
        struct.pack(">i", -1),
        struct.pack(">i", 3),
        struct.pack(">i", 2**31 - 1),
    ],
)
def test_a_wrong_length_closes_as_soon_as_it_is_there(
    pair: Pair, head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    pair.peer.sendall(head)
    assert pair.peer.recv(1) == b""
    wait_until(lambda: pair.sink.closed)
    assert pair.sink.closed[0].startswith("bad frame: ")
    address = "{}:{}".format(*pair.peer.getsockname())
    assert any(r.levelname == "WARNING" and address in r.getMessage() for r in caplog.records)


def test_the_peer_closes(pair: Pair) -> None:
    pair.peer.sendall(frame(b"last"))
    pair.peer.shutdown(socket.SHUT_WR)
    wait_until(lambda: pair.sink.closed)
    assert pair.sink.frames == [b"last"]
    assert pair.sink.closed == ["closed by the peer"]
    assert not pair.connection.is_open


def test_the_peer_closes_in_a_large_frame(pair: Pair) -> None:
    pair.peer.sendall(frame(bytes(1 << 20))[: 1 << 19])
    pair.peer.close()
    wait_until(lambda: pair.sink.closed)
    assert pair.sink.closed == ["closed by the peer in the middle of a frame"]


def test_the_peer_resets(pair: Pair) -> None:
    pair.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair.peer.close()
    wait_until(lambda: pair.sink.closed)
    assert len(pair.sink.closed) == 1
    assert "read failed" in pair.sink.closed[0]


# -- writing -------------------------------------------------------------------------------------


def test_what_a_turn_queues_leaves_together_and_in_order(pair: Pair) -> None:
    pieces = [b"%d," % n for n in range(2000)]

    def queue() -> None:
        for piece in pieces:
            pair.connection.write(piece)

    pair.run(queue)
    expected = b"".join(pieces)
    assert pair.receive(len(expected)) == expected


@pytest.mark.parametrize("how", ["write_many", "send_now"])
@pytest.mark.parametrize("sizes", [[500_000], [10, 300_000, 5, 200_000, 1], [10_000] * 40])
def test_partial_writes_of_large_views(tight: Pair, sizes: list[int], how: str) -> None:
    """A tiny send buffer takes a part of a view at a time; the views are lent, not copied."""
    source = bytearray(n % 251 for n in range(max(sizes)))
    pieces = [memoryview(source)[:size] for size in sizes]
    total = sum(sizes)
    write = getattr(tight.connection, how)
    tight.run(lambda: write(list(pieces), total))
    assert tight.receive(total) == b"".join(pieces)
    wait_until(lambda: tight.run(lambda: tight.connection.pending_bytes) == 0)


@pytest.mark.parametrize("how", ["write_many", "send_now"])
def test_more_pieces_than_one_call_takes(tight: Pair, how: str) -> None:
    pieces: list[Any] = [bytes([n % 256]) * 60 for n in range(3000)]
    write = getattr(tight.connection, how)
    tight.run(lambda: write(pieces, 180_000))
    assert tight.receive(180_000) == b"".join(pieces)


def test_what_is_sent_now_does_not_overtake(tight: Pair) -> None:
    """It waits behind what waits, also behind what a socket that is full did not take of it."""
    parts = [bytes([65 + number]) * 40_000 for number in range(8)]

    def queue() -> None:
        tight.connection.send_now([parts[0]], 40_000)
        tight.connection.write(parts[1])
        for part in parts[2:]:
            tight.connection.send_now([part[:10], part[10:]], 40_000)

    tight.run(queue)
    assert tight.receive(320_000) == b"".join(parts)


def test_what_is_sent_now_is_sent_before_the_turn_is_over(pair: Pair) -> None:
    pair.run(lambda: pair.connection.send_now([b"ab", b"c"], 3))
    assert pair.run(lambda: pair.connection.pending_bytes) == 0
    assert pair.receive(3) == b"abc"


def test_the_socket_is_not_read_while_too_much_waits(tight: Pair) -> None:
    """Back-pressure: the peer sends on and does not read its answers."""
    tight.sink.answer = lambda connection: connection.write(bytes(50_000))
    tight.peer.settimeout(0.1)
    sent, request = 0, frame(bytes(4000))
    try:
        while sent < 5_000:
            tight.peer.sendall(request)
            sent += 1
    except TimeoutError:
        pass
    assert sent < 5_000
    wait_until(lambda: tight.run(lambda: tight.connection.pending_bytes) > 100_000)
    served = len(tight.sink.frames)
    tight.run(lambda: None)
    tight.run(lambda: None)
    assert len(tight.sink.frames) == served
    assert served < sent
    tight.peer.settimeout(DEADLINE_S)
    tight.receive(served * 50_000)
    tight.wait_frames(served + 1)


def test_commands_from_many_threads_arrive_whole(pair: Pair) -> None:
    def sender(number: int) -> None:
        for n in range(50):
            command = RemotingCommand.request(number, {"n": str(n)}, bytes(500))
            pair.connection.send_command(command)

    threads = [threading.Thread(target=sender, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    decoder = FrameDecoder()
    found: list[tuple[int, int]] = []
    while len(found) < 200:
        decoder.feed(pair.peer.recv(1 << 16))
        while (command := decoder.next_command()) is not None:
            found.append((command.code, int(command.ext_fields["n"])))
    for number in range(4):
        assert [n for code, n in found if code == number] == list(range(50))
    for thread in threads:
        thread.join()


def test_a_server_may_stop_while_it_is_out_of_descriptors() -> None:
    """accept fails, the listener rests unregistered, and then the stop comes."""
    loop = SelectorLoop("out-of-descriptors")
    server = RemotingServer(loop, RequestDispatcher({}))
    listening = socket.create_server(("127.0.0.1", 0))
    failed = threading.Event()

    class Failing(socket.socket):
        def accept(self) -> Any:
            failed.set()
            raise OSError(24, "Too many open files")

    failing = Failing(fileno=listening.detach())
    server.add_listener(failing)
    server.start()
    loop.start()
    with socket.create_connection(failing.getsockname(), timeout=DEADLINE_S):
        assert failed.wait(DEADLINE_S)
        stopped = threading.Event()
        loop.call_soon_threadsafe(lambda: (server.stop_accepting(), stopped.set()))  # type: ignore[arg-type, func-returns-value]
        assert stopped.wait(DEADLINE_S)
    loop.stop()
    loop.close()
    failing.close()


# -- phases --------------------------------------------------------------------------------------


def test_close_from_another_thread_tells_the_sink_once(pair: Pair) -> None:
    for _ in range(3):
        pair.connection.close("because")
    wait_until(lambda: pair.sink.closed)
    pair.run(lambda: None)
    assert pair.sink.closed == ["because"]
    assert pair.connection.phase is Phase.CLOSED
    assert pair.peer.recv(1) == b""


def test_a_closed_connection_drops_what_it_is_given(pair: Pair) -> None:
    pair.run(lambda: pair.connection.close("because"))
    pair.connection.send_command(RemotingCommand.request(1))
    pair.connection.send_bytes(b"x")
    pair.run(lambda: pair.connection.write_many([b"y"], 1))
    pair.run(lambda: pair.connection.send_now([b"z"], 1))
    assert pair.run(lambda: pair.connection.pending_bytes) == 0
    assert pair.sock.fileno() == -1


def test_draining_writes_everything_reads_nothing_and_closes(tight: Pair) -> None:
    tight.run(lambda: tight.connection.write(bytes(300_000)))
    tight.run(lambda: tight.connection.drain_and_close("shutdown"))
    assert tight.connection.phase is Phase.DRAINING
    assert not tight.connection.is_open
    tight.peer.sendall(frame(b"not read any more"))
    assert len(tight.receive(300_000)) == 300_000
    wait_until(lambda: tight.sink.closed)
    assert (tight.sink.closed, tight.sink.frames) == (["drained"], [])


def test_draining_with_nothing_to_write_closes_at_once(pair: Pair) -> None:
    pair.run(lambda: pair.connection.drain_and_close("shutdown"))
    pair.run(lambda: pair.connection.drain_and_close("again"))
    assert pair.sink.closed == ["shutdown"]


def test_a_sink_may_close_in_the_middle_of_its_frames(pair: Pair) -> None:
    pair.sink.answer = lambda connection: connection.close("enough")
    pair.peer.sendall(frame(b"one") + frame(b"two"))
    wait_until(lambda: pair.sink.closed)
    assert (pair.sink.frames, pair.sink.closed) == ([b"one"], ["enough"])


def test_a_write_to_a_peer_that_is_gone_closes(tight: Pair) -> None:
    tight.run(lambda: tight.connection.write(bytes(4 << 20)))
    tight.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    tight.peer.close()
    wait_until(lambda: tight.sink.closed)
    assert len(tight.sink.closed) == 1


def test_identity(pair: Pair) -> None:
    host, port = pair.peer.getsockname()
    connection = pair.connection
    assert (connection.host, connection.port) == (host, port)
    assert connection.remote_address == f"{host}:{port}"
    assert connection.local_port == pair.peer.getpeername()[1]
    assert connection.is_from_this_machine


def test_a_peer_of_another_address_is_not_this_machine() -> None:
    pair = Pair(peer_host="127.0.0.2")
    try:
        assert pair.connection.host == "127.0.0.2"
        assert not pair.connection.is_from_this_machine
    finally:
        pair.close()


# -- answers that nobody reads -------------------------------------------------------------------


def test_frames_wait_while_too_much_waits_to_be_written(low: Pair) -> None:
    """400 requests arrive at once, each worth 500,000 bytes of answers: a few are answered, and the
    rest is once the peer reads, although it sends nothing more."""
    low.sink.answer = lambda connection: connection.write(bytes(500_000))
    requests = [b"%03d" % n for n in range(400)]
    low.peer.sendall(b"".join(map(frame, requests)))
    wait_until(lambda: low.sink.frames)
    assert low.run(lambda: low.connection.pending_bytes) <= 600_000
    assert len(low.sink.frames) < 400
    assert len(low.receive(400 * 500_000)) == 400 * 500_000
    assert low.sink.frames == requests


def test_kept_frames_that_fill_the_receive_buffer(low: Pair) -> None:
    """A full buffer of frames waits: the next read must not find no room, and call that the end."""
    low.sink.answer = lambda connection: connection.write(bytes(200_000))
    count = SHARED_BUFFER_SIZE // 1008 * 2
    sender = threading.Thread(target=lambda: low.peer.sendall(frame(bytes(1000)) * count))
    sender.start()
    total = count * 200_000
    while total:
        total -= len(low.peer.recv(min(total, 1 << 20)))
    sender.join()
    assert len(low.sink.frames) == count
    assert low.sink.closed == []
    assert held(low) == 0


def test_who_lets_answers_pile_up_is_closed(tight: Pair) -> None:
    """Answers that come later than their requests, as those of thread pools do."""
    for _ in range(8):
        tight.run(lambda: tight.connection.write(bytes(8 << 20)))
    assert tight.connection.is_open
    tight.run(lambda: tight.connection.write(bytes(8 << 20)))
    wait_until(lambda: tight.sink.closed)
    assert tight.sink.closed[0].startswith("it does not read: ")
