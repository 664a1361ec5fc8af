"""WriteSocketService: sends the log to one slave, straight from the files.

A thread of process `ha` for each connection, the only writer of its socket. It sends ahead and
waits for no acknowledgement; a frame never crosses a commit-log file. A small frame leaves with one
sendmsg from the mapped file, a large one with sendfile. With nothing to send it sleeps on the
process' bell, so that a new record leaves at once; after haSendHeartbeatInterval of silence an
empty frame goes out. After a handshake (handshake.py) every frame carries checksums, computed from
the mapped file, also of what sendfile sends: 40 µs a MiB here. Corresponds to
HAConnection.WriteSocketService of RocketMQ. It knows no records and judges no reports.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from ha.flow_monitor import FlowMonitor
from ha.frame import CHECKED_HEADER, FRAME_HEADER, MAX_FRAME_BODY, pack_checked_header
from ha.ha_environment import HaEnvironment
from ha.refusals import RefusalReason
from ha.report_ceiling import ReportCeiling
from ha.selector_factory import EVENT_WRITE
from ha.served_link import ServedLink
from ha.wait_notify_object import WaitNotifyObject
from ipc.control_page import ControlPage
from ipc.service_thread import ServiceThread
from store.commit_log_reader import CommitLogReader
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import StoreError
from store.log_directories import LogDirectories

SENDFILE_FROM: Final = 64 << 10
"""Frames of at least this size are sent with sendfile; for smaller ones, one copying sendmsg is
cheaper than the two calls."""
_LOOK_AGAIN_MS: Final = 1000
"""No sleep is longer while a slave does not read: its file may be deleted meanwhile."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where the bytes come from: the log's directory or directories, its file size and the page
    that says how far it may be read."""

    place: Path | LogDirectories
    file_size: int
    page: ControlPage


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
    ) -> None:
        """Sends from progress.sent_offset on, in the checked form or RocketMQ's (frame.py)."""
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
        self._is_checked: Final = is_checked
        self._header_size: Final = CHECKED_HEADER.size if is_checked else FRAME_HEADER.size
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
            if self._header_left or self._body_left:
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
        if self._is_checked:
            body_crc = crc32c(files.slice(begin, end))
            pack_checked_header(self._header, begin, size, body_crc)
        else:
            FRAME_HEADER.pack_into(self._header, 0, begin, size)
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
        if self._is_checked:
            pack_checked_header(self._header, self._next, 0, crc32c(b""))
        else:
            FRAME_HEADER.pack_into(self._header, 0, self._next, 0)
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

    def _end_below_min(self, position: int) -> None:
        self._end(
            RefusalReason.BELOW_MIN,
            f"byte {position}, the next to send, was deleted here (the log starts at "
            f"{self._counters[MIN_PHY_OFFSET]}): the slave is too slow for fileReservedTime, it "
            "must start over",
        )


class SourceFiles:
    """The file that is being sent: its mapping, and its descriptor once sendfile needs it."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._reader = CommitLogReader(source.place, source.file_size, source.page, max_maps=1)
        self.begin = 0
        self.end = 0
        self._view: memoryview | None = None
        self._fd = -1

    def reach(self, offset: int) -> bool:
        """Make the file that holds `offset` the current one; False when it is gone."""
        if self.begin <= offset < self.end:
            return True
        self._let_go()
        view = self._reader.view_of_file(offset)
        if view is None:
            return False
        self._view = view
        self.begin = offset - offset % self._source.file_size
        self.end = self.begin + len(view)
        return True

    def slice(self, begin: int, end: int) -> memoryview:
        """Bytes of the current file, by their offsets in the log."""
        assert self._view is not None
        return self._view[begin - self.begin : end - self.begin]

    def descriptor(self) -> int:
        """The current file, opened for reading. Raises OSError."""
        if self._fd < 0:
            path = LogDirectories.of(self._source.place).path_of(self.begin)
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._fd

    def _let_go(self) -> None:
        self.begin = self.end = 0
        self._view = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Unmap and close; idempotent."""
        self._let_go()
        self._reader.close()
