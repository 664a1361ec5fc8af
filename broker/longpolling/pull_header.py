"""The request header of code 11 and the state of a held pull. Values only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from broker.filter.message_filter import MessageFilter
from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.lite_names import LITE_NAME_RULE, MOST_LITE_NAME, is_lite_name, to_lmq_name
from remoting.logic_queue import LogicPull
from remoting.remoting_command import SerializeType
from remoting.response_code import ResponseCode
from remoting.typed_numbers import Int32, Int64

FLAG_COMMIT_OFFSET: Final = 1
FLAG_SUSPEND: Final = 2
FLAG_SUBSCRIPTION: Final = 4
PULL_NUMBERS: Final = (
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "commitOffset",
    "suspendTimeoutMillis",
    "subVersion",
    "requestSource",
)


class PullHeader(msgspec.Struct, gc=False):
    """PullMessageRequestHeader; wire names."""

    consumerGroup: str  # noqa: N815
    topic: str
    queueId: Int32  # noqa: N815
    queueOffset: Int64  # noqa: N815
    maxMsgNums: Int32  # noqa: N815
    sysFlag: Int32  # noqa: N815
    commitOffset: Int64  # noqa: N815
    suspendTimeoutMillis: Int64  # noqa: N815
    subVersion: Int64 = 0  # noqa: N815
    subscription: str | None = None
    expressionType: str | None = None  # noqa: N815
    requestSource: Int32 | msgspec.UnsetType = msgspec.UNSET  # noqa: N815
    proxyFrowardClientId: str | None = None  # noqa: N815
    """5.x, written so: the client for which a proxy pulls."""
    AccessKey: str | None = None
    """Who asks, where there is access control."""
    liteTopic: str = ""  # noqa: N815
    """5.5: a lite topic of the topic. Once the pull is served (`read_lite`), its parent; `topic` is
    its light queue then."""

    @property
    def checked_topic(self) -> str:
        """The topic whose rights and settings count."""
        return self.liteTopic or self.topic

    def read_lite(self) -> None:
        """Read the light queue of a lite topic. Raises RequestError."""
        if not is_lite_name(self.liteTopic):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"liteTopic {self.liteTopic[:MOST_LITE_NAME]!a} is no name: {LITE_NAME_RULE}",
            )
        parent = self.topic
        self.topic = to_lmq_name(parent, self.liteTopic)
        self.liteTopic = parent


class PullFrame(msgspec.Struct, gc=False):
    """The JSON header of a pull. A key that is there twice counts the last time, as in Java."""

    code: Literal[11, 361]
    opaque: Int32
    extFields: PullHeader  # noqa: N815
    flag: Int32 = 0
    version: Int32 = 0


class PullRequest(msgspec.Struct, frozen=True, gc=False):
    """One pull: who asks for what, and how the answer is written. On the hot path, so no dataclass:
    it costs 0.1 us less."""

    connection: Connection
    opaque: int
    serialize_type: SerializeType
    code: int
    """11 or 361."""
    header: PullHeader
    mapped: LogicPull | None = None
    """Of a static topic: `header` names the physical queue and offset then."""

    @property
    def is_plain(self) -> bool:
        """Whether what it asks for is what it reads."""
        return self.mapped is None and not self.header.liteTopic


Wanted = tuple[frozenset[int] | None, MessageFilter | None]
"""The tag codes, None for all of them; the filter by properties, None without one."""


class HeldPull(msgspec.Struct, kw_only=True, gc=False):
    """A pull that waits: from which offset on it still looks, until when."""

    request: PullRequest
    wanted: Wanted
    queue_offset: int
    since_ms: int
    """Monotonic: when it came."""
    deadline_ms: int
    check_rights: Callable[[], None] | None
    """CheckRights; None without access control."""
