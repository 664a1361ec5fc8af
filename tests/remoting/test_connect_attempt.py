"""ConnectAttempt on a loop of its own: one outcome, whatever happens."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from remoting.connect_attempt import ConnectAttempt, SocketTarget, resolve
from remoting.errors import RemotingConnectError
from remoting.selector_loop import SelectorLoop
from tools.chaos.free_ports import free_port


class Attempt:
    """A ConnectAttempt whose outcome is kept; `told` ends the loop."""

    def __init__(self, targets: list[SocketTarget], timeout_ms: int = 3000) -> None:
        self.loop = SelectorLoop("test-connect")
        self.outcome: list[socket.socket | RemotingConnectError] = []
        self.attempt = ConnectAttempt(
            self.loop,
            "name:1",
            targets,
            timeout_ms,
            on_connected=self.told,
            on_failed=self.told,
        )

    def told(self, outcome: socket.socket | RemotingConnectError) -> None:
        self.outcome.append(outcome)
        self.loop.stop()

    def run(self) -> socket.socket | RemotingConnectError:
        self.loop.call_later(5000, self.loop.stop)
        self.loop.call_soon_threadsafe(self.attempt.start)
        self.loop.run()
        self.loop.close()
        assert len(self.outcome) == 1
        return self.outcome[0]


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def target_of(sock: socket.socket) -> list[SocketTarget]:
    return resolve(f"127.0.0.1:{sock.getsockname()[1]}")


def closed_target() -> list[SocketTarget]:
    return resolve(f"127.0.0.1:{free_port()}")


def test_connects(listening: socket.socket) -> None:
    outcome = Attempt(target_of(listening)).run()
    assert isinstance(outcome, socket.socket)
    assert outcome.getpeername() == listening.getsockname()
    assert outcome.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert not outcome.getblocking()
    outcome.close()


def test_next_target_when_the_first_refuses(listening: socket.socket) -> None:
    outcome = Attempt(closed_target() + closed_target() + target_of(listening)).run()
    assert isinstance(outcome, socket.socket)
    outcome.close()


def test_all_targets_refuse() -> None:
    outcome = Attempt(closed_target() + closed_target()).run()
    assert isinstance(outcome, RemotingConnectError)
    assert str(outcome) == "name:1: connect failed: Connection refused"
    assert outcome.address == "name:1"


def test_no_target() -> None:
    assert isinstance(Attempt([]).run(), RemotingConnectError)


def test_target_of_an_unknown_family() -> None:
    outcome = Attempt([(9999, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))]).run()
    assert "not supported" in str(outcome)


def test_cancel_tells_once(listening: socket.socket) -> None:
    attempt = Attempt(target_of(listening))
    attempt.loop.call_soon_threadsafe(attempt.attempt.start)
    attempt.loop.call_soon_threadsafe(attempt.attempt.cancel)
    attempt.loop.run()
    attempt.attempt.cancel()
    attempt.loop.close()
    assert [type(outcome) for outcome in attempt.outcome] == [RemotingConnectError]
    assert "canceled" in str(attempt.outcome[0]).lower()


def test_resolve() -> None:
    assert resolve("127.0.0.1:10911")[0][4] == ("127.0.0.1", 10911)
    assert resolve("[::1]:10911")[0][4][:2] == ("::1", 10911)
    wrong = ("", "host", ":1", "host:", "host:x", "host:65536", "host:-1", "host:" + "9" * 5_000)
    for address in wrong:
        with pytest.raises(RemotingConnectError, match="not an address"):
            resolve(address)
