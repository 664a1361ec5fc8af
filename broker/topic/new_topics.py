"""NewTopics: registers newly created topics, and holds the requests that wait for them.

RocketMQ registers a topic that it creates automatically in the requesting thread before it
proceeds, because the producer may look up the route as soon as it has its response. Here the loop
must not block, so work that needs a new topic is held until the registration is over: confirmed by
the name servers, failed, or timed out. A separate thread registers in rounds, one at a time (the
scheduled executor may be busy with a slow disk); topics created during a round share the next one.
Any thread; knows no request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from broker.topic.topic_config_manager import TopicChange
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from remoting.request_dispatcher import OVERLOAD
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 60.0
"""Upper bound of the wait; a round itself ends after registerBrokerTimeoutMills."""


def start_thread(run: Callable[[], None]) -> None:
    """Run a round in a new thread; new topics are rare."""
    threading.Thread(target=run, name="NewTopics", daemon=True).start()


class NewTopics:
    """See the module. Owned by: `_lock`."""

    def __init__(
        self,
        register: Callable[[Collection[str]], None],
        on_loop: Callable[[Callable[[], None]], None],
        *,
        capacity: int,
        start: Callable[[Callable[[], None]], None] = start_thread,
    ) -> None:
        """register: registers topics and waits for the name servers. on_loop: call_soon_threadsafe.
        capacity: maximum number of waiting callers. start: runs a round in its own thread."""
        self._start = start
        self._register = register
        self._on_loop = on_loop
        self._capacity = capacity
        self._lock = threading.Lock()
        self._next: set[str] = set()
        self._asked: set[str] = set()
        self._held: list[tuple[Collection[str], Callable[[], None]]] = []
        self.busy = False
        """Whether a round is running or about to start. Read without the lock."""

    def on_topic_change(self, change: TopicChange, config: TopicConfig | None) -> None:
        """A TopicListener; does not block."""
        if change is not TopicChange.NEW or config is None:
            return
        with self._lock:
            self._next.add(config.topic_name)
            begins = not self.busy
            self.busy = True
        if begins:
            self._start(self._run_round)

    def hold(self, topics: Collection[str], then: Callable[[], None]) -> bool:
        """See NewTopics."""
        if not self.busy:
            return False
        with self._lock:
            waits = not (self._next.isdisjoint(topics) and self._asked.isdisjoint(topics))
            if waits and len(self._held) >= self._capacity:
                raise RequestError(ResponseCode.SYSTEM_BUSY, OVERLOAD)
            if waits:
                self._held.append((topics, then))
        return waits

    def wait(self, topics: Collection[str]) -> None:
        """See NewTopics."""
        over = threading.Event()
        if self.hold(topics, over.set):
            over.wait(_LONGEST_WAIT_S)

    def _run_round(self) -> None:
        with self._lock:
            self._asked, self._next = self._next, set()
        try:
            self._register(self._asked)
        except Exception:
            # The service guard: callers that wait for a topic must not wait forever.
            log.exception("topics %s: registration failed", sorted(self._asked))
        self._on_loop(self._release)

    def _release(self) -> None:
        """On the loop, all at once: later requests for a topic must not overtake the held ones."""
        with self._lock:
            self._asked = set()
            held, self._held = self._held, []
            ready = []
            for topics, then in held:
                if self._next.isdisjoint(topics):
                    ready.append(then)
                else:
                    self._held.append((topics, then))
            self.busy = goes_on = bool(self._next)
        if goes_on:
            self._start(self._run_round)
        for then in ready:
            then()
