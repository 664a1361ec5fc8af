"""A master's HA port that a test plays by hand: reads reports, sends what it likes.

Every wait has a deadline of its own; a report that does not come is a TimeoutError.
"""

from __future__ import annotations

import socket
import ssl
import struct
from types import TracebackType
from typing import Self

from crc32c import crc32c

from ha.frame import FRAME_HEADER
from ha.handshake import MasterHandshake
from ha.reports import Reports

_WAIT_S = 10.0


class ScriptedLink:
    """One accepted connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(_WAIT_S)
        self._read = b""
        self._reports = Reports(None)

    def read_report(self) -> int:
        """The next report; after a handshake of version 2 its seal is right."""
        size = self._reports.size
        while len(self._read) < size:
            data = self.socket.recv(4096)
            if not data:
                raise ConnectionError("the slave closed the link")
            self._read += data
        (offset,), _ = self._reports.take(self._read[:size])
        self._read = self._read[size:]
        return offset

    def reports_until(self, offset: int) -> list[int]:
        """All reports up to the one that says `offset`."""
        found = [self.read_report()]
        while found[-1] != offset:
            found.append(self.read_report())
        return found

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self.socket.sendall(data)

    def frame(self, offset: int, body: bytes = b"") -> None:
        """One frame; without a body a heartbeat."""
        self.send(FRAME_HEADER.pack(offset, len(body)) + body)

    def shake_hands(self, handshake: MasterHandshake) -> None:
        """Play the master's side of our handshake; frames are `checked_frame` from then on."""
        while handshake.missing:
            data = self.socket.recv(handshake.missing)
            if not data:
                raise ConnectionError("the slave closed the link")
            self.send(handshake.receive(data))
        assert handshake.slave is not None
        self._reports = Reports(handshake.slave.report_key)

    def checked_frame(self, offset: int, body: bytes = b"") -> None:
        """One frame of the checked form."""
        self.send(checked_frame(offset, body))

    def wait_closed(self) -> None:
        """Until the slave has closed; what it still reported is dropped."""
        try:
            while self.socket.recv(4096):
                pass
        except ConnectionResetError:
            return

    def close(self) -> None:
        """Close at once."""
        self.socket.close()


def checked_frame(offset: int, body: bytes = b"") -> bytes:
    """Truth from outside: the layout of ha/frame.py, packed here."""
    head = struct.pack(">qiI", offset, len(body), crc32c(body))
    return head + struct.pack(">I", crc32c(head)) + body


class ScriptedMaster:
    """The listening port."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._listening = socket.create_server((host, 0))
        self._listening.settimeout(_WAIT_S)
        self.address = f"{host}:{self._listening.getsockname()[1]}"
        self._links: list[ScriptedLink] = []

    def accept(self, tls: ssl.SSLContext | None = None) -> ScriptedLink:
        """The next connection; with `tls` after its handshake."""
        sock = self._listening.accept()[0]
        sock.settimeout(_WAIT_S)
        link = ScriptedLink(sock if tls is None else tls.wrap_socket(sock, server_side=True))
        self._links.append(link)
        return link

    def close(self) -> None:
        """Close the port and every link."""
        self._listening.close()
        for link in self._links:
            link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
