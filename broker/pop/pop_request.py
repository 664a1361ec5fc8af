"""PopRequest: one request for messages (200050), and what may wait for it. Values only.

The header has the names of the wire; times in ms.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Literal

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


class PopFrame(msgspec.Struct, gc=False):
    """The JSON header of a frame of 200050."""

    code: Literal[200050]
    opaque: Int32
    extFields: PopHeader  # noqa: N815
    flag: Int32 = 0


decode_pop_frame: Final = msgspec.json.Decoder(PopFrame, strict=False).decode


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
