"""Senders under load that write down every acknowledgement, and the judge who compares.

A sender never sends a message twice: what was not acknowledged may be in the log or not, once at
most. Codes 10, 11 and 12 say "stored, but": they count as acknowledged.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Self

from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, drain

STORED = frozenset((0, 10, 11, 12))
TOPIC = "Ledger"
QUEUES = 4
_WINDOW = 8
_NOT_FOUND = 19
_TOPIC_NOT_EXIST = 17
_sender_numbers = itertools.count()


class Ledger:
    """Everything that was acknowledged. Guarded by: its lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: dict[tuple[str, int, int], bytes] = {}
        self.codes: Counter[int] = Counter()
        self.broken: Counter[str] = Counter()
        """Errors that clients saw, by kind: a connection that breaks is no fault."""
        self.doubled: list[tuple[str, int, int]] = []

    def note(self, place: tuple[str, int, int], body: bytes, code: int) -> None:
        """One answer."""
        with self._lock:
            self.codes[code] += 1
            if code not in STORED:
                return
            if place in self.acknowledged:
                self.doubled.append(place)
            self.acknowledged[place] = body

    def note_broken(self, error: Exception) -> None:
        """A connection that broke."""
        with self._lock:
            self.broken[type(error).__name__] += 1

    def __len__(self) -> int:
        return len(self.acknowledged)

    def wait_for_more(self, count: int = 30, timeout_s: float = 15.0) -> None:
        """Until that many more sends were acknowledged."""
        goal = len(self) + count
        wait_until(lambda: len(self) >= goal, timeout_s)


class Senders:
    """Threads that send until they are stopped; they connect again whenever a connection ends."""

    def __init__(
        self,
        broker: OurBroker,
        ledger: Ledger,
        count: int = 2,
        size: int = 200,
        pause_s: float = 0.0,
    ) -> None:
        """count: threads. size: bytes of a body. pause_s: of each after each window of sends."""
        self._pause_s = pause_s
        self._broker = broker
        self._ledger = ledger
        self._size = size
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(next(_sender_numbers),), daemon=True)
            for _ in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End them; what is under way is answered or given up first."""
        self._end.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _run(self, sender: int) -> None:
        sequence = 0
        while not self._end.is_set():
            try:
                with self._broker.client(timeout_s=10.0) as client:
                    while not self._end.is_set():
                        sequence = self._send_some(client, sender, sequence)
                        if self._pause_s:
                            self._end.wait(self._pause_s)
            except OSError as error:
                self._ledger.note_broken(error)
                # Not a wait for anything: a broker that is down is asked ten times a second.
                self._end.wait(0.1)
                sequence += _WINDOW

    def _send_some(self, client: FrameClient, sender: int, sequence: int) -> int:
        """A window of sends; the next sequence number."""
        posted: list[tuple[int, int, bytes]] = []
        for number in range(sequence, sequence + _WINDOW):
            body = f"{sender}:{number:08d}:".encode().ljust(self._size, b"x")
            queue_id = number % QUEUES
            key = f"{sender}-{number}"
            posted.append((client.post_send(TOPIC, queue_id, body, key), queue_id, body))
        for opaque, queue_id, body in posted:
            sent = client.take_send(opaque)
            self._ledger.note((TOPIC, queue_id, sent.queue_offset), body, sent.code)
        return sequence + _WINDOW


class Follower:
    """A consumer of every queue, on a thread, by long polls: it must see each offset, in order,
    whatever is killed meanwhile; an offset that is corrected or skipped is a loss."""

    def __init__(self, broker: OurBroker) -> None:
        self._broker = broker
        self._end = threading.Event()
        self._next = dict.fromkeys(range(QUEUES), 0)
        self.faults: list[str] = []
        self.bodies: dict[tuple[str, int, int], bytes] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def assert_has(self, ledger: Ledger) -> None:
        """Everything acknowledged came, nothing else was wrong. While it still runs."""
        wait_until(lambda: self.faults or ledger.acknowledged.keys() <= self.bodies.keys())
        assert not self.faults, self.faults[:3]
        for place, body in ledger.acknowledged.items():
            assert self.bodies[place] == body, place

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with self._broker.client(timeout_s=10.0) as client:
                    while not self._end.is_set():
                        self._look(client)
            except OSError:
                self._end.wait(0.05)

    def _look(self, client: FrameClient) -> None:
        for queue_id, at in self._next.items():
            pulled = client.take_pull(client.post_pull(TOPIC, queue_id, at, suspend_ms=50))
            offsets = [message.queue_offset for message in pulled.messages]
            if pulled.code in (_NOT_FOUND, _TOPIC_NOT_EXIST) and not offsets:
                continue
            if pulled.code or offsets != list(range(at, pulled.next_offset)):
                self.faults.append(f"queue {queue_id} at {at}: {pulled.code}, {offsets[:3]} ...")
                self._end.wait(0.05)
                continue
            for message in pulled.messages:
                self.bodies[TOPIC, queue_id, message.queue_offset] = message.body
            self._next[queue_id] = pulled.next_offset


def assert_nothing_lost(broker: OurBroker, ledger: Ledger, *, dense_from: int = 0) -> int:
    """Pull everything: every acknowledged message is once there, at its offset; offsets follow
    each other, nothing comes twice, the order of each sender holds. How many messages there are.
    """
    assert not ledger.doubled, f"two sends were given the same place: {ledger.doubled[:5]}"
    assert ledger.acknowledged
    found: dict[int, list[bytes]] = {}
    with broker.client() as client:
        for queue_id in range(QUEUES):
            wait_until(lambda q=queue_id: _is_dispatched(client, ledger, q))  # type: ignore[misc]
            messages = drain(client, TOPIC, queue_id)
            offsets = [message.queue_offset for message in messages]
            assert offsets == list(range(dense_from, dense_from + len(offsets))), queue_id
            found[queue_id] = [message.body for message in messages]
    for (_, queue_id, offset), body in ledger.acknowledged.items():
        assert offset < len(found[queue_id]), f"lost: {queue_id} at {offset}: {body[:12]!r}"
        there = found[queue_id][offset]
        assert there == body, f"{queue_id} at {offset}: {there[:12]!r} instead of {body[:12]!r}"
    everything = [body for bodies in found.values() for body in bodies]
    assert len(everything) == len(set(everything))
    for bodies in found.values():
        _assert_order(bodies)
    return len(everything)


def _is_dispatched(client: FrameClient, ledger: Ledger, queue_id: int) -> bool:
    offsets = [offset for _, queue, offset in ledger.acknowledged if queue == queue_id]
    return client.offset(30, TOPIC, queue_id) > max(offsets, default=-1)


def _assert_order(bodies: Iterable[bytes]) -> None:
    last: dict[bytes, bytes] = defaultdict(bytes)
    for body in bodies:
        sender, number, _ = body.split(b":", 2)
        assert number > last[sender]
        last[sender] = number


def assert_keys_found(broker: OurBroker, ledger: Ledger, count: int = 20) -> None:
    """A sample of the acknowledged messages is found by key."""
    places = sorted(ledger.acknowledged)
    with broker.client() as client:
        for place in places[:: max(len(places) // count, 1)]:
            sender, number, _ = ledger.acknowledged[place].split(b":", 2)
            key = f"{sender.decode()}-{int(number)}"
            bodies = [message.body for message in client.query(TOPIC, key)]
            assert ledger.acknowledged[place] in bodies, key


def assert_stops_clean(broker: OurBroker) -> None:
    """SIGTERM: exit 0 within 10 s, no abort file, nothing to complain about."""
    assert broker.terminate(timeout_s=10.0) == 0, broker.logs()
    assert not broker.has_abort
    assert (broker.store_dir / "clean.exit").exists()
    report = broker.check()
    assert report.is_clean, report.lines()
