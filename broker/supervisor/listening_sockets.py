"""The broker's listening sockets: bound by the supervisor before any child starts.

They stay open in the supervisor, so that clients can connect to the backlog while a child is being
restarted, and so that a port chosen by the system is known. Knows ports but no protocol.
"""

from __future__ import annotations

import errno
import socket
from typing import Final

VIP_DISTANCE: Final = 2
_TRIES: Final = 50
_EVERYWHERE: Final = "0.0.0.0"
_LOOPBACK: Final = "127.0.0.1"


class PortTakenError(Exception):
    """A port cannot be bound; the text names the port, its setting and the fix."""


def bind_listener(address: str, port: int, backlog: int, setting: str) -> socket.socket:
    """A listening, non-blocking TCP socket. Port 0 lets the system choose.

    Raises PortTakenError; `setting` is the key that chooses the port.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise PortTakenError(_explain(address, port, setting, error)) from error
    sock.setblocking(False)
    return sock


def _explain(address: str, port: int, setting: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is in use by another program: stop it, or choose another with {setting}"
        )
    return f"cannot listen on {address}:{port} ({setting}): {error.strerror}"


def port_of(sock: socket.socket) -> int:
    """The port that a socket is bound to."""
    port: int = sock.getsockname()[1]
    return port


def own_address(sock: socket.socket) -> str:
    """ "ip:port" by which this machine reaches a socket: loopback if it listens everywhere."""
    address, port = sock.getsockname()
    return f"{_LOOPBACK if address == _EVERYWHERE else address}:{port}"


def bind_remoting(
    address: str, listen_port: int, backlog: int
) -> tuple[socket.socket, socket.socket]:
    """(main, VIP): listenPort and listenPort - 2. With listenPort 0 it searches for a free pair.

    Raises PortTakenError.
    """
    if listen_port:
        main = bind_listener(address, listen_port, backlog, "listenPort")
        try:
            vip = bind_listener(
                address, max(listen_port - VIP_DISTANCE, 0), backlog, "listenPort (minus 2)"
            )
        except PortTakenError:
            main.close()
            raise
        return main, vip
    for _ in range(_TRIES):
        main = bind_listener(address, 0, backlog, "listenPort")
        try:
            vip_port = port_of(main) - VIP_DISTANCE
            return main, bind_listener(address, vip_port, backlog, "listenPort (minus 2)")
        except PortTakenError:
            main.close()
    raise PortTakenError("no free pair of ports (listenPort and listenPort - 2) was found")
