"""TransactionLine: `transactions` of a line of the metrics dump (docs/metrics_dump.md).

Thread of the dump. Reads metric slots only; of all topics together.

Tested by tests/broker/metrics/test_replication_snapshot.py.
"""

from __future__ import annotations

from typing import Any, Final

from broker.metrics import metrics_table as table
from broker.metrics.replica_view import ReplicaViewSnapshot
from broker.metrics.rising_total import RisingTotal

_COUNTERS: Final = {
    "commits": table.COMMIT_MESSAGES,
    "rollbacks": table.ROLLBACK_MESSAGES,
    "checks": table.TRANSACTION_CHECKS,
    "given_up": table.HALVES_GIVEN_UP,
}


class TransactionLine:
    """See the module. Owned by: the dump's thread."""

    def __init__(self) -> None:
        self._totals = {name: RisingTotal() for name in _COUNTERS}

    def take(self, snapshot: ReplicaViewSnapshot) -> dict[str, Any]:
        """As of now."""
        halves = snapshot.read(table.HALF_MESSAGES.name)
        ages_s = [values[0] for _, values in snapshot.read(table.OLDEST_HALF.name)]
        return {
            "halves": round(sum(values[0] for _, values in halves)),
            "oldest_ms": round(max(ages_s, default=0) * 1000),
            **{
                name: self._totals[name].update(snapshot.read(metric.name))
                for name, metric in _COUNTERS.items()
            },
        }
