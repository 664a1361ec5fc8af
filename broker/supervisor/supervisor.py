"""The supervisor: parent of all processes; single-threaded and dull (design.md, sections 2 and 4).

It holds what must outlive a child (listening sockets, the store's lock, control page, queue table,
bells, channels), starts the children as fresh interpreters from the main thread, watches that they
live and that their beats move (until they serve: that they do anything), restarts them with
back-off, and stops everything in order. A child
that ends with EXIT_REOPEN wants the store's files changed as only a closed store's may be: all
children but the name server stop in order and start again on a fresh page, while the listening
sockets stay open. Signal handlers only set a flag and wake the loop. It touches no message and no
file of the store.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from broker.processes.child import EXIT_CANNOT_BOOT, EXIT_FLUSH_FAILED, EXIT_REOPEN, BootInfo
from broker.supervisor.control_slots import REMOTING_READY
from broker.supervisor.process_progress import progress_of
from ipc.clock import Clock
from ipc.control_page import BEAT, SLEEPS, STARTS, ControlPage, ProcessIndex

log = logging.getLogger(__name__)

_TICK_MS: Final = 100
_QUIET_TICK_MS: Final = 500
"""While the broker serves: a child's death and a signal end the wait."""
_LATE_MS: Final = 1_500
_QUICK_DEATHS: Final = 6
_QUICK_WINDOW_MS: Final = 60_000
_BACK_OFF_MS: Final = (0, 250, 1_000, 2_000, 4_000)
_REOPENS: Final = 5
"""More of them within a minute do not get the store any further."""
_ABORT_GRACE_MS: Final = 2_000
_STALE: Final = (
    *range(BEAT),
    *(SLEEPS + p for p in (ProcessIndex.STORE, ProcessIndex.REMOTING, ProcessIndex.HA)),
    REMOTING_READY,
)
"""Slots that describe the open store, or the processes that had it open. Beats, starts, refusals
and slave sync go on: they are counted over the broker's life."""
_NUMPY_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy's own threads, which nothing here uses, spin while a process starts."""
_FLUSH_FAILED: Final = (
    "writing to disk failed (fdatasync); the broker stops. "
    "Check the disk, then start again: the store is recovered from disk"
)


@dataclass(slots=True)
class ChildSpec:
    """How to start one child; `boot` is complete but for the parent's pid."""

    name: str
    index: ProcessIndex
    module: str
    boot: BootInfo
    inherited_fds: tuple[int, ...]


@dataclass(slots=True)
class ChildState:
    """What the supervisor knows of one child. Owned by: the supervisor's loop."""

    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    last_beat: int = -1
    has_beaten: bool = False
    """Since it was started: it serves."""
    beat_at_ms: int = 0
    progress: tuple[int, ...] = ()
    """Start beats, processor time and bytes of one that does not serve yet."""
    progress_at_ms: int = 0
    waited_ms: int = 0
    """How long its start has taken when the log said so last."""
    started_ms: int = 0
    """When it was started last."""
    start_at_ms: int = 0
    """When it shall be started again; 0: not now."""
    aborted_at_ms: int = 0
    deaths_ms: deque[int] = field(default_factory=lambda: deque(maxlen=_QUICK_DEATHS))
    restarts: int = 0


class Supervisor:
    """Starts, watches, restarts and stops the children."""

    def __init__(
        self,
        specs: list[ChildSpec],
        page: ControlPage,
        clock: Clock,
        *,
        home: Path,
        hang_timeout_ms: int,
        start_timeout_ms: int = 30_000,
        stop_timeout_ms: int = 10_000,
        on_tick: Callable[[], None] = lambda: None,
        on_reopen: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`specs` are in start order; they are stopped in the reverse order.

        hang_timeout_ms: for a child that serves: the longest time between two beats.
        start_timeout_ms: for one that does not serve yet: the longest time without progress
        (processor time, bytes, start beats); where it is less, hang_timeout_ms. However long the
        start takes, one that gets on is not ended: it would not be faster the next time.
        on_reopen: nobody has the store open now; make what else the children share as new.
        on_stop: the broker shall stop, its children still run.
        """
        self._children = [ChildState(spec) for spec in specs]
        self._page = page
        self._clock = clock
        self._home = home
        self._hang_timeout_ms = hang_timeout_ms
        self._start_timeout_ms = max(start_timeout_ms, hang_timeout_ms)
        self._stop_timeout_ms = stop_timeout_ms
        self._on_tick = on_tick
        self._on_reopen = on_reopen
        self._on_stop = on_stop
        self._last_ms = 0
        self._reopens_ms: deque[int] = deque(maxlen=_REOPENS + 1)
        self._stop_requested = False
        self._last_words = ""
        self._exit_code = 0
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wake_read, select.POLLIN)

    @property
    def last_words(self) -> str:
        """Why the broker stopped by itself; empty after an orderly stop."""
        return self._last_words

    def children(self) -> list[ChildState]:
        """The children, in start order."""
        return self._children

    def request_stop(self) -> None:
        """End the loop; safe in a signal handler and from any thread."""
        self._stop_requested = True

    def run(self) -> int:
        """Start all, watch until asked to stop, stop all; returns the exit code."""
        self._install_signals()
        for child in self._children:
            self._spawn(child)
        self._last_ms = self._clock.monotonic_ms()
        while not self._stop_requested:
            self._wait(self._tick_ms())
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._last_ms > _LATE_MS:
                log.warning("the supervisor stood still for %s ms", now_ms - self._last_ms)
                self._excuse_beats(now_ms)
            self._last_ms = now_ms
            self._page.beat(ProcessIndex.SUPERVISOR)
            for child in self._children:
                self._look_after(child, now_ms)
            self._on_tick()
        self._on_stop()
        self._stop_all()
        return self._exit_code

    def stop_with(self, words: str, exit_code: int) -> None:
        """End the loop because of a fault; `words` become the broker's last line."""
        if not self._last_words:
            self._last_words, self._exit_code = words, exit_code
            log.error("%s", words)
        self._stop_requested = True

    def _tick_ms(self) -> int:
        """Short while something is under way: a start, a restart, a child that shall be killed."""
        busy = any(each.start_at_ms or each.aborted_at_ms for each in self._children)
        quiet = self._page.counters[REMOTING_READY] and not busy
        return min(_QUIET_TICK_MS, self._hang_timeout_ms // 4) if quiet else _TICK_MS

    # -- signals -------------------------------------------------------------------------------

    def _install_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self.request_stop())

    def _wait(self, timeout_ms: int) -> None:
        if self._poll.poll(timeout_ms):
            try:
                os.read(self._wake_read, 4096)
            except BlockingIOError:
                return

    # -- starting ------------------------------------------------------------------------------

    def _spawn(self, child: ChildState) -> None:
        spec = child.spec
        boot = msgspec.structs.replace(spec.boot, parent_pid=os.getpid())
        fd = os.memfd_create(f"mqbroker-boot-{spec.name}")
        try:
            os.write(fd, msgspec.json.encode(boot))
            child.process = subprocess.Popen(
                [sys.executable, "-m", spec.module, str(fd)],
                pass_fds=(*spec.inherited_fds, fd),
                env={**os.environ, "PYTHONPATH": str(self._home), **_NUMPY_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        finally:
            os.close(fd)
        self._page.counters[STARTS + spec.index] += 1
        child.last_beat, child.has_beaten = self._page.beats(spec.index), False
        child.beat_at_ms = child.started_ms = child.progress_at_ms = self._clock.monotonic_ms()
        child.progress, child.waited_ms = (), 0
        child.aborted_at_ms = child.start_at_ms = 0
        log.info("%s: started, pid %s", spec.name, child.process.pid)

    # -- watching ------------------------------------------------------------------------------

    def _look_after(self, child: ChildState, now_ms: int) -> None:
        if child.process is None:
            if child.start_at_ms and now_ms >= child.start_at_ms and not self._stop_requested:
                self._spawn_again(child, now_ms)
            return
        code = child.process.poll()
        if code is not None:
            self._bury(child, code, now_ms)
        else:
            self._check_beat(child, now_ms)

    def _bury(self, child: ChildState, code: int, now_ms: int) -> None:
        name = child.spec.name
        child.process = None
        if code == EXIT_CANNOT_BOOT:
            self.stop_with(f"process {name} cannot start (see its log); the broker stops", 1)
            return
        if code == EXIT_FLUSH_FAILED:
            self.stop_with(f"process {name}: {_FLUSH_FAILED}", EXIT_FLUSH_FAILED)
            return
        if code == EXIT_REOPEN:
            self._reopen(name)
            return
        child.deaths_ms.append(now_ms)
        quick = [at for at in child.deaths_ms if now_ms - at < _QUICK_WINDOW_MS]
        if len(quick) >= _QUICK_DEATHS:
            self.stop_with(
                f"process {name} ended {len(quick)} times within "
                f"{_QUICK_WINDOW_MS // 1000} s (last exit code {code}); the broker stops",
                1,
            )
            return
        delay_ms = _BACK_OFF_MS[min(len(quick) - 1, len(_BACK_OFF_MS) - 1)]
        child.start_at_ms = now_ms + delay_ms
        child.restarts += 1
        log.error("%s: ended with code %s, starting again in %s ms", name, code, delay_ms)
        if delay_ms == 0:
            self._spawn_again(child, now_ms)

    def _spawn_again(self, child: ChildState, now_ms: int) -> None:
        """A machine that is short of memory or processes now may have some later."""
        try:
            self._spawn(child)
        except OSError as error:
            child.start_at_ms = now_ms + _BACK_OFF_MS[2]
            log.error("%s: cannot be started now: %s", child.spec.name, error)

    def _excuse_beats(self, now_ms: int) -> None:
        """This process stood still itself (SIGSTOP, a frozen machine): so may the children have.
        Their beats are counted anew."""
        for child in self._children:
            child.beat_at_ms = child.progress_at_ms = now_ms
            if child.aborted_at_ms:
                child.aborted_at_ms = now_ms

    def _check_beat(self, child: ChildState, now_ms: int) -> None:
        assert child.process is not None
        beat = self._page.beats(child.spec.index)
        if beat != child.last_beat:
            child.last_beat, child.beat_at_ms, child.has_beaten = beat, now_ms, True
            return
        if child.aborted_at_ms:
            if now_ms - child.aborted_at_ms > _ABORT_GRACE_MS:
                child.process.kill()
        elif child.has_beaten:
            self._abort_if(child, now_ms, child.beat_at_ms, self._hang_timeout_ms, "beat")
        else:
            self._follow_start(child, child.process.pid, now_ms)
            what = "sign of progress in its start"
            self._abort_if(child, now_ms, child.progress_at_ms, self._start_timeout_ms, what)

    def _follow_start(self, child: ChildState, pid: int, now_ms: int) -> None:
        """Note whether a child that does not serve yet gets on with it."""
        progress = (self._page.start_beats(child.spec.index), *progress_of(pid))
        if progress != child.progress:
            child.progress, child.progress_at_ms = progress, now_ms
        taken_ms = now_ms - child.started_ms
        if taken_ms - child.waited_ms > self._start_timeout_ms:
            child.waited_ms = taken_ms
            log.warning("%s: still starting after %s ms", child.spec.name, taken_ms)

    def _abort_if(
        self, child: ChildState, now_ms: int, since_ms: int, timeout_ms: int, what: str
    ) -> None:
        """Dump and end a child of which nothing was seen for too long."""
        assert child.process is not None
        if now_ms - since_ms > timeout_ms:
            silent_ms = now_ms - since_ms
            log.error("%s: no %s for %s ms: dumping its stacks", child.spec.name, what, silent_ms)
            child.aborted_at_ms = now_ms
            # A stopped process dumps nothing until it is continued.
            child.process.send_signal(signal.SIGABRT)
            child.process.send_signal(signal.SIGCONT)

    # -- reopening -----------------------------------------------------------------------------

    def _reopen(self, name: str) -> None:
        """Stop whoever has the store open, in order; make the shared memory as new; start again.

        A failed fdatasync ends the broker; any other unclean stop is what recovery is for.
        """
        now_ms = self._clock.monotonic_ms()
        self._reopens_ms.append(now_ms)
        recent = [at for at in self._reopens_ms if now_ms - at < _QUICK_WINDOW_MS]
        if len(recent) > _REOPENS:
            self.stop_with(
                f"process {name} asked {len(recent)} times within {_QUICK_WINDOW_MS // 1000} s to "
                "open the store anew (its log says why); the broker stops",
                1,
            )
            return
        log.warning("%s: asks for the store to be opened anew: all processes stop, in order", name)
        again = [c for c in self._children if c.spec.index is not ProcessIndex.NAMESRV]
        deadline_ms = now_ms + self._stop_timeout_ms
        for child in reversed(again):
            code = self._end_child(child, deadline_ms)
            if code == EXIT_FLUSH_FAILED:
                self._judge_stop(child.spec.name, code)
            elif code is not None:
                log.info("%s: stopped with code %s", child.spec.name, code)
        if not self._stop_requested:
            self._make_new()
            for child in again:
                self._spawn_again(child, self._clock.monotonic_ms())
        self._last_ms = self._clock.monotonic_ms()
        self._excuse_beats(self._last_ms)

    def _make_new(self) -> None:
        for slot in _STALE:
            self._page.counters[slot] = 0
        self._on_reopen()
        log.info("every process has let go of the store, they start again")

    # -- stopping ------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        """Children stop one after the other, in the reverse of the start order."""
        deadline_ms = self._clock.monotonic_ms() + self._stop_timeout_ms
        for child in reversed(self._children):
            code = self._end_child(child, deadline_ms)
            if code is not None:
                self._judge_stop(child.spec.name, code)

    def _end_child(self, child: ChildState, deadline_ms: int) -> int | None:
        """Stop one child, by force after the deadline; its exit code, None when none ran."""
        process, child.process = child.process, None
        if process is None:
            return None
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        while process.poll() is None:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                log.error("%s: did not stop in time, killed", child.spec.name)
                process.kill()
                process.wait()
                break
            self._wait(min(left_ms, _TICK_MS))
        return process.returncode

    def _judge_stop(self, name: str, code: int) -> None:
        """A stop that failed is no success: the store may not be whole, or not on disk.
        EXIT_REOPEN is none: what was asked for is done by the next start."""
        if code in (0, -signal.SIGTERM, EXIT_REOPEN):
            log.info("%s: stopped", name)
        elif code == EXIT_FLUSH_FAILED:
            self.stop_with(f"process {name}: {_FLUSH_FAILED}", code)
        else:
            self.stop_with(f"process {name} ended with code {code} while the broker stopped", 1)
