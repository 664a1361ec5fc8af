"""What the supervisor serves of the whole broker: /metrics, /healthz, /readyz.

Called on the threads of its HTTP server (remoting/metrics/metrics_server.py).
"""

from __future__ import annotations

from typing import Final

from broker.metrics.metrics_collector import BrokerCollector
from broker.metrics.metrics_table import BASE_LABELS
from broker.settings.broker_config import BrokerConfig
from remoting.metrics.metrics_server import Said
from remoting.metrics.metrics_text import MetricsText

_NODE_TYPE: Final = "broker"


class SupervisorMetrics:
    """A Site."""

    def __init__(self, collector: BrokerCollector, broker: BrokerConfig) -> None:
        self._collector = collector
        values = (broker.broker_cluster_name, _NODE_TYPE, broker.broker_name)
        self._text = MetricsText(dict(zip(BASE_LABELS, values, strict=True)))

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the content type."""
        return self._text.encode(self._collector.collect(), accept)

    def health(self) -> Said:
        """Whether all processes run."""
        down = self._collector.processes_down()
        return Said(not down, f"down: {', '.join(down)}" if down else "ok")

    def readiness(self) -> Said:
        """Whether this broker should get requests."""
        reason = self._collector.ready_reason()
        details = (reason or "ready", self._collector.damage(), self._collector.ready_detail())
        return Said(not reason, "; ".join(part for part in details if part))
