"""Workload: producers and a consumer that go on whatever is broken, on threads of their own.

A producer sends windows of messages and never repeats one: what was not answered is stored once or
not at all. The consumer follows every queue by long polls and must see each offset, in order; what
it saw is compared with the store at the end.

Tested by tests/tools/chaos/test_mqchaos.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from tools.chaos.ack_log import Ack, AckLog, make_body
from tools.chaos.frame_client import FrameClient, send_request, sent_of
from tools.chaos.look_ups import properties_of
from tools.chaos.queue_reading import append_pulled

TOPIC: Final = "Chaos"
QUEUES: Final = 4
_WINDOW: Final = 8
_TIMEOUT_S: Final = 8.0
"""More than the broker's own limits for a flush and a replica (5 s): its answer comes."""
_PAUSE_S: Final = 0.05
_EMPTY: Final = frozenset((17, 19))
"""TOPIC_NOT_EXIST before the first send, PULL_NOT_FOUND."""

Where = Callable[[], tuple[str, int]]
"""The address of the master at this moment."""
MayBeLost = Callable[[float, int], bool]
"""Whether a message that was answered then (monotonic seconds) with this code may be lost: a power
cut took it, as it may."""


class _Gate:
    """Where threads wait while they shall do nothing."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._open = True
        self._waiting = 0
        self._changed = threading.Condition()

    def pass_through(self) -> None:
        """Called by each thread when it has nothing under way."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._open)
            self._waiting -= 1

    def shut(self) -> bool:
        """Until every thread waits; False: one did not come."""
        with self._changed:
            self._open = False
            return self._changed.wait_for(lambda: self._waiting == self._threads, 2 * _TIMEOUT_S)

    def open(self) -> None:
        """Go on."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


class Producers:
    """`count` of them, together about `rate` messages a second."""

    def __init__(
        self,
        where: Where,
        acks: AckLog,
        *,
        count: int,
        rate: float,
        size: int,
        topic: str = TOPIC,
        on_answer: Callable[[float], None] | None = None,
        on_stored: Callable[[Ack, bytes], None] | None = None,
    ) -> None:
        """on_answer: gets the seconds that each answer took; on_stored: each answer and its body,
        at once. Any of its threads."""
        self._where = where
        self.acks: Final = acks
        self._topic = topic
        self._on_answer = on_answer
        self._on_stored = on_stored
        self._size = size
        self._period_s = _WINDOW * count / rate
        self._end = threading.Event()
        self._gate = _Gate(count)
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(count)
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def hold(self) -> bool:
        """Send nothing until `release`; no answer is under way when it returns. False: one is."""
        return self._gate.shut()

    def release(self) -> None:
        """Go on."""
        self._gate.open()

    def stop(self) -> bool:
        """End; what is under way is answered or given up. False: one did not end."""
        self._end.set()
        self._gate.open()
        for thread in self._threads:
            thread.join(2 * _TIMEOUT_S)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, producer: int) -> None:
        sequence = 0
        while not self._end.is_set():
            self._gate.pass_through()
            try:
                with FrameClient(self._where(), _TIMEOUT_S) as client:
                    while not self._end.is_set():
                        self._gate.pass_through()
                        due = time.monotonic() + self._period_s
                        begun, sequence = sequence, sequence + _WINDOW
                        self._send(client, producer, begun)
                        self._end.wait(max(due - time.monotonic(), 0))
            except OSError as error:
                self.acks.broke(error)
                self._end.wait(_PAUSE_S)

    def _send(self, client: FrameClient, producer: int, begun: int) -> None:
        requests = []
        for sequence in range(begun, begun + _WINDOW):
            body = make_body(producer, sequence, self._size)
            properties = properties_of(producer, sequence)
            requests.append(send_request(self._topic, sequence % QUEUES, body, properties))
            self.acks.began(producer, sequence)
        sent_s = time.monotonic()
        client.post(*requests)
        for sequence, request in enumerate(requests, begun):
            sent = sent_of(client.take(request.opaque))
            answered_s = time.monotonic()
            if self._on_answer is not None:
                self._on_answer(answered_s - sent_s)
            place = (sent.queue_id, sent.queue_offset, sent.code)
            ack = Ack(producer, sequence, *place, sent_s, answered_s, sent.phy_offset)
            if self._on_stored is not None:
                self._on_stored(ack, request.body)
            self.acks.answered(ack)


class Follower:
    """One consumer of all queues. Owned by: its thread, until `stop`."""

    def __init__(
        self, where: Where, topic: str = TOPIC, seen: dict[int, list[bytes]] | None = None
    ) -> None:
        """seen: by another follower before it."""
        self._where = where
        self._topic = topic
        self._end = threading.Event()
        self.seen = seen or {queue: [] for queue in range(QUEUES)}
        """Bodies by queue, in the order of their offsets."""
        self.violations: list[str] = []
        self.may_skip = False
        """Whether the log may have damage that a consumer has to step over."""
        self._gate = _Gate(1)
        self._thread = threading.Thread(target=self._run, name="Follower", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def hold(self) -> bool:
        """Pull nothing until `release`. False: it did not come to rest."""
        return self._gate.shut()

    def release(self, ends: Sequence[int]) -> None:
        """Go on, at most from these ends of the queues: what was behind them is gone."""
        for queue_id, end in enumerate(ends):
            del self.seen[queue_id][max(end, 0) :]
        self.may_skip = True
        self._gate.open()

    def stop(self) -> None:
        """End."""
        self._end.set()
        self._gate.open()
        self._thread.join(2 * _TIMEOUT_S)

    def _run(self) -> None:
        while not self._end.is_set():
            self._gate.pass_through()
            try:
                with FrameClient(self._where(), _TIMEOUT_S) as client:
                    while not self._end.is_set():
                        self._gate.pass_through()
                        for queue_id, bodies in self.seen.items():
                            self._look(client, queue_id, bodies)
            except OSError:
                self._end.wait(_PAUSE_S)

    def _look(self, client: FrameClient, queue_id: int, bodies: list[bytes]) -> None:
        at = len(bodies)
        pulled = client.pull(self._topic, queue_id, at, wait_ms=50)
        offsets = [message.queue_offset for message in pulled.messages]
        if pulled.code in _EMPTY and pulled.next_offset == at:
            return
        if self.may_skip and append_pulled(bodies, pulled):
            return
        if pulled.code or offsets != list(range(at, pulled.next_offset)):
            text = f"queue {queue_id} at {at}: code {pulled.code}, offsets {offsets[:3]}"
            if len(self.violations) < 20:
                self.violations.append(text)
            self._end.wait(_PAUSE_S)
            return
        bodies.extend(message.body for message in pulled.messages)
