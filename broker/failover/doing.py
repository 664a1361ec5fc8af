"""Doing: a `Ready` in the making. Pure; one thread."""

from __future__ import annotations

from typing import Final

from broker.failover.messages import LogEnds, Ready, Role, Send, Step

_NOTHING: Final = Ready()


class Doing:
    """Of one event."""

    def __init__(self, log: LogEnds) -> None:
        """log: the broker's, at that moment."""
        self.log = log
        self.steps: list[Step] = []
        self.role: Role | None = None
        self.sends: list[Send] = []

    def ready(self) -> Ready:
        """What there is to do."""
        if self.role is None and not (self.steps or self.sends):
            return _NOTHING
        return Ready(tuple(self.steps), self.role, tuple(self.sends))
