"""HA status: body of 907. Pure data, any thread.

Contains the members of RocketMQ's HARuntimeInfo of 5.3.3 and additional ones. Java's readers ignore
the additional members; they are None in a body written by a Java broker. Offsets in bytes, times in
wall clock ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class HAConnectionRuntimeInfo(JsonBean):
    """One replica of a master. RocketMQ lists open connections only."""

    addr: str | None = None
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0
    """The next offset that will be sent."""

    # Additional members.
    id: str | None = None
    """brokerName:brokerId, or the IP of an unidentified slave."""
    state: str | None = None
    """in_sync, catching_up or disconnected."""
    counted: bool | None = None
    """Whether its acknowledgements count as one copy."""
    start_offset: Int64 | None = None
    """Where sending to this connection began."""
    lag_bytes: Int64 | None = None
    lag_bytes_exact: bool | None = None
    """False: lag_bytes is an upper bound; it may have acknowledged more than the master knows."""
    lag_seconds: float | None = None
    """Age of the oldest unacknowledged record."""
    lag_seconds_exact: bool | None = None
    """False: lag_seconds is a lower bound; approximate while lag_bytes is not exact."""
    connected_since: Int64 | None = None
    disconnected_since: Int64 | None = None
    last_error: str | None = None
    """Why its last connection ended; obsolete once it is connected again."""
    last_error_timestamp: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HAClientRuntimeInfo(JsonBean):
    """A slave's end of the link; all zero on a master."""

    master_addr: str | None = None
    """The master's HA port."""
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0

    # Additional members.
    state: str | None = None
    local_addr: str | None = None
    connected_since: Int64 | None = None
    last_error: str | None = None
    """The last error, even if it has been resolved."""
    last_error_timestamp: Int64 | None = None
    last_error_over: bool | None = None
    """Whether the link has worked since then."""
    last_inspection: str | None = None
    """Result of the last comparison of the log with the master's."""
    last_inspection_timestamp: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveSyncInfo(JsonBean):
    """Synchronization status of one kind of metadata."""

    last_success_timestamp: Int64 | None = None
    """None: never."""
    last_error: str | None = None
    """The last failure; resolved if a later success exists."""
    last_error_timestamp: Int64 | None = None
    failures: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HARoleInfo(JsonBean):
    """The last role that a member of a group with a controller has taken."""

    role: str | None = None
    """lead, follow, fenced."""
    cause: str | None = None
    epoch: Int32 = 0
    old_epoch: Int32 = 0
    """0: none since process `ha` was started."""
    old_master_id: Int64 | None = None
    timestamp: Int64 = 0
    without_master_millis: Int64 | None = None
    """How long before it the broker last had a master; None: not since it was started."""
    confirm_offset: Int64 = 0
    log_end: Int64 = 0
    """What lay between these two nobody had confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HAGroupInfo(JsonBean):
    """What a member of a group with a controller knows of the group."""

    role: str | None = None
    takes_messages: bool = False
    broker_id: Int64 = 0
    """0 while it leads."""
    member_id: Int64 = 0
    """The id that the controller gave; 0: none yet."""
    epoch: Int32 = 0
    master_id: Int64 | None = None
    sync_state_set: list[Int64] = field(default_factory=list)
    """Of a leader."""
    min_in_sync_replicas: Int32 = 0
    confirm_offset: Int64 = 0
    lease_millis: Int64 | None = None
    """Of a leader with selfFenceEnable."""
    without_master_millis: Int64 = 0
    without_master_total_millis: Int64 = 0
    two_masters_seen: Int64 = 0
    last_role: HARoleInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HARuntimeInfo(JsonBean):
    """Answer to GET_BROKER_HA_STATUS (907)."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)

    # Additional members.
    isolated: str | None = None
    """Why this broker is not registered yet, and takes nothing; None: it is not isolated."""
    refusals: dict[str, Int64] | None = None
    """Links that were rejected or closed, by reason."""
    slave_sync: dict[str, SlaveSyncInfo] | None = None
    """By kind of metadata; only on a slave."""
    promotion_objection: str | None = None
    """Only on a slave: why a start as master would be refused now; empty: it would not be."""
    promotion_basis: str | None = None
    """Only on a slave: when its master was last seen, and how far behind it was then."""
    timestamp: Int64 | None = None
    """The broker's wall clock at this moment."""
    group_info: HAGroupInfo | None = None
    """Only of a member of a group with a controller."""
