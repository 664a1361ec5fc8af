"""The request header of code 11 and what is kept of a pull that waits. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from broker.filter.message_filter import MessageFilter
from remoting.connection import Connection
from remoting.remoting_command import SerializeType

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
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
)


class PullHeader(msgspec.Struct, gc=False):
    """PullMessageRequestHeader; wire names."""

    consumerGroup: str  # noqa: N815
    topic: str
    queueId: int  # noqa: N815
    queueOffset: Int64  # noqa: N815
    maxMsgNums: int  # noqa: N815
    sysFlag: int  # noqa: N815
    commitOffset: Int64  # noqa: N815
    suspendTimeoutMillis: Int64  # noqa: N815
    subVersion: int = 0  # noqa: N815
    subscription: str | None = None
    expressionType: str | None = None  # noqa: N815


class PullFrame(msgspec.Struct, gc=False):
    """The JSON header of a pull."""

    code: int
    opaque: int
    extFields: PullHeader  # noqa: N815
    flag: int = 0
    version: int = 0


@dataclass(slots=True)
class HeldPull:
    """A pull that waits: who asked, from which offset on it still looks, until when."""

    connection: Connection
    opaque: int
    serialize_type: SerializeType
    header: PullHeader
    codes: frozenset[int] | None
    queue_offset: int
    deadline_ms: int
    request_code: int
    since_ms: int
    """Monotonic: when it came."""
    properties: MessageFilter | None = None
    """The filter by properties, None for a subscription by tags."""
