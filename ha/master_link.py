"""MasterLink: one open link to the master: its frames into the log, our reports back.

Never blocks; runs on HAClient's thread, which sleeps when there is nothing to do here. Bytes go
from the socket straight into the mapped file, but for small frames: one recv brings many of them,
and they are copied (a system call costs more than 64 KiB of copying). Whole frames are published,
as far as haAckLevel finds them good, and the last of them is reported; a report that the socket
does not take is kept, and the newest follows it. It knows no addresses and no states; every end is
a LinkClosedError. Follows HAClient.dispatchReadRequest / reportSlaveMaxOffset of the original.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ha.frame import FRAME_HEADER, MAX_FRAME_BODY, REPORT
from ha.ha_config import HaAckLevel, HaConfig
from ha.refusals import RefusalReason
from ha.selector_factory import EVENT_READ, EVENT_WRITE
from ha.transport import PlainTransport, Transport
from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.control_slots import FLUSHED_OFFSET, RUNNING_FLAGS, SYNC_FLUSH_WANTED
from store.errors import StoreError
from store.log_end import NextFileNotReadyError
from store.mapped_file import file_name
from store.replica_log import ReplicaLog
from store.running_flags import RunningFlag

TLS_WAY_OUT: Final = (
    "haTlsEnable must be the same on both sides, and each must trust the other's certificate"
)
if TYPE_CHECKING:
    from ha.record_validator import RecordValidator

_BUFFER_SIZE: Final = 64 << 10
_HEADER_SIZE: Final = FRAME_HEADER.size
_POLL_MS: Final = 5
_POLL_LONG_MS: Final = 100
_LONG_MS: Final = 1000
_RATE_MS: Final = 1000


class LinkClosedError(Exception):
    """The link ends: `reason` is counted when there is one; the text says why and the way out."""

    def __init__(self, reason: RefusalReason | None, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class MasterLink:
    """See the module. Owned by: HAClient's thread; the numbers may be read by any."""

    def __init__(
        self,
        transport: Transport,
        log: ReplicaLog,
        page: ControlPage,
        config: HaConfig,
        clock: Clock,
        begin_log: Callable[[int], None],
    ) -> None:
        """The log is open. begin_log: called with the first frame's offset while the log is
        empty; the log has begun there and has room when it returns. Raises LinkClosedError."""
        self.transport: Final = transport
        self.connected_since_ms: Final = clock.now_ms()
        self.last_read_ms = self.connected_since_ms
        """Wall clock."""
        self.last_write_ms = 0
        """Wall clock; 0 = no report yet."""
        self.received = 0
        """Log bytes of whole frames; whoever made the link may let it begin higher."""
        self.waits_for_file = False
        """Frames wait until the `store` process has made the next file."""
        self._log = log
        self._counters = page.counters
        self._clock = clock
        self._begin_log = begin_log
        self._heartbeat_ms: Final = config.ha_send_heartbeat_interval
        self._silence_ms: Final = config.ha_housekeeping_interval
        self._flushed: Final = config.ha_ack_level is HaAckLevel.flushed
        self._validator: RecordValidator | None = None
        if config.ha_ack_level is not HaAckLevel.received:
            self._validator = _new_validator(log.file_size, _first_unchecked(log))
        self._bad: str | None = None
        # A short read from a plain socket says that it is empty; TLS gives a record at a time.
        self._short_is_empty: Final = isinstance(transport, PlainTransport)
        self._buffer = bytearray(_BUFFER_SIZE)
        self._buffer_view: Final = memoryview(self._buffer)
        self._buffered = 0
        self._body: memoryview | None = None
        """What is missing of a body that did not lie whole in the buffer, in the mapped file."""
        self._body_size = 0
        self._reported = -1
        self._unsent = b""
        now_ms = clock.monotonic_ms()
        self._read_at_ms = now_ms
        self._wrote_at_ms = now_ms
        self._no_room_since_ms = 0
        self._rate_from_ms = now_ms
        self._rate_from = log.position
        self._rate = 0

    # -- receiving -----------------------------------------------------------------------------

    def receive(self) -> bool:
        """One recv and what follows from it. False: the socket has nothing more, or there is no
        room for what came. Raises LinkClosedError, StoreError (a file cannot be opened); whole
        frames that came before are published then."""
        try:
            if self.waits_for_file:
                more = self._retry()
            elif self._body is not None:
                more = self._receive_body(self._body)
            else:
                more = self._receive_frames()
        except (LinkClosedError, StoreError):
            self._publish_last()
            raise
        self._publish()
        return more

    def _receive_frames(self) -> bool:
        wanted = _BUFFER_SIZE - self._buffered
        count = self._recv_into(self._buffer_view[self._buffered :])
        if not count:
            return False
        self._buffered += count
        self._take_frames()
        return not self.waits_for_file and (count == wanted or not self._short_is_empty)

    def _receive_body(self, body: memoryview) -> bool:
        count = self._recv_into(body)
        if not count:
            return False
        if count == len(body):
            self._body = None
            self._log.advance(self._body_size)
            self.received += self._body_size
            return True
        self._body = body[count:]
        return not self._short_is_empty

    def _retry(self) -> bool:
        """Frames that waited for the next file; what the master did meanwhile is not known."""
        self.waits_for_file = False
        self._take_frames()
        if not self.waits_for_file:
            self._no_room_since_ms = 0
            self._read_at_ms = self._clock.monotonic_ms()
        return not self.waits_for_file

    def _recv_into(self, view: memoryview) -> int:
        """How many bytes came; 0: none now."""
        try:
            count = self.transport.recv_into(view)
        except ssl.SSLError as error:
            raise _tls_failure(error) from error
        except OSError as error:
            raise LinkClosedError(RefusalReason.NETWORK, f"receiving failed: {error}") from error
        if count is None:
            return 0
        if count == 0:
            raise LinkClosedError(RefusalReason.NETWORK, self._why_ended())
        now_ms = self._read_at_ms = self._clock.monotonic_ms()
        self.last_read_ms = self._clock.now_ms()
        if now_ms >= self._rate_from_ms + _RATE_MS:
            self._rate = self._rate_since(now_ms)
            self._rate_from_ms, self._rate_from = now_ms, self._log.position
        return count

    def _why_ended(self) -> str:
        if self.last_read_ms == self.connected_since_ms:
            return (
                "the master closed the connection without a byte; its log says why (is this "
                "broker in its haTrustedAddresses, or registered? is haTlsEnable the same?)"
            )
        return "the master closed the connection"

    def _take_frames(self) -> None:
        """All frames in the buffer; of a last one that is cut, what there is of its body."""
        log = self._log
        view, filled = self._buffer_view, self._buffered
        at = 0
        while filled - at >= _HEADER_SIZE and self._bad is None:
            offset, size = FRAME_HEADER.unpack_from(view, at)
            if offset != log.position or not 0 <= size <= MAX_FRAME_BODY or log.is_empty:
                self._judge_header(offset, size)
            body_at = at + _HEADER_SIZE
            if size:
                there = min(size, filled - body_at)
                try:
                    room = self._room(offset, size)
                except NextFileNotReadyError:
                    self._wait_for_room()
                    break
                room[:there] = view[body_at : body_at + there]
                if there < size:
                    self._body, self._body_size = room[there:], size
                    at = filled
                    break
                log.advance(size)
                self.received += size
                if log.position % log.file_size == 0:
                    # The next frame's bytes are in another file, and the check is file by file.
                    self._check()
            at = body_at + size
        if at:
            self._buffered = filled - at
            view[: self._buffered] = view[at:filled]

    def _judge_header(self, offset: int, size: int) -> None:
        """Raises LinkClosedError for a header that cannot be, or does not continue our log."""
        log = self._log
        if not 0 <= size <= MAX_FRAME_BODY or offset < 0:
            raise LinkClosedError(
                RefusalReason.BAD_FRAME,
                f"a frame of {size} bytes for offset {offset} came (0 to {MAX_FRAME_BODY} bytes "
                "are possible): is this address a master's HA port?",
            )
        if log.is_empty and log.position == 0:
            if size and not (offset == 0 and log.has_room):
                self._begin_log(offset)
                if self._validator is not None:
                    self._validator = _new_validator(log.file_size, offset)
        elif offset != log.position:
            raise LinkClosedError(
                RefusalReason.OFFSET_MISMATCH,
                f"a frame for offset {offset} came, our log goes on at {log.position}",
            )

    def _room(self, offset: int, size: int) -> memoryview:
        left = self._log.left_in_file(offset)
        if size > left:
            raise LinkClosedError(
                RefusalReason.BAD_FRAME,
                f"a frame of {size} bytes for offset {offset} crosses the end of our file after "
                f"{left}: probably mappedFileSizeCommitLog is {self._log.file_size} here and "
                "another on the master; set the same, and replicate this slave anew",
            )
        return self._log.room(size)

    def _wait_for_room(self) -> None:
        self.waits_for_file = True
        if not self._no_room_since_ms:
            self._no_room_since_ms = self._clock.monotonic_ms()

    # -- publishing ----------------------------------------------------------------------------

    def _publish(self) -> None:
        """Show the whole frames, report, ring. In this order: the report is waited for."""
        has_grown = self._show()
        try:
            self.report()
        finally:
            if has_grown:
                self._log.ring()
        if self._bad is not None:
            raise LinkClosedError(
                RefusalReason.BAD_RECORD,
                f"what the master sent for offset {self._log.max_phy_offset} is no record: "
                f"{self._bad}; the log ends there until the master sends something else",
            )

    def _publish_last(self) -> None:
        """The link ends: what came whole before is not to be fetched again."""
        with contextlib.suppress(StoreError):  # Why the link ends is more important.
            if self._show():
                self._log.ring()

    def _show(self) -> bool:
        """Publish the whole frames, as far as they are good. Whether there were any."""
        end = self._check()
        if end <= self._log.max_phy_offset:
            return False
        if self._flushed:
            self._counters[SYNC_FLUSH_WANTED] = end
        self._log.publish(end)
        return True

    def _check(self) -> int:
        """Up to where whole frames may be published; `_bad` says why what follows may not."""
        validator, position = self._validator, self._log.position
        if validator is None:
            return position
        if position > validator.position and self._bad is None:
            self._bad = validator.check(self._log.file_view(validator.position), position)
        return max(validator.position, self._log.max_phy_offset)

    # -- reporting -----------------------------------------------------------------------------

    @property
    def ack_offset(self) -> int:
        """What may be reported now."""
        end = self._log.max_phy_offset
        return min(end, self._counters[FLUSHED_OFFSET]) if self._flushed else end

    def report(self) -> None:
        """Send a report if one is due: there is more to acknowledge, or it was silent for long.
        Raises LinkClosedError.

        The first, which says where to go on, is due as soon as all that we have is acknowledged.
        """
        if self._unsent:
            self._send(self._unsent)
            return
        offset = max(self.ack_offset, self._reported)
        if offset == self._reported:
            if self._clock.monotonic_ms() < self._wrote_at_ms + self._heartbeat_ms:
                return
        elif self._reported < 0 and offset < self._log.max_phy_offset:
            self._counters[SYNC_FLUSH_WANTED] = self._log.max_phy_offset
            return
        self._reported = offset
        self._send(REPORT.pack(offset))

    def _send(self, data: bytes) -> None:
        try:
            count = self.transport.send((data,))
        except ssl.SSLError as error:
            raise _tls_failure(error) from error
        except OSError as error:
            raise LinkClosedError(RefusalReason.NETWORK, f"reporting failed: {error}") from error
        self._unsent = data[count:]
        if count:
            self._wrote_at_ms = self._clock.monotonic_ms()
            self.last_write_ms = self._clock.now_ms()

    # -- sleeping ------------------------------------------------------------------------------

    @property
    def interest(self) -> int:
        """The socket's events that matter now; 0: none."""
        return (0 if self.waits_for_file else EVENT_READ) | (EVENT_WRITE if self._unsent else 0)

    def has_work(self) -> bool:
        """Whether something came that the socket's readiness does not announce."""
        if self.waits_for_file:
            return self._log.has_room
        if self._flushed and not self._unsent and self.ack_offset > self._reported >= 0:
            return True
        return self.transport.has_pending

    def wait_ms(self) -> int:
        """How long nothing needs to be done. Raises LinkClosedError: the master was silent for
        haHousekeepingInterval."""
        now_ms = self._clock.monotonic_ms()
        limits_ms = [] if self._unsent else [self._wrote_at_ms + self._heartbeat_ms - now_ms]
        if self.waits_for_file:
            waited_ms = now_ms - self._no_room_since_ms
            limits_ms.append(_POLL_MS if waited_ms < _LONG_MS else _POLL_LONG_MS)
        else:
            limits_ms.append(self._read_at_ms + self._silence_ms - now_ms)
            if limits_ms[-1] <= 0:
                raise LinkClosedError(
                    RefusalReason.SILENT,
                    f"nothing came for {self._silence_ms} ms (haHousekeepingInterval); a master "
                    "sends a heartbeat every haSendHeartbeatInterval",
                )
        if self._reported < 0:
            limits_ms = [_POLL_MS]
        return max(min(limits_ms), 0)

    # -- what is said about it -----------------------------------------------------------------

    def trouble(self) -> str | None:
        """What keeps the link from going on for long now, None when nothing does."""
        since_ms = self._no_room_since_ms
        if not self.waits_for_file or self._clock.monotonic_ms() < since_ms + _LONG_MS:
            return None
        start = self._log.position
        full = bool(self._counters[RUNNING_FLAGS] & RunningFlag.DISK_FULL)
        return (
            f"commit log file {file_name(start)} is not allocated: "
            + ("the disk is full; free space on the store's partition" if full else "see store.log")
            + "; replication goes on once it is there"
        )

    def bytes_per_second(self) -> int:
        """Log bytes received lately. Any thread."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._rate_from_ms + _RATE_MS:
            return self._rate
        return self._rate_since(now_ms)

    def _rate_since(self, now_ms: int) -> int:
        size = max(self._log.position - self._rate_from, 0)
        return size * 1000 // max(now_ms - self._rate_from_ms, 1)


def _first_unchecked(log: ReplicaLog) -> int:
    """Where the first record begins that is not published whole: our end, but for a log whose
    only byte was written by ourselves."""
    end = log.max_phy_offset
    return 0 if end == 1 else end


def _tls_failure(error: ssl.SSLError) -> LinkClosedError:
    return LinkClosedError(
        RefusalReason.TLS,
        f"TLS failed: {error.reason or error}; {TLS_WAY_OUT}",
    )


def _new_validator(file_size: int, position: int) -> RecordValidator:
    """Its numpy takes longer to import than the rest of this process: only where it is needed."""
    from ha.record_validator import RecordValidator

    return RecordValidator(file_size, position)
