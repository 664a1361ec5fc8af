"""The words that metrics dumps use for states, results and roles (docs/metrics_dump.md).

Plain data for every stage of the report; it must not know Spark, as the page and the import from
Prometheus do without it.
"""

from __future__ import annotations

from typing import Final

STATES: Final = ("in_sync", "catching_up", "disconnected")
"""Of a replica."""

SYNC_RESULTS: Final = ("ok", "flush_slave_timeout", "slave_not_available", "flush_disk_timeout")
"""Of sends that had to wait."""

MASTER_ROLES: Final = ("SYNC_MASTER", "ASYNC_MASTER")
