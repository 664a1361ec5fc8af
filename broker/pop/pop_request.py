"""PopRequest: one request for messages (200050), and what may wait for it. Values only.

Loop thread of `remoting`. Times in ms.

Tested by tests/broker/pop/test_pop_requests.py.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from broker.pop.pop_header import PopHeader
from broker.pop.pop_message_reader import Wanted
from remoting.connection import Connection


class PopRequest:
    """Who asks for what. sent_ms: when, by our monotonic clock (RequestClock)."""

    __slots__ = (
        "check_rights", "connection", "group", "header", "invisible_ms", "is_order", "most",
        "opaque", "sent_ms", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        opaque: int,
        header: PopHeader,
        wanted: Wanted,
        sent_ms: int,
    ) -> None:
        self.connection = connection
        self.opaque = opaque
        self.header = header
        self.wanted = wanted
        self.sent_ms = sent_ms
        self.check_rights: Callable[[], None] | None = None
        """Set when it begins to wait; None without access control."""
        # What each queue asks for: of the header it costs a look-up by name each time.
        self.group: str = header.consumerGroup
        self.is_order: bool = header.is_order
        self.most: int = header.maxMsgNums
        self.invisible_ms: int = header.invisibleTime


class PollingResult(enum.Enum):
    """What became of a request that found nothing."""

    POLLING_SUC = enum.auto()
    """It waits."""
    POLLING_FULL = enum.auto()
    POLLING_TIMEOUT = enum.auto()
    """Its time is over, or it did not want to wait."""
