"""ReadSocketService: receives the reports of one slave.

A thread of process `ha` for each connection, the only reader of its socket. While the connection is
lent (link_loan.py) it rests. An invalid report closes the connection, as do silence and the end of
the stream; of several good ones the last is told. Corresponds to HAConnection.ReadSocketService of
RocketMQ. What makes a report invalid, and which sends a valid one releases, is not known here
(ReportIntake, SlaveProgress, GroupTransferService).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ha.ha_environment import HaEnvironment
from ha.reader_pause import ReaderPause, ReadState
from ha.refusals import RefusalReason
from ha.report_intake import ReportIntake
from ha.reports import Reports
from ha.selector_factory import EVENT_READ
from ha.served_link import ServedLink
from ha.slave_progress import SlaveProgress
from ipc.service_thread import ServiceThread

_READ_SIZE: Final = 4096


class ReadSocketService(ServiceThread):
    """See the module. Its state is its thread's."""

    def __init__(
        self,
        environment: HaEnvironment,
        link: ServedLink,
        reports: Reports,
        pause: ReaderPause,
        *,
        acknowledged: Callable[[SlaveProgress, int], None],
        log_end: Callable[[], int],
    ) -> None:
        """pause: of the connection. `acknowledged` is called after each good report, with the end
        of the log that `log_end` told before it, on this thread."""
        transport, clock = link.transport, environment.clock
        super().__init__(f"ReadSocketService {transport.remote}", on_failure=environment.on_failure)
        self._transport = transport
        self._progress = link.progress
        self._housekeeping_ms: Final = environment.config.ha_housekeeping_interval
        self._clock = clock
        self._pause = pause
        self._intake = ReportIntake(reports, link.progress)
        self._acknowledged = acknowledged
        self._log_end = log_end
        self._end = link.end
        self._finished = link.finished
        self._last_read_ms = clock.monotonic_ms()
        self._selector = environment.new_selector()
        self._selector.register(transport.fileno(), EVENT_READ)
        self._selector.register(pause.event_fd, EVENT_READ)

    def step(self) -> None:
        """Sleep once and handle what arrived."""
        if self._transport.is_shut:
            self.shutdown()
            return
        try:
            # TLS may hold bytes that the socket no longer announces.
            has_pending = self._transport.has_pending
            events = () if has_pending else self._selector.select(self._left_ms() / 1000)
            if any(key.fd == self._pause.event_fd for key, _mask in events):
                self._rest()
            elif has_pending or events:
                self._read()
            elif not self._left_ms():
                self._end(
                    RefusalReason.SILENT,
                    f"no report for {self._housekeeping_ms} ms (haHousekeepingInterval)",
                )
        except OSError as error:
            self._end(RefusalReason.NETWORK, f"reading failed: {error.strerror or error}")

    def finish(self) -> None:
        """Release all resources."""
        self._selector.close()
        self._pause.close()
        self._finished()

    def _left_ms(self) -> int:
        left_ms = self._last_read_ms + self._housekeeping_ms - self._clock.monotonic_ms()
        return max(left_ms, 0)

    def _read(self) -> None:
        data = self._transport.recv(_READ_SIZE)
        if data is None:
            return
        if not data:
            self._end(RefusalReason.NETWORK, "the slave closed the connection")
            return
        self._last_read_ms = self._clock.monotonic_ms()
        log_end = self._log_end()
        if self._intake.take(data):
            self._acknowledged(self._progress, log_end)
        elif self._intake.reason is not None:
            self._end(self._intake.reason, self._intake.text)

    def _rest(self) -> None:
        """Another process reads, for a while."""
        found = self._pause.rest(ReadState(self._intake.rest, self._last_read_ms))
        self._intake.rest, self._last_read_ms = found
