"""broker.processes.store: with which settings process `store` opens the store."""

from __future__ import annotations

import pytest

from broker.processes.store import store_config
from broker.settings.startup_options import StartupOptions
from store.message_store_config import FlushDiskType

SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"haAckLevel": "flushed"}, FlushDiskType.ASYNC_FLUSH),
        ({"haAckLevel": "received", **SLAVE}, FlushDiskType.ASYNC_FLUSH),
        ({"haAckLevel": "flushed", **SLAVE}, FlushDiskType.SYNC_FLUSH),
    ],
)
def test_a_slave_that_acknowledges_what_is_on_disk_flushes_at_once(
    settings: dict[str, str], expected: FlushDiskType
) -> None:
    """Else each answer of a SYNC_MASTER would wait for the flush of flushIntervalCommitLog."""
    options = StartupOptions.from_settings({"flushDiskType": "ASYNC_FLUSH", **settings})
    assert store_config(options).flush_disk_type is expected
