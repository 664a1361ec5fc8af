"""AutoSwitchLink: one open link to the master in controller mode: its frames into the log.

Never blocks; runs on AutoSwitchClient's thread, which sleeps when there is nothing to do here. A
frame is taken when it is whole; of its bytes whole records are published, as far as they are valid
(haAckLevel): a Java master's frames end anywhere within a record. What is published is reported
(autoswitch_reporter.py). Between the master's handshake (`hello`) and `follow` somebody compares
both lists of epochs. What it cannot do itself, such as starting an empty log, it says in
`start_offset`. At most one frame (4 MiB) and what one recv brought are kept. It knows no addresses
and no states; every end is a LinkClosedError. Corresponds to AutoSwitchHAClient of RocketMQ.

Tested by tests/ha/test_autoswitch_wire.py.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ha.autoswitch_frame import (
    AutoSwitchFrameError,
    MasterFrame,
    MasterHandshakeFrame,
    SlaveHandshakeFrame,
    TransferFrame,
)
from ha.autoswitch_reporter import AutoSwitchReporter
from ha.autoswitch_slave import AutoSwitchSlave
from ha.checked_carriage import SlaveBytes
from ha.frame_room import FrameRoom
from ha.ha_config import HaConfig
from ha.link_errors import LinkClosedError, bad_record
from ha.master_connector import Connected
from ha.master_frames import MasterFrames
from ha.publication_step import is_step_full
from ha.receive_rate import ReceiveRate
from ha.refusals import RefusalReason
from ha.selector_factory import EVENT_READ, EVENT_WRITE
from ipc.clock import Clock
from store.control_slots import SYNC_FLUSH_WANTED
from store.errors import StoreError
from store.replica_log import ReplicaLog

if TYPE_CHECKING:
    # numpy, which a master does not need, takes longer to import than the rest of its process.
    from ha.record_validator import BadRecord, RecordValidators

_POLL_MS: Final = 5
_NOT_TOLD: Final = -1


class AutoSwitchLink:
    """See the module. Owned by: AutoSwitchClient's thread; the numbers may be read by any."""

    def __init__(
        self,
        connected: Connected,
        own: SlaveHandshakeFrame,
        log: ReplicaLog,
        config: HaConfig,
        clock: Clock,
        validators: RecordValidators,
        frame_taken: Callable[[int], None],
    ) -> None:
        """The log is open. frame_taken: MemberEvents' one."""
        self.transport: Final = connected.transport
        self.connected_since_ms: Final = clock.now_ms()
        self.received = 0
        """Log bytes of whole frames; the owner may set a higher starting value."""
        self.hello: MasterHandshakeFrame | None = None
        """The master's handshake, once it has come."""
        self.start_offset: int | None = None
        """The empty log must start here before the frame that came can be stored; `log_started`
        follows, then the next `receive`."""
        self._log = log
        self.room: Final = FrameRoom(log, clock)
        self._counters = log.page.counters
        self._clock = clock
        self._frame_taken = frame_taken
        self._slave = AutoSwitchSlave(own, report_interval_ms=config.ha_send_heartbeat_interval)
        self._frames: Final = MasterFrames(
            connected, self._slave, clock, config.ha_housekeeping_interval
        )
        self._reporter: Final = AutoSwitchReporter(
            connected.transport,
            self._slave,
            log,
            config,
            clock,
            SlaveBytes(connected.report_key),
        )
        self._is_checked: Final = connected.is_checked
        self._validators: Final = validators
        self._validator = validators.begin(log.position, is_checked=self._is_checked)
        self._bad: BadRecord | None = None
        self._epoch_starts: tuple[int, ...] = ()
        """Where one master's records end and another one's begin."""
        self._held: TransferFrame | None = None
        """A frame that waits for the log's start or the next file."""
        self._confirm_offset = 0
        """Of the last frame."""
        self._told_confirm_offset = 0
        self._published_at_ms = clock.monotonic_ms()
        self._rate: Final = ReceiveRate(clock, log.position)

    def follow(self) -> None:
        """The log is the beginning of the master's, whose list of epochs was written down: report
        its end, take frames. Raises LinkClosedError."""
        self._told_confirm_offset = _NOT_TOLD  # Nobody believed what came before that.
        self._reporter.follow()
        self._reporter.report()

    def log_started(self) -> None:
        """The log starts at `start_offset` and has room there."""
        self.start_offset = None
        self._validator = self._validators.begin(self._log.position, is_checked=self._is_checked)

    # -- receiving -----------------------------------------------------------------------------

    def receive(self) -> bool:
        """One recv and what follows from it; whether the socket may have more.

        Raises LinkClosedError, StoreError (a file cannot be opened); whole records that came
        before are published then.
        """
        try:
            more = self._receive()
        except (AutoSwitchFrameError, LinkClosedError, StoreError) as error:
            with contextlib.suppress(StoreError):  # The reason for closing matters more.
                self._tell(has_grown=self._show())
            if isinstance(error, AutoSwitchFrameError):
                is_passing = error.reason is RefusalReason.BAD_CHECKSUM
                raise LinkClosedError(error.reason, str(error), is_passing=is_passing) from error
            raise
        is_stuck = self.start_offset is not None or self._bad is not None
        if more and not is_stuck and not self._is_step_full():
            return True
        self._publish()
        return more and self.start_offset is None

    def _is_step_full(self) -> bool:
        """Whether what came is worth a publication though the socket has more."""
        size = self._log.position - self._log.max_phy_offset
        return is_step_full(size, self._frames.read_at_ms - self._published_at_ms)

    def _receive(self) -> bool:
        if self.start_offset is not None or not self._take_frames():
            return False
        if not self._frames.receive():
            return False
        self._rate.update(self._frames.read_at_ms, self._log.position)
        return self._take_frames() and self._frames.may_have_more

    def _take_frames(self) -> bool:
        """Take what there is; False: a frame waits."""
        held = self._held
        if held is not None:
            self._held = None
            if not self._take(held):
                return False
        return all(self._take(frame) for frame in self._frames.there)

    def _take(self, frame: MasterFrame) -> bool:
        if isinstance(frame, MasterHandshakeFrame):
            self.hello = frame
            self._epoch_starts = tuple(entry.start_offset for entry in frame.epochs.entries)
            return True
        if frame.body and not self._store(frame):
            self._held = frame
            return False
        self._confirm_offset = max(frame.confirm_offset, 0)
        return self._bad is None

    # -- storing -------------------------------------------------------------------------------

    def _store(self, frame: TransferFrame) -> bool:
        """False: there is no room for it yet."""
        log, size = self._log, len(frame.body)
        if log.is_empty and (frame.offset != log.position or not (log.position or log.has_room)):
            self.start_offset = frame.offset
            return False
        if frame.offset != log.position:
            raise LinkClosedError(
                RefusalReason.OFFSET_MISMATCH,
                f"a frame for offset {frame.offset} received, our log continues at {log.position}",
            )
        if not self.room.take(frame.offset, size):
            return False
        if self.room.is_awaited:
            self.room.end_wait()
            self._frames.note_progress()
        log.write(0, frame.body)
        log.advance(size)
        self.received += size
        if log.position % log.file_size == 0:
            # The next frame's bytes are in another file, and the check is file by file.
            self._check()
        return True

    # -- publishing ----------------------------------------------------------------------------

    def _publish(self) -> None:
        """Publish whole records, report, ring, tell; in this order, since the master waits for the
        report."""
        has_grown = self._show()
        try:
            self._reporter.report()
        finally:
            self._tell(has_grown=has_grown)
        if self._bad is not None:
            raise bad_record(self._bad, self._log.max_phy_offset)

    def _tell(self, *, has_grown: bool) -> None:
        if has_grown:
            self._log.ring()
        if has_grown or self._confirm_offset != self._told_confirm_offset:
            self._told_confirm_offset = self._confirm_offset
            self._frame_taken(self._confirm_offset)

    def _show(self) -> bool:
        """Publish the whole records, as far as they are valid. Whether there were any."""
        end = self._check()
        if end <= self._log.max_phy_offset:
            return False
        if self._reporter.acknowledges_flushed:
            self._counters[SYNC_FLUSH_WANTED] = end
        self._log.publish(end)
        self._published_at_ms = self._frames.read_at_ms
        return True

    def _check(self) -> int:
        """Up to where the log may be published; `_bad` says why what follows may not."""
        validator, position = self._validator, self._log.position
        while position > validator.position and self._bad is None:
            begin, starts = validator.position, self._epoch_starts
            if begin in starts:
                validator.change_writer()
            following = bisect.bisect_right(starts, begin)
            end = min((position, *starts[following : following + 1]))
            self._bad = validator.check(self._log.file_view(begin), end)
            if validator.position < end:
                break
        return max(validator.position, self._log.max_phy_offset)

    # -- sleeping ------------------------------------------------------------------------------

    @property
    def interest(self) -> int:
        """The socket's events that matter now."""
        return (0 if self.waits_for_file else EVENT_READ) | (
            EVENT_WRITE if self._reporter.has_unsent else 0
        )

    def has_work(self) -> bool:
        """Whether there is work that the socket's readiness does not announce."""
        if self.waits_for_file:
            return self._log.has_room
        return self._reporter.is_flush_reportable or self.transport.has_pending

    def wait_ms(self) -> int:
        """How long there is nothing to do. Raises LinkClosedError: the master was silent for
        haHousekeepingInterval."""
        now_ms = self._clock.monotonic_ms()
        report_ms = self._reporter.wait_ms(now_ms)
        limits_ms = [] if report_ms is None else [report_ms]
        if self.waits_for_file:
            limits_ms.append(self.room.poll_ms(now_ms))
        else:
            limits_ms.append(self._frames.silence_left_ms(now_ms))
        if self._reporter.is_waiting_for_flush:
            limits_ms.append(_POLL_MS)
        return max(min(limits_ms), 0)

    # -- status --------------------------------------------------------------------------------

    @property
    def waits_for_file(self) -> bool:
        """A frame waits until the `store` process has created the next file."""
        return self.room.is_awaited

    @property
    def last_read_ms(self) -> int:
        """Wall clock ms of the last bytes; of the beginning, if none came. Any thread."""
        return self._frames.last_read_ms

    @property
    def last_write_ms(self) -> int:
        """Wall clock ms of the last report; 0 = none yet. Any thread."""
        return self._reporter.last_write_ms

    def bytes_per_second(self) -> int:
        """Log bytes received lately. Any thread."""
        return self._rate.bytes_per_second(self._log.position)
