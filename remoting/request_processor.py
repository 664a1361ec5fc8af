"""What a processor of requests must look like, and what it may see of a connection.

Protocols and one small value, no behaviour. Processors are written in namesrv and broker; the
server (remoting_server) and the client (remoting_client) call them. Neither side knows the
other's class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from remoting.remoting_command import RemotingCommand


class ConnectionLike(Protocol):
    """A connection as a processor sees it. Any thread may call its methods."""

    @property
    def connection_id(self) -> int:
        """Unique in this process, never reused."""
        ...

    @property
    def remote_address(self) -> str:
        """The peer as "ip:port"."""
        ...

    @property
    def is_from_this_machine(self) -> bool:
        """Whether the peer has the address that it connected to, which the kernel lets nobody
        claim from outside: loopback, or this machine's own name."""
        ...

    @property
    def is_open(self) -> bool:
        """False from the moment that closing began."""
        ...

    def send_command(self, command: RemotingCommand) -> None:
        """Queue a command for the peer; silently dropped when the connection is closed."""
        ...

    def close(self, reason: str) -> None:
        """Close it; `reason` goes to the log and to the listeners."""
        ...


class ConnectionListener(Protocol):
    """Hears of connections that open and close. Called on the loop's thread: must not block."""

    def on_open(self, connection: ConnectionLike) -> None:
        """A connection is there."""
        ...

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        """A connection is gone, an idle one too."""
        ...


class RequestProcessor(Protocol):
    """Serves one or several request codes (Java: NettyRequestProcessor)."""

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """The answer, or None: it comes later through send_command, or never.

        Raise RequestError to answer a code and a remark. Runs on the thread of its Route.
        """
        ...


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request code is served: executor None means on the loop's own thread."""

    processor: RequestProcessor
    executor: str | None = None
