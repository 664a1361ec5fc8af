"""AutoSwitchConnection: one served slave in controller mode.

A thread of process `ha` for each connection, which reads reports and sends the log, straight from
its files: a small frame leaves with one sendmsg from the mapped file, a large one with sendfile.
Between two of ours each frame is preceded by checksums (checked_carriage.py). With nothing to send
it sleeps on the process' bell; while what was sent is not confirmed it looks again soon, as no bell
tells it. What comes next, and which report is good, AutoSwitchMaster says.
It knows neither roles nor other connections. Corresponds to AutoSwitchHAConnection of RocketMQ,
which has two threads for it.

Tested by tests/ha/test_autoswitch_wire.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ha.autoswitch_frame import (
    MAX_TRANSFER_BODY,
    TRANSFER_HEADER_SIZE,
    AutoSwitchFrameError,
    ReportFrame,
    SlaveHandshakeFrame,
    encode_slave_handshake,
    encode_transfer_header,
)
from ha.autoswitch_master import AutoSwitchMaster, LogBounds, NextTransfer
from ha.checked_carriage import HEAD_SIZE, SlaveBytes, head_of
from ha.epochs import EpochList, EpochOrderError
from ha.flow_monitor import FlowMonitor
from ha.ha_environment import HaEnvironment
from ha.refusals import RefusalReason
from ha.selector_factory import EVENT_READ, EVENT_WRITE
from ha.slave_progress import SlaveProgress
from ha.source_files import LogSource, SourceFiles
from ha.transport import Transport
from ha.wait_notify_object import WaitNotifyObject
from ha.write_socket_service import SENDFILE_FROM
from ipc.service_thread import ServiceThread
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import StoreError

_READ_SIZE: Final = 4096
_LOOK_AGAIN_MS: Final = 1_000
"""No sleep is longer while a slave does not read: its file may be deleted meanwhile."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """What a master serves from."""

    epochs: EpochList
    master_epoch: int
    confirm: Callable[[], int]
    """Up to where its consumers may read now (bytes)."""


@dataclass(frozen=True, slots=True)
class AcceptedSlave:
    """A slave that was let in, and has said who it is."""

    number: int
    """Of the connection; never used again."""
    transport: Transport
    handshake: SlaveHandshakeFrame
    report_key: bytes | None
    """None: it speaks RocketMQ's protocol, without checksums."""
    reports_flushed: bool
    """What it reports is on its disk."""


class ConnectionEvents(Protocol):
    """What a connection tells, on its thread."""

    def began(self, connection: AutoSwitchConnection, progress: SlaveProgress) -> None:
        """Its first report has come."""

    def reported(self, connection: AutoSwitchConnection, log_end: int) -> None:
        """A report was taken; log_end: of the log before it."""

    def ended(self, connection: AutoSwitchConnection) -> None:
        """The socket is closed, and nothing reads the log for it any more."""


class AutoSwitchConnection(ServiceThread):
    """See the module. Its state is its thread's; others call `end`, `join` and `wake`."""

    def __init__(
        self,
        environment: HaEnvironment,
        slave: AcceptedSlave,
        source: LogSource,
        leadership: Leadership,
        flow: FlowMonitor,
        wait_notify: WaitNotifyObject,
        events: ConnectionEvents,
    ) -> None:
        """`start` follows."""
        config, clock = environment.config, environment.clock
        transport = slave.transport
        super().__init__(
            f"AutoSwitchConnection {transport.remote}", on_failure=environment.on_failure
        )
        self.slave: Final = slave
        self.remote: Final = transport.remote
        self.progress: SlaveProgress | None = None
        """From its first report on."""
        self.reason: RefusalReason | None = None
        """Why it ended; None after an orderly stop, and while it is open."""
        self.text = ""
        self._end_lock: Final = threading.Lock()
        """Guards `reason` and `text`."""
        self._transport = transport
        self._counters = source.page.counters
        self._files = SourceFiles(source)
        self._leadership = leadership
        self._flow = flow
        self._clock = clock
        self._events = events
        self._heartbeat_ms: Final = config.ha_send_heartbeat_interval
        self._silence_ms: Final = config.ha_housekeeping_interval
        largest = min(config.ha_transfer_batch_size, MAX_TRANSFER_BODY)
        if flow.is_limited:
            largest = min(largest, flow.frame_limit)
        self._master = AutoSwitchMaster(
            file_size=source.file_size, max_size=largest, heartbeat_interval_ms=self._heartbeat_ms
        )
        self._incoming = SlaveBytes(slave.report_key)
        self._is_checked: Final = slave.report_key is not None
        self._next: NextTransfer | None = None
        """With flow control: the frame whose turn comes at `_leave_at_ms`."""
        self._leave_at_ms = 0
        self._header = b""
        """What is left of the header that is being sent."""
        self._body_at = self._body_end = 0
        """What is left of its body, in the log."""
        self._with_sendfile = False
        self._last_read_ms = self._last_frame_ms = clock.monotonic_ms()
        # Last what a failure would leave open: a selector goes with its last reference.
        self._idle, self._busy = environment.new_selector(), environment.new_selector()
        self._idle.register(transport.fileno(), EVENT_READ)
        self._busy.register(transport.fileno(), EVENT_READ | EVENT_WRITE)
        self._waiter = wait_notify.new_waiter()
        self._waiter.register(self._idle)
        self._waiter.register(self._busy, bell=False)

    # -- for other threads ---------------------------------------------------------------------

    def end(self, reason: RefusalReason | None, text: str) -> None:
        """End it, whatever it is doing; the first reason is kept. Does not wait."""
        with self._end_lock:
            if self._transport.is_shut:
                return
            self.reason, self.text = reason, text
            self._transport.shutdown()
        self.request_stop()

    def interrupt(self) -> None:
        """It sleeps in its selectors."""
        self._waiter.wake()

    # -- the thread ----------------------------------------------------------------------------

    def begin(self) -> None:
        """The handshake was read at the door; here it is answered."""
        bounds = self._bounds()
        hello = encode_slave_handshake(self.slave.handshake)
        try:
            assert [*self._master.receive(hello, bounds)] == [self.slave.handshake]
            greeting = self._master.greeting(self._leadership.epochs, bounds)
        except AutoSwitchFrameError as error:
            self.end(error.reason, str(error))
            return
        self._header = head_of(greeting) + greeting if self._is_checked else greeting

    def step(self) -> None:
        """What came, then one frame, the rest of one, or one sleep."""
        try:
            self._read()
            if self._header or self._body_at < self._body_end:
                self._go_on()
            elif not self._start_frame():
                self._sleep()
        except AutoSwitchFrameError as error:
            self.end(error.reason, str(error))
        except EpochOrderError as error:
            self.end(RefusalReason.BELOW_MIN, f"the log cannot be labelled for it: {error}")
        except FileNotFoundError:
            self._end_below_min()
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                self._end_below_min()
            else:
                self.end(RefusalReason.NETWORK, f"the log cannot be read for it: {error}")
        except OSError as error:
            self.end(RefusalReason.NETWORK, f"the connection broke: {error.strerror or error}")

    def finish(self) -> None:
        """Give everything back."""
        self.end(None, "stopped")
        self._idle.close()
        self._busy.close()
        self._waiter.close()
        self._files.close()
        self._transport.close()
        self._events.ended(self)

    def _bounds(self) -> LogBounds:
        counters = self._counters
        # The confirm offset first: it may not be beyond the end that is told with it.
        confirm = self._leadership.confirm()
        end = counters[MAX_PHY_OFFSET]
        return LogBounds(counters[MIN_PHY_OFFSET], end, min(confirm, end))

    # -- reports -------------------------------------------------------------------------------

    def _read(self) -> None:
        data = self._transport.recv(_READ_SIZE)
        now_ms = self._clock.monotonic_ms()
        if data is None:
            if now_ms - self._last_read_ms >= self._silence_ms:
                self.end(
                    RefusalReason.SILENT,
                    f"no report for {self._silence_ms} ms (haHousekeepingInterval)",
                )
            return
        if not data:
            self.end(RefusalReason.NETWORK, "the slave closed the connection")
            return
        self._last_read_ms = now_ms
        bounds = self._bounds()
        has_reported = False
        for frame in self._master.receive(self._incoming.receive(data), bounds):
            if isinstance(frame, ReportFrame):
                self._take_report(frame.max_offset, now_ms)
                has_reported = True
        if has_reported and not self._transport.is_shut:
            self._events.reported(self, bounds.end)

    def _take_report(self, offset: int, now_ms: int) -> None:
        progress = self.progress
        if progress is None:
            start = self._master.position
            assert start is not None
            self._last_frame_ms = now_ms  # The first heartbeat is due so long after this report.
            self.progress = SlaveProgress(
                self.remote,
                offset,
                start,
                now_ms=now_ms,
                wall_ms=self._clock.now_ms(),
                reports_flushed=self.slave.reports_flushed,
            )
            self._events.began(self, self.progress)
            return
        before, sent = progress.ack_offset, progress.sent_offset
        refusal = progress.report(offset)
        if refusal is not None:
            raise AutoSwitchFrameError(
                f"report {offset}, after {before} was acknowledged and bytes up to {sent} were "
                "sent: it is not a slave of this log, or its log was changed",
                refusal,
            )

    # -- frames --------------------------------------------------------------------------------

    def _start_frame(self) -> bool:
        """Whether there was something to send, or the wait for its turn."""
        if self._transport.is_shut:
            return True
        now_ms = self._clock.monotonic_ms()
        following = self._next
        if following is None:
            following = self._master.next_transfer(self._leadership.epochs, self._bounds(), now_ms)
            if following is None:
                return False
            self._last_frame_ms = now_ms
            size = TRANSFER_HEADER_SIZE + self._is_checked * HEAD_SIZE + following.size
            self._leave_at_ms = self._flow.book(size, now_ms)
        if self._leave_at_ms > now_ms:
            self._next = following
            self._wait_for_turn(min(self._leave_at_ms - now_ms, _LOOK_AGAIN_MS))
            return True
        self._next = None
        self._send_frame(following, now_ms)
        return True

    def _head(self, following: NextTransfer, body: bytes | memoryview) -> bytes:
        header = encode_transfer_header(following.frame, following.size)
        return head_of(header, body) + header if self._is_checked else header

    def _send_frame(self, following: NextTransfer, now_ms: int) -> None:
        begin, size = following.frame.offset, following.size
        if not size:
            self._body_at = self._body_end = 0
            self._header = self._head(following, b"")
            self._go_on()
            return
        if not self._files.reach(begin):
            self._end_below_min()
            return
        assert self.progress is not None
        end = begin + size
        body = self._files.slice(begin, end)
        self._header = self._head(following, body)
        self._body_at, self._body_end = begin, end
        self._with_sendfile = size >= SENDFILE_FROM
        self.progress.sent(end, size, now_ms)
        self._go_on()

    def _go_on(self) -> None:
        """Send on until the frame is out, a report came, or the socket takes no more."""
        while self._header or self._body_at < self._body_end:
            taken = self._send_rest()
            if not taken:
                self._wait_for_socket()
                return
            of_header = min(taken, len(self._header))
            self._header = self._header[of_header:]
            self._body_at += taken - of_header
            if self.progress is not None:
                self.progress.transferred += taken - of_header

    def _send_rest(self) -> int:
        """A refused send is repeated with the same bytes, as Transport.send asks."""
        begin, end = self._body_at, self._body_end
        if begin == end:
            return self._transport.send((self._header,))
        if self._with_sendfile:
            if self._header:
                return self._transport.send((self._header,), more=True)
            at = begin - self._files.begin
            return self._transport.send_file(self._files.descriptor(), at, end - begin)
        body = self._files.slice(begin, end)
        return self._transport.send((self._header, body) if self._header else (body,))

    # -- sleeping ------------------------------------------------------------------------------

    def _sleep(self) -> None:
        """Until the log grows, a report comes, the heartbeat is due, or the connection ends."""
        now_ms = self._clock.monotonic_ms()
        silence_ms = self._last_read_ms + self._silence_ms - now_ms
        heartbeat_ms = self._last_frame_ms + self._heartbeat_ms - now_ms
        if self._master.position is None:
            heartbeat_ms = silence_ms  # None is due before the first report.
        self._waiter.announce_sleep()
        if self._has_work():
            self._waiter.announce_awake(())
            return
        timeout_ms = min(silence_ms, heartbeat_ms)
        confirm_ms = self._master.confirm_wait_ms(now_ms)
        if confirm_ms is not None:
            timeout_ms = min(timeout_ms, confirm_ms)
        self._waiter.announce_awake(self._idle.select(max(timeout_ms, 1) / 1000))

    def _has_work(self) -> bool:
        if self.stopped or self._transport.is_shut or self._transport.has_pending:
            return True
        position = self._master.position
        return position is not None and position < self._counters[MAX_PHY_OFFSET]

    def _wait_for_socket(self) -> None:
        """The slave does not read. The bell changes nothing meanwhile."""
        if self._transport.has_pending:
            return
        self._waiter.note(self._busy.select(_LOOK_AGAIN_MS / 1000))
        if self._body_at < self._body_end and self._counters[MIN_PHY_OFFSET] > self._body_at:
            self._end_below_min()

    def _wait_for_turn(self, timeout_ms: int) -> None:
        """Flow control: what is appended meanwhile changes nothing."""
        self._busy.modify(self._transport.fileno(), EVENT_READ)
        self._waiter.note(self._busy.select(timeout_ms / 1000))
        self._busy.modify(self._transport.fileno(), EVENT_READ | EVENT_WRITE)

    def _end_below_min(self) -> None:
        self.end(
            RefusalReason.BELOW_MIN,
            f"the next bytes to send were deleted here (the log starts at "
            f"{self._counters[MIN_PHY_OFFSET]}): the slave is too slow for fileReservedTime, it "
            "must start over as an empty one",
        )
