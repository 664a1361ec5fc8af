"""ProducerManager: the connected producers, by group and by client id.

Updated by heartbeats (34), unregister requests (35) and closed connections; read by transaction
checks (39), request-reply (326) and mqadmin (204, 328). Keyed by connection: a client id on two
connections counts twice. With access control a reply to a client id of which two accounts are
connected reaches neither: whose it is cannot be told. Changed under one lock by pool threads and
the loop; lookups take no lock. In memory only. Two faults of RocketMQ are avoided: empty groups are
removed, and a client can be found as long as any of its groups is registered.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Collection
from typing import Final

from broker.client.client_channel_info import ClientChannelInfo
from ipc.clock import Clock
from remoting.request_processor import ConnectionLike

log = logging.getLogger(__name__)

CHANNEL_EXPIRED_MS: Final = 120_000
"""A client without a heartbeat for longer is removed and disconnected."""


class _Claim:
    """A client id of one connection, which it has in so many groups."""

    __slots__ = ("account", "groups", "heard")

    def __init__(self, account: str) -> None:
        self.account = account
        """Of the last heartbeat."""
        self.groups = 0
        self.heard = 0
        """The number of the last heartbeat, among all."""


class ProducerManager:
    """Producer groups and their connections. Owned by: `_lock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[str, dict[ConnectionLike, ClientChannelInfo]] = {}
        self._groups_of: dict[ConnectionLike, set[str]] = {}
        """The groups of each connection: closing one must not look at those of everybody."""
        self._heartbeats = itertools.count(1)
        self._claims: dict[str, dict[ConnectionLike, _Claim]] = {}
        """By client id."""

    def register_producer(self, group: str, info: ClientChannelInfo) -> None:
        """Register `info` as a member of `group`, on a heartbeat."""
        info.heard_ms = self._clock.monotonic_ms()
        with self._lock:
            table = self._groups.setdefault(group, {})
            known = table.get(info.connection)
            if known is None:
                table[info.connection] = info
                self._groups_of.setdefault(info.connection, set()).add(group)
                log.info("producer group %s: new %r", group, info)
                self._claim(info)
            else:
                known.renew(info)
                if known.client_id != info.client_id:
                    self._unclaim(known)
                    known.client_id = info.client_id
                    self._claim(known)
            self._hear(info)
        if not info.connection.is_open:
            # It closed while its heartbeat was queued for a thread: nothing else would remove it.
            self.on_connection_close(info.connection)

    def _claim(self, info: ClientChannelInfo) -> None:
        claims = self._claims.setdefault(info.client_id, {})
        claim = claims.get(info.connection)
        if claim is None:
            claim = claims[info.connection] = _Claim(info.account)
        claim.groups += 1

    def _hear(self, info: ClientChannelInfo) -> None:
        claim = self._claims[info.client_id][info.connection]
        claim.account = info.account
        claim.heard = next(self._heartbeats)

    def _unclaim(self, info: ClientChannelInfo) -> None:
        claims = self._claims[info.client_id]
        claim = claims[info.connection]
        claim.groups -= 1
        if not claim.groups:
            del claims[info.connection]
            if not claims:
                del self._claims[info.client_id]

    def renew(self, group: str, connection: ConnectionLike) -> bool:
        """A member was heard again. False: the connection is none."""
        with self._lock:
            known = self._groups.get(group, {}).get(connection)
            if known is None:
                return False
            known.hear(self._clock.now_ms(), self._clock.monotonic_ms())
            self._hear(known)
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
        if not left:
            del self._groups_of[connection]
        self._unclaim(info)

    # -- lookups, no lock -----------------------------------------------------------------------

    def groups_of(self, connection: ConnectionLike) -> Collection[str]:
        """The groups that the connection is in: a copy."""
        return frozenset(self._groups_of.get(connection, ()))

    def find_connection(self, client_id: str) -> ConnectionLike | None:
        """The connection of a client id that was heard last (request-reply); None, too, while it
        has some of several accounts."""
        found, newest = None, None
        for connection, claim in self._claims.get(client_id, {}).copy().items():
            if not connection.is_open:
                continue
            if newest is not None and claim.account != newest.account:
                log.warning(
                    "client id %s: used by two accounts, replies are sent to neither", client_id
                )
                return None
            if newest is None or claim.heard > newest.heard:
                found, newest = connection, claim
        return found

    def find_group(self, group: str) -> list[ClientChannelInfo] | None:
        """The members of a group; None if there are none (204)."""
        table = self._groups.get(group)
        return None if table is None else list(table.copy().values())

    def all_groups(self) -> dict[str, list[ClientChannelInfo]]:
        """Every group with its members (328)."""
        return {group: list(table.copy().values()) for group, table in self._groups.copy().items()}
