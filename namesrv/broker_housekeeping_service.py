"""BrokerHousekeepingService: drops the brokers of a closed connection (Java: same name).

Runs on the thread that closes connections (the server's loop). Knows only the route
tables, and that somebody may be waiting for an answer.
"""

from __future__ import annotations

from collections.abc import Callable

from namesrv.route_info_manager import RouteInfoManager
from remoting.request_processor import ConnectionLike


class BrokerHousekeepingService:
    """ConnectionListener of the name server."""

    def __init__(self, route_info_manager: RouteInfoManager, forget: Callable[[int], None]) -> None:
        """forget: HolderProbe's."""
        self._route_info_manager = route_info_manager
        self._forget = forget

    def on_open(self, connection: ConnectionLike) -> None:
        """Nothing: a connection has no broker until one registers over it."""

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        """Drop every broker that registered over `connection`."""
        self._forget(connection.connection_id)
        self._route_info_manager.on_channel_destroy(connection.connection_id, reason)
