"""DelayedLoad: messages with a delay, and when they come, by the clients' own monotonic clock.

Two threads of its own: one sends, one follows the topic. A message that comes before its delay has
passed since its send began, and one that was acknowledged and never comes, are violations. A
message may come twice, after a crash. The broker's wall clock plays no part here.

Tested by tests/tools/chaos/test_side_loads.py.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from tools.chaos.ack_log import SEND_OK, STORED
from tools.chaos.frame_client import FrameClient, send_request, sent_of
from tools.chaos.workload import QUEUES, MayBeLost, Where

TOPIC: Final = "ChaosDelayed"
TIMER: Final = 0
"""In place of a level: a timer message."""
DELAYS_S: Final = {1: 1.0, 2: 5.0, TIMER: 1.5}
"""The levels used, of the default messageDelayLevel, and the timers' delay."""
_EARLY_S: Final = 0.25
"""A broker's time is that of its loop's turn, which may have begun before the send."""
_TIMEOUT_S: Final = 8.0
_PAUSE_S: Final = 0.05
_PULL_OFFSET_MOVED: Final = 21


@dataclass(slots=True)
class _Delayed:
    """One message: when its send began, and what came of it."""

    level: int
    began_s: float
    code: int | None = None
    answered_s: float = 0.0
    came_s: float | None = None


class DelayedLoad:
    """See the module. Its figures are whole once it has stopped."""

    def __init__(
        self,
        where: Where,
        rate: float,
        *,
        with_timers: bool = False,
        may_be_lost: MayBeLost = lambda _answered_s, _code: False,
        topic: str = TOPIC,
    ) -> None:
        """rate: messages a second. with_timers: every third is a timer message."""
        self._where = where
        self._topic = topic
        self._levels = (1, 2, TIMER) if with_timers else (1, 2)
        self._may_be_lost = may_be_lost
        self._begins_anew = threading.Event()
        self._period_s = 1 / rate
        self._lock = threading.Lock()
        self._messages: list[_Delayed] = []
        self._no_more = threading.Event()
        self._end = threading.Event()
        self.violations: list[str] = []
        self.repeated = 0
        self._sender = threading.Thread(target=self._send_all, daemon=True)
        self._receiver = threading.Thread(target=self._receive_all, daemon=True)

    def start(self) -> None:
        """Begin to send and to follow."""
        self._sender.start()
        self._receiver.start()

    def stop_sending(self) -> None:
        """No message after this."""
        self._no_more.set()
        self._sender.join(2 * _TIMEOUT_S)

    def read_again(self) -> None:
        """The queues may go on otherwise from some place on: read them from the beginning."""
        self._begins_anew.set()

    def has_all(self, *, only_ok: bool) -> bool:
        """Whether every acknowledged message came. only_ok: those answered SEND_OK."""
        return not self._missing(only_ok=only_ok)

    def stop(self, *, only_ok: bool) -> list[str]:
        """End; what was violated."""
        self._end.set()
        self._receiver.join(2 * _TIMEOUT_S)
        return self.violations + [
            f"delayed message {number} of level {message.level}, "
            f"answered {message.code}: never came"
            for number, message in self._missing(only_ok=only_ok)
        ]

    def text(self) -> str:
        """One line: how many, and how late."""
        with self._lock:
            late = sorted(
                message.came_s - message.began_s - DELAYS_S[message.level]
                for message in self._messages
                if message.came_s is not None
            )
            sent = len(self._messages)
        if not late:
            return f"{sent} delayed, none came"
        middle, most = late[len(late) // 2], late[-1]
        return (
            f"{sent} delayed, {len(late)} came ({self.repeated} again), "
            f"{middle * 1000:.0f} ms late in the middle, {most:.1f} s at most"
        )

    def _missing(self, *, only_ok: bool) -> list[tuple[int, _Delayed]]:
        wanted = (SEND_OK,) if only_ok else STORED
        with self._lock:
            return [
                (number, message)
                for number, message in enumerate(self._messages)
                if message.code is not None
                and message.code in wanted
                and message.came_s is None
                and not self._may_be_lost(message.answered_s, message.code)
            ]

    # -- the threads ---------------------------------------------------------------------------

    def _send_all(self) -> None:
        while not self._no_more.is_set():
            try:
                with FrameClient(self._where(), _TIMEOUT_S) as client:
                    while not self._no_more.wait(self._period_s) and self._where() == client.peer:
                        self._send(client)
            except OSError:
                self._no_more.wait(_PAUSE_S)

    def _send(self, client: FrameClient) -> None:
        with self._lock:
            number = len(self._messages)
            message = _Delayed(self._levels[number % len(self._levels)], time.monotonic())
            self._messages.append(message)
        properties = f"DELAY\x01{message.level}\x02"
        if message.level == TIMER:
            properties = f"TIMER_DELAY_MS\x01{DELAYS_S[TIMER] * 1000:.0f}\x02"
        request = send_request(self._topic, number % QUEUES, str(number).encode(), properties)
        client.post(request)
        code = sent_of(client.take(request.opaque)).code
        message.answered_s, message.code = time.monotonic(), code

    def _receive_all(self) -> None:
        at = dict.fromkeys(range(QUEUES), 0)
        while not self._end.is_set():
            try:
                with FrameClient(self._where(), _TIMEOUT_S) as client:
                    while not self._end.wait(_PAUSE_S) and self._where() == client.peer:
                        if self._begins_anew.is_set():
                            self._begins_anew.clear()
                            at = dict.fromkeys(at, 0)
                        for queue_id in at:
                            at[queue_id] = self._receive(client, queue_id, at[queue_id])
            except OSError:
                self._end.wait(_PAUSE_S)

    def _receive(self, client: FrameClient, queue_id: int, at: int) -> int:
        """Where to go on."""
        pulled = client.pull(self._topic, queue_id, at)
        for message in pulled.messages:
            self._came(message.body)
        moved = pulled.code in (SEND_OK, _PULL_OFFSET_MOVED)
        return pulled.next_offset if moved else at

    def _came(self, body: bytes) -> None:
        now_s = time.monotonic()
        with self._lock:
            number = int(body) if body.isdigit() else -1
            if not 0 <= number < len(self._messages):
                self.violations.append(f"delayed: nobody sent {body[:24]!r}")
                return
            message = self._messages[number]
            if message.came_s is not None:
                self.repeated += 1
                return
            message.came_s = now_s
        early_s = message.began_s + DELAYS_S[message.level] - now_s
        if early_s > _EARLY_S:
            self.violations.append(
                f"delayed message {number} of level {message.level} came {early_s:.2f} s early"
            )
