"""BrokerHousekeepingService: drops the brokers of a closed connection (Java: same name).

Runs on the thread that closes connections (the server's loop). Knows only the route tables.
"""

from __future__ import annotations

from namesrv.route_info_manager import RouteInfoManager
from remoting.request_processor import ConnectionLike


class BrokerHousekeepingService:
    """ConnectionListener of the name server."""

    def __init__(self, route_info_manager: RouteInfoManager) -> None:
        self._route_info_manager = route_info_manager

    def on_open(self, connection: ConnectionLike) -> None:
        """Nothing: a connection has no broker until one registers over it."""

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        """Drop every broker that registered over `connection`."""
        self._route_info_manager.on_channel_destroy(connection.connection_id, reason)
