"""ClientHousekeepingService: removes clients that have disconnected or send no heartbeat.

A ConnectionListener of the remoting server (called on the loop's thread) and a task of the
scheduled executor. Follows ClientHousekeepingService of RocketMQ; knows no request.
"""

from __future__ import annotations

from typing import Final

from broker.client.connected_clients import ConnectedClients
from ipc.scheduled_executor import ScheduledExecutor
from remoting.request_processor import ConnectionLike

SCAN_PERIOD_MS: Final = 10_000


class ClientHousekeepingService:
    """Keeps ConsumerManager and ProducerManager free of dead connections."""

    def __init__(self, clients: ConnectedClients) -> None:
        self._clients = clients

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Scan each SCAN_PERIOD_MS."""
        executor.schedule(
            "client-housekeeping",
            self.scan,
            first_delay_ms=SCAN_PERIOD_MS,
            period_ms=SCAN_PERIOD_MS,
        )

    def scan(self) -> None:
        """Drop and disconnect clients without a recent heartbeat."""
        self._clients.producers.scan_not_active_channel()
        self._clients.consumers.scan_not_active_channel()

    def on_open(self, connection: ConnectionLike) -> None:
        """Nothing to do: a client identifies itself with its first heartbeat."""

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        """Closed, failed or idle: remove it from both tables and notify the rest of its groups."""
        self._clients.heartbeats.forget(connection)
        self._clients.producers.on_connection_close(connection)
        self._clients.consumers.on_connection_close(connection)
