"""MetricsDump: what the supervisor knows of replication, a line every few seconds.

A thread of the supervisor process. It keeps the interval on the monotonic clock, numbers the
lines, and hands them to DumpFiles. The format is docs/metrics_dump.md; a line's content comes from
ReplicationSnapshot. Whatever goes wrong here is counted, logged and tried again: the broker does
not need its dump.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec

from broker.metrics.metrics_dump_files import DumpFiles, DumpSettings, Mark
from broker.settings.startup_options import StartupOptions
from ipc.clock import Clock
from ipc.service_thread import ServiceThread

log = logging.getLogger(__name__)

VERSION: Final = 1
SHUTDOWN_MS: Final = 3_000
"""How long a stop waits for the last line and the compression of the last hour."""
_QUIET_MS: Final = 3_600_000
"""A kind of trouble is logged once in this time."""
_AGAIN: Final = "it is tried again at every interval"

Json = dict[str, Any]


def dump_settings(options: StartupOptions) -> DumpSettings | None:
    """What the settings say; None: no dump."""
    supervisor, broker = options.supervisor, options.broker
    directory = supervisor.dump_directory(options.store.root)
    if directory is None:
        return None
    return DumpSettings(
        directory=directory,
        cluster=broker.broker_cluster_name,
        broker=broker.broker_name,
        broker_id=broker.broker_id,
        interval_ms=supervisor.metrics_dump_interval_seconds * 1000,
        max_bytes=supervisor.metrics_dump_max_megabytes << 20,
        keep_days=supervisor.metrics_dump_keep_days,
    )


class MetricsDump(ServiceThread):
    """See the module. Owned by: its own thread; `lines` and `failures` may be read by any."""

    def __init__(self, settings: DumpSettings, snapshot: Callable[[], Json], clock: Clock) -> None:
        """snapshot: the content of a line from `cluster` on; called on this thread only."""
        super().__init__("MetricsDump")
        self.lines = 0
        """Lines written since the broker began."""
        self.failures = 0
        """Lines that could not be written."""
        self.boot: Final = secrets.token_hex(8)
        self._settings = settings
        self._snapshot = snapshot
        self._clock = clock
        self._boot_ms = clock.now_ms()
        self._seq = 0
        self._due_ms = clock.monotonic_ms()
        self._before: Mark | None = None
        self._took_over = False
        self._told_ms: dict[tuple[str, object], int] = {}
        self._missing = 0
        """Lines that are missing since that was last said."""
        self._told = False
        self._files = DumpFiles(settings, self.boot, self._tell)

    def step(self) -> None:
        """One turn, and the wait for the next line."""
        self.wait_for_running(self.turn())

    def turn(self) -> int:
        """Write the line that is due, if one is; ms until the next one. Moments that were slept
        through (the machine stood still) are left out, not made up for."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._due_ms:
            interval_ms = self._settings.interval_ms
            self._due_ms += interval_ms * (1 + (now_ms - self._due_ms) // interval_ms)
            self._write_line(final=False)
            self._tidy()
        return max(self._due_ms - self._clock.monotonic_ms(), 0)

    def finish(self) -> None:
        """The last line of an orderly stop; its file is closed."""
        self._write_line(final=True)
        self._tidy()
        self._guard("closing the last file", self._files.close, then="the next start closes it")

    def shutdown(self, timeout_ms: float = SHUTDOWN_MS) -> bool:
        """Write the last line and wait; idempotent. False, with an error log, when the disk took
        too long: then the next start closes the file."""
        return super().shutdown(timeout_ms)

    # -- lines ---------------------------------------------------------------------------------

    def _write_line(self, *, final: bool) -> None:
        if self._seq == 0:
            looking = "looking for the previous life's last line"
            self._guard(looking, self._find_predecessor, then="this life's lines name none")
        self._seq += 1
        if self._guard("writing a line", lambda: self._append(final=final)):
            self.lines += 1
            if self._missing and self._told:
                log.warning(
                    "metrics dump %s: lines are written again, %s are missing",
                    self._settings.directory,
                    self._missing,
                )
                self._missing, self._told = 0, False
        else:
            self.failures += 1
            self._missing += 1

    def _append(self, *, final: bool) -> None:
        ts_ms = self._clock.now_ms()
        before = self._before
        line = {
            "v": VERSION,
            "ts": ts_ms,
            "mono": self._clock.monotonic_ms(),
            "boot": self.boot,
            "boot_ts": self._boot_ms,
            "seq": self._seq,
            "prev_boot": None if before is None else before.boot,
            "prev_seq": None if before is None else before.seq,
            "interval_ms": self._settings.interval_ms,
            "final": final,
            **self._snapshot(),
        }
        self._files.append(ts_ms, self._seq, msgspec.json.encode(line) + b"\n")

    def _find_predecessor(self) -> None:
        self._before = self._files.find_last_mark()

    def _tidy(self) -> None:
        if not self._took_over:
            taking = "taking over the previous life's files"
            self._took_over = self._guard(taking, self._files.take_over)
        self._guard("housekeeping", lambda: self._files.tidy(self._clock.now_ms()))

    # -- trouble -------------------------------------------------------------------------------

    def _guard(self, what: str, act: Callable[[], None], *, then: str = _AGAIN) -> bool:
        """Whether `act` did it; `then` says what follows when not. No exception may end this
        thread: nobody would start it again, and a broker without its dump is still a broker."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - logged and counted, see above
            self._tell(what, error, then)
            return False
        return True

    def _tell(self, what: str, error: Exception, then: str) -> None:
        """Log each kind of trouble once an hour."""
        is_environment = isinstance(error, OSError)
        kind = (what, error.errno if isinstance(error, OSError) else type(error))
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms.get(kind, now_ms - _QUIET_MS) < _QUIET_MS:
            return
        self._told_ms[kind], self._told = now_ms, True
        log.error(
            "metrics dump %s: %s: %s; %s (metricsDumpPath says where, none turns the dump off)",
            self._settings.directory,
            what,
            error,
            then,
            exc_info=None if is_environment else error,
        )
