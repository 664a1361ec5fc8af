"""ClientChannelInfo: who is at the other end of a connection, as his heartbeat said.

A value shared by ConsumerManager and ProducerManager; only `last_update_ms` changes, under the
lock of the manager that holds it.
"""

from __future__ import annotations

from remoting.request_processor import ConnectionLike


class ClientChannelInfo:
    """One client on one connection (Java: ClientChannelInfo)."""

    __slots__ = ("client_id", "connection", "language", "last_update_ms", "version")

    def __init__(
        self,
        connection: ConnectionLike,
        client_id: str,
        *,
        language: int,
        version: int,
        last_update_ms: int,
    ) -> None:
        self.connection = connection
        self.client_id = client_id
        self.language = language
        """LanguageCode as a number."""
        self.version = version
        """MQVersion ordinal."""
        self.last_update_ms = last_update_ms
        """Wall clock ms of the last heartbeat: 328 shows it."""

    def __repr__(self) -> str:
        return f"{self.client_id} at {self.connection.remote_address}"
