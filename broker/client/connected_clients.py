"""ConnectedClients: who is connected, by what its heartbeats said.

Pure data, made once on the main thread of process `remoting`; each table says who may touch it.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.client.consumer_manager import ConsumerManager
from broker.client.known_heartbeats import KnownHeartbeats
from broker.client.producer_manager import ProducerManager


@dataclass(frozen=True, slots=True)
class ConnectedClients:
    """The groups that connections belong to, and the heartbeats that need no second look."""

    producers: ProducerManager
    consumers: ConsumerManager
    heartbeats: KnownHeartbeats
