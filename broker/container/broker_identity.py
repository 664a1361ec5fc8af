"""BrokerIdentity: what tells the brokers of a container apart. A value, any thread.

(Java: BrokerIdentity.)
"""

from __future__ import annotations

from typing import NamedTuple


class BrokerIdentity(NamedTuple):
    """Cluster, name of the group and id within it; no two brokers of a container share all
    three."""

    cluster_name: str
    broker_name: str
    broker_id: int

    @property
    def canonical_name(self) -> str:
        """RocketMQ's text of it, also the name of the broker's log directory."""
        return f"{self.cluster_name}_{self.broker_name}_{self.broker_id}"
