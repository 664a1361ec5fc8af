"""LiteHandles: acks and changed invisible times of messages of lite topics (broker/lite).

A type only; loop thread. 200051 and 200053 are the codes of all pops; what names a lite topic, or
is of a lite group, is judged by broker/lite, which imports this wing and not the other way round.
"""

from __future__ import annotations

from typing import Final, Protocol

from remoting.headers.extra_info_util import ExtraInfo
from remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)

NO_LITE_TOPICS: Final = "this broker has no lite topics: enableLmq and enableMultiDispatch are off"


class LiteHandles(Protocol):
    """See the module."""

    def serves(self, group: str, topic: str) -> bool:
        """Whether the group is a lite one that is bound to the topic."""

    def ack(self, remote: str, header: AckMessageRequestHeader, info: ExtraInfo) -> None:
        """A message is acknowledged. Raises RequestError."""

    def change(
        self, header: ChangeInvisibleTimeRequestHeader, info: ExtraInfo
    ) -> ChangeInvisibleTimeResponseHeader | None:
        """A message, or what was handed out with it, becomes visible at another time; None: it is
        acknowledged already. Raises RequestError."""
