"""The listening sockets of programs that are one process: name server, controller.

Called once, at the start, on the main thread.
"""

from __future__ import annotations

import errno
import socket
from typing import NamedTuple

from remoting.remoting_config import RemotingServerConfig


class Place(NamedTuple):
    """Where to listen, and the settings that say so."""

    address: str
    port: int
    address_key: str = "bindAddress"
    port_key: str = "listenPort"


class ListenError(Exception):
    """The port cannot be used; the message says which, why, and what to do."""


def bind_server(program: str, config: RemotingServerConfig) -> socket.socket:
    """A socket that listens on bindAddress:listenPort. Raises ListenError."""
    place = Place(config.bind_address, config.listen_port)
    return bind_place(program, place, config.server_socket_backlog)


def bind_place(program: str, place: Place, backlog: int) -> socket.socket:
    """A socket that listens there. Raises ListenError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((place.address, place.port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise ListenError(_explain(program, place, error)) from error
    return sock


def _explain(program: str, place: Place, error: OSError) -> str:
    where = f"{place.address}:{place.port}"
    keys = f"{place.address_key}, {place.port_key}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{program}: {where} is in use by another program;"
            f" stop it, or set {place.port_key} in the settings file (-c)"
        )
    return f"{program}: cannot listen on {where} ({keys}): {error.strerror}"
