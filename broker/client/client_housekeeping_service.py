"""ClientHousekeepingService: removes clients that have disconnected or send no heartbeat.

A ConnectionListener of the remoting server (called on the loop's thread) and a task of the
scheduled executor. Follows ClientHousekeepingService of RocketMQ; knows no request.
"""

from __future__ import annotations

from typing import Final

from broker.client.consumer_manager import ConsumerManager
from broker.client.known_heartbeats import KnownHeartbeats
from broker.client.producer_manager import ProducerManager
from ipc.scheduled_executor import ScheduledExecutor
from remoting.request_processor import ConnectionLike

SCAN_PERIOD_MS: Final = 10_000


class ClientHousekeepingService:
    """Keeps ConsumerManager and ProducerManager free of dead connections."""

    def __init__(
        self, producers: ProducerManager, consumers: ConsumerManager, heartbeats: KnownHeartbeats
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._heartbeats = heartbeats

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
        self._producers.scan_not_active_channel()
        self._consumers.scan_not_active_channel()

    def on_open(self, connection: ConnectionLike) -> None:
        """Nothing to do: a client identifies itself with its first heartbeat."""

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        """Closed, failed or idle: remove it from both tables and notify the rest of its groups."""
        self._heartbeats.forget(connection)
        self._producers.on_connection_close(connection)
        self._consumers.on_connection_close(connection)
