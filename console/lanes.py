"""Lanes: every request of the console to a broker or name server, one lane an address.

Any thread asks; the workers here send. **The console costs the brokers nothing**: a lane sends one
request at a time, at most one a second in the long run (a bucket of five, so that a page's few
requests go at once), the same question is asked once however many readers wait for it, and answers
are kept for as long as the question's reader allows, within a bound of bytes, of which each address
has a share. Requests of pages go before the poller's, and the poller leaves some of the bucket and
of the workers to them; but after three pages one of the poller's goes, so that no reader can blind
it. What pages want later (figures of a long list) goes in turn with the poller's. What waits is
bounded: too much is a sentence. Changes that a reader makes are no business of a lane.

Tested by tests/console/test_lanes.py.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from console.kept_answers import Answer, CacheKey, KeptAnswers
from console.received_client import ReceivedClient
from remoting.errors import RemotingError, RequestError
from tools.admin_client import AdminClient
from tools.errors import AdminError, BrokerAnswerError

log = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_ERRORS: Final = (AdminError, RemotingError, RequestError)
"""Errors of a question that are the peer's or the network's; each is one line for the reader."""
BUCKET: Final = 5.0
RATE_PER_MS: Final = 0.001
POLLER_LEAVES: Final = 2.0
"""What stays in the bucket for pages when the poller asks."""
MOST_BYTES: Final = 8 << 20
"""An answer without messages has at most so many: 40,000 topics with all their attributes."""
PATIENCE_MS: Final = 2_000
"""How long a page waits for an answer before it shows the older one, or says so."""
MAX_QUEUED: Final = 50
"""Pages' questions that wait in one lane: who gave up has left them there."""
MAX_PATIENT: Final = 24
"""Askers that wait at once, each in one of the 40 threads that pages have."""
PAGES_IN_A_ROW: Final = 3
"""Then one of the poller's goes, if one waits."""
KEPT_LANES: Final = 1_000
BUSY: Final = "too many questions wait for an answer; try again soon"
RETRY_MS: Final = 2_000
WAITING: Final = "no answer yet; this page will have it when it is loaded again"
NOT_YET: Final = frozenset({BUSY, WAITING})
"""Errors that are none of a peer's: its answer is still to come."""
STOPPED: Final = "the console is being stopped"


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """What is asked: `run(client, address)` asks it. Questions with the same key are the same."""

    key: Hashable
    run: Callable[[AdminClient, str], T]
    most_bytes: int = MOST_BYTES
    size_of: Callable[[T], int] | None = None
    """How much of memory a value takes where only a little of what was received is kept."""


@dataclass(slots=True)
class _Flight:
    """One question that waits for its turn, or for its answer."""

    cache_key: CacheKey
    account: Hashable
    question: Question[Any]
    future: Future[Answer[Any]] = field(default_factory=Future)


@dataclass(slots=True)
class _Lane:
    address: str
    filled_at_ms: int
    tokens: float = BUCKET
    pages: deque[_Flight] = field(default_factory=deque)
    polls: deque[_Flight] = field(default_factory=deque)
    laters: deque[_Flight] = field(default_factory=deque)
    was_later: bool = False
    is_busy: bool = False
    """A worker waits for an answer."""
    pages_in_a_row: int = 0

    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (self.pages or self.polls or self.laters)

    def is_poll_next(self) -> bool:
        """Whether it is the turn of what no page waits for."""
        waits = bool(self.polls or self.laters)
        return waits and (not self.pages or self.pages_in_a_row >= PAGES_IN_A_ROW)

    def take(self, *, is_poll: bool) -> _Flight:
        """The next flight; it costs one of the bucket."""
        self.tokens -= 1.0
        self.is_busy = True
        if not is_poll:
            self.pages_in_a_row += 1
            return self.pages.popleft()
        self.pages_in_a_row = 0
        self.was_later = bool(self.laters) and not (self.polls and self.was_later)
        return (self.laters if self.was_later else self.polls).popleft()

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing is lost if it is made anew."""
        waits = self.is_busy or not self.is_empty()
        return not waits and (now_ms - self.filled_at_ms) * RATE_PER_MS >= BUCKET

    def ready_at_ms(self, now_ms: int) -> int:
        """When its next request may leave."""
        self.tokens = min(BUCKET, self.tokens + (now_ms - self.filled_at_ms) * RATE_PER_MS)
        self.filled_at_ms = now_ms
        needed = 1.0 if self.pages else 1.0 + POLLER_LEAVES
        return now_ms + max(0, int((needed - self.tokens) / RATE_PER_MS + 0.999))


class Lanes:
    """One lane an address; `client_of(account)` is the client that asks for an account."""

    def __init__(
        self,
        client_of: Callable[[Hashable], AdminClient],
        now_ms: Callable[[], int],
        workers: int = 24,
    ) -> None:
        self._client_of = client_of
        self._now_ms = now_ms
        self._changed = threading.Condition()
        self._lanes: dict[str, _Lane] = {}
        self._heap: list[tuple[int, int, _Lane]] = []
        self._polling = 0
        self._most_polling = max(1, workers * 3 // 4)
        """Workers that silent brokers may hold up by the poller's questions."""
        self._held: deque[_Lane] = deque()
        """Lanes whose polls wait until another poll ends."""
        self._patient = 0
        self._count = 0
        self._flights: dict[CacheKey, _Flight] = {}
        self._kept = KeptAnswers()
        self._stopped = False
        self._workers = [
            threading.Thread(target=self._work, name=f"console-lane-{i}", daemon=True)
            for i in range(workers)
        ]

    def start(self) -> None:
        """Start the workers."""
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """End them; what waits is answered with an error."""
        with self._changed:
            self._stopped = True
            waiting = list(self._flights.values())
            self._changed.notify_all()
        for flight in waiting:
            _settle(flight.future, Answer(error=STOPPED))

    def ask(
        self,
        address: str,
        question: Question[T],
        max_age_ms: int,
        account: Hashable = None,
        patience_ms: int = PATIENCE_MS,
        *,
        is_later: bool = False,
    ) -> Answer[T]:
        """An answer at most `max_age_ms` old, else the newest there is after `patience_ms`.
        `is_later`: asked behind the pages, in turn with the poller."""
        key = (address, account, question.key)
        with self._changed:
            known = self._kept.get(key)
            if known is not None and self._now_ms() - known.tried_ms <= _young_ms(
                known, max_age_ms
            ):
                self._kept.use(key)
                return known
            why, flight = BUSY, None
            if not self._is_full(address, key, is_later=is_later):
                if is_later:
                    self._flight(address, account, question, lambda lane: lane.laters)
                    why = WAITING
                elif self._patient < MAX_PATIENT:
                    flight = self._flight(address, account, question, lambda lane: lane.pages)
                    self._patient += 1
        if flight is not None:
            try:
                return flight.future.result(patience_ms / 1000)
            except FutureTimeoutError:
                why = WAITING
            finally:
                with self._changed:
                    self._patient -= 1
        return Answer(known.value, known.at_ms, why) if known else Answer(error=why)

    def poll(self, address: str, question: Question[T]) -> Future[Answer[T]]:
        """The poller's way: with the console's own account, behind the pages, without waiting."""
        with self._changed:
            return self._flight(address, None, question, lambda lane: lane.polls).future

    def known(self, kind: str, account: Hashable) -> list[tuple[Hashable, Any]]:
        """Answers that are kept for an account to questions whose keys begin so, by their keys."""
        with self._changed:
            return self._kept.known(kind, account)

    def forget(self, question: Question[Any]) -> None:
        """Every peer's answer to a question: a change has made it old."""
        with self._changed:
            self._kept.forget(question.key)

    def _is_full(self, address: str, key: CacheKey, *, is_later: bool) -> bool:
        """Whether another question would wait too long."""
        lane = self._lanes.get(address)
        if lane is None or key in self._flights:
            return False
        return len(lane.laters if is_later else lane.pages) >= MAX_QUEUED

    def _lane(self, address: str) -> _Lane:
        lane = self._lanes.get(address)
        if lane is None:
            now_ms = self._now_ms()
            if len(self._lanes) >= KEPT_LANES:  # name servers may list ever new addresses
                self._lanes = {k: v for k, v in self._lanes.items() if not v.is_idle(now_ms)}
            lane = self._lanes[address] = _Lane(address, now_ms)
        return lane

    def _flight(
        self,
        address: str,
        account: Hashable,
        question: Question[Any],
        row: Callable[[_Lane], deque[_Flight]],
    ) -> _Flight:
        """The flight that carries this question: one that waits already, else a new one."""
        key = (address, account, question.key)
        flight = self._flights.get(key)
        if flight is not None:  # a page may join what the poller asked
            return flight
        flight = _Flight(key, account, question)
        if self._stopped:
            _settle(flight.future, Answer(error=STOPPED))
            return flight
        self._flights[key] = flight
        lane = self._lane(address)
        row(lane).append(flight)
        if not lane.is_busy:
            self._schedule(lane)
        return flight

    def _schedule(self, lane: _Lane) -> None:
        """Have a worker look at a lane when it may send. A lane may be in the heap several times:
        who finds nothing to do there drops it."""
        self._count += 1
        heapq.heappush(self._heap, (lane.ready_at_ms(self._now_ms()), self._count, lane))
        self._changed.notify()

    # -- the workers ---------------------------------------------------------------------------

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            lane, flight, is_poll = taken
            answer = self._answer(lane.address, flight)
            with self._changed:
                answer = self._keep(flight, answer)
                lane.is_busy = False
                if not lane.is_empty():
                    self._schedule(lane)
                if is_poll:
                    self._polling -= 1
                    if self._held:
                        self._schedule(self._held.popleft())
            _settle(flight.future, answer)

    def _take(self) -> tuple[_Lane, _Flight, bool] | None:
        """The next request that may leave; None at the end."""
        with self._changed:
            while not self._stopped:
                now_ms = self._now_ms()
                if not self._heap:
                    self._changed.wait()
                elif self._heap[0][0] > now_ms:
                    self._changed.wait((self._heap[0][0] - now_ms) / 1000)
                else:
                    lane = heapq.heappop(self._heap)[2]
                    if lane.is_busy or lane.is_empty():
                        continue
                    if lane.ready_at_ms(now_ms) > now_ms:
                        self._schedule(lane)
                        continue
                    is_poll = lane.is_poll_next()
                    if is_poll and self._polling >= self._most_polling:
                        if not lane.pages:
                            self._held.append(lane)
                            continue
                        is_poll = False
                    self._polling += is_poll
                    return lane, lane.take(is_poll=is_poll), is_poll
            return None

    def _answer(self, address: str, flight: _Flight) -> Answer[Any]:
        at_ms = self._now_ms()
        try:
            client = ReceivedClient(self._client_of(flight.account), flight.question.most_bytes)
            question = flight.question
            value = question.run(client, address)
            size = client.received if question.size_of is None else question.size_of(value)
            return Answer(value, at_ms, tried_ms=at_ms, size=size)
        except ANSWER_ERRORS as error:
            is_refusal = isinstance(error, BrokerAnswerError)
            return Answer(error=str(error), tried_ms=at_ms, is_refusal=is_refusal)
        except Exception:  # a peer's odd answer must not end a worker; the log says where
            log.exception("question %r to %s", flight.question.key, address)
            text = f"{address} answered something that cannot be read (see the log)"
            return Answer(error=text, tried_ms=at_ms)

    def _keep(self, flight: _Flight, answer: Answer[Any]) -> Answer[Any]:
        """Remember an answer; one that failed keeps the value that was known before."""
        self._flights.pop(flight.cache_key, None)
        if answer.error is not None:
            known = self._kept.get(flight.cache_key)
            if known is not None:
                answer = replace(answer, value=known.value, at_ms=known.at_ms, size=known.size)
        self._kept.put(flight.cache_key, answer)
        return answer


def _young_ms(known: Answer[Any], max_age_ms: int) -> int:
    return max_age_ms if known.error is None else min(max_age_ms, RETRY_MS)


def _settle(future: Future[Answer[Any]], answer: Answer[Any]) -> None:
    """The end of the console and a peer's answer may come at once: the first counts."""
    with contextlib.suppress(InvalidStateError):
        future.set_result(answer)
