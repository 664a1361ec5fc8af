"""PullStart: whether a pull has to go on at another offset than it asks for.

Runs on the loop thread, once for each pull before its queue is read. Two reasons: an operator has
reset the queue (useServerSideResetOffset), or a broadcasting client has moved between this broker
and a proxy (enableBroadcastOffsetStore). Follows RocketMQ 5.3's PullMessageProcessor
(queryThenEraseResetOffset, queryBroadcastPullInitOffset, updateBroadcastPulledOffset).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.client.consumer_manager import ConsumerManager
from broker.longpolling.pull_header import PullHeader
from broker.offset.broadcast_offset_manager import BroadcastClient, BroadcastOffsetManager
from remoting.connection import Connection

PROXY_FOR_BROADCAST: Final = 1
"""requestSource; -1: a client, 0 and 2: a proxy for others."""

TakeReset = Callable[[str, str, int], int | None]
"""(group, topic, queue id) -> the offset to which the queue was reset, once
(ConsumerOffsetManager.take_reset_offset)."""
FirstOffset = Callable[[str, int], int]
"""(topic, queue id) -> where somebody begins of whom nothing is known."""


class Moved(NamedTuple):
    """The pull is told to go on at `offset`."""

    offset: int
    shows_bounds: bool
    """Whether the answer has the queue's bounds; zeros otherwise."""


class PullStart:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        consumers: ConsumerManager,
        first_offset: FirstOffset,
        *,
        take_reset: TakeReset,
        tells_resets: bool,
        broadcast: BroadcastOffsetManager | None,
    ) -> None:
        """tells_resets: useServerSideResetOffset, which may change. broadcast: None where the
        settings do not have it."""
        self._consumers = consumers
        self._first_offset = first_offset
        self._take_reset = take_reset
        self._broadcast = broadcast
        self.tells_resets = tells_resets
        """Whether every pull has to ask `moved`; otherwise those of broadcasting clients."""

    def moved(self, header: PullHeader, client: BroadcastClient | None) -> Moved | None:
        """Where the pull of `client` has to go on; None: where it asks."""
        topic, queue_id = header.topic, header.queueId
        if self.tells_resets:
            offset = self._take_reset(header.consumerGroup, topic, queue_id)
            if offset is not None:
                self.note(header, client, offset)
                return Moved(offset, shows_bounds=True)
        if client is None or self._broadcast is None:
            return None
        offset = self._broadcast.query_init_offset(
            topic,
            header.consumerGroup,
            queue_id,
            client,
            header.queueOffset,
            lambda: self._first_offset(topic, queue_id),
        )
        if offset < 0:
            return None
        self.note(header, client, offset)
        return Moved(offset, shows_bounds=False)

    def note(self, header: PullHeader, client: BroadcastClient | None, offset: int) -> None:
        """The pull of `client` goes on from `offset`."""
        if client is not None and self._broadcast is not None:
            self._broadcast.update_offset(
                header.topic, header.consumerGroup, header.queueId, offset, client
            )

    def broadcast_client(
        self, connection: Connection, header: PullHeader
    ) -> BroadcastClient | None:
        """Who pulls, if it is followed; None for nearly everybody."""
        if self._broadcast is None:
            return None
        if header.requestSource == PROXY_FOR_BROADCAST:
            client_id = header.proxyFrowardClientId
            return None if client_id is None else BroadcastClient(client_id, from_proxy=True)
        own = self._consumers.broadcast_client_id(header.consumerGroup, connection)
        return None if own is None else BroadcastClient(own, from_proxy=False)
