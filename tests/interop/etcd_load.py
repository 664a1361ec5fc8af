"""Producers and consumers of etcd_world.py's group, with lists of what they were told: what was
answered SEND_OK, where it is said to stand, and what was seen at each queue offset.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.interop.etcd_world import EtcdWorld

QUEUES: Final = 4
AGAIN_S: Final = 60.0
_BEGUN: Final = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _BEGUN:8.2f} {text}", flush=True)


class Load:
    """Producers and consumers, and what they know."""

    def __init__(self, world: EtcdWorld, seed: int) -> None:
        self.world = world
        self.taken: dict[bytes, tuple[str, int, int]] = {}
        """Body to topic, queue and queue offset, by the answers."""
        self.tried: set[bytes] = set()
        self.delayed: set[bytes] = set()
        self.seen: dict[tuple[int, int], bytes] = {}
        self.troubles: list[str] = []
        self.ok_at: list[float] = []
        self.codes: dict[str, int] = {}
        self.master = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        runs: list[Callable[[], None]] = [
            self._watch,
            *(lambda n=n: self._produce(n) for n in range(10)),
            *(lambda n=n: self._consume(random.Random(seed + n)) for n in range(2)),
        ]
        self._producing = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in runs]
        for thread in self._threads:
            thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.master = self.world.master() or self.master

    def _produce(self, me: int) -> None:
        count, client, to = 0, None, 0
        while not self._stop.wait(0.015) and not self._producing.is_set():
            try:
                if client is None or to != self.master:
                    if client is not None:
                        client.close()
                    to, client = self.master, None
                    if not to:
                        continue
                    client = self.world.brokers[to].client(6)
                count += 1
                late = count % 20 == 0
                body = b"%d-%d-" % (me, count) + b"x" * 400
                self.tried.add(body)
                fields = {
                    "a": "p",
                    "b": "D" if late else "T",
                    "c": "TBW102",
                    "d": QUEUES,
                    "e": count % QUEUES,
                    "f": 0,
                    "g": int(time.time() * 1000),
                    "h": 0,
                    "i": "DELAY\x012\x02" if late else f"KEYS\x01{me}-{count}\x02",
                    "j": 0,
                    "k": "false",
                    "l": 16,
                    "m": "false",
                }
                sent = client.take_send(client.post(310, fields, body))
                with self._lock:
                    self.codes[str(sent.code)] = self.codes.get(str(sent.code), 0) + 1
                    if sent.code == 0:
                        self.ok_at.append(time.monotonic())
                        if late:
                            self.delayed.add(body)
                        else:
                            self.taken[body] = ("T", sent.queue_id, sent.queue_offset)
            except OSError as error:
                with self._lock:
                    name = type(error).__name__
                    self.codes[name] = self.codes.get(name, 0) + 1
                if client is not None:
                    client.close()
                client = None
                time.sleep(0.02)

    def _consume(self, rng: random.Random) -> None:
        at = dict.fromkeys(range(QUEUES), 0)
        while not self._stop.is_set():
            number = rng.choice((1, 2, 3))
            try:
                with self.world.brokers[number].client(3) as client:
                    for _ in range(rng.randrange(1, 40)):
                        queue = rng.randrange(QUEUES)
                        pulled = client.pull("T", queue, at[queue])
                        for message in pulled.messages:
                            self._see(number, queue, message.queue_offset, message.body)
                            at[queue] = max(at[queue], message.queue_offset + 1)
                        time.sleep(0.01)
            except OSError:
                time.sleep(0.05)

    def _see(self, number: int, queue: int, offset: int, body: bytes) -> None:
        with self._lock:
            known = self.seen.setdefault((queue, offset), body)
        if known != body:
            self.troubles.append(
                f"{number} shows {body[:20]!r} at {queue}/{offset}, where {known[:20]!r} was read"
            )

    def wait_ok(self, since: float, limit_s: float = AGAIN_S) -> float:
        """Seconds from `since` to the first SEND_OK for a message ... after it."""
        while time.monotonic() - since < limit_s:
            with self._lock:
                later = [at for at in self.ok_at[-50:] if at > since + 0.3]
            if later:
                return later[0] - since
            time.sleep(0.02)
        return limit_s

    def gap(self, since: float) -> float:
        """The longest time without a SEND_OK from `since` on."""
        with self._lock:
            times = [since, *(at for at in self.ok_at if at > since), time.monotonic()]
        return max(b - a for a, b in itertools.pairwise(times))

    def stop_producing(self) -> None:
        self._producing.set()
        for thread in self._threads[1:11]:
            thread.join(15)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
