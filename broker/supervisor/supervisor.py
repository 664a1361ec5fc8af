"""The supervisor: parent of all processes; single-threaded and deliberately simple.

It owns what must outlive a child (listening sockets, the store's lock, control page, queue table,
bells, channels), starts the children from the main thread (forked the first time, while it is the
only thread; as fresh interpreters when it starts one again; they import their own modules),
monitors that they are alive and send heartbeats (or, until they serve, make progress), restarts
them with back-off, and stops everything in order. A child that ends with EXIT_REOPEN requests a
change of the store's files that requires a closed store: all children but the name server stop in
order and start again with a new control page, while the listening sockets stay open. Signal
handlers only set a flag and wake the loop. It touches no message and no file of the store.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import select
import signal
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from broker.supervisor.boot_info import EXIT_CANNOT_BOOT, EXIT_FLUSH_FAILED, EXIT_REOPEN
from broker.supervisor.child_state import QUICK_DEATHS, ChildSpec, ChildState
from broker.supervisor.control_slots import REMOTING_READY, WRITERS_STOPPED
from broker.supervisor.forked_process import ForkedProcess, fork_child, may_fork
from broker.supervisor.life_stages import ChildTimeouts, LifeStages
from broker.supervisor.process_progress import progress_of
from conf.errors import EXIT_CANNOT_START
from ha.control_slots import (
    LENT_ACKED,
    LENT_NUMBER,
    LENT_SENT,
    LOAN,
    MASTER_EPOCH,
    MEMBER_ORDER,
    ORDER_TAKEN,
    PUTS_REFUSED,
    PUTS_UNTIL_MS,
)
from ipc.clock import Clock
from ipc.control_page import BEAT, ENDS, SLEEPS, STARTS, ControlPage, ProcessIndex
from store.control_slots import READING

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger(__name__)

_TICK_MS: Final = 100
_LOOK_MS: Final = 10
"""How often it looks whether remoting serves: the boot line does not wait for a tick."""
_QUIET_TICK_MS: Final = 500
"""Tick while the broker serves; a child's death and a signal end the wait."""
_LATE_MS: Final = 1_500
_QUICK_WINDOW_MS: Final = 60_000
_BACK_OFF_MS: Final = (0, 250, 1_000, 2_000, 4_000)
_REOPENS: Final = 5
"""Maximum reopens within a minute; more would not help the store."""
_ABORT_GRACE_MS: Final = 2_000
_STALE: Final = (
    *range(BEAT),
    *(SLEEPS + p for p in (ProcessIndex.STORE, ProcessIndex.REMOTING, ProcessIndex.HA)),
    REMOTING_READY,
    *(MEMBER_ORDER, MASTER_EPOCH, PUTS_UNTIL_MS, PUTS_REFUSED, ORDER_TAKEN),
    *(LOAN, LENT_NUMBER, LENT_SENT, LENT_ACKED),
    WRITERS_STOPPED,
)
"""Slots that describe the open store, or the processes that had it open. Beats, starts, rejected
links and slave sync are not reset: they are counted over the broker's lifetime."""
NUMPY_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Disables numpy's thread pools, which are not used here and spin while a process starts."""
_FLUSH_FAILED: Final = (
    "writing to disk failed (fdatasync); the broker stops. "
    "Check the disk, then start again: the store will be recovered from disk"
)
_SIGBUS_CAUSE: Final = (
    " (SIGBUS: a file that it had mapped was truncated, or its disk cannot be read)"
)


class Supervisor:
    """Starts, monitors, restarts and stops the children."""

    def __init__(
        self,
        specs: list[ChildSpec],
        page: ControlPage,
        clock: Clock,
        timeouts: ChildTimeouts,
        stages: LifeStages,
        *,
        home: Path,
    ) -> None:
        """`specs` are in start order; they are stopped in the reverse order. home: where children
        that are fresh interpreters find the product."""
        self._children = [ChildState(spec) for spec in specs]
        self._page = page
        self._clock = clock
        self._home = home
        self._hang_timeout_ms = timeouts.hang_ms
        self._start_timeout_ms = max(timeouts.start_ms, timeouts.hang_ms)
        self._stop_timeout_ms = timeouts.stop_ms
        self._stages = stages
        self._last_ms = 0
        self._reopens_ms: deque[int] = deque(maxlen=_REOPENS + 1)
        self._stop_requested = False
        self._stop_reason = ""
        self._exit_code = 0
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wake_read, select.POLLIN)

    @property
    def stop_reason(self) -> str:
        """Why the broker stopped by itself; empty after an orderly stop."""
        return self._stop_reason

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
        self._stages.on_started()
        self._last_ms = self._clock.monotonic_ms()
        while not self._stop_requested:
            self._wait_tick()
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._last_ms > _LATE_MS:
                log.warning("the supervisor was not scheduled for %s ms", now_ms - self._last_ms)
                self._reset_beat_timers(now_ms)
            self._last_ms = now_ms
            self._page.beat(ProcessIndex.SUPERVISOR)
            for child in self._children:
                self._check_child(child, now_ms)
            self._stages.on_tick()
        self._stages.on_stop()
        self._stop_all()
        return self._exit_code

    def stop_with(self, words: str, exit_code: int) -> None:
        """End the loop because of a failure; `words` become the broker's last line of output."""
        if not self._stop_reason:
            self._stop_reason, self._exit_code = words, exit_code
            log.error("%s", words)
        self._stop_requested = True

    def _tick_ms(self) -> int:
        """Short while a start, a restart or an abort is in progress."""
        busy = any(each.start_at_ms or each.aborted_at_ms for each in self._children)
        quiet = self._page.counters[REMOTING_READY] and not busy
        return min(_QUIET_TICK_MS, self._hang_timeout_ms // 4) if quiet else _TICK_MS

    # -- signals -------------------------------------------------------------------------------

    def _install_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self.request_stop())

    def _wait_tick(self) -> None:
        """Until the next tick, a signal, a child's end, or until remoting serves."""
        counters, timeout_ms = self._page.counters, self._tick_ms()
        steps = 1 if counters[REMOTING_READY] else max(1, timeout_ms // _LOOK_MS)
        for _ in range(steps):
            if self._wait(timeout_ms // steps) or counters[REMOTING_READY]:
                return

    def _wait(self, timeout_ms: int) -> bool:
        """Whether a signal or a child's end came before the time was over."""
        if woken := bool(self._poll.poll(timeout_ms)):
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        return woken

    # -- starting ------------------------------------------------------------------------------

    def _spawn(self, child: ChildState) -> None:
        spec = child.spec
        boot = msgspec.structs.replace(spec.boot, parent_pid=os.getpid())
        fd = os.memfd_create(f"mqbroker-boot-{spec.name}")
        try:
            os.write(fd, msgspec.json.encode(boot))
            child.process = self._process(spec, fd)
        finally:
            os.close(fd)
        self._page.counters[STARTS + spec.index] += 1
        child.last_beat, child.has_beaten = self._page.beats(spec.index), False
        child.beat_at_ms = child.started_ms = child.progress_at_ms = self._clock.monotonic_ms()
        child.progress, child.waited_ms = (), 0
        child.aborted_at_ms = child.start_at_ms = 0
        how = "" if isinstance(child.process, ForkedProcess) else ", an interpreter of its own"
        log.info("%s: started, pid %s%s", spec.name, child.process.pid, how)

    def _process(self, spec: ChildSpec, boot_fd: int) -> subprocess.Popen[bytes] | ForkedProcess:
        fds = (*spec.inherited_fds, boot_fd)
        if spec.entry is not None and may_fork():
            return fork_child(functools.partial(spec.entry, boot_fd), fds)
        # Children that are forked, and the supervisor, have no use for it.
        import subprocess

        return subprocess.Popen(
            [sys.executable, "-m", spec.module, str(boot_fd)],
            pass_fds=fds,
            env={**os.environ, "PYTHONPATH": str(self._home), **NUMPY_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            process_group=0,
        )

    # -- monitoring ------------------------------------------------------------------------------

    def _check_child(self, child: ChildState, now_ms: int) -> None:
        if child.process is None:
            if child.start_at_ms and now_ms >= child.start_at_ms and not self._stop_requested:
                self._spawn_again(child, now_ms)
            return
        code = child.process.poll()
        if code is not None:
            self._handle_exit(child, code, now_ms)
        else:
            self._check_beat(child, now_ms)

    def _handle_exit(self, child: ChildState, code: int, now_ms: int) -> None:
        name = child.spec.name
        child.process = None
        self._page.counters[ENDS + child.spec.index] += 1
        if code == EXIT_CANNOT_BOOT and not child.may_stay_down:
            words = f"process {name} cannot start (see its log); the broker stops"
            self.stop_with(words, EXIT_CANNOT_START)
            return
        if code == EXIT_FLUSH_FAILED:
            self.stop_with(f"process {name}: {_FLUSH_FAILED}", EXIT_FLUSH_FAILED)
            return
        if code == EXIT_REOPEN:
            self._reopen(name)
            return
        what = self._last_of(child)
        child.deaths_ms.append(now_ms)
        quick = [at for at in child.deaths_ms if now_ms - at < _QUICK_WINDOW_MS]
        if len(quick) >= QUICK_DEATHS and not child.may_stay_down:
            self.stop_with(
                f"process {name} ended {len(quick)} times within "
                f"{_QUICK_WINDOW_MS // 1000} s (last exit code {code}{what}); the broker stops",
                1,
            )
            return
        delay_ms = _BACK_OFF_MS[min(len(quick) - 1, len(_BACK_OFF_MS) - 1)]
        child.start_at_ms = now_ms + delay_ms
        child.restarts += 1
        cause = _SIGBUS_CAUSE if code == -signal.SIGBUS else ""
        log.error(
            "%s: ended with code %s%s%s, starting again in %s ms", name, code, cause, what, delay_ms
        )
        if delay_ms == 0:
            self._spawn_again(child, now_ms)

    def _last_of(self, child: ChildState) -> str:
        """What a child that has ended said last, and which record it was reading; its successor
        begins without."""
        index, counters = child.spec.index, self._page.counters
        slot = READING + 2 * index
        words, reading = self._page.take_last_words(index), counters[slot]
        counters[slot] = 0
        parts = [f"; its last words: {words}"] if words else []
        # Of no use to children that are forked (tests/broker/test_memory_by_process.py).
        from store.put_aside import ReadBy

        if 0 < reading <= len(ReadBy):
            place = f"{ReadBy(reading - 1).label}, phy offset {counters[slot + 1]}"
            parts.append(f"; it was reading a record: {place}")
        return "".join(parts)

    def _spawn_again(self, child: ChildState, now_ms: int) -> None:
        """Start a child again; if the machine lacks memory or processes, retry later."""
        try:
            self._spawn(child)
        except OSError as error:
            child.start_at_ms = now_ms + _BACK_OFF_MS[2]
            log.error("%s: cannot be started, will retry: %s", child.spec.name, error)

    def _reset_beat_timers(self, now_ms: int) -> None:
        """This process was not scheduled (SIGSTOP, a suspended machine), so the children may not
        have been either: reset their heartbeat timers."""
        for child in self._children:
            child.beat_at_ms = child.progress_at_ms = now_ms
            if child.aborted_at_ms:
                child.aborted_at_ms = now_ms

    def _check_beat(self, child: ChildState, now_ms: int) -> None:
        assert child.process is not None
        beat = self._page.beats(child.spec.index)
        if beat != child.last_beat:
            child.last_beat, child.beat_at_ms, child.has_beaten = beat, now_ms, True
            child.has_served = True
            return
        if child.aborted_at_ms:
            if now_ms - child.aborted_at_ms > _ABORT_GRACE_MS:
                child.process.kill()
        elif child.has_beaten:
            self._abort_if(child, now_ms, child.beat_at_ms, self._hang_timeout_ms, "beat")
        else:
            self._follow_start(child, child.process.pid, now_ms)
            what = "progress in its start"
            self._abort_if(child, now_ms, child.progress_at_ms, self._start_timeout_ms, what)

    def _follow_start(self, child: ChildState, pid: int, now_ms: int) -> None:
        """Track the progress of a child that does not serve yet."""
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
        """Dump the stacks of a child without heartbeat or progress for too long, and end it."""
        assert child.process is not None
        if now_ms - since_ms > timeout_ms:
            silent_ms = now_ms - since_ms
            log.error("%s: no %s for %s ms: dumping its stacks", child.spec.name, what, silent_ms)
            child.aborted_at_ms = now_ms
            # A stopped process cannot dump its stacks until it is continued.
            child.process.send_signal(signal.SIGABRT)
            child.process.send_signal(signal.SIGCONT)

    # -- reopening -----------------------------------------------------------------------------

    def _reopen(self, name: str) -> None:
        """Stop all processes that have the store open, in order; reset the shared memory; start
        again.

        A failed fdatasync ends the broker; recovery handles any other unclean stop.
        """
        now_ms = self._clock.monotonic_ms()
        self._reopens_ms.append(now_ms)
        recent = [at for at in self._reopens_ms if now_ms - at < _QUICK_WINDOW_MS]
        if len(recent) > _REOPENS:
            self.stop_with(
                f"process {name} requested {len(recent)} store reopens within "
                f"{_QUICK_WINDOW_MS // 1000} s (see its log); the broker stops",
                1,
            )
            return
        log.warning("%s: requested a store reopen; stopping all processes in order", name)
        again = [c for c in self._children if c.spec.index is not ProcessIndex.NAMESRV]
        deadline_ms = now_ms + self._stop_timeout_ms
        for child in reversed(again):
            code = self._end_child(child, deadline_ms)
            if code == EXIT_FLUSH_FAILED:
                self._check_stop(child.spec.name, code)
            elif code is not None:
                log.info("%s: stopped with code %s", child.spec.name, code)
        if not self._stop_requested:
            self._reset_page()
            for child in again:
                self._spawn_again(child, self._clock.monotonic_ms())
        self._last_ms = self._clock.monotonic_ms()
        self._reset_beat_timers(self._last_ms)

    def _reset_page(self) -> None:
        for slot in _STALE:
            self._page.counters[slot] = 0
        self._stages.on_reopen()
        log.info("all processes have closed the store; starting them again")

    # -- stopping ------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        """Children stop one after the other, in the reverse of the start order."""
        deadline_ms = self._clock.monotonic_ms() + self._stop_timeout_ms
        for child in reversed(self._children):
            in_order = self._stop_child(child, deadline_ms)
            if child.spec.index is ProcessIndex.REMOTING:
                ended_ms = self._clock.monotonic_ms()
                self._stages.on_answered(in_order)
                deadline_ms += self._clock.monotonic_ms() - ended_ms

    def _stop_child(self, child: ChildState, deadline_ms: int) -> bool:
        """Whether it ran, and ended in order."""
        code = self._end_child(child, deadline_ms)
        return code is not None and self._check_stop(child.spec.name, code)

    def _end_child(self, child: ChildState, deadline_ms: int) -> int | None:
        """Stop one child, those that were started later having ended, and kill it after the
        deadline; returns its exit code, None if it was not running."""
        process, child.process = child.process, None
        if process is None:
            return None
        if child.spec.index is ProcessIndex.STORE:
            self._page.counters[WRITERS_STOPPED] = 1
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

    def _check_stop(self, name: str, code: int) -> bool:
        """Report a failed stop: the store may be inconsistent or not on disk. False if it failed;
        EXIT_REOPEN is not a failure: the next start carries out the request."""
        if code in (0, -signal.SIGTERM, EXIT_REOPEN):
            log.info("%s: stopped", name)
            return True
        if code == EXIT_FLUSH_FAILED:
            self.stop_with(f"process {name}: {_FLUSH_FAILED}", code)
        else:
            self.stop_with(f"process {name} ended with code {code} while the broker stopped", 1)
        return False
