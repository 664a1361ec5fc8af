"""MetricsDump: writes a snapshot of the replication state to a file every few seconds.

A thread of the supervisor process. It schedules lines on the monotonic clock, numbers them, and
passes them to DumpFiles. docs/metrics_dump.md describes the format; the content of a line comes
from ReplicationSnapshot. Failures are counted, logged and retried: the broker works without its
dump.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from broker.metrics.dump_life import FILE_NAME, PastLife, read_past_life, write_past_life
from broker.metrics.metrics_dump_files import DumpFiles, DumpSettings, Mark, line_digest
from broker.settings.startup_options import StartupOptions
from ipc.clock import Clock
from ipc.service_thread import ServiceThread
from store.clean_exit import boot_id
from store.retention_clock import RetentionClock

log = logging.getLogger(__name__)

VERSION: Final = 2
NO_ID: Final = -1
"""Of a member to which the controller has not given one yet: it writes no line, as nobody could
tell whose it is."""
SHUTDOWN_MS: Final = 3_000
"""How long a shutdown waits for the last line and the compression of the last hour."""
_QUIET_MS: Final = 3_600_000
"""Each kind of error is logged once in this period."""
_BOOT_DIGITS: Final = 16
_LOOK_FOR_ID_MS: Final = 200
_AGAIN: Final = "retrying at every interval"

Json = dict[str, Any]


def dump_settings(options: StartupOptions) -> DumpSettings | None:
    """The dump's settings; None if the dump is disabled."""
    supervisor, broker = options.supervisor, options.broker
    directory = supervisor.dump_directory(options.store.root)
    if directory is None:
        return None
    mode = options.controller_mode
    is_unnamed = mode.enable_controller_mode and not mode.identity_file(options.store.root).exists()
    return DumpSettings(
        directory=directory,
        cluster=broker.broker_cluster_name,
        broker=broker.broker_name,
        broker_id=NO_ID if is_unnamed else broker.broker_id,
        interval_ms=supervisor.metrics_dump_interval_seconds * 1000,
        max_bytes=supervisor.metrics_dump_max_megabytes << 20,
        keep_days=supervisor.metrics_dump_keep_days,
        host=f"{broker.broker_ip1}:{options.server.listen_port}",
        past_life=Path(options.store.root, FILE_NAME),
    )


class MetricsDump(ServiceThread):
    """See the module. Owned by: its own thread; any thread may read `lines` and `failures`."""

    def __init__(
        self,
        settings: DumpSettings,
        snapshot: Callable[[int], Json],
        clock: Clock,
        clock_error_ms: Callable[[], int | None] = lambda: None,
        ended: Json | None = None,
        find_id: Callable[[], int] = lambda: 0,
    ) -> None:
        """snapshot: returns the fields of a line from `since` on, given the monotonic ms of the
        last line that was written. clock_error_ms: by how much the wall clock may be wrong, None
        when that is not known. Both are called on this thread only. ended: what a life had counted
        that left its page (kept_sends.py): for the first line, if that life is the one before.
        find_id: the broker id, if the settings have NO_ID; 0: none yet."""
        super().__init__("MetricsDump")
        self.lines = 0
        """Lines written since the broker was started."""
        self.failures = 0
        """Lines that failed to be written."""
        self.boot: Final = secrets.token_hex(8)
        self._settings = settings
        self._snapshot = snapshot
        self._clock = clock
        self._clock_error_ms = clock_error_ms
        self._ended = ended
        self._machine_boot = boot_id().replace("-", "")[:_BOOT_DIGITS]
        self._aging = RetentionClock(clock)
        self._boot_ms = clock.now_ms()
        self._seq = 0
        self._due_ms = self._written_ms = clock.monotonic_ms()
        self._written_digest: str | None = None
        """Of the last line that was written, in this life or the one before; `_written_ms`: its
        monotonic time, of the start until there is one."""
        self._before: Mark | None = None
        self._took_over = self._is_remembered = False
        self._in_order = True
        self._reported_ms: dict[tuple[str, object], int] = {}
        self._missing = 0
        """Lines lost since the last log message about it."""
        self._was_reported = False
        self._find_id = find_id
        self._files = DumpFiles(settings, self.boot, self._report)

    def step(self) -> None:
        """Run one turn and wait for the next line."""
        self.wait_for_running(self.turn())

    def turn(self) -> int:
        """Write a line if one is due; returns the ms until the next one. Lines missed because the
        process was not scheduled are skipped, not written late."""
        now_ms = self._clock.monotonic_ms()
        if not self._has_id():
            return _LOOK_FOR_ID_MS
        if now_ms >= self._due_ms:
            interval_ms = self._settings.interval_ms
            self._due_ms += interval_ms * (1 + (now_ms - self._due_ms) // interval_ms)
            self._write_line(final=False)
            self._tidy()
        return max(self._due_ms - self._clock.monotonic_ms(), 0)

    def finish(self) -> None:
        """Write the last line and close the file."""
        if not self._has_id():
            return
        self._write_line(final=self._in_order)
        self._tidy()
        self._guard("closing the last file", self._files.close, then="the next start will close it")

    def shutdown(self, timeout_ms: float = SHUTDOWN_MS, *, in_order: bool = True) -> bool:
        """Write the last line and wait; idempotent. in_order: nothing is answered any more, and all
        that was is in the counters: the line is final. False, with an error log, if the disk took
        too long; the next start then closes the file."""
        self._in_order = in_order
        return super().shutdown(timeout_ms)

    def _has_id(self) -> bool:
        if self._settings.broker_id == NO_ID:
            found = self._find_id()
            if not found:
                return False
            self._settings = dataclasses.replace(self._settings, broker_id=found)
            self._files = DumpFiles(self._settings, self.boot, self._report)
        return True

    # -- lines ---------------------------------------------------------------------------------

    def _write_line(self, *, final: bool) -> None:
        if self._seq == 0:
            looking = "reading the last line of the previous run"
            self._guard(
                looking, self._find_predecessor, then="lines of this run do not refer to it"
            )
        self._seq += 1
        if self._guard("writing a line", lambda: self._append(final=final)):
            self.lines += 1
            self._remember()
            if self._missing and self._was_reported:
                log.warning(
                    "metrics dump %s: resumed, %s lines are missing",
                    self._settings.directory,
                    self._missing,
                )
                self._missing, self._was_reported = 0, False
        else:
            self.failures += 1
            self._missing += 1

    def _append(self, *, final: bool) -> None:
        ts_ms, mono_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        before = self._before
        fields = {
            "v": VERSION,
            "ts": ts_ms,
            "mono": mono_ms,
            "boot": self.boot,
            "boot_ts": self._boot_ms,
            "seq": self._seq,
            "prev_boot": None if before is None else before.boot,
            "prev_seq": None if before is None else before.seq,
            "prev_digest": self._written_digest,
            "interval_ms": self._settings.interval_ms,
            "final": final,
            "machine_boot": self._machine_boot,
            "uptime": self._clock.since_boot_ms(),
            "clock_error_ms": self._clock_error_ms(),
            **self._end_of(before),
            **self._snapshot(self._written_ms),
        }
        line = msgspec.json.encode(fields)
        self._files.append(ts_ms, self._seq, line + b"\n")
        self._written_ms, self._written_digest = mono_ms, line_digest(line)
        self._ended = None

    def _end_of(self, before: Mark | None) -> Json:
        ended = self._ended
        if ended is None or before is None or ended["boot"] != before.boot:
            return {}
        return {"ended": ended}

    def _find_predecessor(self) -> None:
        path = self._settings.past_life
        past = None if path is None else read_past_life(path)
        self._before = self._files.find_last_mark(past)
        if self._before is not None:
            self._written_digest = self._before.digest

    def _remember(self) -> None:
        """For the next life, which may have another broker id."""
        settings = self._settings
        if self._is_remembered or settings.past_life is None:
            return
        life = PastLife(
            cluster=settings.cluster,
            broker=settings.broker,
            broker_id=settings.broker_id,
            host=settings.host,
            boot=self.boot,
        )
        write = functools.partial(write_past_life, settings.past_life, life)
        self._is_remembered = self._guard("noting whose lines they are", write)

    def _tidy(self) -> None:
        if not self._took_over:
            taking = "finding the files of previous runs"
            self._took_over = self._guard(taking, self._files.take_over)
        self._guard("housekeeping", lambda: self._files.tidy(self._aging.now_ms()))

    # -- errors -------------------------------------------------------------------------------

    def _guard(self, what: str, act: Callable[[], None], *, then: str = _AGAIN) -> bool:
        """Run `act`; False if it failed, in which case `then` describes the consequence in the log.
        No exception may end this thread, since nothing would restart it and the broker does not
        depend on the dump."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - logged and counted, see above
            self._report(what, error, then)
            return False
        return True

    def _report(self, what: str, error: Exception, then: str) -> None:
        """Log each kind of error once an hour."""
        is_environment = isinstance(error, OSError)
        kind = (what, error.errno if isinstance(error, OSError) else type(error))
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._reported_ms.get(kind, now_ms - _QUIET_MS) < _QUIET_MS:
            return
        self._reported_ms[kind], self._was_reported = now_ms, True
        log.error(
            "metrics dump %s: %s: %s; %s (metricsDumpPath sets the directory, none disables the "
            "dump)",
            self._settings.directory,
            what,
            error,
            then,
            exc_info=None if is_environment else error,
        )
