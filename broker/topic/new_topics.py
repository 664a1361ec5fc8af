"""NewTopics: topics that came into being and are not at the name servers yet, and who waits.

RocketMQ registers a topic that it makes by itself in the thread that needs it, before it goes on:
its producer may look up the route as soon as it has its answer. Here the loop must not wait, so
that what needs a new topic is held, and goes on when the registration is over: confirmed by the
name servers, or failed, or its time up. A thread asks in rounds, one at a time (the scheduled
executor may be busy with a slow disk): topics that come during a round share the next one. Any
thread; knows no request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final, Protocol

from broker.topic.topic_config_manager import TopicChange
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from remoting.request_dispatcher import OVERLOAD
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 60.0
"""Nobody waits for ever: a round itself is over after registerBrokerTimeoutMills."""


def start_thread(run: Callable[[], None]) -> None:
    """Each round has a thread of its own: new topics are rare."""
    threading.Thread(target=run, name="NewTopics", daemon=True).start()


class HeldForTopics(Protocol):
    """What processors need of NewTopics."""

    @property
    def busy(self) -> bool:
        """Whether there are new topics; False costs nothing."""

    def hold(self, topics: Collection[str], then: Callable[[], None]) -> bool:
        """Run `then` on the loop when no name server is to hear of `topics` any more; False: that
        is so now, and `then` is not run. Raises RequestError when too many wait."""

    def wait(self, topic: str) -> None:
        """Return when no name server is to hear of `topic` any more; pool threads only. Raises
        RequestError when too many wait."""


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
        """register: tells the name servers and waits for them. on_loop: call_soon_threadsafe.
        capacity: so many may wait. start: runs a round beside everything else."""
        self._start = start
        self._register = register
        self._on_loop = on_loop
        self._capacity = capacity
        self._lock = threading.Lock()
        self._next: set[str] = set()
        self._asked: set[str] = set()
        self._held: list[tuple[Collection[str], Callable[[], None]]] = []
        self.busy = False
        """Whether a round is under way or about to be. Read without the lock."""

    def on_topic_change(self, change: TopicChange, config: TopicConfig | None) -> None:
        """A TopicListener: does not wait."""
        if change is not TopicChange.NEW or config is None:
            return
        with self._lock:
            self._next.add(config.topic_name)
            begins = not self.busy
            self.busy = True
        if begins:
            self._start(self._run_round)

    def hold(self, topics: Collection[str], then: Callable[[], None]) -> bool:
        """See HeldForTopics."""
        if not self.busy:
            return False
        with self._lock:
            waits = not (self._next.isdisjoint(topics) and self._asked.isdisjoint(topics))
            if waits and len(self._held) >= self._capacity:
                raise RequestError(ResponseCode.SYSTEM_BUSY, OVERLOAD)
            if waits:
                self._held.append((topics, then))
        return waits

    def wait(self, topic: str) -> None:
        """See HeldForTopics."""
        over = threading.Event()
        if self.hold((topic,), over.set):
            over.wait(_LONGEST_WAIT_S)

    def _run_round(self) -> None:
        with self._lock:
            self._asked, self._next = self._next, set()
        try:
            self._register(self._asked)
        except Exception:
            # The service guard: who waits for a topic must not wait for ever.
            log.exception("topics %s: not registered now", sorted(self._asked))
        self._on_loop(self._release)

    def _release(self) -> None:
        """On the loop, all at once: what comes later for a topic must not overtake what waited."""
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
