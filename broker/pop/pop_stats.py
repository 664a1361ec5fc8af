"""Where pops are counted: what is above this wing (metrics) counts for what is in it.

Types only; loop thread.
"""

from __future__ import annotations

from typing import Protocol

from remoting.response_code import ResponseCode


class PopStats(Protocol):
    """The part of HotPathStats used here."""

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        """`count` requests of this turn were answered with `code`."""

    def add_get(self, group: str, topic: str, count: int, size: int) -> None:
        """`count` messages of `size` bytes were given to `group`."""

    def add_put(self, topic: str, count: int, size: int, message_type: str = "normal") -> None:
        """`count` messages, `size` bytes of the log, were stored in `topic`."""


class CountsRecords(Protocol):
    """The part of PopMetrics used here."""

    def stored(self, group: str, topic: str, kind: str, code: ResponseCode) -> None:
        """A record of `kind` (CK, ACK) was stored, or was not."""

    def taken(self, group: str, topic: str, queue_id: int, kind: str) -> None:
        """A record of `kind` was read from a queue of the revive topic."""

    def copied(self, group: str, topic: str, code: ResponseCode) -> None:
        """A message was copied to its retry topic, or the log did not take it."""
