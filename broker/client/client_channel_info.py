"""ClientChannelInfo: the client at the other end of a connection, as described by its heartbeat.

A value shared by ConsumerManager and ProducerManager; only what belongs to the last heartbeat
changes, under the lock of the manager that holds it.
"""

from __future__ import annotations

from remoting.request_processor import ConnectionLike


class ClientChannelInfo:
    """One client on one connection (Java: ClientChannelInfo)."""

    __slots__ = (
        *("account", "client_id", "connection", "heard_ms", "language", "last_update_ms"),
        "version",
    )

    def __init__(
        self,
        connection: ConnectionLike,
        client_id: str,
        *,
        language: int,
        version: int,
        last_update_ms: int,
        account: str = "",
    ) -> None:
        self.connection = connection
        self.client_id = client_id
        self.account = account
        """That signed the last heartbeat; empty without access control."""
        self.language = language
        """LanguageCode as a number."""
        self.version = version
        """MQVersion ordinal."""
        self.last_update_ms = last_update_ms
        """Wall clock ms of the last heartbeat: 328 shows it."""
        self.heard_ms = 0
        """The same on the monotonic clock: a client expires by that. Set by who registers it."""

    def renew(self, newer: ClientChannelInfo) -> None:
        """Another heartbeat of the same client."""
        self.account = newer.account
        self.hear(newer.last_update_ms, newer.heard_ms)

    def hear(self, now_ms: int, monotonic_ms: int) -> None:
        """The client was heard now, by both clocks."""
        self.last_update_ms, self.heard_ms = now_ms, monotonic_ms

    def __repr__(self) -> str:
        return f"{self.client_id} at {self.connection.remote_address}"
