"""RoleStatus: what request 907 and the metrics show in a group with a controller, by the role.

Any thread; the host of the group's member says what the role is and who is in the SyncStateSet. On
a leader a replica is in sync if it is in that set, which counts the leader, too.

Tested by tests/ha/test_autoswitch_ha_service.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ha.exposure_marks import ExposureMarks
from ha.ha_client_info import HAClientInfo
from ha.ha_observer import HaFacts, HaObserver
from ha.ha_status import HaStatus
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalCounters
from ha.replica_registry import ReplicaRegistry
from ha.replication_lag import ReplicationLag
from ha.source_files import LogSource
from ipc.clock import Clock
from store.commit_log_reader import CommitLogReader


class RoleStatus:
    """See the module."""

    def __init__(
        self,
        source: LogSource,
        clock: Clock,
        registry: ReplicaRegistry,
        refusals: RefusalCounters,
        refusal_log: RefusalLog,
        marks: ExposureMarks,
        client: Callable[[], HAClientInfo],
        broker_name: str,
    ) -> None:
        self._source = source
        self._clock = clock
        self._registry = registry
        self._refusal_log = refusal_log
        self._marks = marks
        self._client = client
        self._broker_name = broker_name
        self.is_leading = False
        self.sync_state_set: frozenset[int] = frozenset()
        """On a leader, by broker id."""
        lag = ReplicationLag(self._reader(), clock)
        self._follower: Final = HaStatus(
            source.page, clock, registry, lag, refusals.snapshot, client
        )
        self._leader: Final = HaStatus(source.page, clock, registry, lag, refusals.snapshot, None)

    def status(self) -> dict[str, Any]:
        """What request 907 shows."""
        if not self.is_leading:
            return self._follower.status() | {"haConnectionInfo": [], "inSyncSlaveNums": 0}
        found, in_set = self._leader.status(), self.sync_state_set
        names = {f"{self._broker_name}:{broker_id}" for broker_id in in_set}
        for replica in found["haConnectionInfo"]:
            replica["inSync"] = replica["id"] in names
        found["inSyncSlaveNums"] = max(len(in_set) - 1, 0)
        return found

    def new_observer(self) -> RoleObserver:
        """For one thread."""
        return RoleObserver(
            self._observer(self._client), self._observer(None), lambda: self.is_leading
        )

    def _observer(self, client: Callable[[], HAClientInfo] | None) -> HaObserver:
        return HaObserver(
            self._source.page,
            self._clock,
            self._registry,
            self._marks,
            self._reader(),
            self._refusal_log.rejected_handshakes,
            lambda: None,  # Every slave says who it is.
            client,
        )

    def _reader(self) -> CommitLogReader:
        return CommitLogReader(self._source.place, self._source.file_size, self._source.page)


class RoleObserver:
    """HaObserver of whichever role this broker has now. Owned by: the thread that asks."""

    def __init__(
        self, follower: HaObserver, leader: HaObserver, is_leading: Callable[[], bool]
    ) -> None:
        self._follower = follower
        self._leader = leader
        self._is_leading = is_leading

    def observe(self) -> HaFacts:
        """HaObserver.observe; who does not lead has no replicas, whatever it remembers of some."""
        if self._is_leading():
            return self._leader.observe()
        return replace(self._follower.observe(), replicas=())
