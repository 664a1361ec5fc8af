"""The interface of request processors, and a connection as they see it.

Protocols and one small value, no behaviour. namesrv and broker implement processors; the server
(remoting_server) and the client (remoting_client) call them. Neither side knows the other's class.
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
        """Whether the peer's address equals the local address, via loopback or this machine's own
        name. The kernel does not let a remote host claim that."""
        ...

    @property
    def is_open(self) -> bool:
        """False once closing has started."""
        ...

    def send_command(self, command: RemotingCommand) -> None:
        """Queue a command for the peer; silently dropped if the connection is closed."""
        ...

    def close(self, reason: str) -> None:
        """Close the connection; `reason` is logged and passed to the listeners."""
        ...


class ConnectionListener(Protocol):
    """Notified when connections open and close. Called on the loop's thread: must not block."""

    def on_open(self, connection: ConnectionLike) -> None:
        """A connection was opened."""
        ...

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        """A connection was closed, possibly because it was idle."""
        ...


class RequestProcessor(Protocol):
    """Serves one or several request codes (Java: NettyRequestProcessor)."""

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Return the response, or None if it is sent later through send_command, or never.

        Raise RequestError to respond with a code and a remark. Runs on the thread of its Route.
        """
        ...


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request code is served; executor None means on the loop's thread."""

    processor: RequestProcessor
    executor: str | None = None
