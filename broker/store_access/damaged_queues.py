"""DamagedQueues: tells process `store` which queues hold wrong units, so that it rebuilds them.

A thread of `remoting`; any thread reports. A report is cheap and may be repeated: each place is
sent at most once a second, and again while process `store` does not answer. It knows neither what a
unit looks like nor how a queue is rebuilt.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from ipc.clock import Clock
from ipc.command_channel import CommandClient, CommandError
from ipc.service_thread import ServiceThread
from store.rebuild_consume_queue_service import REBUILD_QUEUE

log = logging.getLogger(__name__)

_COMMAND_TIMEOUT_MS: Final = 4_000
_RETRY_MS: Final = 1_000
_IDLE_MS: Final = 60_000
_MOST_PLACES: Final = 10_000

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


class DamagedQueues(ServiceThread):
    """See the module. Guarded by: its own lock."""

    def __init__(self, commands: CommandClient, clock: Clock) -> None:
        super().__init__("DamagedQueues")
        self._commands = commands
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[Place, None] = {}
        self._sent: dict[Place, int] = {}
        """Monotonic ms at which a place was sent."""

    def report(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """The unit at `queue_offset` does not name its record. Any thread."""
        place = topic, queue_id, queue_offset
        with self._lock:
            sent_ms = self._sent.get(place)
            if sent_ms is not None and self._clock.monotonic_ms() - sent_ms < _RETRY_MS:
                return
            if place in self._waiting or len(self._waiting) >= _MOST_PLACES:
                return
            self._waiting[place] = None
        log.error(
            "queue %s/%s: the unit at offset %s does not name its record: rebuilding it",
            topic,
            queue_id,
            queue_offset,
        )
        self.wakeup()

    def step(self) -> None:
        """Send what was reported."""
        if self._waiting:
            if self.send_all():
                return
            self.wait_for_running(_RETRY_MS)
        else:
            self.wait_for_running(_IDLE_MS)

    def send_all(self) -> bool:
        """Send every place that waits; False when process `store` does not answer: try again."""
        with self._lock:
            places = list(self._waiting)
        for place in places:
            topic, queue_id, queue_offset = place
            try:
                self._commands.call(
                    REBUILD_QUEUE,
                    _COMMAND_TIMEOUT_MS,
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                )
            except CommandError as error:
                log.warning("queue %s/%s: not being rebuilt yet: %s", topic, queue_id, error)
                return False
            self._note_sent(place)
        return True

    def _note_sent(self, place: Place) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._waiting.pop(place, None)
            self._sent = {other: at for other, at in self._sent.items() if now_ms - at < _RETRY_MS}
            self._sent[place] = now_ms
