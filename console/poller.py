"""Poller: asks the cluster again and again, and publishes a ClusterSnapshot after each change.

One thread, the only writer of the snapshot, however many browsers look. It asks the name servers
who is there, every master and slave for its HA status (907) and figures (28), and our brokers for
their metrics; through the lanes, so never more than one request a second and broker. While somebody
looks at a live page the HA status is asked as often as that allows, else every five seconds.

Tested by tests/console/test_poller.py.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Final

from console.kept_answers import Answer
from console.lanes import Lanes, Question
from console.questions import CLUSTER, HA_STATUS, RUNTIME, TOPICS
from console.snapshot import MAX_BROKERS, MAX_TOPICS, BrokerSeen, ClusterSnapshot, Told
from remoting.body.route import ClusterInfo
from tools.admin_client import BrokerAddress, is_address

log = logging.getLogger(__name__)

TICK_S: Final = 0.2
NAMES_MS: Final = 2_000
TOPICS_MS: Final = 5_000
WATCHED_MS: Final = 1_200
IDLE_MS: Final = 5_000
RUNTIME_MS: Final = 10_000
METRICS_MS: Final = 5_000
FORGET_MS: Final = 3_600_000
"""A broker that no name server lists any more is shown as gone for this long."""
MAX_GONE: Final = 200
"""Then the one that is gone for longest is forgotten: a name server may list ever new ones."""


@dataclass(slots=True)
class _Asked:
    """What was asked of one address, and when last (monotonic ms)."""

    last: dict[str, int] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)


class Poller:
    """Owns the snapshot. `metrics`: how our brokers are asked for their metrics."""

    def __init__(
        self,
        lanes: Lanes,
        name_servers: Sequence[str],
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        metrics: Question[Any] | None = None,
        changed: Callable[[ClusterSnapshot], None] = lambda _snapshot: None,
    ) -> None:
        self._lanes = lanes
        self._name_servers = tuple(name_servers)
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._metrics = metrics
        self._changed = changed
        self._asked: dict[str, _Asked] = {}
        self._arrived: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._brokers: dict[str, BrokerSeen] = {}
        self._gone_ms: dict[str, int] = {}
        """Since when, the longest first."""
        self._odd: dict[str, int] = {}
        """How many brokers of each name server cannot be asked."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-poller", daemon=True)
        self._watchers = 0
        self._watchers_lock = threading.Lock()
        self.snapshot = ClusterSnapshot(names={name: Told() for name in self._name_servers})
        """The newest one; replaced as a whole."""

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._arrived.put(lambda: None)
        self._thread.join(5)

    def watch(self, by: int) -> None:
        """Somebody opened (1) or closed (-1) a live page."""
        with self._watchers_lock:
            self._watchers += by

    # -- the poller's thread -------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.step(TICK_S)
            except Exception:  # what one broker said must not end the others' news
                log.exception("a step of the poller failed")

    def step(self, wait_s: float) -> None:
        """Ask what is due, and take what arrives within `wait_s`."""
        self._ask()
        changes = self._take(wait_s)
        if changes:
            self._publish()

    def _ask(self) -> None:
        for address in self._name_servers:
            take = functools.partial(self._take_cluster, address)
            self._ask_one(address, "cluster", CLUSTER, NAMES_MS, take)
            self._ask_one(address, "topics", TOPICS, TOPICS_MS, self._take_topics)
        ha_ms = WATCHED_MS if self._watchers > 0 else IDLE_MS
        for address, broker in list(self._brokers.items()):
            if not broker.registered:
                continue
            self._ask_one(address, "ha", HA_STATUS, ha_ms, self._taker(address, "ha"))
            self._ask_one(address, "runtime", RUNTIME, RUNTIME_MS, self._taker(address, "runtime"))
            if self._metrics is not None and not _lacks_metrics(broker):
                every_ms = METRICS_MS
                taker = self._taker(address, "metrics")
                self._ask_one(address, "metrics", self._metrics, every_ms, taker)

    def _ask_one(
        self,
        address: str,
        what: str,
        question: Question[Any],
        every_ms: int,
        take: Callable[[Answer[Any]], None],
    ) -> None:
        asked = self._asked.setdefault(address, _Asked())
        now_ms = self._now_ms()
        last_ms = asked.last.get(what)
        if what in asked.pending or (last_ms is not None and now_ms - last_ms < every_ms):
            return
        asked.pending.add(what)
        asked.last[what] = now_ms
        future = self._lanes.poll(address, question)

        def arrived(done: Future[Answer[Any]]) -> None:
            def settle() -> None:
                asked.pending.discard(what)
                take(done.result())

            self._arrived.put(settle)

        future.add_done_callback(arrived)

    def _take(self, wait_s: float) -> int:
        """Take what has arrived; how much it was."""
        count = 0
        try:
            self._arrived.get(timeout=wait_s)()
            count += 1
            while True:
                self._arrived.get_nowait()()
                count += 1
        except queue.Empty:
            return count

    # -- what arrives --------------------------------------------------------------------------

    def _take_cluster(self, address: str, answer: Answer[ClusterInfo]) -> None:
        now_ms = self._now_ms()
        if answer.error is not None or answer.value is None:
            told = self.snapshot.names[address].failed(answer.error or "no answer", now_ms)
        else:
            places, self._odd[address] = _places(answer.value)
            told = Told(places, now_ms, wall_ms=self._wall_ms())
        names = {**self.snapshot.names, address: told}
        self.snapshot = replace(self.snapshot, names=names)
        if told.error is None:
            self._register(now_ms)

    def _register(self, now_ms: int) -> None:
        """The brokers that any name server lists."""
        places: dict[str, BrokerAddress] = {}
        for told in self.snapshot.names.values():
            places = {**(told.value or {}), **places}
        watched = {address for address in places if address in self._brokers}
        for address, place in places.items():
            if address not in watched:
                if len(watched) >= MAX_BROKERS:
                    continue
                watched.add(address)
            known = self._brokers.get(address)
            if known is None or known.place != place or not known.registered:
                fresh = BrokerSeen(place, since_ms=now_ms) if known is None else known
                self._brokers[address] = replace(fresh, place=place, registered=True)
            self._gone_ms.pop(address, None)
        for address, broker in list(self._brokers.items()):
            if address not in places:
                self._gone(address, broker, now_ms)
        while len(self._gone_ms) > MAX_GONE:
            self._forget(next(iter(self._gone_ms)))
        left_out = len(places) - len(watched) + sum(self._odd.values())
        self.snapshot = replace(self.snapshot, brokers_left_out=left_out)

    def _gone(self, address: str, broker: BrokerSeen, now_ms: int) -> None:
        since_ms = self._gone_ms.setdefault(address, now_ms)
        if now_ms - since_ms > FORGET_MS:
            self._forget(address)
        elif broker.registered:
            self._brokers[address] = replace(broker, registered=False)

    def _forget(self, address: str) -> None:
        del self._brokers[address], self._gone_ms[address]
        self._asked.pop(address, None)

    def _take_topics(self, answer: Answer[tuple[str, ...]]) -> None:
        names, left_out = answer.value, self.snapshot.topics_left_out
        if names is not None:
            left_out = max(len(names) - MAX_TOPICS, 0)
            answer = replace(answer, value=names[:MAX_TOPICS])
        topics = self._told(self.snapshot.topics, answer)
        self.snapshot = replace(self.snapshot, topics=topics, topics_left_out=left_out)

    def _taker(self, address: str, what: str) -> Callable[[Answer[Any]], None]:
        def take(answer: Answer[Any]) -> None:
            broker = self._brokers.get(address)
            if broker is None:
                return
            get, put = _PARTS[what]
            self._brokers[address] = put(broker, self._told(get(broker), answer))

        return take

    def _told(self, before: Told[Any], answer: Answer[Any]) -> Told[Any]:
        now_ms = self._now_ms()
        if answer.error is not None:
            return before.failed(answer.error, now_ms, is_refusal=answer.is_refusal)
        return Told(answer.value, now_ms, wall_ms=self._wall_ms())

    def _publish(self) -> None:
        brokers = tuple(sorted(self._brokers.values(), key=lambda broker: broker.place))
        self.snapshot = replace(
            self.snapshot,
            number=self.snapshot.number + 1,
            taken_ms=self._wall_ms(),
            taken_at_ms=self._now_ms(),
            brokers=brokers,
            _by_address=dict(self._brokers),
        )
        self._changed(self.snapshot)


_PARTS: Final[
    dict[
        str,
        tuple[Callable[[BrokerSeen], Told[Any]], Callable[[BrokerSeen, Told[Any]], BrokerSeen]],
    ]
] = {
    "ha": (lambda broker: broker.ha, lambda broker, told: replace(broker, ha=told)),
    "runtime": (lambda broker: broker.runtime, lambda broker, told: replace(broker, runtime=told)),
    "metrics": (lambda broker: broker.metrics, lambda broker, told: replace(broker, metrics=told)),
}
"""How a part of what is seen of a broker is read and replaced."""


def _lacks_metrics(broker: BrokerSeen) -> bool:
    """A Java broker has said that it does not know the request; a restart asks again."""
    return broker.is_ours is False


def _places(info: ClusterInfo) -> tuple[dict[str, BrokerAddress], int]:
    """By address, and how many have none. A broker of two clusters is shown under the first."""
    found: dict[str, BrokerAddress] = {}
    odd = 0
    for cluster in sorted(info.cluster_addr_table):
        for name in sorted(info.cluster_addr_table[cluster]):
            data = info.broker_addr_table.get(name)
            for broker_id, address in sorted((data.broker_addrs if data else {}).items()):
                if is_address(address):
                    found.setdefault(address, BrokerAddress(cluster, name, broker_id, address))
                else:
                    odd += 1
    return found, odd
