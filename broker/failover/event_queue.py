"""EventQueue: what has happened to a member and was not taken yet, in its order.

Any thread puts, the member's thread takes. Of what only the newest counts (the log has grown, how
far a slave is, what the master confirms, whether this broker could lead) one is kept, at the place
of the first: a slave that reports without end fills no memory, and what is old does not wait in
front of what is new.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from broker.failover.messages import Event, Fitness, FrameTaken, Moved, ReplicaReported, Tick


class EventQueue:
    """See the module. Guarded by: its lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Hashable, Event] = OrderedDict()
        self._number = 0

    def put(self, event: Event) -> None:
        """One more. Any thread; does not block."""
        with self._lock:
            self._waiting[self._key(event)] = event

    def _key(self, event: Event) -> Hashable:
        match event:
            case Moved() | FrameTaken() | Tick() | Fitness():
                return (type(event),)
            case ReplicaReported():
                return ReplicaReported, event.connection
        self._number += 1
        return self._number

    def take(self) -> Event | None:
        """The oldest one; None: there is none."""
        with self._lock:
            return self._waiting.popitem(last=False)[1] if self._waiting else None
