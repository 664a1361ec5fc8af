"""RisingTotal: the sum of a counter's series, for the dump's line.

Thread of the dump. Knows no metric by name.

Tested by tests/broker/metrics/test_replication_snapshot.py.
"""

from __future__ import annotations

from remoting.metrics.metric import Rows


class RisingTotal:
    """The sum of a counter's series. It never decreases, though a series may disappear (when its
    topic is deleted) or restart at 0."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], float] = {}
        self._total = 0.0

    def update(self, series: Rows) -> int:
        """Update the sum with the current values of the series, and return it."""
        now = {labels: values[0] for labels, values in series}
        for labels, value in now.items():
            before = self._seen.get(labels, 0.0)
            self._total += value - before if value >= before else value
        self._seen = now
        return round(self._total)
