"""NotifyMessageArrivingListener: tells everything that waits for messages which queues moved.

Runs on the loop thread of `remoting`. Pulls, pops and notifications wait in services of their own;
whoever observes the queue table needs to know one. Knows no request.
"""

from __future__ import annotations

from typing import Protocol


class HeldRequests(Protocol):
    """Requests that wait for messages."""

    @property
    def is_empty(self) -> bool:
        """Whether none waits."""

    def wake(self, key: tuple[str, int], /) -> None:
        """The queue (topic, queue id) has advanced."""

    def wake_all(self) -> None:
        """Too many queues have advanced to list them."""


class NotifyMessageArrivingListener:
    """Several of them as one. Owned by: the loop thread."""

    def __init__(self, *services: HeldRequests) -> None:
        self._services = services

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits. Asked twice a turn: a loop costs half of what all() does."""
        for service in self._services:  # noqa: SIM110
            if not service.is_empty:
                return False
        return True

    def wake(self, key: tuple[str, int], /) -> None:
        """The queue (topic, queue id) has advanced."""
        for service in self._services:
            if not service.is_empty:
                service.wake(key)

    def wake_all(self) -> None:
        """Too many queues have advanced to list them."""
        for service in self._services:
            service.wake_all()
