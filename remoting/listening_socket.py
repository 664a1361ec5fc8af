"""The listening socket of a program with one port: name server, controller.

Called once, at the start, on the main thread.
"""

from __future__ import annotations

import errno
import socket

from remoting.remoting_config import RemotingServerConfig


class ListenError(Exception):
    """The port cannot be used; the message says which, why, and what to do."""


def bind_server(program: str, config: RemotingServerConfig) -> socket.socket:
    """A socket that listens on bindAddress:listenPort. Raises ListenError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((config.bind_address, config.listen_port))
        sock.listen(config.server_socket_backlog)
    except OSError as error:
        sock.close()
        raise ListenError(_explain(program, config, error)) from error
    return sock


def _explain(program: str, config: RemotingServerConfig, error: OSError) -> str:
    place = f"{config.bind_address}:{config.listen_port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{program}: {place} is in use by another program;"
            " stop it, or set listenPort in the settings file (-c)"
        )
    return f"{program}: cannot listen on {place} (bindAddress, listenPort): {error.strerror}"
