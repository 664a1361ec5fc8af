"""AutoSwitchReporter: what a slave says to its master in controller mode, and when.

Runs on AutoSwitchClient's thread for one link. Bytes that the socket does not accept are kept and
sent on later; at most a handshake or one report is kept, the newest offset follows it. Which report
is due AutoSwitchSlave says; what may be acknowledged, haAckLevel. It knows no frames of the log.

Tested by tests/ha/test_autoswitch_wire.py.
"""

from __future__ import annotations

from typing import Final

from ha.autoswitch_slave import AutoSwitchSlave
from ha.checked_carriage import SlaveBytes
from ha.ha_config import HaAckLevel, HaConfig
from ha.link_io import send
from ha.transport import Transport
from ipc.clock import Clock
from store.control_slots import FLUSHED_OFFSET, SYNC_FLUSH_WANTED
from store.replica_log import ReplicaLog


class AutoSwitchReporter:
    """See the module. Owned by: AutoSwitchClient's thread; `last_write_ms` may be read by any."""

    def __init__(
        self,
        transport: Transport,
        slave: AutoSwitchSlave,
        log: ReplicaLog,
        config: HaConfig,
        clock: Clock,
        carriage: SlaveBytes,
    ) -> None:
        """carriage: how frames are sealed. The handshake is the first thing that is sent."""
        self.acknowledges_flushed: Final = config.ha_ack_level is HaAckLevel.flushed
        self.last_write_ms = 0
        """Wall clock; 0 = nothing yet."""
        self._transport = transport
        self._slave = slave
        self._log = log
        self._counters = log.page.counters
        self._clock = clock
        self._carriage = carriage
        self._heartbeat_ms: Final = config.ha_send_heartbeat_interval
        self._wrote_at_ms = clock.monotonic_ms()
        self._reported = 0
        self._is_following = False
        """The log is the beginning of the master's."""
        self._has_begun = False
        """The first report has been made."""
        self._unsent = carriage.pack(slave.hello())

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait for the socket."""
        return bool(self._unsent)

    @property
    def is_flush_reportable(self) -> bool:
        """Whether a flush since the last report allows another one."""
        if not self.acknowledges_flushed or self._unsent or not self._is_following:
            return False
        ack = self._ack_offset
        return ack > self._reported or (not self._has_begun and ack >= self._whole)

    def follow(self) -> None:
        """From now on reports may be made."""
        self._is_following = True

    @property
    def is_waiting_for_flush(self) -> bool:
        """The first report, which says where to go on, needs all of the log on disk."""
        return self._is_following and not self._has_begun

    def wait_ms(self, now_ms: int) -> int | None:
        """Time until the next report is due, perhaps negative; None: nothing is."""
        if self._unsent or not self._has_begun:
            return None
        return self._wrote_at_ms + self._heartbeat_ms - now_ms

    def report(self) -> None:
        """Send what is unsent, then a report if one is due. Raises LinkClosedError."""
        if self._unsent:
            self._send()
        if self._is_following and not self._unsent:
            self._unsent = self._carriage.pack(self._due_report())
            if self._unsent:
                self._send()

    @property
    def _whole(self) -> int:
        """The end of the log; an empty one may begin anywhere, which 0 says."""
        return 0 if self._log.is_empty else self._log.max_phy_offset

    @property
    def _ack_offset(self) -> int:
        whole = self._whole
        return min(whole, self._counters[FLUSHED_OFFSET]) if self.acknowledges_flushed else whole

    def _due_report(self) -> bytes:
        now_ms, ack = self._clock.monotonic_ms(), self._ack_offset
        if self._has_begun:
            data = self._slave.due_report(max(ack, self._reported), now_ms)
            self._reported = max(ack, self._reported)
            return data
        if ack < self._whole:
            self._counters[SYNC_FLUSH_WANTED] = self._whole
            return b""
        self._has_begun, self._reported = True, ack
        return self._slave.follow(ack, now_ms)

    def _send(self) -> None:
        count = send(self._transport, self._unsent)
        self._unsent = self._unsent[count:]
        if count:
            self._wrote_at_ms = self._clock.monotonic_ms()
            self.last_write_ms = self._clock.now_ms()
