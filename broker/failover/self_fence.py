"""When a master that hears nothing of its controller stops taking puts. Pure; any thread.

The lease counts from when the request left whose answer confirmed it, on the own monotonic clock:
whatever delayed the answer only makes it shorter. Another master is elected no sooner than one
heartbeat timeout after the controller's last heartbeat from this one, if it elects on silence only
(electOnChannelClosed=false); then two masters never take puts at the same time.
"""

from __future__ import annotations


class SelfFence:
    """One master's lease. Owned by whoever owns the member."""

    def __init__(self, timeout_ms: int, since_ms: int | None = None) -> None:
        """since_ms: only what is asked after that confirms anything."""
        self._timeout_ms = timeout_ms
        self._since_ms = since_ms
        self._confirmed_ms: int | None = None

    def confirmed(self, sent_ms: int) -> None:
        """The leader has confirmed the mastership, asked at `sent_ms`."""
        if self._since_ms is not None and sent_ms <= self._since_ms:
            return
        if self._confirmed_ms is None or sent_ms > self._confirmed_ms:
            self._confirmed_ms = sent_ms

    @property
    def until_ms(self) -> int:
        """Until when puts are taken; 0: they are not, before a first confirmation."""
        return 0 if self._confirmed_ms is None else self._confirmed_ms + self._timeout_ms
