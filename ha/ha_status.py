"""HaStatus: what process `ha` knows of replication, as the JSON of request 907.

The answer to command "ha_status", built on the thread that serves the commands. Member names are
those of RocketMQ's HARuntimeInfo, ours beside them (remoting/body/ha_runtime_info.py reads
it; this room may not import that). Offsets and lags in bytes, times in wall clock ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ha.control_slots import isolation_text
from ha.ha_client_info import HAClientInfo
from ha.replica_registry import Replica, ReplicaRegistry
from ha.replication_lag import ReplicationLag
from ha.slave_progress import ReplicaState
from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.control_slots import MAX_PHY_OFFSET, STORE_TIMESTAMP

Json = dict[str, Any]


class HaStatus:
    """Builds the status. Owned by: the thread that serves the commands of process `ha`."""

    def __init__(
        self,
        page: ControlPage,
        clock: Clock,
        registry: ReplicaRegistry,
        lag: ReplicationLag,
        refusals: Callable[[], Mapping[str, int]],
        client: Callable[[], HAClientInfo] | None,
    ) -> None:
        """`refusals`: RefusalCounters.snapshot. `client`: HAClient.snapshot on a slave, None on a
        master."""
        self._counters = page.counters
        self._clock = clock
        self._registry = registry
        self._lag = lag
        self._refusals = refusals
        self._client: Final = client

    def status(self) -> Json:
        """Everything, of one moment."""
        max_phy_offset = self._counters[MAX_PHY_OFFSET]
        replicas = self._registry.replicas()
        return {
            "master": self._client is None,
            "masterCommitLogMaxOffset": max_phy_offset if self._client is None else 0,
            "inSyncSlaveNums": sum(replica.state is ReplicaState.in_sync for replica in replicas),
            "haConnectionInfo": [self._replica(replica, max_phy_offset) for replica in replicas],
            "haClientRuntimeInfo": {} if self._client is None else _client(self._client()),
            "refusals": dict(self._refusals()),
            **({"isolated": isolation} if (isolation := isolation_text(self._counters)) else {}),
            "timestamp": self._clock.now_ms(),
        }

    def _replica(self, replica: Replica, max_phy_offset: int) -> Json:
        progress, totals = replica.progress, replica.totals
        age = self._lag.age(replica.position, self._counters[STORE_TIMESTAMP])
        lag_bytes, is_bound = replica.lag_bytes(max_phy_offset), replica.is_bound(max_phy_offset)
        rate, where = 0, replica.ack_offset
        if progress is not None:
            rate = progress.bytes_per_second(self._clock.monotonic_ms())
            where = progress.sent_offset
        return {
            "addr": replica.remote,
            "slaveAckOffset": replica.ack_offset,
            "diff": lag_bytes,
            "inSync": replica.state is ReplicaState.in_sync,
            "transferredByteInSecond": rate,
            "transferFromWhere": where,
            "id": replica.id,
            "state": replica.state.value,
            "counted": replica.counted,
            "startOffset": replica.start_offset,
            "lagBytes": lag_bytes,
            "lagBytesExact": not is_bound,
            "lagSeconds": age.ms / 1000,
            "lagSecondsExact": age.exact and not is_bound,
            "connectedSince": replica.connected_since_ms,
            "disconnectedSince": replica.disconnected_since_ms,
            "lastError": replica.last_error,
            "lastErrorTimestamp": replica.last_error_ms,
            "reconnects": totals.reconnects,
            "stateSeconds": {state.value: ms / 1000 for state, ms in totals.state_ms.items()},
        }


def _client(info: HAClientInfo) -> Json:
    error = info.last_error
    return {
        "masterAddr": info.master_address,
        "transferredByteInSecond": info.bytes_per_second,
        "maxOffset": info.max_offset,
        "lastReadTimestamp": info.last_read_ms,
        "lastWriteTimestamp": info.last_write_ms,
        "state": info.state.name.lower(),
        "localAddr": info.local_address,
        "connectedSince": info.connected_since_ms,
        "lastError": None if error is None else error.text,
        "lastErrorTimestamp": None if error is None else error.at_ms,
        "lastErrorOver": None if error is None else error.is_over,
        "lastInspection": info.last_inspection,
        "lastInspectionTimestamp": info.last_inspection_ms,
    }
