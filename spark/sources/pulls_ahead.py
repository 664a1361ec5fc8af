"""PullsAhead: the pulls of a range in their order, with those that come next already under way.

Executors; owned by a task's reader, with threads of its own. A pull waits for the broker longer
than its answer takes to be read, so several are asked for at once: as many messages each as the
broker gives (32, unless its settings say otherwise, and fewer of large ones), which is tried anew
from time to time. Where an answer is not as long as was foretold, the rest is asked for; where one
goes beyond, as with batches inside or holes, only the next pull is under way from then on. What
went wrong is told when its turn comes.

It begins with one pull, and there are more while answers come soon: those that are under way share
a link, and all of them would be late on a slow one. Answers that wait have no more bytes together
than a quarter of a batch, or are one: what comes beyond is dropped, and asked for in its turn.

Tested by tests/spark/sources/test_pulls_ahead.py.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from remoting.response_code import ResponseCode
from spark.sources.cluster import PULL_COUNT, Pulled
from store.closing import Closing

MOST_AHEAD: Final = 16
"""Pulls."""
_OPEN: Final = 0
_FIRST_TRIAL: Final = 4
_LAST_TRIAL: Final = 1024
"""Pulls between two that ask for twice as much: more each time that this was in vain."""


@dataclass(eq=False, slots=True)
class _Window:
    """Offsets from `begin` on that are asked for; `until`: not included, _OPEN: nobody knows. size:
    bytes of an answer that waits; took_s: how long it was under way."""

    begin: int
    until: int
    is_trial: bool = False
    is_wanted: bool = True
    size: int = 0
    took_s: float = 0.0
    answer: Future[Pulled | None] = field(default_factory=Future)


class PullsAhead(Closing):
    """See the module. Owned by: one thread."""

    def __init__(
        self,
        pull: Callable[[int, int], Pulled],
        end: int,
        most_bytes: int,
        *,
        is_whole: bool,
        late_s: float,
    ) -> None:
        """pull: from an offset on, so many messages at most; any thread. end: of the range;
        most_bytes: of a batch; is_whole: no broker selects among the messages; late_s: an answer
        that takes longer is late."""
        self._pull = pull
        self._end = end
        self._most_bytes = most_bytes // 4
        self._is_foreseen = is_whole
        self._late_s = late_s
        self._pool = ThreadPoolExecutor(MOST_AHEAD, "rocketmq-pull")
        self._windows: deque[_Window] = deque()
        self._until = _OPEN
        self._is_trial = False
        self._asked = -1
        self._step = 0
        self._largest = 1
        self._most_ahead = 1
        self._trial_every = self._until_trial = _FIRST_TRIAL
        self._lock = threading.Lock()
        self._held = 0
        """Bytes of the answers that wait. Guarded by the lock, with what a window says of it."""

    def close(self) -> None:
        """Nothing more is asked for. What is under way ends with its cluster, or by itself."""
        self._forget()
        self._pool.shutdown(wait=False)

    def _forget(self) -> None:
        for window in self._windows:
            window.answer.cancel()
            self._release(window)
        self._windows.clear()
        self._until = _OPEN

    def _release(self, window: _Window) -> None:
        with self._lock:
            window.is_wanted = False
            self._held -= window.size
            window.size = 0

    def take(self, offset: int) -> Pulled:
        """The answer to a pull from `offset` on. What `pull` raises."""
        is_again, self._asked = offset == self._asked, offset
        self._is_trial = False
        if self._windows and self._windows[0].begin == offset:
            return self._taken(self._windows.popleft())
        if offset < self._until and not is_again:
            return self._pull(offset, self._until - offset)
        self._forget()
        return self._pull(offset, self._end - offset)

    def _taken(self, window: _Window) -> Pulled:
        self._until, self._is_trial = window.until, window.is_trial
        try:
            pulled = window.answer.result()
        finally:
            self._release(window)
        if window.took_s > self._late_s:
            self._most_ahead = max(self._most_ahead // 2, 1)
        else:
            self._most_ahead = min(self._most_ahead + 1, MOST_AHEAD)
        if pulled is None:
            return self._pull(window.begin, (window.until or self._end) - window.begin)
        return pulled

    def ask_on(self, offset: int, pulled: Pulled, following: int) -> None:
        """The pull at `offset` was answered so, and `following` comes next."""
        if self._until and following > self._until:
            self._is_foreseen = False
        if pulled.code == ResponseCode.SUCCESS:
            self._learn(following - offset, len(pulled.records), following < self._until)
        if not self._is_foreseen or not self._step:
            if not self._windows and following < self._end:
                self._submit(_Window(following, _OPEN))
            return
        begin = self._windows[-1].until if self._windows else following
        most = min(max(self._most_bytes // self._largest, 1), self._most_ahead)
        while len(self._windows) < most and begin < self._end:
            begin = self._submit_foreseen(begin)

    def _learn(self, count: int, size: int, is_short: bool) -> None:
        """Of an answer: its messages and bytes; is_short: more were asked for."""
        self._largest = max(size, self._largest - self._largest // 8)
        if count > self._step:
            self._step = min(count, PULL_COUNT)
        elif is_short and count < self._step:
            self._step = max(count, self._step // 2)
        elif is_short and self._is_trial:
            self._trial_every = min(2 * self._trial_every, _LAST_TRIAL)

    def _submit_foreseen(self, begin: int) -> int:
        """Where the next window begins."""
        self._until_trial -= 1
        is_trial = self._until_trial <= 0
        if is_trial:
            self._until_trial = self._trial_every
        step = min(self._step * (1 + is_trial), PULL_COUNT)
        until = min(begin + step, self._end)
        self._submit(_Window(begin, until, is_trial))
        return until

    def _submit(self, window: _Window) -> None:
        self._windows.append(window)
        window.answer = self._pool.submit(self._fetch, window)

    def _fetch(self, window: _Window) -> Pulled | None:
        """In a thread of the pool. None: too much is held."""
        begun_s = time.monotonic()
        pulled = self._pull(window.begin, (window.until or self._end) - window.begin)
        window.took_s = time.monotonic() - begun_s
        size = len(pulled.records)
        with self._lock:
            if not window.is_wanted or (self._held and self._held + size > self._most_bytes):
                return None
            window.size = size
            self._held += size
        return pulled
