"""HA status: body of 907. Pure data, any thread.

The original's members are those of HARuntimeInfo of 5.3.3; its readers pass over ours, and ours
are None where a Java broker wrote the body. Offsets in bytes, times in wall clock ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class HAConnectionRuntimeInfo(JsonBean):
    """One replica of a master. The original lists open connections only."""

    addr: str | None = None
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0
    """The next offset that will be sent."""

    # Ours.
    id: str | None = None
    """brokerName:brokerId, or the ip of a slave that nobody knows by name."""
    state: str | None = None
    """in_sync, catching_up or disconnected."""
    counted: bool | None = None
    """Whether its acknowledgements count as one copy."""
    start_offset: Int64 | None = None
    """Where sending to this connection began."""
    lag_bytes: Int64 | None = None
    lag_bytes_exact: bool | None = None
    """False: at most lag_bytes; it may have acknowledged more than the master knows."""
    lag_seconds: float | None = None
    """Age of the oldest record that it has not acknowledged."""
    lag_seconds_exact: bool | None = None
    """False: at least lag_seconds; about that while lag_bytes is not exact."""
    connected_since: Int64 | None = None
    disconnected_since: Int64 | None = None
    last_error: str | None = None
    """Why its last connection ended; over, once it has one again."""
    last_error_timestamp: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HAClientRuntimeInfo(JsonBean):
    """A slave's own end of the link; all zero on a master."""

    master_addr: str | None = None
    """The master's HA port."""
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0

    # Ours.
    state: str | None = None
    local_addr: str | None = None
    connected_since: Int64 | None = None
    last_error: str | None = None
    """The newest one, also when it is over."""
    last_error_timestamp: Int64 | None = None
    last_error_over: bool | None = None
    """Whether the link has worked since."""
    last_inspection: str | None = None
    """What was found when the log was last compared with the master's."""
    last_inspection_timestamp: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveSyncInfo(JsonBean):
    """How one kind of metadata follows the master."""

    last_success_timestamp: Int64 | None = None
    """None: never."""
    last_error: str | None = None
    """Of the newest failure; over, when a success is newer."""
    last_error_timestamp: Int64 | None = None
    failures: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HARuntimeInfo(JsonBean):
    """Answer to GET_BROKER_HA_STATUS (907)."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)

    # Ours.
    refusals: dict[str, Int64] | None = None
    """Links that were refused or closed, by reason."""
    slave_sync: dict[str, SlaveSyncInfo] | None = None
    """By kind of metadata; only on a slave."""
    timestamp: Int64 | None = None
    """The broker's wall clock at this moment."""
