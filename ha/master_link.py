"""MasterLink: one open link to the master: its frames into the log, our reports back.

Never blocks; runs on HAClient's thread, which sleeps when there is nothing to do here. Bytes go
through one buffer, which stays in the processor's cache, into the file: one recv brings many small
frames, or a piece of a large one (why not through the mapped file: store/log_file.py). Whole frames
are published, as far as their checksums are right (frame.py; after a handshake) and haAckLevel
finds them valid, and the end of the last one is reported (offset_reporter.py). What it cannot do
itself, such as starting an empty log, it returns as a LinkOutcome. It knows no addresses and no
states; every end is a LinkClosedError. Corresponds to HAClient.dispatchReadRequest of RocketMQ.

Tested by tests/ha/test_ha_client.py.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from ha.frame import CHECKED_HEADER, FRAME_HEADER, MAX_FRAME_BODY, unpack_checked_header
from ha.frame_checksum import crc32c
from ha.frame_room import FrameRoom
from ha.ha_config import HaConfig
from ha.link_errors import LinkClosedError, bad_record, wrong_checksum
from ha.link_io import receive_into, silence_left_ms
from ha.offset_reporter import OffsetReporter
from ha.publication_step import is_step_full
from ha.receive_rate import ReceiveRate
from ha.refusals import RefusalReason
from ha.reports import Reports
from ha.selector_factory import EVENT_READ, EVENT_WRITE
from ha.transport import PlainTransport, Transport
from ipc.clock import Clock
from store.control_slots import SYNC_FLUSH_WANTED
from store.errors import StoreError
from store.replica_log import ReplicaLog

if TYPE_CHECKING:
    # numpy, which a master does not need, takes longer to import than the rest of its process.
    from ha.record_validator import BadRecord, RecordValidators

_BUFFER_SIZE: Final = 256 << 10
_POLL_MS: Final = 5
_NO_BYTE: Final = (
    " without sending a byte; its log says why (is haSharedSecretFile the same, or this broker in "
    "its haTrustedAddresses? is haTlsEnable the same?)"
)


class LinkOutcome(NamedTuple):
    """What one `receive` leaves to do."""

    has_more: bool
    """False: the socket has nothing more, or there is no room for what came."""
    start_offset: int | None = None
    """The empty log must start here before the frame that came can be stored; `log_started`
    follows, then the next `receive`."""


_MORE: Final = LinkOutcome(has_more=True)
_IDLE: Final = LinkOutcome(has_more=False)


class MasterLink:
    """See the module. Owned by: HAClient's thread; the numbers may be read by any."""

    def __init__(
        self,
        transport: Transport,
        log: ReplicaLog,
        config: HaConfig,
        clock: Clock,
        validators: RecordValidators,
        *,
        is_checked: bool = False,
        report_key: bytes | None = None,
    ) -> None:
        """The log is open. is_checked: frames have the checked form. report_key: for Reports."""
        self.transport: Final = transport
        self.connected_since_ms: Final = clock.now_ms()
        self.last_read_ms = self.connected_since_ms
        """Wall clock."""
        self.received = 0
        """Log bytes of whole frames; the owner may set a higher starting value."""
        self._log = log
        self.room: Final = FrameRoom(log, clock)
        self._counters = log.page.counters
        self._clock = clock
        self._reporter: Final = OffsetReporter(transport, log, config, clock, Reports(report_key))
        self._silence_ms: Final = config.ha_housekeeping_interval
        self._validators: Final = validators
        self._validator = validators.begin(_first_unchecked(log), is_checked=is_checked)
        self._bad: BadRecord | None = None
        # A short read from a plain socket says that it is empty; TLS gives a record at a time.
        self._short_is_empty: Final = isinstance(transport, PlainTransport)
        self._is_checked: Final = is_checked
        self._header_size: Final = CHECKED_HEADER.size if is_checked else FRAME_HEADER.size
        self._buffer = bytearray(_BUFFER_SIZE)
        self._buffer_view: Final = memoryview(self._buffer)
        self._buffered = 0
        self._body_size = self._body_left = 0
        """Of a body that was not whole in the buffer; while bytes of it are left, nothing else is
        in the buffer."""
        self._body_crc = self._crc_so_far = 0
        """With the checked form: of the whole body, as its header says, and of what has come."""
        self._start_offset: int | None = None
        """Frames wait until the empty log starts here."""
        now_ms = clock.monotonic_ms()
        self._read_at_ms = self._published_at_ms = now_ms
        self._rate: Final = ReceiveRate(clock, log.position)

    # -- receiving -----------------------------------------------------------------------------

    def receive(self) -> LinkOutcome:
        """One recv and what follows from it.

        Raises LinkClosedError, StoreError (a file cannot be opened); whole frames that came
        before are published then.
        """
        try:
            if self.room.is_awaited or self._start_offset is not None:
                more = self._retry_frames()
            elif self._body_left:
                more = self._receive_body()
            else:
                more = self._receive_frames()
        except (LinkClosedError, StoreError):
            self._publish_last()
            raise
        is_stuck = self._start_offset is not None or self._bad is not None
        if more and not is_stuck and not self._is_step_full():
            return _MORE
        self._publish()
        if self._start_offset is not None:
            return LinkOutcome(has_more=False, start_offset=self._start_offset)
        return _MORE if more else _IDLE

    def _is_step_full(self) -> bool:
        """Whether what came is worth a publication though the socket has more."""
        size = self._log.position - self._log.max_phy_offset
        return is_step_full(size, self._read_at_ms - self._published_at_ms)

    def log_started(self) -> None:
        """The log starts at the offset of the last outcome and has room there."""
        self._validator = self._validators.begin(self._log.position, is_checked=self._is_checked)

    def _receive_frames(self) -> bool:
        wanted = _BUFFER_SIZE - self._buffered
        count = self._recv_into(self._buffer_view[self._buffered :])
        if not count:
            return False
        self._buffered += count
        self._store_frames()
        return not self.room.is_awaited and (count == wanted or not self._short_is_empty)

    def _receive_body(self) -> bool:
        wanted = min(self._body_left, _BUFFER_SIZE)
        count = self._recv_into(self._buffer_view[:wanted])
        if not count:
            return False
        piece = self._buffer_view[:count]
        if self._is_checked:
            self._crc_so_far = crc32c(piece, self._crc_so_far)
        self._log.write(self._body_size - self._body_left, piece)
        self._body_left -= count
        if not self._body_left:
            if self._is_checked and self._crc_so_far != self._body_crc:
                raise wrong_checksum(f"{self._body_size} bytes", self._log.position)
            self._advance(self._body_size)
            return True
        return count == wanted or not self._short_is_empty

    def _retry_frames(self) -> bool:
        """Frames waited for the log's start or the next file; nothing was received meanwhile."""
        self.room.is_awaited, self._start_offset = False, None
        self._store_frames()
        if self.room.is_awaited:
            return False
        self.room.end_wait()
        self._read_at_ms = self._clock.monotonic_ms()
        return True

    def _recv_into(self, view: memoryview) -> int:
        """How many bytes were received; 0: none now."""
        has_read = self.last_read_ms != self.connected_since_ms
        count = receive_into(self.transport, view, "" if has_read else _NO_BYTE)
        if not count:
            return 0
        now_ms = self._read_at_ms = self._clock.monotonic_ms()
        self.last_read_ms = self._clock.now_ms()
        self._rate.update(now_ms, self._log.position)
        return count

    def _store_frames(self) -> None:
        """Store all frames in the buffer; of an incomplete last one, the part of its body that is
        there."""
        log = self._log
        view, filled = self._buffer_view, self._buffered
        at = 0
        header_size, is_checked, body_crc = self._header_size, self._is_checked, 0
        while filled - at >= header_size and self._bad is None:
            if is_checked:
                header = unpack_checked_header(view, at)
                if header is None:
                    raise wrong_checksum("a header", log.position)
                offset, size, body_crc = header
            else:
                offset, size = FRAME_HEADER.unpack_from(view, at)
            if offset != log.position or not 0 <= size <= MAX_FRAME_BODY or log.is_empty:
                self._check_header(offset, size)
                if self._start_offset is not None:
                    break
            body_at = at + header_size
            if size:
                there = min(size, filled - body_at)
                body = view[body_at : body_at + there]
                if is_checked:
                    crc = crc32c(body)
                    if there == size and crc != body_crc:
                        raise wrong_checksum(f"{size} bytes", offset)
                    self._body_crc, self._crc_so_far = body_crc, crc
                if not self.room.take(offset, size):
                    break
                log.write(0, body)
                if there < size:
                    self._body_size, self._body_left = size, size - there
                    at = filled
                    break
                self._advance(size)
            at = body_at + size
        if at:
            self._buffered = filled - at
            view[: self._buffered] = view[at:filled]

    def _advance(self, size: int) -> None:
        """The body of a frame is whole."""
        log = self._log
        log.advance(size)
        self.received += size
        if log.position % log.file_size == 0:
            # The next frame's bytes are in another file, and the check is file by file.
            self._check()

    def _check_header(self, offset: int, size: int) -> None:
        """Sets `_start_offset` when the log has to start at this frame. Raises LinkClosedError
        for an impossible header, and for one that does not continue our log."""
        log = self._log
        if not 0 <= size <= MAX_FRAME_BODY or offset < 0:
            raise LinkClosedError(
                RefusalReason.BAD_FRAME,
                f"a frame of {size} bytes for offset {offset} received (0 to {MAX_FRAME_BODY} "
                "bytes are valid): is this address a master's HA port?",
            )
        if log.is_empty and log.position == 0:
            if size and not (offset == 0 and log.has_room):
                self._start_offset = offset
        elif offset != log.position:
            raise LinkClosedError(
                RefusalReason.OFFSET_MISMATCH,
                f"a frame for offset {offset} received, our log continues at {log.position}",
            )

    # -- publishing ----------------------------------------------------------------------------

    def _publish(self) -> None:
        """Publish the whole frames, report, ring; in this order, since the master waits for the
        report."""
        has_grown = self._show()
        try:
            self._reporter.report()
        finally:
            if has_grown:
                self._log.ring()
        if self._bad is not None:
            raise bad_record(self._bad, self._log.max_phy_offset)

    def _publish_last(self) -> None:
        """The link is being closed: whole frames need not be fetched again."""
        with contextlib.suppress(StoreError):  # The reason for closing matters more.
            if self._show():
                self._log.ring()

    def _show(self) -> bool:
        """Publish the whole frames, as far as they are valid. Whether there were any."""
        end = self._check()
        if end <= self._log.max_phy_offset:
            return False
        if self._reporter.acknowledges_flushed:
            self._counters[SYNC_FLUSH_WANTED] = end
        self._log.publish(end)
        self._published_at_ms = self._read_at_ms
        return True

    def _check(self) -> int:
        """Up to where whole frames may be published; `_bad` says why what follows may not."""
        validator, position = self._validator, self._log.position
        if position > validator.position and self._bad is None:
            self._bad = validator.check(self._log.file_view(validator.position), position)
        return max(validator.position, self._log.max_phy_offset)

    # -- sleeping ------------------------------------------------------------------------------

    @property
    def interest(self) -> int:
        """The socket's events that matter now; 0: none."""
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
            limits_ms.append(silence_left_ms(now_ms - self._read_at_ms, self._silence_ms))
        if self._reporter.reported < 0:
            limits_ms = [_POLL_MS]
        return max(min(limits_ms), 0)

    # -- status -----------------------------------------------------------------

    @property
    def waits_for_file(self) -> bool:
        """Frames wait until the `store` process has created the next file."""
        return self.room.is_awaited

    @property
    def last_write_ms(self) -> int:
        """Wall clock ms of the last report; 0 = none yet. Any thread."""
        return self._reporter.last_write_ms

    def bytes_per_second(self) -> int:
        """Log bytes received lately. Any thread."""
        return self._rate.bytes_per_second(self._log.position)


def _first_unchecked(log: ReplicaLog) -> int:
    """Start of the first record that is not wholly published: our end, except in a log whose only
    byte was written by ourselves."""
    end = log.max_phy_offset
    return 0 if end == 1 else end
