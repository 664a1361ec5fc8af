"""The network of a group: links between processes that are cut, one by one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tools.chaos.free_ports import free_port
from tools.chaos.network import Network, NetworkError, both_ways

SILENT_S = 0.3
ANSWERS_S = 10.0


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.close()


class Echo:
    """The node that is asked: says everything again."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _address = self._listening.accept()
                threading.Thread(target=self._say, args=(sock,), daemon=True).start()

    def _say(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            while data := sock.recv(1024):
                self.heard += data
                sock.sendall(data)

    def close(self) -> None:
        self._listening.close()


ASKER = """
import socket, sys, threading
def read():
    for line in sock.makefile("rb"):
        print(line.decode(), end="", flush=True)
sys.stdin.readline()
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
threading.Thread(target=read, daemon=True).start()
for line in sys.stdin:
    sock.sendall(line.encode())
"""
"""Connects once it is told anything: its owner is known by then."""


class Node:
    """A process with a connection through the network: a line that it is told goes there and comes
    back."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-c", ASKER, str(port)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._lines: list[bytes] = []
        self._came = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._came:
                self._lines.append(line)
                self._came.notify_all()

    def say(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + b"\n")
        self.process.stdin.flush()

    def hears(self, text: bytes, timeout_s: float) -> bool:
        with self._came:
            return self._came.wait_for(lambda: text + b"\n" in self._lines, timeout_s)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def nodes(network: Network, echo: Echo) -> Iterator[tuple[Node, Node]]:
    port = free_port()
    network.lead(("127.0.0.1", port), ("127.0.0.1", echo.port), "echo")
    first, second = Node(port), Node(port)
    network.know({first.process.pid: "first", second.process.pid: "second"})
    for node in (first, second):
        node.say(b"connect")
        node.say(b"hello")
        assert node.hears(b"hello", ANSWERS_S)
    yield first, second
    first.end()
    second.end()


@pytest.mark.parametrize("link", [("first", "echo"), ("echo", "first")])
def test_one_direction_of_one_link(
    network: Network, echo: Echo, nodes: tuple[Node, Node], link: tuple[str, str]
) -> None:
    first, second = nodes
    network.cut([link])
    first.say(b"held")
    second.say(b"passes")
    assert second.hears(b"passes", ANSWERS_S)
    assert not first.hears(b"held", SILENT_S)
    assert (b"held" in echo.heard) == (link == ("echo", "first"))
    network.heal()
    assert first.hears(b"held", ANSWERS_S)


def test_a_connection_made_during_a_cut_waits_for_its_end(network: Network, echo: Echo) -> None:
    port = free_port()
    network.lead(("127.0.0.1", port), ("127.0.0.1", echo.port), "echo")
    node = Node(port)
    network.know({node.process.pid: "node"})
    network.cut(both_ways("node", ["echo", "other"]))
    node.say(b"connect")
    node.say(b"late")
    assert not node.hears(b"late", SILENT_S)
    network.heal()
    assert node.hears(b"late", ANSWERS_S)
    node.end()


def test_a_refused_link_is_reset(network: Network, nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    network.cut(both_ways("first", ["echo"]), refuses=True)
    # Its reader ends with the connection, its next line with the process.
    for _ in range(3):
        with contextlib.suppress(OSError):
            first.say(b"gone")
        with contextlib.suppress(subprocess.TimeoutExpired):
            first.process.wait(ANSWERS_S / 3)
    assert first.process.poll() is not None
    second.say(b"stays")
    assert second.hears(b"stays", ANSWERS_S)


def test_much_passes_a_reader_that_is_slow(network: Network) -> None:
    """More than one direction may hold: the sender waits, and nothing is lost."""
    listening, port = socket.create_server(("127.0.0.1", 0)), free_port()
    network.lead(("127.0.0.1", port), ("127.0.0.1", listening.getsockname()[1]), "sink")
    data = bytes(range(256)) * (1 << 16)
    with socket.create_connection(("127.0.0.1", port)) as sender:
        receiver, _address = listening.accept()
        threading.Thread(target=sender.sendall, args=(data,), daemon=True).start()
        threading.Event().wait(SILENT_S)
        with receiver:
            got = bytearray()
            while len(got) < len(data):
                got += receiver.recv(1 << 20)
    assert got == data
    listening.close()


def test_what_the_network_cannot_do_is_said(network: Network) -> None:
    port = free_port()
    network.lead(("127.0.0.1", port), ("127.0.0.1", 9), "nobody")
    with pytest.raises(NetworkError, match=r"refused .*: .*in use"):
        network.lead(("127.0.0.1", port), ("127.0.0.1", 9), "nobody")
    network.close()
    with pytest.raises(NetworkError, match="the network has ended"):
        network.heal()
