"""PullsAhead: the pulls of a range in their order, with those that come next already under way.

Executors; owned by a task's reader, with threads of its own. A pull waits for the broker longer
than its answer takes to be read, so several are asked for at once: as many messages each as brokers
give (32, unless their settings say otherwise), and no more bytes together than a quarter of a
batch. Where an answer is not as long as was foretold, the rest is asked for; where one goes beyond,
as with batches inside or holes, only the next pull is under way from then on. What went wrong is
told when its turn comes.

Tested by tests/spark/sources/test_pulls_ahead.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from remoting.response_code import ResponseCode
from spark.sources.cluster import PULL_COUNT, Pulled
from store.closing import Closing

MOST_AHEAD: Final = 16
"""Pulls."""
_OPEN: Final = 0


class _Window(NamedTuple):
    """Offsets from `begin` on that are asked for; `until`: not included, _OPEN: nobody knows."""

    begin: int
    until: int
    answer: Future[Pulled]


class PullsAhead(Closing):
    """See the module. Owned by: one thread."""

    def __init__(
        self, pull: Callable[[int, int], Pulled], end: int, most_bytes: int, *, is_whole: bool
    ) -> None:
        """pull: from an offset on, so many messages at most; any thread. end: of the range;
        most_bytes: of a batch; is_whole: no broker selects among the messages."""
        self._pull = pull
        self._end = end
        self._most_bytes = most_bytes // 4
        self._is_foreseen = is_whole
        self._pool = ThreadPoolExecutor(MOST_AHEAD, "rocketmq-pull")
        self._windows: deque[_Window] = deque()
        self._until = _OPEN
        self._asked = -1
        self._step = 1
        self._largest = 1

    def close(self) -> None:
        """Nothing more is asked for. What is under way ends with its cluster, or by itself."""
        self._forget()
        self._pool.shutdown(wait=False)

    def _forget(self) -> None:
        for window in self._windows:
            window.answer.cancel()
        self._windows.clear()
        self._until = _OPEN

    def take(self, offset: int) -> Pulled:
        """The answer to a pull from `offset` on. What `pull` raises."""
        is_again, self._asked = offset == self._asked, offset
        if self._windows and self._windows[0].begin == offset:
            window = self._windows.popleft()
            self._until = window.until
            return window.answer.result()
        if offset < self._until and not is_again:
            return self._pull(offset, self._until - offset)
        self._forget()
        return self._pull(offset, self._end - offset)

    def ask_on(self, offset: int, pulled: Pulled, following: int) -> None:
        """The pull at `offset` was answered so, and `following` comes next."""
        if pulled.code == ResponseCode.SUCCESS:
            self._step = min(max(self._step, following - offset), PULL_COUNT)
            self._largest = max(self._largest, len(pulled.records))
        if self._until and following > self._until:
            self._is_foreseen = False
        if not self._is_foreseen:
            if not self._windows and following < self._end:
                self._submit(following, _OPEN, self._end - following)
            return
        begin = self._windows[-1].until if self._windows else following
        most = min(max(self._most_bytes // self._largest, 1), MOST_AHEAD)
        while len(self._windows) < most and begin < self._end:
            until = min(begin + self._step, self._end)
            self._submit(begin, until, until - begin)
            begin = until

    def _submit(self, begin: int, until: int, count: int) -> None:
        self._windows.append(_Window(begin, until, self._pool.submit(self._pull, begin, count)))
