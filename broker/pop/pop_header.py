"""PopHeader: the header of one request for messages (200050), decoded straight from its bytes.

Pure data, any thread. It has the names of the wire; times in ms. Not among the modules that are
compiled, which may define no msgspec.Struct.

Tested by tests/broker/processor/test_waiting_requests.py.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

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

    @property
    def kept(self) -> int:
        """Characters that only it has, while it waits."""
        return len(self.expType or "") + len(self.exp or "") + len(self.attemptId or "")


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
