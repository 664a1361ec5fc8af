"""PopRequest: one request for messages (200050), and what may wait for it. Values only.

The header has the names of the wire; times in ms.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from broker.pop.pop_message_reader import Wanted
from remoting.connection import Connection
from remoting.headers.pop import PopMessageRequestHeader
from remoting.typed_numbers import Int32, Int64


class PopHeader(msgspec.Struct, gc=False):
    """PopMessageRequestHeader."""

    consumerGroup: str  # noqa: N815
    topic: str
    queueId: Int32  # noqa: N815
    maxMsgNums: Int32  # noqa: N815
    invisibleTime: Int64  # noqa: N815
    pollTime: Int64 = 0  # noqa: N815
    initMode: Int32 = 0  # noqa: N815
    bornTime: Int64 = 0  # noqa: N815
    expType: str | None = None  # noqa: N815
    exp: str | None = None
    order: Literal["true", "false"] = "false"
    """Other texts are read as Java reads them, by the general path."""
    attemptId: str | None = None  # noqa: N815
    AccessKey: str | None = None
    """Who asks, where there is access control."""

    @property
    def is_order(self) -> bool:
        """Whether the pop is an ordered one."""
        return self.order == "true"


def pop_header(header: PopMessageRequestHeader, access_key: str | None) -> PopHeader:
    """Of a request that took the general path."""
    return PopHeader(
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.max_msg_nums,
        header.invisible_time,
        header.poll_time,
        header.init_mode,
        header.born_time,
        header.exp_type,
        header.exp,
        "true" if header.order else "false",
        header.attempt_id,
        access_key,
    )


class PopRequest(msgspec.Struct):
    """Who asks for what. sent_ms: when, by our monotonic clock (RequestClock). check_rights: set
    when it begins to wait; None without access control."""

    connection: Connection
    opaque: int
    header: PopHeader
    wanted: Wanted
    sent_ms: int
    check_rights: Callable[[], None] | None = None


class PollingResult(enum.Enum):
    """What became of a request that found nothing."""

    POLLING_SUC = enum.auto()
    """It waits."""
    POLLING_FULL = enum.auto()
    POLLING_TIMEOUT = enum.auto()
    """Its time is over, or it did not want to wait."""


class PopWaiters(Protocol):
    """Requests that wait for messages (PopLongPollingService)."""

    def polling(self, request: PopRequest) -> PollingResult:
        """Let a request wait, to be run again."""

    def notify(self, topic: str, group: str, queue_id: int) -> None:
        """There is more: run one waiting request of this key again (queue id -1: of any)."""

    def queue_is_free(self, topic: str, group: str, queue_id: int) -> None:
        """An ordered queue may be popped again: run one request for any queue and one for it."""


class OrderInfo(Protocol):
    """What ordered pops have handed out (ConsumerOrderInfoManager)."""

    def check_block(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        invisible_time_ms: int,
    ) -> bool:
        """Whether messages handed out earlier keep the queue closed."""

    def update(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        pop_time_ms: int,
        invisible_time_ms: int,
        offsets: list[int],
        order_info: list[str],
    ) -> None:
        """These are handed out now; adds the items of orderCountInfo."""

    def commit_and_next(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int, committed: int
    ) -> int:
        """A message is acknowledged: the offset to commit; -1: it is none of those; -2: of an
        earlier pop. committed: the group's offset."""

    def update_next_visible_time(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        pop_time_ms: int,
        next_visible_ms: int,
    ) -> None:
        """A message becomes visible again at another time."""

    def clear_block(self, topic: str, group: str, queue_id: int) -> None:
        """The queue's offset was set: nothing is handed out."""
