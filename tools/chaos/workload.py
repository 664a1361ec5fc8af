"""Workload: producers and a consumer that go on whatever is broken, on threads of their own.

A producer sends windows of messages and never repeats one: what was not answered is stored once or
not at all. The consumer follows every queue by long polls and must see each offset, in order; what
it saw is compared with the store at the end.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from tools.chaos.ack_log import Ack, AckLog, make_body
from tools.chaos.frame_client import FrameClient, send_request, sent_of

TOPIC: Final = "Chaos"
QUEUES: Final = 4
_WINDOW: Final = 8
_TIMEOUT_S: Final = 8.0
"""More than the broker's own limits for a flush and a replica (5 s): its answer comes."""
_PAUSE_S: Final = 0.05
_EMPTY: Final = frozenset((17, 19))
"""TOPIC_NOT_EXIST before the first send, PULL_NOT_FOUND."""


class Producers:
    """`count` of them, together about `rate` messages a second."""

    def __init__(self, port: int, acks: AckLog, *, count: int, rate: float, size: int) -> None:
        self._port = port
        self._acks = acks
        self._size = size
        self._period_s = _WINDOW * count / rate
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(count)
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> bool:
        """End; what is under way is answered or given up. False: one did not end."""
        self._end.set()
        for thread in self._threads:
            thread.join(2 * _TIMEOUT_S)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, producer: int) -> None:
        sequence = 0
        while not self._end.is_set():
            try:
                with FrameClient(self._port, _TIMEOUT_S) as client:
                    while not self._end.is_set():
                        due = time.monotonic() + self._period_s
                        begun, sequence = sequence, sequence + _WINDOW
                        self._send(client, producer, begun)
                        self._end.wait(max(due - time.monotonic(), 0))
            except OSError as error:
                self._acks.broke(error)
                self._end.wait(_PAUSE_S)

    def _send(self, client: FrameClient, producer: int, begun: int) -> None:
        requests = []
        for sequence in range(begun, begun + _WINDOW):
            body = make_body(producer, sequence, self._size)
            requests.append(send_request(TOPIC, sequence % QUEUES, body))
            self._acks.began(producer, sequence)
        client.post(*requests)
        for sequence, request in enumerate(requests, begun):
            sent = sent_of(client.take(request.opaque))
            ack = Ack(producer, sequence, sent.queue_id, sent.queue_offset, sent.code)
            self._acks.answered(ack)


class Follower:
    """One consumer of all queues. Owned by: its thread, until `stop`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._end = threading.Event()
        self.seen: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
        """Bodies by queue, in the order of their offsets."""
        self.violations: list[str] = []
        self._thread = threading.Thread(target=self._run, name="Follower", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._end.set()
        self._thread.join(2 * _TIMEOUT_S)

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with FrameClient(self._port, _TIMEOUT_S) as client:
                    while not self._end.is_set():
                        for queue_id, bodies in self.seen.items():
                            self._look(client, queue_id, bodies)
            except OSError:
                self._end.wait(_PAUSE_S)

    def _look(self, client: FrameClient, queue_id: int, bodies: list[bytes]) -> None:
        at = len(bodies)
        pulled = client.pull(TOPIC, queue_id, at, wait_ms=50)
        offsets = [message.queue_offset for message in pulled.messages]
        if pulled.code in _EMPTY and pulled.next_offset == at:
            return
        if pulled.code or offsets != list(range(at, pulled.next_offset)):
            text = f"queue {queue_id} at {at}: code {pulled.code}, offsets {offsets[:3]}"
            if len(self.violations) < 20:
                self.violations.append(text)
            self._end.wait(_PAUSE_S)
            return
        bodies.extend(message.body for message in pulled.messages)
