"""OffsetReporter: a slave's reports to its master: which offset is acknowledged, and when.

Runs on HAClient's thread for one link. A report that the socket does not accept whole is kept and
sent on later; the newest offset follows it. Corresponds to HAClient.reportSlaveMaxOffset of
RocketMQ. It knows no frames.
"""

from __future__ import annotations

from typing import Final

from ha.ha_config import HaAckLevel, HaConfig
from ha.link_io import send
from ha.reports import Reports
from ha.transport import Transport
from ipc.clock import Clock
from store.control_slots import FLUSHED_OFFSET, SYNC_FLUSH_WANTED
from store.replica_log import ReplicaLog


class OffsetReporter:
    """See the module. Owned by: HAClient's thread; `last_write_ms` may be read by any."""

    def __init__(
        self,
        transport: Transport,
        log: ReplicaLog,
        config: HaConfig,
        clock: Clock,
        reports: Reports,
    ) -> None:
        """haAckLevel decides whether received or flushed bytes are acknowledged."""
        self.acknowledges_flushed: Final = config.ha_ack_level is HaAckLevel.flushed
        self.reported = -1
        """The last offset reported; -1 before the first report."""
        self.last_write_ms = 0
        """Wall clock; 0 = no report yet."""
        self._transport = transport
        self._reports = reports
        self._log = log
        self._counters = log.page.counters
        self._clock = clock
        self._heartbeat_ms: Final = config.ha_send_heartbeat_interval
        self._unsent = b""
        self._wrote_at_ms = clock.monotonic_ms()

    @property
    def has_unsent(self) -> bool:
        """Whether a part of a report waits for the socket."""
        return bool(self._unsent)

    @property
    def ack_offset(self) -> int:
        """What may be reported now."""
        end = self._log.max_phy_offset
        return min(end, self._counters[FLUSHED_OFFSET]) if self.acknowledges_flushed else end

    @property
    def is_flush_reportable(self) -> bool:
        """Whether a flush since the last report allows another one."""
        return (
            self.acknowledges_flushed and not self._unsent and self.ack_offset > self.reported >= 0
        )

    def wait_ms(self, now_ms: int) -> int | None:
        """Time until the next heartbeat is due, perhaps negative; None while the socket is
        full."""
        return None if self._unsent else self._wrote_at_ms + self._heartbeat_ms - now_ms

    def report(self) -> None:
        """Send a report if one is due: more can be acknowledged, or the heartbeat is due. Raises
        LinkClosedError.

        The first report, which says where to continue, is due as soon as the whole log is
        acknowledged.
        """
        if self._unsent:
            self._send(self._unsent)
            return
        offset = max(self.ack_offset, self.reported)
        if offset == self.reported:
            if self._clock.monotonic_ms() < self._wrote_at_ms + self._heartbeat_ms:
                return
        elif self.reported < 0 and offset < self._log.max_phy_offset:
            self._counters[SYNC_FLUSH_WANTED] = self._log.max_phy_offset
            return
        self.reported = offset
        self._send(self._reports.pack(offset))

    def _send(self, data: bytes) -> None:
        count = send(self._transport, data)
        self._unsent = data[count:]
        if count:
            self._wrote_at_ms = self._clock.monotonic_ms()
            self.last_write_ms = self._clock.now_ms()
