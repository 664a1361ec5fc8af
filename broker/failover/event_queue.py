"""EventQueue: what has happened to a member and was not taken yet, in its order.

Any thread puts, the member's thread takes. Of what only the newest counts (the log has grown, how
far a slave is, what the master confirms) one is kept, at the place of the first: a slave that
reports without end fills no memory, and what is old does not wait in front of what is new.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable

from broker.failover.messages import Event, FrameTaken, Moved, ReplicaReported


class EventQueue:
    """See the module. Guarded by: its lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, Event] = {}
        self._number = 0

    def put(self, event: Event) -> None:
        """One more. Any thread; does not block."""
        with self._lock:
            self._waiting[self._key(event)] = event

    def _key(self, event: Event) -> Hashable:
        match event:
            case Moved() | FrameTaken():
                return (type(event),)
            case ReplicaReported():
                return ReplicaReported, event.connection
        self._number += 1
        return self._number

    def take_all(self) -> list[Event]:
        """Those there are, the oldest first."""
        with self._lock:
            taken, self._waiting = self._waiting, {}
        return [*taken.values()]
