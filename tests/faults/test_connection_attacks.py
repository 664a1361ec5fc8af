"""Many connections, and connections that send slowly: the broker closes those that never finish a
frame, its memory stays small, and a good client is served meanwhile."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from remoting.frame import pack_head
from tests.bench.measuring import MemoryWatch
from tests.faults.test_attacks import MOST_BYTES, TOPIC, GoodClient
from tests.namesrv.test_namesrv_main import Start, start
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.own_process import boot_port
from tests.support.program import own_interpreters

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.fault(41)]

__all__ = ["start"]
HALF_A_FRAME: Final = pack_head(0, 900_000, 0) + b'{"code":310,'
"""Of a header that no trickle here completes."""
IDLE_S: Final = 2


@pytest.fixture
def more_descriptors() -> Iterator[None]:
    """As many as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_closed(sock: socket.socket) -> bool:
    """Whether the broker has ended it; a non-blocking look."""
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_slow_loris(tmp_path: Path, start: Start, proved: Callable[[str], None]) -> None:
    """Each sends a header byte by byte, in time never to be idle, and never ends it."""
    broker = OurBroker(tmp_path / "broker", serverChannelMaxIdleTimeSeconds=IDLE_S)
    name_server = start(serverChannelMaxIdleTimeSeconds=str(IDLE_S))
    with broker.start(), contextlib.ExitStack() as stack:
        ports = {name: broker.ports[name] for name in ("main", "vip")}
        ports["name server"] = boot_port(name_server, "Name")
        left = {name: set(half_sent(stack, port, 100)) for name, port in ports.items()}
        began = time.monotonic()

        def all_closed() -> bool:
            for socks in left.values():
                for sock in list(socks):
                    with contextlib.suppress(OSError):
                        sock.send(b" ")
                    if is_closed(sock):
                        socks.discard(sock)
            return not any(left.values())

        with GoodClient(broker) as good:
            wait_until(all_closed, 60)
            took_s = time.monotonic() - began
            wait_until(lambda: len(good.latencies_ms) >= 20, 30)
        assert good.failures == []
        proved(
            f"slow loris: 100 connections at each of {', '.join(ports)} closed in {took_s:.1f} s"
        )


def half_sent(stack: contextlib.ExitStack, port: int, count: int) -> Iterator[socket.socket]:
    """Non-blocking connections that have sent a part of a header."""
    for _ in range(count):
        sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        sock.sendall(HALF_A_FRAME)
        sock.setblocking(False)
        yield sock


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_many_connections(
    tmp_path: Path, more_descriptors: None, count: int, proved: Callable[[str], None]
) -> None:
    """Half of them silent, half with a part of a frame."""
    with own_interpreters():
        started = OurBroker(tmp_path).start()
    with started as broker, contextlib.ExitStack() as stack:
        with broker.client() as client:
            assert client.send(TOPIC, 1, b"first").code == 0
        with GoodClient(broker) as alone:
            wait_until(lambda: len(alone.latencies_ms) >= 200, 60)
        with MemoryWatch(broker.pid) as before:
            pass
        for number in range(count):
            # From several addresses of this machine: one has 28,000 ports.
            source = (f"127.0.0.{2 + number % 8}", 0)
            address = ("127.0.0.1", broker.ports["main"])
            sock = socket.create_connection(address, 30, source_address=source)
            stack.enter_context(sock)
            if number % 2:
                sock.sendall(HALF_A_FRAME)
        with MemoryWatch(broker.pid) as memory, GoodClient(broker) as during:
            wait_until(lambda: len(during.latencies_ms) >= 200 or bool(during.failures), 60)
        assert during.failures == []
        assert memory.highest <= MOST_BYTES
        for_each = (memory.highest - before.highest) / count
        assert for_each < 20_000
        proved(
            f"{count} connections: {for_each / 1000:.1f} kB each, a client's p50 "
            f"{during.at(50) / alone.at(50):.1f} and p99 {during.at(99) / alone.at(99):.1f} times"
        )
