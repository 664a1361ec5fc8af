"""HAClientInfo of a slave with an open link, for those who show it."""

from __future__ import annotations

from typing import Any

from ha.ha_client_info import HAClientInfo, HAClientState
from ha.master_hello import MasterHello

_LINKED: dict[str, Any] = {
    "state": HAClientState.TRANSFER,
    "master_address": "10.0.0.9:10912",
    "local_address": "10.0.0.1:4711",
    "master_hello": MasterHello(0, 5000, "10.0.0.9:10911", is_proved=True),
    "max_offset": 4000,
    "last_read_ms": 1_700_000_000_100,
    "last_write_ms": 1_700_000_000_200,
    "bytes_per_second": 99,
    "received": 4000,
    "connected_since_ms": 1_699_999_999_000,
    "last_error": None,
    "last_inspection": "logs agree up to 4000",
    "last_inspection_ms": 1_699_999_999_500,
}


def client_info(**changes: Any) -> HAClientInfo:
    """The client while it receives."""
    return HAClientInfo(**{**_LINKED, **changes})
