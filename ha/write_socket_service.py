"""WriteSocketService: sends the log to one slave, straight from the files.

A thread of process `ha` for each connection, the only writer of its socket but while that is lent
(link_loan.py). It sends ahead and waits for no acknowledgement; a frame never crosses a commit-log
file. A small frame leaves with one sendmsg from the mapped file, a large one with sendfile. With
nothing to send it sleeps on the process' bell, so that a new record leaves at once; after
haSendHeartbeatInterval of silence an empty frame goes out. After a handshake (handshake.py) every
frame carries checksums, computed from the mapped file, also of what sendfile sends: 40 µs a MiB
here. Corresponds to HAConnection.WriteSocketService of RocketMQ. It knows no records and judges no
reports.
"""

from __future__ import annotations

from typing import Final

from ha.flow_monitor import FlowMonitor
from ha.frame import MAX_FRAME_BODY, header_size, pack_header
from ha.ha_environment import HaEnvironment
from ha.lendable_link import LendableLink
from ha.refusals import RefusalReason
from ha.report_ceiling import ReportCeiling
from ha.selector_factory import EVENT_WRITE
from ha.served_link import ServedLink
from ha.source_files import LogSource, SourceFiles
from ha.wait_notify_object import WaitNotifyObject
from ipc.service_thread import ServiceThread
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import StoreError

SENDFILE_FROM: Final = 64 << 10
"""Frames of at least this size are sent with sendfile; for smaller ones, one copying sendmsg is
cheaper than the two calls."""
_LOOK_AGAIN_MS: Final = 1000
"""No sleep is longer while a slave does not read: its file may be deleted meanwhile."""


class WriteSocketService(ServiceThread):
    """See the module. Its state is its thread's; others only call `wake` and `shutdown`."""

    def __init__(
        self,
        environment: HaEnvironment,
        link: ServedLink,
        source: LogSource,
        flow: FlowMonitor,
        wait_notify: WaitNotifyObject,
        report_ceiling: ReportCeiling,
        *,
        is_checked: bool = False,
        loan: LendableLink | None = None,
    ) -> None:
        """Sends from progress.sent_offset on, in the checked form or RocketMQ's (frame.py). loan:
        None: the connection is never lent."""
        transport, progress = link.transport, link.progress
        config, clock = environment.config, environment.clock
        super().__init__(
            f"WriteSocketService {transport.remote}", on_failure=environment.on_failure
        )
        self._transport = transport
        self._progress = progress
        self._counters = source.page.counters
        self._files = SourceFiles(source)
        self._flow = flow
        self._clock = clock
        self._report_ceiling = report_ceiling
        self._end = link.end
        self._finished = link.finished
        self._heartbeat_ms: Final = config.ha_send_heartbeat_interval
        self._largest = min(config.ha_transfer_batch_size, MAX_FRAME_BODY)
        if flow.is_limited:
            self._largest = min(self._largest, flow.frame_limit)

        self._next = progress.sent_offset
        """The first byte of the next frame."""
        self._booked: tuple[int, int] | None = None
        """With flow control: the size of the next frame and when it may leave."""
        self._header_size: Final = header_size(is_checked=is_checked)
        self._header = bytearray(self._header_size)
        self._header_left = 0
        self._body_left = 0
        """Of the frame that is being sent, which ends at `_next`."""
        self._with_sendfile = False
        self._last_write_ms = clock.monotonic_ms()

        # Last what a failure would leave open: a selector goes with its last reference.
        self._idle, self._blocked = environment.new_selector(), environment.new_selector()
        self._blocked.register(transport.fileno(), EVENT_WRITE)
        self._waiter = wait_notify.new_waiter()
        self._waiter.register(self._idle)
        self._waiter.register(self._blocked, bell=False)
        self._loan: Final = loan
        if loan is not None:
            self._waiter.register(loan.selector, bell=False)

    # -- for other threads ---------------------------------------------------------------------

    def wake(self) -> None:
        """Check the state again: the transport was shut down."""
        self._waiter.wake()
        self.wakeup()

    def interrupt(self) -> None:
        """It sleeps in its selectors."""
        self._waiter.wake()

    # -- the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """One frame, the rest of one, or one sleep."""
        if self._transport.is_shut:
            self.shutdown()
            return
        try:
            if self._loan is not None and self._loan.is_out:
                self._wait_for_loan(self._loan)
            elif self._header_left or self._body_left:
                self._go_on()
            elif self._next < self._counters[MAX_PHY_OFFSET]:
                self._next_frame()
            else:
                self._sleep()
        except FileNotFoundError:
            self._end_below_min(self._next - self._body_left)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                self._end_below_min(self._next - self._body_left)
            else:
                self._end(RefusalReason.NETWORK, f"the log cannot be read for it: {error}")
        except OSError as error:
            self._end(RefusalReason.NETWORK, f"sending failed: {error.strerror or error}")

    def finish(self) -> None:
        """Give everything back."""
        if self._loan is not None:
            self._loan.close()
        self._idle.close()
        self._blocked.close()
        self._waiter.close()
        self._files.close()
        self._finished()

    # -- frames --------------------------------------------------------------------------------

    def _next_frame(self) -> None:
        begin = self._next
        files = self._files
        if begin < self._counters[MIN_PHY_OFFSET] or not files.reach(begin):
            self._end_below_min(begin)
            return
        now_ms = self._clock.monotonic_ms()
        if self._flow.is_limited:
            size = self._book(begin, now_ms)
            if not size:
                return
        else:
            size = self._size_of_frame(begin)
        end = begin + size
        pack_header(self._header, begin, files.slice(begin, end))
        # Before the first byte leaves: the acknowledgement may come before the call returns.
        self._progress.sent(end, size, now_ms)
        self._report_ceiling.sent(self._progress.ip, end)
        self._next = end
        self._last_write_ms = now_ms
        if size < SENDFILE_FROM:
            taken = self._transport.send((self._header, files.slice(begin, end)))
            if taken == self._header_size + size:
                self._progress.transferred += size
                return
            self._with_sendfile = False
            self._header_left, self._body_left = self._header_size, size
            self._consume_sent(taken)
        else:
            self._with_sendfile = True
            self._header_left, self._body_left = self._header_size, size
            self._go_on()

    def _size_of_frame(self, begin: int) -> int:
        end = min(self._counters[MAX_PHY_OFFSET], self._files.end)
        return min(end - begin, self._largest)

    def _book(self, begin: int, now_ms: int) -> int:
        """Flow control: the size that may leave now, or 0 after a sleep."""
        if self._booked is None:
            size = self._size_of_frame(begin)
            self._booked = size, self._flow.book(self._header_size + size, now_ms)
        size, leave_at_ms = self._booked
        if leave_at_ms <= now_ms:
            self._booked = None
            return size
        heartbeat_in_ms = self._last_write_ms + self._heartbeat_ms - now_ms
        if heartbeat_in_ms <= 0:
            self._heartbeat(now_ms)
        else:
            # Not on the bell: what is appended meanwhile changes nothing.
            self.wait_for_running(min(leave_at_ms - now_ms, heartbeat_in_ms, _LOOK_AGAIN_MS))
        return 0

    def _heartbeat(self, now_ms: int) -> None:
        pack_header(self._header, self._next, b"")
        self._flow.book(self._header_size, now_ms)
        self._last_write_ms = now_ms
        self._with_sendfile = False
        self._header_left = self._header_size
        self._consume_sent(self._transport.send((self._header,)))

    def _go_on(self) -> None:
        """Send on until the frame is out, or sleep until the socket takes more."""
        while True:
            taken = self._send_rest()
            if taken:
                self._consume_sent(taken)
                if not self._header_left and not self._body_left:
                    self._last_write_ms = self._clock.monotonic_ms()
                    return
                continue
            self._waiter.note(self._blocked.select(_LOOK_AGAIN_MS / 1000))
            if self.stopped or self._transport.is_shut:
                return
            if self._counters[MIN_PHY_OFFSET] > self._next - self._body_left and self._body_left:
                self._end_below_min(self._next - self._body_left)
                return

    def _send_rest(self) -> int:
        """A refused send is repeated with the same bytes, as Transport.send asks."""
        begin = self._next - self._body_left
        header = memoryview(self._header)[self._header_size - self._header_left :]
        if self._with_sendfile:
            if self._header_left:
                return self._transport.send((header,), more=True)
            position = begin - self._files.begin
            return self._transport.send_file(self._files.descriptor(), position, self._body_left)
        if not self._body_left:
            return self._transport.send((header,))
        body = self._files.slice(begin, self._next)
        return self._transport.send((header, body) if self._header_left else (body,))

    def _consume_sent(self, count: int) -> None:
        of_header = min(count, self._header_left)
        self._header_left -= of_header
        of_body = count - of_header
        self._body_left -= of_body
        self._progress.transferred += of_body

    # -- sleeping ------------------------------------------------------------------------------

    def _sleep(self) -> None:
        """Until the log grows, the heartbeat is due, or the link ends."""
        now_ms = self._clock.monotonic_ms()
        left_ms = self._last_write_ms + self._heartbeat_ms - now_ms
        if left_ms <= 0:
            self._heartbeat(now_ms)
            return
        if self._lends(now_ms):
            return
        self._waiter.announce_sleep()
        end = self._counters[MAX_PHY_OFFSET]
        if end == self._next and not self.stopped and not self._transport.is_shut:
            self._waiter.announce_awake(self._idle.select(left_ms / 1000))
            return
        self._waiter.announce_awake(())
        if end < self._next:
            self._end(
                RefusalReason.BEYOND_MAX,
                f"the log ends at {end} now, before {self._next}, which this slave was sent; it "
                "must compare again when it reconnects",
            )

    # -- while the connection is lent ----------------------------------------------------------

    def _lends(self, now_ms: int) -> bool:
        loan = self._loan
        return loan is not None and loan.begin(
            now_ms, sent_ms=self._last_write_ms, is_in_file=self._is_in_file
        )

    def _is_in_file(self) -> bool:
        try:
            return self._files.reach(self._next)
        except (OSError, StoreError):
            return False  # The log ends with its file, and the next one is being made.

    def _wait_for_loan(self, loan: LendableLink) -> None:
        """One look at it; when it is back, go on where the other process stopped."""
        events, back = loan.wait()
        self._waiter.note(events)
        if back is None:
            return
        self._next, self._last_write_ms = back.next_offset, back.sent_ms
        if back.reason is not None:
            self._end(RefusalReason[back.reason], back.text)
        elif back.frame_left:
            size = back.next_offset - back.frame_at
            pack_header(self._header, back.frame_at, self._files.slice(back.frame_at, self._next))
            self._with_sendfile = False
            self._header_left = max(back.frame_left - size, 0)
            self._body_left = min(back.frame_left, size)
            self._progress.transferred -= self._body_left

    def _end_below_min(self, position: int) -> None:
        self._end(
            RefusalReason.BELOW_MIN,
            f"byte {position}, the next to send, was deleted here (the log starts at "
            f"{self._counters[MIN_PHY_OFFSET]}): the slave is too slow for fileReservedTime, it "
            "must start over",
        )
