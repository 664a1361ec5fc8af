"""RemotingServer and Connection over real sockets on loopback."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from remoting.connection import Connection
from remoting.errors import RemotingSendRequestError, RequestError
from remoting.frame import HEADER_LIMIT
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.remoting_server import FastRoutes, RemotingServer, Run, ServerLimits
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_executor import RequestExecutor
from remoting.request_processor import ConnectionLike, Route
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseFuture, ResponseTable
from remoting.rocketmq_serializable import code_bytes
from remoting.selector_loop import SelectorLoop
from tests.support.deadline import wait_until
from tests.support.frame_decoder import FrameDecoder

ECHO, FAIL, REFUSE, POOL, BLOCK, SILENT = 1, 2, 3, 4, 5, 6


class Processor:
    """Answers by code; `gate` holds the pool back."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.seen: list[int] = []

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        self.seen.append(request.code)
        if request.code == FAIL:
            raise ValueError("broken on purpose")
        if request.code == REFUSE:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        if request.code == BLOCK:
            assert self.gate.wait(10)
        if request.code == SILENT:
            return None
        return request.response(0, None, request.ext_fields, request.body)


@pytest.mark.interpreted
def test_requests_that_wait_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool whose thread is stuck; those that wait are refused, in their order, and never run."""
    now = [1_000]
    monkeypatch.setattr("remoting.request_executor._now_ms", lambda: now[0])
    pool = RequestExecutor("pool", 1, 4, wait_limit_ms=200)
    gate, began = threading.Event(), threading.Event()
    ran: list[int] = []
    told: list[tuple[int, str]] = []

    def stuck() -> None:
        began.set()
        assert gate.wait(10)

    assert pool.try_submit(stuck, lambda _: None)
    assert began.wait(10)
    assert not pool.has_waiting
    for number in range(3):
        now[0] += 50
        submitted = pool.try_submit(
            lambda number=number: ran.append(number),  # type: ignore[misc]
            lambda remark, number=number: told.append((number, remark)),  # type: ignore[misc]
        )
        assert submitted
    assert not pool.try_submit(stuck, lambda _: None)
    pool.refuse_late()
    assert told == []
    now[0] = 1_300
    pool.refuse_late()
    words = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
    assert told == [
        (0, words + "period in queue: 250ms, size of queue: 2"),
        (1, words + "period in queue: 200ms, size of queue: 1"),
    ]
    assert (pool.pending, pool.has_waiting) == (2, True)
    gate.set()
    pool.shutdown()
    assert (ran, pool.pending) == ([2], 0)


class Listener:
    def __init__(self) -> None:
        self.opened: list[ConnectionLike] = []
        self.closed: list[str] = []
        self.changed = threading.Condition()

    def on_open(self, connection: ConnectionLike) -> None:
        self.opened.append(connection)

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        with self.changed:
            self.closed.append(reason)
            self.changed.notify_all()

    def wait_closed(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.closed) >= count, 5)


class Peer:
    """A blocking client that speaks in frames."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = socket.create_connection(address, timeout=5)
        self.decoder = FrameDecoder()

    def send(self, command: RemotingCommand) -> None:
        self.sock.sendall(encode_command(command))

    def receive(self) -> RemotingCommand:
        while True:
            command = self.decoder.next_command()
            if command is not None:
                return command
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError
            self.decoder.feed(data)

    def call(self, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        self.send(RemotingCommand.request(code, fields, body))
        return self.receive()


class Bench:
    """A server with one port, its processor and its listener."""

    def __init__(
        self, idle_timeout_ms: int = 120_000, responses: ResponseTable | None = None
    ) -> None:
        self.processor = Processor()
        self.listener = Listener()
        self.fast: list[bytes] = []
        self.runs: list[list[bytes]] = []
        pool = RequestExecutor("pool", 1, 1)
        routes = {code: Route(self.processor) for code in (ECHO, FAIL, REFUSE, SILENT)}
        routes[POOL] = routes[BLOCK] = Route(self.processor, "pool")
        self.loop = SelectorLoop("test-loop")
        self.server = RemotingServer(
            self.loop,
            RequestDispatcher(routes, {"pool": pool}),
            fast_routes=FastRoutes(
                json=((b'{"code":99,', self.take_fast), (b'{"code":98,', self.take_fast)),
                runs=(
                    Run(SerializeType.JSON, b'{"code":98,', self.take_run),
                    Run(SerializeType.ROCKETMQ, code_bytes(98), self.take_run),
                ),
            ),
            limits=ServerLimits(idle_timeout_ms=idle_timeout_ms),
            listener=self.listener,
            responses=responses,
        )
        listening = socket.create_server(("127.0.0.1", 0))
        self.vip = socket.create_server(("127.0.0.1", 0))
        self.listening = listening
        self.address: tuple[str, int] = listening.getsockname()
        self.server.add_listener(listening)
        self.server.add_listener(self.vip, {ECHO: Route(self.processor)})
        self.server.start()
        self.loop.start()

    def take_fast(self, connection: Connection, header: memoryview, body: memoryview) -> bool:
        self.fast.append(bytes(body))
        _raise_for(bytes(body))
        return not bytes(body).startswith(b"slow")

    def take_run(
        self, connection: Connection, headers: Sequence[bytes], bodies: Sequence[bytes]
    ) -> int:
        """Those before a slow one."""
        assert all(header.startswith((b'{"code":98,', code_bytes(98))) for header in headers)
        self.runs.append(list(bodies))
        for body in bodies:
            _raise_for(body)
        return next((at for at, b in enumerate(bodies) if b.startswith(b"slow")), len(bodies))

    def close(self) -> None:
        self.processor.gate.set()
        self.loop.call_soon_threadsafe(self.server.shutdown)
        self.loop.stop()
        self.loop.close()
        self.listening.close()
        self.vip.close()


def _raise_for(body: bytes) -> None:
    if body == b"broken":
        raise ValueError("broken on purpose")
    if body == b"refused":
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, "no such topic")


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def test_answers_with_the_opaque_and_the_serialize_type_of_the_request(bench: Bench) -> None:
    peer = Peer(bench.address)
    for serialize in SerializeType:
        request = RemotingCommand.request(ECHO, {"k": "v"}, b"body")
        request.serialize_type = serialize
        peer.send(request)
        answer = peer.receive()
        assert answer.is_response
        assert answer.opaque == request.opaque
        assert answer.serialize_type is serialize
        assert (answer.ext_fields, answer.body) == ({"k": "v"}, b"body")


def test_one_byte_at_a_time_and_a_thousand_frames_in_one_write(bench: Bench) -> None:
    peer = Peer(bench.address)
    for byte in encode_command(RemotingCommand.request(ECHO, {}, b"slow peer")):
        peer.sock.sendall(bytes((byte,)))
    assert peer.receive().body == b"slow peer"
    requests = [RemotingCommand.request(ECHO, {}, b"%d" % n) for n in range(1000)]
    peer.sock.sendall(b"".join(map(encode_command, requests)))
    answers = [peer.receive() for _ in requests]
    assert [a.opaque for a in answers] == [r.opaque for r in requests]
    assert [a.body for a in answers] == [r.body for r in requests]


@pytest.mark.parametrize("size", [262_000, 262_144, 524_288, 4 << 20, (16 << 20) - 200])
def test_large_frames_go_both_ways(bench: Bench, size: int) -> None:
    peer = Peer(bench.address)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert peer.call(ECHO, body).body == body
    assert peer.call(ECHO, b"small after large").body == b"small after large"


def test_errors_are_answered_and_the_connection_stays(bench: Bench) -> None:
    peer = Peer(bench.address)
    answer = peer.call(FAIL)
    assert (answer.code, answer.remark) == (1, "ValueError: broken on purpose")
    answer = peer.call(REFUSE)
    assert (answer.code, answer.remark) == (17, "no such topic")
    answer = peer.call(12345)
    assert (answer.code, answer.remark) == (3, " request type 12345 not supported")
    assert peer.call(ECHO).code == 0


def test_oneway_requests_are_never_answered(bench: Bench) -> None:
    peer = Peer(bench.address)
    for code in (ECHO, FAIL, REFUSE, 12345):
        peer.send(RemotingCommand.request(code, oneway=True))
    request = RemotingCommand.request(ECHO)
    peer.send(request)
    assert peer.receive().opaque == request.opaque
    assert bench.processor.seen == [ECHO, FAIL, REFUSE, ECHO]


def test_a_full_pool_answers_busy(bench: Bench) -> None:
    peer = Peer(bench.address)
    blocked = RemotingCommand.request(BLOCK)
    peer.send(blocked)
    answer = peer.call(POOL)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark is not None
    assert answer.remark.startswith("[OVERLOAD]")
    bench.processor.gate.set()
    assert peer.receive().opaque == blocked.opaque


def test_a_slow_request_does_not_hold_up_the_others(bench: Bench) -> None:
    peer = Peer(bench.address)
    blocked = RemotingCommand.request(BLOCK)
    peer.send(blocked)
    assert peer.call(ECHO).code == 0
    bench.processor.gate.set()
    assert peer.receive().opaque == blocked.opaque


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("length 0", struct.pack(">iI", 0, 0)),
        ("length negative", struct.pack(">iI", -1, 0)),
        ("length 3", struct.pack(">iI", 3, 0)),
        ("16 MiB + 1", struct.pack(">iI", (16 << 20) + 1, 10)),
        ("header longer than the frame", struct.pack(">iI", 20, 17) + bytes(16)),
        ("unknown serialize type", struct.pack(">iI", 8, 9 << 24 | 4) + b"abcd"),
        ("no JSON", struct.pack(">iI", 8, 4) + b"abcd"),
    ],
)
def test_what_is_no_frame_closes_the_connection_only(bench: Bench, name: str, head: bytes) -> None:
    other = Peer(bench.address)
    assert other.call(ECHO).code == 0
    peer = Peer(bench.address)
    peer.sock.sendall(head)
    assert peer.sock.recv(10) == b""
    bench.listener.wait_closed(1)
    assert "bad frame" in bench.listener.closed[0]
    assert other.call(ECHO).code == 0


def test_half_a_frame_then_silence_is_closed_as_idle() -> None:
    bench = Bench(idle_timeout_ms=50)
    try:
        bench.loop.call_soon_threadsafe(
            lambda: bench.loop.call_later(100, bench.server._close_idle)
        )
        peer = Peer(bench.address)
        peer.sock.sendall(b"\0\0\1")
        bench.listener.wait_closed(1)
        assert bench.listener.closed == ["idle for 50 ms"]
    finally:
        bench.close()


@pytest.mark.interpreted
def test_idle_connections_are_looked_for_some_in_a_turn() -> None:
    """Thousands of connections at once would be a pause for everybody else."""
    calls: deque[Any] = deque()
    loop: Any = SimpleNamespace(now_ms=1_000_000, call_soon_threadsafe=calls.append)
    server = RemotingServer(loop, RequestDispatcher({}), limits=ServerLimits(idle_timeout_ms=1_000))
    closed: list[int] = []

    def connection(number: int) -> Any:
        read_ms = 0 if number % 2 else 999_500
        return SimpleNamespace(
            last_read_ms=read_ms,
            last_write_ms=0,
            is_incomplete_since=lambda _limit_ms: False,
            close=lambda _reason: closed.append(number),
        )

    server._connections = {number: connection(number) for number in range(1_000)}
    server._close_idle()
    turns = [len(closed)]
    while calls:
        calls.popleft()()
        turns.append(len(closed) - sum(turns))
    assert turns == [128, 128, 128, 116]
    assert sorted(closed) == list(range(1, 1_000, 2))


def test_fast_routes_take_their_frames_and_leave_the_others(bench: Bench) -> None:
    peer = Peer(bench.address)
    peer.send(RemotingCommand.request(99, {}, b"quick"))
    answer = peer.call(99, b"slow")
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert bench.fast == [b"quick", b"slow"]


@pytest.mark.parametrize("code", [99, 98])
@pytest.mark.parametrize(
    ("body", "expected", "remark"),
    [
        (b"broken", ResponseCode.SYSTEM_ERROR, "ValueError: broken on purpose"),
        (b"refused", ResponseCode.TOPIC_NOT_EXIST, "no such topic"),
    ],
)
def test_what_a_fast_route_raises_is_answered_and_ends_nothing(
    bench: Bench, code: int, body: bytes, expected: ResponseCode, remark: str
) -> None:
    peer = Peer(bench.address)
    answer = peer.call(code, body)
    assert (answer.code, answer.remark) == (expected, remark)
    peer.send(RemotingCommand.request(code, {}, body, oneway=True))
    assert peer.call(ECHO, b"still here").body == b"still here"


def test_a_run_of_frames_is_taken_at_once_and_what_is_left_of_it_goes_on(bench: Bench) -> None:
    peer = Peer(bench.address)
    requests = [
        RemotingCommand.request(code, {}, body)
        for code, body in [(98, b"1"), (98, b"2"), (98, b"slow"), (98, b"3"), (ECHO, b"4")]
    ]
    peer.sock.sendall(b"".join(map(encode_command, requests)))
    assert peer.receive().code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert peer.receive().body == b"4"
    assert bench.runs == [[b"1", b"2", b"slow", b"3"]]
    assert bench.fast == [b"slow", b"3"]
    peer.send(RemotingCommand.request(98, {}, b"5"))
    assert peer.call(ECHO).code == 0
    assert bench.runs[1:] == [[b"5"]]


def test_what_a_run_of_binary_frames_raises_is_answered_in_their_form(bench: Bench) -> None:
    peer = Peer(bench.address)
    for kind in SerializeType:
        request = RemotingCommand.request(98, {}, b"broken")
        request.serialize_type = kind
        peer.send(request)
        answer = peer.receive()
        assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, request.opaque)
        assert (answer.serialize_type, answer.remark) == (kind, "ValueError: broken on purpose")


def test_a_port_may_have_a_table_of_its_own(bench: Bench) -> None:
    peer = Peer(bench.vip.getsockname())
    assert peer.call(ECHO).code == 0
    assert peer.call(REFUSE).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert peer.call(99, b"not fast here").code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert bench.fast == []


def test_a_peer_that_never_reads_stops_being_read(bench: Bench) -> None:
    peer = Peer(bench.address)
    body = bytes(1 << 20)
    frame = encode_command(RemotingCommand.request(ECHO, {}, body))
    peer.sock.settimeout(1)
    with pytest.raises(TimeoutError):
        peer.sock.sendall(frame * 200)
    (connection,) = bench.server.connections
    assert connection.pending_bytes < 8 << 20
    assert Peer(bench.address).call(ECHO).code == 0


class _Flood:
    """Sleep hooks: as process `store` moves, held requests of a connection are answered before its
    socket is looked at."""

    def __init__(self, size: int) -> None:
        self.connection: Connection | None = None
        self._size = size

    def before_sleep(self) -> float | None:
        return None

    def after_sleep(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            answer = RemotingCommand.request(ECHO, {}, bytes(self._size)).response(0, None, {})
            answer.body = bytes(self._size)
            connection.write(encode_command(answer))

    def waits_for_peer(self) -> bool:
        return False

    def peer_has_answered(self) -> bool:
        return False


@pytest.mark.parametrize("size", [1 << 16, 1 << 18, 3 << 20])
@pytest.mark.parametrize("code", [98, ECHO])
def test_a_large_frame_that_becomes_whole_while_much_waits_is_not_lost(
    bench: Bench, size: int, code: int
) -> None:
    """It was dropped where the run handler takes none; a following frame goes after it."""
    flood = _Flood(5 << 20)
    bench.loop.set_sleep_hooks(flood)
    peer = Peer(bench.address)
    assert peer.call(ECHO).code == 0
    (connection,) = bench.server.connections
    frame = encode_command(RemotingCommand.request(code, {}, b"slow".ljust(size)))
    peer.sock.sendall(frame[:-10])
    wait_until(lambda: connection._have == len(frame) - 10)
    flood.connection = connection
    following = encode_command(RemotingCommand.request(ECHO, {}, b"after it"))
    peer.sock.sendall(frame[-10:])
    answers = [peer.receive()]
    peer.sock.sendall(following)
    answers += [peer.receive(), peer.receive()]
    assert len(answers[0].body) == 5 << 20
    unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert [answer.code for answer in answers[1:]] == [unknown if code == 98 else 0, 0]
    assert answers[2].body == b"after it"


def test_a_close_by_the_peer_is_told_once(bench: Bench) -> None:
    peer = Peer(bench.address)
    assert peer.call(ECHO).code == 0
    peer.sock.close()
    bench.listener.wait_closed(1)
    assert bench.listener.closed == ["closed by the peer"]
    assert bench.server.connections == []


def test_an_answer_nobody_waits_for_is_dropped(bench: Bench) -> None:
    peer = Peer(bench.address)
    peer.send(RemotingCommand.request(ECHO).response(0))
    assert peer.call(ECHO).code == 0


def test_a_call_to_a_client_ends_with_its_connection() -> None:
    outcomes: list[Exception | None] = []
    responses = ResponseTable()
    bench = Bench(responses=responses)
    try:
        peer = Peer(bench.address)
        assert peer.call(ECHO).code == 0
        (connection,) = bench.listener.opened
        responses.add(
            ResponseFuture(7, connection.remote_address, 0, lambda _, error: outcomes.append(error))
        )
        responses.add(ResponseFuture(8, "elsewhere:1", 0, lambda _, error: outcomes.append(error)))
        peer.sock.close()
        bench.listener.wait_closed(1)
    finally:
        bench.close()
    (error,) = outcomes
    assert isinstance(error, RemotingSendRequestError)
    assert str(error) == f"{connection.remote_address}: closed by the peer"
    assert len(responses) == 1


def test_a_client_answers_what_it_is_asked(bench: Bench) -> None:
    peer = Peer(bench.address)
    assert peer.call(ECHO).code == 0
    (connection,) = bench.listener.opened
    asked = RemotingCommand.request(307)
    answers: Queue[RemotingCommand | None] = Queue()
    bench.server.responses.add(
        ResponseFuture(
            asked.opaque, connection.remote_address, 0, lambda answer, _: answers.put(answer)
        )
    )
    other = Peer(bench.address)
    other.send(asked.response(0, "not me"))
    assert other.call(ECHO).code == 0, "what came before it was handled"
    connection.send_command(asked)
    peer.send(peer.receive().response(0, "running"))
    answer = answers.get(timeout=5)
    assert answer is not None
    assert answer.remark == "running"


def test_an_accept_that_fails_is_counted_and_tried_again() -> None:
    """No descriptor is left: the callback counts, and later the connection is served."""

    class Listening:
        fails = 2

        def __init__(self) -> None:
            self.sock = socket.create_server(("127.0.0.1", 0))

        def setblocking(self, flag: bool) -> None:
            self.sock.setblocking(flag)

        def fileno(self) -> int:
            return self.sock.fileno()

        def accept(self) -> tuple[socket.socket, object]:
            if self.fails:
                self.fails -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self.sock.accept()

    loop, listening, failed = SelectorLoop("test"), Listening(), threading.Semaphore(0)
    server = RemotingServer(
        loop,
        RequestDispatcher({ECHO: Route(Processor(), None)}),
        on_accept_failed=lambda: failed.release(),
    )
    server.add_listener(listening)  # type: ignore[arg-type]
    server.start()
    loop.start()
    try:
        with socket.create_connection(listening.sock.getsockname(), timeout=10) as peer:
            peer.sendall(encode_command(RemotingCommand.request(ECHO)))
            assert peer.recv(4)
        assert failed.acquire(blocking=False)
        assert failed.acquire(blocking=False)
        assert not failed.acquire(blocking=False)
    finally:
        loop.stop()
        server.shutdown()
        loop.close()
        listening.sock.close()


@pytest.mark.parametrize("code", [1, 98, 99])
@pytest.mark.parametrize("size", [HEADER_LIMIT, HEADER_LIMIT + 1])
def test_fast_routes_take_no_longer_headers_than_others(bench: Bench, code: int, size: int) -> None:
    """98 is of a run, 99 of a fast route, 1 of the general path."""
    header = b'{"code":%d,"opaque":5,"remark":"%%b"}' % code
    header = header % (b"x" * (size - len(header) + 2))
    assert len(header) == size
    with socket.create_connection(bench.address, timeout=10) as peer:
        try:
            for each in (header, b'{"code":1,"opaque":6}'):  # only the general path answers here
                peer.sendall(struct.pack(">ii", 4 + len(each), len(each)) + each)
            answered = peer.recv(1 << 16) != b""
        except ConnectionError:  # closed while it sends
            answered = False
    assert answered == (size <= HEADER_LIMIT)
    assert (bench.fast, bench.runs) == (
        [b""] if code == 99 and answered else [],
        [[b""]] if code == 98 and answered else [],
    )


def test_a_header_that_is_too_long_is_refused_before_it_has_arrived() -> None:
    """14 MiB of fields: the first bytes say so, and the others are not waited for."""
    loop = SelectorLoop("test")
    server = RemotingServer(loop, RequestDispatcher({}))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.add_listener(listening)
        server.start()
        loop.start()
        try:
            with socket.create_connection(listening.getsockname(), timeout=10) as peer:
                peer.sendall(struct.pack(">ii", 14 << 20, (14 << 20) - 4) + b"{" * 100)
                assert peer.recv(1) == b""
        finally:
            loop.stop()
            server.shutdown()
            loop.close()
