"""RequestExecutor: a thread pool with a bounded queue, for the request codes whose routes name it.

Requests that wait too long are refused (Java: BrokerFastFailure). Knows no frames and no codes.

Tested by tests/remoting/test_remoting_server.py.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple


class _Waiting(NamedTuple):
    """A request in a pool's queue; since_ms is monotonic."""

    since_ms: int
    run: Callable[[], None]
    refuse: Callable[[str], None]


class RequestExecutor:
    """A named thread pool with a bounded queue. Any thread may submit."""

    def __init__(
        self, name: str, threads: int, capacity: int, *, wait_limit_ms: int | None = None
    ) -> None:
        """wait_limit_ms: maximum queueing time of a request (Java: BrokerFastFailure)."""
        self.name = name
        self.capacity = capacity
        self._wait_limit_ms = wait_limit_ms
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._line: deque[_Waiting] = deque()
        self._pending = 0

    @property
    def pending(self) -> int:
        """Number of running and queued requests."""
        return self._pending

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits for a thread."""
        return bool(self._line)

    def try_submit(self, run: Callable[[], None], refuse: Callable[[str], None]) -> bool:
        """Call `run` in the pool, or `refuse` with the reason if it was queued too long (on the
        thread of `refuse_late`). False, without a call, if the queue is full."""
        with self._lock:
            if self._pending >= self.capacity:
                return False
            self._pending += 1
            self._line.append(_Waiting(_now_ms(), run, refuse))
        self._pool.submit(self._run_next)
        return True

    def refuse_late(self) -> None:
        """Reject requests that have been queued for the limit or longer. Cheap; to be called
        periodically."""
        limit_ms = self._wait_limit_ms
        while limit_ms is not None and self._line:
            with self._lock:
                if not self._line:
                    return
                waited_ms = _now_ms() - self._line[0].since_ms
                if waited_ms < limit_ms:
                    return
                late = self._line.popleft()
                left = len(self._line)
                self._pending -= 1
            late.refuse(cleaned_remark("TIMEOUT", waited_ms, left))

    def _run_next(self) -> None:
        with self._lock:
            if not self._line:  # it was rejected
                return
            run = self._line.popleft().run
        try:
            run()
        finally:
            with self._lock:
                self._pending -= 1

    def shutdown(self) -> None:
        """Run the queued requests, accept no new ones."""
        self._pool.shutdown(wait=True, cancel_futures=False)


def cleaned_remark(why: str, waited_ms: int, left: int) -> str:
    """The remark for a request that is removed from its queue (Java: BrokerFastFailure).

    why: TIMEOUT or PCBUSY. left: how many are still queued.
    """
    return (
        f"[{why}_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {waited_ms}ms, size of queue: {left}"
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
