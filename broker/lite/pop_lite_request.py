"""PopLiteRequest: one request for messages of lite topics (200070), and what waits for it.

Values only. Times in ms.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from remoting.connection import Connection
from remoting.headers.lite import PopLiteMessageRequestHeader


class ClientPoll(msgspec.Struct, frozen=True, gc=False):
    """Under which key a request waits (WaitingHeader): its client's, in its group. The names are
    those of a pop's header; a client takes the place of a topic."""

    consumerGroup: str  # noqa: N815
    topic: str
    pollTime: int  # noqa: N815
    queueId: int = 0  # noqa: N815


class PopLiteRequest(msgspec.Struct):
    """Who asks for what. sent_ms: when, by our monotonic clock. check_rights: set when it begins to
    wait; None without access control."""

    connection: Connection
    opaque: int
    asked: PopLiteMessageRequestHeader
    access_key: str | None
    header: ClientPoll
    sent_ms: int
    check_rights: Callable[[], None] | None = None


def poll_of(asked: PopLiteMessageRequestHeader) -> ClientPoll:
    """The key of a request."""
    return ClientPoll(asked.consumer_group, asked.client_id, asked.poll_time)
