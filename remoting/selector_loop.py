"""SelectorLoop: one thread that waits for sockets, timers and calls from other threads.

Everything registered here runs on the loop's thread; the selector is private to it. Other threads
reach the loop only through `call_soon_threadsafe`. At the end of a turn the `turn_end` functions
run: batched work (appends, responses) is done there, once a turn. The loop knows no protocol and no
connection. An exception that escapes a callback ends the loop: after an incomplete turn the process
must be restarted.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from remoting.loop_watches import LoopWatches
from remoting.peer_spin import PeerSpin
from remoting.selector_seam import EVENT_READ, EVENT_WRITE, new_selector

log = logging.getLogger(__name__)

__all__ = ["EVENT_READ", "EVENT_WRITE", "SelectorLoop", "SleepHooks", "Ticks", "TimerHandle"]

_IDLE_TIMEOUT_S = 1.0
_PEER_SPIN_NS = 100_000
"""Longer spin while responses wait for a replica: p50 of a SYNC_MASTER send with one in flight 277
-> 218 us on two cores, and 5 % more messages a second with 256 in flight."""
_SPIN_PAYS: Final = 3
"""Spinning pays off only after a sleep shorter than this many spins; otherwise it is wasted: with
requests arriving one by one from thousands of clients, each would cost a full spin."""


_Ready = list[tuple[selectors.SelectorKey, int]]


class HasFileno(Protocol):
    """Anything that a selector can watch: a socket or another object with a descriptor."""

    def fileno(self) -> int: ...


class SleepHooks(Protocol):
    """Callbacks around the loop's sleep, for a loop that also observes shared memory. Another
    process rings the loop's bell only while the loop has announced that it sleeps."""

    def before_sleep(self) -> float | None:
        """Announce that the loop sleeps. Returns the maximum sleep in seconds, 0 if there is work
        already, None for no limit."""

    def after_sleep(self) -> None:
        """Announce that the loop is awake, and process what has arrived meanwhile."""

    def waits_for_peer(self) -> bool:
        """Whether responses wait for another process that takes microseconds, not milliseconds."""

    def peer_has_answered(self) -> bool:
        """Whether one of them can be sent now. Cheap, since it is polled."""


class TimerHandle:
    """A timer that can be cancelled; owned by the loop's thread."""

    __slots__ = ("cancelled", "function")

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.cancelled = False

    def cancel(self) -> None:
        """Prevent the function from running; a no-op if it has already run."""
        self.cancelled = True


class Ticks:
    """A function that runs at the whole multiples of a period while it has something to do.

    Owned by the loop's thread. A loop without work is not woken for it.
    """

    __slots__ = ("_function", "_loop", "_period_ms", "_runs")

    def __init__(self, loop: SelectorLoop, period_ms: int, function: Callable[[], bool]) -> None:
        """function: returns whether it is to run in the next period, too."""
        self._loop = loop
        self._period_ms = period_ms
        self._function = function
        self._runs = False

    def begin(self) -> None:
        """There is something to do; cheap, and no more if it runs already."""
        if not self._runs:
            self._runs = True
            self._loop.call_at_multiple(self._period_ms, self._tick)

    def _tick(self) -> None:
        self._runs = self._function()
        if self._runs:
            self._loop.call_at_multiple(self._period_ms, self._tick)


class SelectorLoop:
    """One thread over one selector, with timers, a wake-up descriptor and end-of-turn functions."""

    def __init__(self, name: str, *, spin_us: int = 0) -> None:
        """spin_us: how long to poll for further events before sleeping, after a turn with events,
        as long as that pays off."""
        self.name = name
        self.now_ns = time.monotonic_ns()
        self.now_ms = self.now_ns // 1_000_000
        """When this turn started."""
        self._selector = new_selector()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_lock = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, TimerHandle]] = []
        self._timer_ids = itertools.count()
        self._turn_end: list[Callable[[], None]] = []
        self._hooks: SleepHooks | None = None
        self.watches: Final = LoopWatches(self.call_at_multiple)
        self._stopping = False
        self._was_busy = False
        self._spin_pays = True
        self._peer_spin = PeerSpin()
        self._spin_ns = spin_us * 1_000
        self._own_thread: threading.Thread | None = None
        self._selector.register(self._wake_fd, EVENT_READ, self._on_wake)

    # -- lifecycle
    # ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Run the loop on a thread of its own."""
        self._own_thread = threading.Thread(target=self.run, name=self.name, daemon=True)
        self._own_thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop the loop after the current turn and wait for its thread. Any thread."""
        self._stopping = True
        self.wake()
        thread = self._own_thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
            if thread.is_alive():
                log.error("loop %s: did not stop within %s s", self.name, timeout_s)

    def close(self) -> None:
        """Release the selector and the wake-up descriptor; the loop must have ended."""
        self._selector.close()
        with self._wake_lock:
            fd, self._wake_fd = self._wake_fd, -1
        if fd >= 0:
            os.close(fd)

    def run(self) -> None:
        """Run until `stop`; the caller's thread becomes the loop's thread.

        Calls submitted before the stop still run.
        """
        self._own_thread = threading.current_thread()
        while not self._stopping:
            self._turn()
        self._run_calls()
        for function in self._turn_end:
            function()

    # -- registration (loop thread, or before start) -------------------------------------------

    def register(self, sock: HasFileno | int, events: int, callback: Callable[[int], None]) -> None:
        """Watch `sock`; `callback(events)` runs when it is ready (level-triggered)."""
        self._selector.register(sock, events, callback)

    def modify(self, sock: HasFileno | int, events: int, callback: Callable[[int], None]) -> None:
        """Change what is watched on `sock`."""
        self._selector.modify(sock, events, callback)

    def unregister(self, sock: HasFileno | int) -> None:
        """Stop watching `sock`; it must be registered and still open."""
        self._selector.unregister(sock)

    def add_turn_end(self, function: Callable[[], None]) -> None:
        """Run `function` at the end of every turn, in the order of registration."""
        self._turn_end.append(function)

    def set_sleep_hooks(self, hooks: SleepHooks) -> None:
        """Let `hooks` bracket every wait of the selector."""
        self._hooks = hooks

    # -- calls and timers ----------------------------------------------------------------------

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        """Run `function` on the loop's thread in its next turn. Any thread."""
        self._calls.append(function)
        if threading.current_thread() is not self._own_thread:
            self.wake()

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> TimerHandle:
        """Run `function` after `delay_ms`; loop thread only."""
        handle = TimerHandle(function)
        due_ms = time.monotonic_ns() // 1_000_000 + int(delay_ms)
        heapq.heappush(self._timers, (due_ms, next(self._timer_ids), handle))
        return handle

    def call_at_multiple(self, period_ms: int, function: Callable[[], None]) -> TimerHandle:
        """Run `function` once, at the next whole multiple of `period_ms`; loop thread only.

        Timers with a common divisor wake the loop together.
        """
        # Whole milliseconds: a fraction would be due immediately, repeatedly.
        return self.call_later(period_ms - time.monotonic_ns() // 1_000_000 % period_ms, function)

    def call_every(self, period_ms: int, function: Callable[[], None]) -> None:
        """Run `function` at every whole multiple of `period_ms`, for as long as the loop runs; loop
        thread only. What has work only at times has `ticks`."""

        def again() -> None:
            function()
            self.call_at_multiple(period_ms, again)

        self.call_at_multiple(period_ms, again)

    def ticks(self, period_ms: int, function: Callable[[], bool]) -> Ticks:
        """The same for what is not always needed: see Ticks. It has not begun."""
        return Ticks(self, period_ms, function)

    def wake(self) -> None:
        """End the current wait; nothing after `close`. Any thread."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def in_loop_thread(self) -> bool:
        """Whether the caller is the loop's thread (or the loop has not started)."""
        return self._own_thread is None or threading.current_thread() is self._own_thread

    # -- one turn ------------------------------------------------------------------------------

    def _turn(self) -> None:
        timeout = self._next_timeout_s()
        hooks = self._hooks
        ready = self._spin() if self._was_busy and self._spin_ns and timeout else None
        slept_from_ns = 0
        if ready is None:
            if hooks is not None:
                limit = hooks.before_sleep()
                if limit is not None and limit < timeout:
                    timeout = limit
            slept_from_ns = time.monotonic_ns()
            ready = self._selector.select(timeout)
        self._was_busy = bool(ready) or not slept_from_ns
        self.now_ns = time.monotonic_ns()
        self._spin_pays = not slept_from_ns or (
            self.now_ns - slept_from_ns < _SPIN_PAYS * self._spin_ns
        )
        self.now_ms = self.now_ns // 1_000_000
        if hooks is not None:
            hooks.after_sleep()
        if self.watches.is_quiet and ready:
            self.watches.end_quiet()
        for key, events in ready:
            key.data(events)
        if self._calls:
            self._run_calls()
        if self._timers and self._timers[0][0] <= self.now_ms:
            self._run_timers()
        for function in self._turn_end:
            function()

    def _spin(self) -> _Ready | None:
        """Poll a little longer before sleeping: an idle core wakes up slowly, and a client that
        waits for a response sends its next request immediately. None: sleep now; no events: only
        the peer has answered."""
        hooks = self._hooks
        if hooks is not None and hooks.waits_for_peer():
            return self._spin_for_peer(hooks) if self._peer_spin.is_due() else None
        if not self._spin_pays:
            return None
        deadline_ns = time.monotonic_ns() + self._spin_ns
        while True:
            ready: _Ready = self._selector.select(0)
            if ready or time.monotonic_ns() >= deadline_ns:
                return ready or None

    def _spin_for_peer(self, hooks: SleepHooks) -> _Ready | None:
        deadline_ns = time.monotonic_ns() + self._spin_ns + _PEER_SPIN_NS
        while True:
            ready: _Ready = self._selector.select(0)
            if ready or hooks.peer_has_answered():
                self._peer_spin.ended(in_vain=False)
                return ready
            if time.monotonic_ns() >= deadline_ns:
                self._peer_spin.ended(in_vain=True)
                return None

    def _next_timeout_s(self) -> float:
        if self._calls:
            return 0.0
        if not self._timers:
            return _IDLE_TIMEOUT_S
        left_ms = self._timers[0][0] - time.monotonic_ns() // 1_000_000
        return min(max(left_ms / 1000, 0.0), _IDLE_TIMEOUT_S)

    def _run_calls(self) -> None:
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_ms:
            handle = heapq.heappop(self._timers)[2]
            if not handle.cancelled:
                handle.function()

    def _on_wake(self, _events: int) -> None:
        try:
            os.eventfd_read(self._wake_fd)
        except BlockingIOError:
            return
