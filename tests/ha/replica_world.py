"""Slaves that connect and acknowledge, for the tests of progress, registry and status."""

from __future__ import annotations

from ha.control_slots import REPLICA_COUNT, REPLICATED_OFFSET
from ha.exposure_marks import ExposureMarks
from ha.group_transfer_service import GroupTransferService
from ha.ha_config import HaConfig
from ha.replica_registry import ReplicaRegistry
from ha.slave_progress import SlaveProgress
from store.control_slots import MAX_PHY_OFFSET
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import fresh_page


class ReplicaWorld:
    """A page, a registry and a service that is not started; every ring is noted."""

    def __init__(self, *, in_sync_replicas: int = 2, fallbehind_max: int = 1000) -> None:
        self.page = fresh_page()
        self.clock = ManualClock()
        self.registry = ReplicaRegistry(self.clock)
        self.rings: list[tuple[int, int]] = []
        config = HaConfig(in_sync_replicas=in_sync_replicas, ha_slave_fallbehind_max=fallbehind_max)
        self.marks = ExposureMarks()
        self.service = GroupTransferService(
            self.page,
            config,
            self.clock,
            self.registry,
            self.marks,
            lambda: self.rings.append(self.published),
        )

    @property
    def published(self) -> tuple[int, int]:
        """(replicated_offset, replica count)."""
        counters = self.page.counters
        return counters[REPLICATED_OFFSET], counters[REPLICA_COUNT]

    def log_ends_at(self, offset: int) -> None:
        self.page.counters[MAX_PHY_OFFSET] = offset

    def progress(
        self, remote: str, ack: int = 0, *, reports_flushed: bool = False
    ) -> SlaveProgress:
        """A connection's progress that nobody knows of yet; nothing was sent."""
        now_ms, wall_ms = self.clock.monotonic_ms(), self.clock.now_ms()
        return SlaveProgress(
            remote, ack, ack, now_ms=now_ms, wall_ms=wall_ms, reports_flushed=reports_flushed
        )

    def connect(self, remote: str, ack: int = 0, *, reports_flushed: bool = False) -> SlaveProgress:
        """A slave connects and its first report is `ack`."""
        progress = self.progress(remote, ack, reports_flushed=reports_flushed)
        self.service.add(progress)
        return progress

    def ack(self, progress: SlaveProgress, offset: int) -> None:
        """What was sent up to there is reported, as its ReadSocketService takes it."""
        progress.sent(max(offset, progress.sent_offset), 0, self.clock.monotonic_ms())
        log_end = self.page.counters[MAX_PHY_OFFSET]
        assert progress.report(offset) is None
        self.service.notify_transfer_some(progress, log_end)
