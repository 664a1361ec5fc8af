"""The load of a group whose master changes: producers that go where the master is, and consumers
that read any member; each keeps its own list of what it did and saw.

A producer waits for answers no longer than until the name server names another master; what the old
one still answers is taken, too, by a thread of its own, since two masters that both answer are what
a run looks for. One producer is late on purpose: it sends to the master of two seconds ago. No
producer repeats a message.

Tested by tests/tools/chaos/test_chasing_load.py.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from tools.chaos.ack_log import SEND_OK, STORED, Ack, make_body
from tools.chaos.frame_client import FrameClient, send_request, sent_of
from tools.chaos.group_view import Address
from tools.chaos.history import FIRST_READER, Append, History, Read
from tools.chaos.look_ups import properties_of
from tools.chaos.workload import QUEUES

WINDOW: Final = 16
LATE_S: Final = 2.0
"""By how much the last producer's view of the master is late."""
_SLICE_S: Final = 0.05
_ANSWER_S: Final = 8.0
"""More than a broker's own limit for replicas (5 s)."""
_CONNECT_S: Final = 1.0
_PAUSE_S: Final = 0.01
_READ_S: Final = 1.0
_READS_A_MEMBER: Final = 40

OnStored = Callable[[Ack, bytes], None]
Sends = Sequence[tuple[Append, int, bytes]]
"""Each with the number of its request, and its body."""


class ChasingProducers:
    """See the module. Figures are in the history."""

    def __init__(
        self,
        master: Callable[[float], Address | None],
        history: History,
        topic: str,
        *,
        count: int,
        rate: float,
        size: int,
        on_stored: OnStored,
    ) -> None:
        """master: where the one is that was named so many seconds ago. rate: messages a second, of
        all. on_stored: gets each answer that comes in time and its body, at once."""
        self._master = master
        self._history = history
        self._topic = topic
        self._size = size
        self._on_stored = on_stored
        self._period_s = WINDOW * count / rate
        self._end = threading.Event()
        self._late: list[threading.Thread] = []
        self._lock = threading.Lock()
        ages = [0.0] * (count - 1) + [LATE_S]
        self._threads = [
            threading.Thread(target=self._run, args=(number, age_s), daemon=True)
            for number, age_s in enumerate(ages)
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> bool:
        """End; what is under way is answered or given up. False: a thread did not end."""
        self._end.set()
        for thread in (*self._threads, *self._late):
            thread.join(2 * _ANSWER_S)
        return not any(thread.is_alive() for thread in (*self._threads, *self._late))

    def _run(self, number: int, age_s: float) -> None:
        sequence = 0
        while not self._end.is_set():
            peer = self._master(age_s)
            client = None if peer is None else _connected(peer)
            if peer is None or client is None:
                self._end.wait(_PAUSE_S)
                continue
            left: Sends = ()
            try:
                while not left and not self._end.is_set() and self._master(age_s) == peer:
                    due = time.monotonic() + self._period_s
                    sends = self._post(client, number, sequence, peer)
                    sequence += WINDOW
                    left = self._take(client, sends, age_s)
                    self._end.wait(max(due - time.monotonic(), 0))
            except OSError:
                left = ()
            if left:
                self._take_late(client, left)
            else:
                client.__exit__()
                self._end.wait(_PAUSE_S)

    def _post(self, client: FrameClient, number: int, begun: int, peer: Address) -> Sends:
        sends, requests = [], []
        call_s = time.monotonic()
        for sequence in range(begun, begun + WINDOW):
            body, queue_id = make_body(number, sequence, self._size), sequence % QUEUES
            request = send_request(self._topic, queue_id, body, properties_of(number, sequence))
            append = Append(number, sequence, queue_id, call_s, peer)
            self._history.sends(append)
            sends.append((append, request.opaque, body))
            requests.append(request)
        client.post(*requests)
        return sends

    def _take(self, client: FrameClient, sends: Sends, age_s: float | None) -> Sends:
        """Take the answers; those that are left when another master is named. age_s: how late that
        is heard; None: never. Raises OSError."""
        deadline = time.monotonic() + _ANSWER_S
        for count, (append, opaque, body) in enumerate(sends):
            while True:
                try:
                    sent = sent_of(client.take(opaque, _SLICE_S))
                    break
                except TimeoutError:
                    if time.monotonic() > deadline:
                        raise
                    if age_s is not None and self._master(age_s) != client.peer:
                        return sends[count:]
            # The id of a queue is the answer's word: it was asked for this one.
            append.code, append.queue_offset = sent.code, sent.queue_offset
            append.phy_offset = sent.phy_offset
            append.return_s = time.monotonic()
            if sent.code == SEND_OK:
                self._on_stored(append.as_ack(), body)
            elif sent.code not in STORED:
                self._end.wait(_PAUSE_S)
        return ()

    def _take_late(self, client: FrameClient, left: Sends) -> None:
        """On a thread of its own, until the peer has answered or hung up."""

        def run() -> None:
            with client:
                try:
                    self._take(client, left, None)
                except OSError:
                    return

        thread = threading.Thread(target=run, daemon=True)
        with self._lock:
            self._late.append(thread)
        thread.start()


def _connected(peer: Address) -> FrameClient | None:
    try:
        return FrameClient(peer, _CONNECT_S)
    except OSError:
        return None


class MemberReaders:
    """Consumers, each on a thread: they read any member, a while each, from where they are on."""

    def __init__(
        self, members: Sequence[Callable[[], Address]], history: History, topic: str, seed: int
    ) -> None:
        """members: where each is now."""
        self._members = members
        self._history = history
        self._topic = topic
        self._end = threading.Event()
        self.violations: list[str] = []
        self._seen: dict[tuple[int, int], bytes] = {}
        """By queue and offset: what was read there first."""
        self._position = [0] * QUEUES
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(FIRST_READER + n, seed + n), daemon=True)
            for n in range(2)
        ]

    def start(self) -> None:
        """Begin to read."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End."""
        self._end.set()
        for thread in self._threads:
            thread.join(_ANSWER_S)

    def seen(self) -> dict[tuple[int, int], bytes]:
        """By queue and offset."""
        with self._lock:
            return dict(self._seen)

    def position(self, queue_id: int) -> int:
        """How far the first consumer has come in a queue."""
        return self._position[queue_id]

    def _run(self, number: int, seed: int) -> None:
        draw = random.Random(seed).random
        at = dict.fromkeys(range(QUEUES), 0)
        while not self._end.is_set():
            address = self._members[int(draw() * len(self._members))]()
            try:
                with FrameClient(address, _READ_S) as client:
                    for _ in range(1 + int(draw() * _READS_A_MEMBER)):
                        queue_id = int(draw() * QUEUES)
                        at[queue_id] = self._read(client, number, queue_id, at[queue_id])
                        if number == FIRST_READER:
                            self._position[queue_id] = at[queue_id]
                        if self._end.wait(_PAUSE_S):
                            return
            except OSError:
                self._end.wait(_PAUSE_S)

    def _read(self, client: FrameClient, number: int, queue_id: int, at: int) -> int:
        """Where to go on."""
        call_s = time.monotonic()
        pulled = client.pull(self._topic, queue_id, at)
        if pulled.code or not pulled.messages:
            return at
        offsets = [message.queue_offset for message in pulled.messages]
        if offsets != list(range(at, at + len(offsets))):
            self._tell(f"{client.peer}: queue {queue_id} at {at}: offsets {offsets[:3]}")
            return at
        bodies = [message.body for message in pulled.messages]
        peer = client.peer
        self._history.saw(Read(number, queue_id, call_s, time.monotonic(), at, bodies, peer))
        for offset, body in enumerate(bodies, at):
            with self._lock:
                known = self._seen.setdefault((queue_id, offset), body)
            if known != body:
                self._tell(
                    f"{peer} shows {body[:20]!r} at queue {queue_id} offset {offset}, where "
                    f"{known[:20]!r} was read"
                )
        return at + len(bodies)

    def _tell(self, text: str) -> None:
        with self._lock:
            if len(self.violations) < 20:
                self.violations.append(text)
