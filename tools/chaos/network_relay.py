"""network_relay: the network between the processes of a group, as one process that can be told who
hears whom: `python -m tools.chaos.network_relay`, started by tools/chaos/network.py.

Each node (a broker, a controller …) is reached at an address of this process, which passes on what
comes. Who has opened a connection is looked up in /proc, so that a link can be cut between two
nodes, in one direction or both, while all others pass. What a cut holds back is not read: it stays
in the sender's window, as on a network that drops everything, and goes on when the cut is healed.
It knows no protocol. One thread; commands come as lines of JSON on stdin, each is answered by one
once it is in force, and the end of stdin is the end.

Tested by tests/tools/chaos/test_network.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tools.chaos.processes import parent_of

_PIECE: Final = 1 << 16
_MOST_WAITING: Final = 1 << 20
"""Bytes that one direction of a connection holds before it reads no more."""
_RESET: Final = struct.pack("ii", 1, 0)
_UNKNOWN: Final = "?"


class _Way:
    """One direction of a connection: from `source` to `target`, nodes `sender` to `receiver`."""

    def __init__(self, source: socket.socket, target: socket.socket, link: tuple[str, str]) -> None:
        self.source = source
        self.target = target
        self.link = link
        self.waiting = bytearray()
        self.has_ended = False
        """Its source sends no more."""


class NetworkRelay:
    """See the module."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._targets: dict[socket.socket, tuple[tuple[str, int], str]] = {}
        self._ways: dict[socket.socket, _Way] = {}
        """By the socket that is read."""
        self._owners: dict[int, str] = {}
        self._nodes: dict[int, str] = {}
        """The owners and their children, as far as they are known."""
        self._cut: set[tuple[str, str]] = set()
        self._refuses = False
        self._commands = bytearray()

    def run(self) -> None:
        """Until stdin ends."""
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ)
        while True:
            for key, events in self._selector.select():
                if key.fileobj == 0:
                    if not self._obey():
                        return
                elif key.fileobj in self._targets:
                    self._accept(key.fileobj)
                else:
                    self._move(key.fileobj, events)  # type: ignore[arg-type]

    # -- commands ------------------------------------------------------------------------------

    def _obey(self) -> bool:
        data = os.read(0, _PIECE)
        self._commands += data
        *lines, rest = self._commands.split(b"\n")
        self._commands = bytearray(rest)
        for line in lines:
            answer: dict[str, Any] = {}
            try:
                self._carry_out(json.loads(line))
            except OSError as error:
                answer["error"] = str(error)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        return bool(data)

    def _carry_out(self, command: dict[str, Any]) -> None:
        if "listen" in command:
            host, port = command["listen"]
            listening = socket.create_server((host, port))
            listening.setblocking(False)
            target_host, target_port = command["target"]
            self._targets[listening] = (target_host, target_port), command["node"]
            self._selector.register(listening, selectors.EVENT_READ)
        if "owners" in command:
            self._owners = {int(pid): node for pid, node in command["owners"].items()}
            self._nodes = dict(self._owners)
        if "cut" in command:
            self._cut = {(sender, receiver) for sender, receiver in command["cut"]}
            self._refuses = command["refuses"]
            for way in list(self._ways.values()):
                if way.source not in self._ways:
                    continue  # Closed with its other direction.
                if self._refuses and way.link in self._cut:
                    self._close(way, resets=True)
                else:
                    self._watch(way)

    # -- connections ---------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        try:
            caller, (host, port, *_) = listening.accept()
        except OSError:
            return
        address, node = self._targets[listening]
        asker = self._node_of(host, port, caller.getsockname()[1])
        links = {(asker, node), (node, asker)}
        if (self._refuses and links & self._cut) or (asker == _UNKNOWN and self._cut):
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            caller.close()
            return
        called = socket.socket()
        called.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            try:
                called.connect(address)
            except BlockingIOError:
                raise
            except OSError:
                caller.close()
                called.close()
                return
        caller.setblocking(False)
        for sock in (caller, called):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for way in (_Way(caller, called, (asker, node)), _Way(called, caller, (node, asker))):
            self._ways[way.source] = way
        for sock in (caller, called):
            self._watch(self._ways[sock])

    def _node_of(self, host: str, port: int, to_port: int) -> str:
        inode = _inode_of(host, port, to_port)
        if inode is None:
            return _UNKNOWN
        for pid, node in self._nodes.items():
            if _has(pid, inode):
                return node
        # Of a process that was born since.
        self._nodes = _with_children(self._owners)
        return next((node for pid, node in self._nodes.items() if _has(pid, inode)), _UNKNOWN)

    def _watch(self, way: _Way) -> None:
        """Register what its source is watched for: its own bytes, and room for the other's."""
        back = self._ways[way.target]
        events = 0
        if not way.has_ended and len(way.waiting) < _MOST_WAITING and way.link not in self._cut:
            events |= selectors.EVENT_READ
        if back.waiting and back.link not in self._cut:
            events |= selectors.EVENT_WRITE
        try:
            key = self._selector.get_key(way.source)
        except KeyError:
            if events:
                self._selector.register(way.source, events)
            return
        if not events:
            self._selector.unregister(way.source)
        elif key.events != events:
            self._selector.modify(way.source, events)

    def _move(self, sock: socket.socket, events: int) -> None:
        way = self._ways.get(sock)
        if way is None:
            return
        back = self._ways[way.target]
        try:
            if events & selectors.EVENT_READ and not way.has_ended:
                with contextlib.suppress(BlockingIOError):
                    data = sock.recv(_PIECE)
                    way.has_ended = not data
                    way.waiting += data
                self._write(way)
            if events & selectors.EVENT_WRITE:
                self._write(back)
        except OSError:
            self._close(way)
            return
        if way.has_ended and not way.waiting:
            self._close(way)
            return
        self._watch(way)
        self._watch(back)

    def _write(self, way: _Way) -> None:
        if way.waiting and way.link not in self._cut:
            with contextlib.suppress(BlockingIOError):
                del way.waiting[: way.target.send(way.waiting)]

    def _close(self, way: _Way, *, resets: bool = False) -> None:
        for sock in (way.source, way.target):
            self._ways.pop(sock, None)
            with contextlib.suppress(KeyError):
                self._selector.unregister(sock)
            with contextlib.suppress(OSError):
                if resets:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                sock.close()


def _inode_of(host: str, port: int, to_port: int) -> int | None:
    """Of the socket at `host`:`port` that is connected to `to_port`; JVMs use IPv6's for IPv4."""
    word = f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}"
    local, remote = f"{word}:{port:04X}", f":{to_port:04X}"
    for line in _lines(("/proc/net/tcp", "/proc/net/tcp6")):
        fields = line.split()
        if fields[1].endswith(local) and fields[2].endswith(remote):
            return int(fields[9])
    return None


def _with_children(owners: Mapping[int, str]) -> dict[int, str]:
    """By pid, in one pass over all processes."""
    found = dict(owners)
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = parent_of(int(name))
            if parent in owners:
                found[int(name)] = owners[parent]
    return found


def _lines(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        with contextlib.suppress(OSError):
            yield from Path(path).read_text().splitlines()[1:]


def _has(pid: int, inode: int) -> bool:
    """Whether the process has this socket open."""
    wanted = f"socket:[{inode}]"
    directory = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            with contextlib.suppress(OSError):
                if os.readlink(f"{directory}/{name}") == wanted:
                    return True
    return False


if __name__ == "__main__":
    NetworkRelay().run()
