"""The account of incomplete frames: who is closed when they are too many, over real connections."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator

import pytest

from remoting.frame import pack_head
from remoting.receive_buffer import ReceiveBuffer
from remoting.remoting_server import FastRoutes, RemotingServer, ServerLimits
from remoting.request_dispatcher import RequestDispatcher
from remoting.selector_loop import SelectorLoop
from tests.support.deadline import wait_until

LIMIT = 1 << 20


class Holder:
    """Releases when it is closed, as a connection does."""

    def __init__(self, account: ReceiveBuffer, name: str) -> None:
        self.remote_address = name
        self.account = account
        self.closed = ""

    def close(self, reason: str) -> None:
        self.closed = reason
        self.account.release(self)


@pytest.mark.interpreted
def test_the_oldest_frame_goes_first() -> None:
    account = ReceiveBuffer(16, limit=100)
    one, two, three = (Holder(account, name) for name in ("one", "two", "three"))
    account.hold(one, 40, 0)
    account.hold(two, 40, 0)
    account.hold(one, 45, 0)
    assert account.total == 85
    account.hold(three, 30, 0)
    assert (bool(one.closed), two.closed, three.closed) == (True, "", "")
    assert account.total == 70
    account.release(two)
    account.release(two)
    assert account.total == 30
    assert account.closed == 1


@pytest.mark.interpreted
def test_one_alone_can_be_too_much() -> None:
    account = ReceiveBuffer(16, limit=100)
    one = Holder(account, "one")
    account.hold(one, 101, 0)
    assert one.closed
    assert account.total == 0


@pytest.mark.interpreted
def test_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    account = ReceiveBuffer(16, limit=100)
    for now_ms in (0, 10, 59_999, 60_000):
        account.hold(Holder(account, f"peer-{now_ms}"), 101, now_ms)
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(lines) == 2
    assert "peer-0 first (1 closed" in lines[0]
    assert "(4 closed" in lines[1]


class Echo:
    """A server that counts its frames, and its port."""

    def __init__(self) -> None:
        self.loop = SelectorLoop("receive-buffer-test")
        self.frames = 0
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = listening.getsockname()
        self.server = RemotingServer(
            self.loop,
            RequestDispatcher({}),
            fast_routes=FastRoutes(json=((b"", self._take),)),
            limits=ServerLimits(idle_timeout_ms=1_000, incomplete_frames=LIMIT),
        )
        self.server.add_listener(listening)
        self.listening = listening
        self.server.start()
        self.loop.start()

    def _take(self, *_arguments: object) -> bool:
        self.frames += 1
        return True

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=30)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.server.shutdown)
        self.loop.stop()
        self.loop.close()
        self.listening.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


def test_a_working_peer_is_served_beside_many_that_never_finish(echo: Echo) -> None:
    """100 peers send 100 KiB of a frame of 16 MiB: together ten times the limit."""
    begun = [echo.connect() for _ in range(100)]
    good = echo.connect()
    body = bytes(300_000)
    for number, peer in enumerate(begun):
        peer.sendall(struct.pack(">i", 1 << 23) + bytes(100_000))
        good.sendall(pack_head(0, 0, len(body)) + body)
        wait_until(lambda expected=number + 1: echo.frames == expected)
        assert echo.server._receive.total <= LIMIT
    wait_until(lambda: echo.server._receive.closed >= 80)
    closed = 0
    for peer in begun:
        peer.settimeout(0.0)
        try:
            closed += peer.recv(1) == b""
        except ConnectionResetError:
            closed += 1
        except BlockingIOError:
            pass
        peer.close()
    assert closed >= 80
    good.close()


def test_a_frame_that_trickles_is_ended(echo: Echo) -> None:
    """A byte now and then keeps a connection from being idle, not its frame from being too old."""
    slow = echo.connect()
    slow.settimeout(0.2)
    stream = pack_head(0, 0, 1000)
    for at in range(100):
        slow.sendall(stream[at % 8 : at % 8 + 1] if at < 8 else b"x")
        try:
            assert slow.recv(1) == b""
        except TimeoutError:
            continue
        except ConnectionResetError:
            pass
        break
    else:
        pytest.fail("nobody closed it")
    slow.close()
