"""The yardstick of catch-up: a bare sendfile -> recv_into loop into a fresh file.

Two processes over loopback TCP: a child sends a file in frames of 1 MiB behind a header of 12
bytes and takes the 8-byte acknowledgements; this process receives each frame straight into a
mapping of a file that was just allocated, and acknowledges it. Nothing is looked at and nothing
else is done, so this is what the machine gives in this minute.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct(">qi")
_ACK: Final = struct.Struct(">q")
_FRAME: Final = 1 << 20
_ACCEPT_S: Final = 10.0
_HOME: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class RawCopy:
    """MB and GB are 10^6 and 10^9 bytes."""

    mb_s: float
    receiver_cpu_s_gb: float
    """Nearly all of it is the kernel's: fresh memory, and the copy into it."""


def raw_copy(source: Path, size: int, target: Path) -> RawCopy:
    """Copy `size` bytes of `source`; from the first byte to the last acknowledgement.

    `target` stays: memory that was given back a moment ago is cheaper than fresh memory (on a
    virtual machine that gets it from its host 0.5 and 2 s a GB), and all copies that are compared
    shall get the same.
    """
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.posix_fallocate(fd, 0, size)
        with mmap.mmap(fd, size) as mapping, socket.create_server(("127.0.0.1", 0)) as listening:
            listening.settimeout(_ACCEPT_S)
            port = str(listening.getsockname()[1])
            command = [sys.executable, "-m", "tests.bench.raw_copy", port, str(source), str(size)]
            with subprocess.Popen(command, cwd=_HOME) as sender:
                link, _ = listening.accept()
                with link, memoryview(mapping) as view:
                    begin_cpu_s = time.process_time()
                    seconds = _receive(link, view)
                    cpu_s = time.process_time() - begin_cpu_s
                if sender.wait(_ACCEPT_S) != 0:
                    raise RuntimeError(f"{' '.join(command)}: exit {sender.returncode}")
    finally:
        os.close(fd)
    return RawCopy(size / seconds / 1e6, cpu_s / size * 1e9)


def _receive(link: socket.socket, view: memoryview) -> float:
    """Fill `view`; the seconds from the first byte on."""
    header = bytearray(_HEADER.size)
    begin = 0.0
    position = 0
    while position < len(view):
        _receive_exactly(link, memoryview(header))
        begin = begin or time.perf_counter()
        size = _HEADER.unpack(header)[1]
        _receive_exactly(link, view[position : position + size])
        position += size
        link.sendall(_ACK.pack(position))
    return time.perf_counter() - begin


def _receive_exactly(link: socket.socket, view: memoryview) -> None:
    while view:
        count = link.recv_into(view)
        if count == 0:
            raise ConnectionResetError("the sending process closed the connection")
        view = view[count:]


def _send(port: int, source: Path, size: int) -> None:
    """The child: send everything, return when all of it is acknowledged."""
    with source.open("rb") as file, socket.create_connection(("127.0.0.1", port)) as link:
        position = acknowledged = 0
        pending = b""
        while acknowledged < size:
            if position < size:
                count = min(_FRAME, size - position)
                link.sendall(_HEADER.pack(position, count), socket.MSG_MORE)
                end = position + count
                while position < end:
                    position += os.sendfile(link.fileno(), file.fileno(), position, end - position)
            with contextlib.suppress(BlockingIOError):
                pending += link.recv(65536, socket.MSG_DONTWAIT if position < size else 0)
            whole = len(pending) - len(pending) % _ACK.size
            if whole:
                acknowledged = _ACK.unpack_from(pending, whole - _ACK.size)[0]
                pending = pending[whole:]


if __name__ == "__main__":
    _send(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
