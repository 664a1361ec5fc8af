"""ProducerManager: the connected producers, by group and by client id.

Updated by heartbeats (34), unregister requests (35) and closed connections; read by transaction
checks (39), request-reply (326) and mqadmin (204, 328). Keyed by connection: a client id on two
connections counts twice. With access control a client id belongs to the account that brought it, as
long as that is connected: replies to it go to no other account. Changed under one lock by pool
threads and the loop; lookups take no lock. In memory only. Two faults of RocketMQ are avoided:
empty groups are removed, and a client can be found as long as any of its groups is registered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import Final

from broker.client.client_channel_info import ClientChannelInfo
from ipc.clock import Clock
from remoting.errors import RequestError
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

CHANNEL_EXPIRED_MS: Final = 120_000
"""A client without a heartbeat for longer is removed and disconnected."""


class ProducerManager:
    """Producer groups and their connections. Owned by: `_lock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[str, dict[ConnectionLike, ClientChannelInfo]] = {}
        self._groups_of: dict[ConnectionLike, set[str]] = {}
        """The groups of each connection: closing one must not look at those of everybody."""
        self._clients: dict[str, ClientChannelInfo] = {}
        """By client id, the member of the newest connection."""

    def register_producer(self, group: str, info: ClientChannelInfo) -> None:
        """Register `info` as a member of `group`, on a heartbeat. Raises RequestError: see
        `check_client`."""
        info.heard_ms = self._clock.monotonic_ms()
        with self._lock:
            self.check_client(info)
            table = self._groups.setdefault(group, {})
            known = table.get(info.connection)
            if known is not None:
                known.renew(info)
            else:
                table[info.connection] = info
                self._groups_of.setdefault(info.connection, set()).add(group)
                log.info("producer group %s: new %r", group, info)
            self._clients[info.client_id] = info
        if not info.connection.is_open:
            # It closed while its heartbeat was queued for a thread: nothing else would remove it.
            self.on_connection_close(info.connection)

    def check_client(self, info: ClientChannelInfo) -> None:
        """Raises RequestError(NO_PERMISSION) where another account is connected with this client
        id: it would take the replies to that one."""
        if not self._is_free(info.client_id, info):
            log.warning("client id of another account refused: %r", info)
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the client id {info.client_id} belongs to another account, which is connected "
                "with it: give this client an instance name of its own",
            )

    def _is_free(self, client_id: str, info: ClientChannelInfo) -> bool:
        owner = self._clients.get(client_id)
        return (
            owner is None
            or owner.account == info.account
            or owner.connection is info.connection
            or not owner.connection.is_open
        )

    def renew(self, group: str, connection: ConnectionLike, client_id: str) -> bool:
        """A member was heard again. False: the connection is none."""
        with self._lock:
            known = self._groups.get(group, {}).get(connection)
            if known is None:
                return False
            known.hear(self._clock.now_ms(), self._clock.monotonic_ms())
            if self._is_free(client_id, known):
                self._clients[client_id] = known
        return True

    def unregister_producer(self, group: str, connection: ConnectionLike) -> None:
        """The client leaves `group`."""
        with self._lock:
            self._remove(group, connection, "unregistered")

    def on_connection_close(self, connection: ConnectionLike) -> None:
        """Remove a closed connection from all of its groups."""
        with self._lock:
            for group in sorted(self._groups_of.get(connection, ())):
                self._remove(group, connection, "connection closed")

    def scan_not_active_channel(self) -> list[ConnectionLike]:
        """Remove clients without a heartbeat for CHANNEL_EXPIRED_MS, and close their
        connections."""
        limit_ms = self._clock.monotonic_ms() - CHANNEL_EXPIRED_MS
        with self._lock:
            expired = [
                (group, info.connection)
                for group, table in self._groups.items()
                for info in table.values()
                if info.heard_ms < limit_ms
            ]
            for group, connection in expired:
                self._remove(group, connection, f"no heartbeat for {CHANNEL_EXPIRED_MS} ms")
        connections = list(dict.fromkeys(connection for _, connection in expired))
        for connection in connections:
            connection.close("producer sent no heartbeat")
        return connections

    def _remove(self, group: str, connection: ConnectionLike, reason: str) -> None:
        table = self._groups.get(group, {})
        info = table.pop(connection, None)
        if info is None:
            return
        log.info("producer group %s: %r removed: %s", group, info, reason)
        if not table:
            del self._groups[group]
        left = self._groups_of[connection]
        left.discard(group)
        if left:
            return
        del self._groups_of[connection]
        client = self._clients.get(info.client_id)
        if client is not None and client.connection is connection:
            del self._clients[info.client_id]

    # -- lookups, no lock -----------------------------------------------------------------------

    def groups_of(self, connection: ConnectionLike) -> Collection[str]:
        """The groups that the connection is in: a copy."""
        return frozenset(self._groups_of.get(connection, ()))

    def find_connection(self, client_id: str) -> ConnectionLike | None:
        """The newest connection of a client id (request-reply)."""
        client = self._clients.get(client_id)
        return None if client is None else client.connection

    def find_group(self, group: str) -> list[ClientChannelInfo] | None:
        """The members of a group; None if there are none (204)."""
        table = self._groups.get(group)
        return None if table is None else list(table.copy().values())

    def all_groups(self) -> dict[str, list[ClientChannelInfo]]:
        """Every group with its members (328)."""
        return {group: list(table.copy().values()) for group, table in self._groups.copy().items()}
