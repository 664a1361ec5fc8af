"""HoldQuota: how many pulls a connection may have held, and how much memory all of them take.

Runs on the loop thread of `remoting`; owned by PullRequestHoldService. RocketMQ holds whatever is
asked for: each pull takes memory, with its expression as long as the peer likes, and each is run
again for every message of its queue. Here a connection has a limit for each queue and one for all
of its pulls; while all connections together hold too much, each is limited to an equal share. Knows
no answer: what is not held is answered by the processor at once.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.longpolling.pull_header import HeldPull
from remoting.connection import Connection
from remoting.request_processor import ConnectionLike

log = logging.getLogger(__name__)

MAX_PULLS_OF_A_QUEUE: Final = 64
"""Of one connection. A consumer has one pull for each queue and group; this is for several groups
of a process, and for those that asked again while an older pull was still held."""
MAX_BYTES_OF_A_CONNECTION: Final = 16 << 20
"""About 14,000 pulls with a short expression."""
MAX_BYTES: Final = 128 << 20
_PULL_BYTES: Final = 1_024
_CHARACTER_BYTES: Final = 20
"""Of an expression: its text, and the hash codes of its tags."""


class _Share:
    """What one connection holds."""

    __slots__ = ("by_queue", "size", "warned")

    def __init__(self) -> None:
        self.size = 0
        self.by_queue: dict[tuple[str, int], int] = {}
        self.warned = False


class HoldQuota:
    """Owned by: the loop thread."""

    def __init__(
        self,
        *,
        total: int = MAX_BYTES,
        per_connection: int = MAX_BYTES_OF_A_CONNECTION,
        per_queue: int = MAX_PULLS_OF_A_QUEUE,
    ) -> None:
        """total, per_connection: estimated bytes. per_queue: pulls of one connection."""
        self._total = total
        self._per_connection = per_connection
        self._per_queue = per_queue
        self._size = 0
        self._shares: dict[ConnectionLike, _Share] = {}

    @property
    def size(self) -> int:
        """Estimated bytes of all held pulls."""
        return self._size

    def queues_of(self, connection: ConnectionLike) -> list[tuple[str, int]]:
        """The queues for which `connection` holds pulls."""
        share = self._shares.get(connection)
        return [] if share is None else list(share.by_queue)

    def take(self, key: tuple[str, int], pull: HeldPull) -> bool:
        """Whether `pull` may be held for the queue `key`."""
        connection = pull.request.connection
        share = self._shares.get(connection)
        if share is None:
            share = _Share()
        size = _size(pull)
        count = share.by_queue.get(key, 0)
        limit = self._per_connection
        if self._size + size > self._total:
            limit = min(limit, self._total // (len(self._shares) + 1))
        if count >= self._per_queue or share.size + size > limit:
            self._warn(connection, share, key, count)
            return False
        self._shares[connection] = share
        share.by_queue[key] = count + 1
        share.size += size
        self._size += size
        return True

    def give_back(self, key: tuple[str, int], pull: HeldPull) -> None:
        """`pull`, which was taken for `key`, is no longer held."""
        connection = pull.request.connection
        share = self._shares[connection]
        size = _size(pull)
        self._size -= size
        share.size -= size
        if not share.size:
            del self._shares[connection]
            return
        count = share.by_queue[key] - 1
        if count:
            share.by_queue[key] = count
        else:
            del share.by_queue[key]

    def _warn(
        self, connection: Connection, share: _Share, key: tuple[str, int], count: int
    ) -> None:
        """Once for each connection, until it holds none."""
        if share.warned or not share.size:
            return
        share.warned = True
        log.warning(
            "%s: a pull of topic %s queue %s is answered instead of held: the connection has %s "
            "held pulls of the queue (limit %s) and %s bytes of them altogether (limit %s; all "
            "connections %s, limit %s)",
            connection.remote_address,
            key[0],
            key[1],
            count,
            self._per_queue,
            share.size,
            self._per_connection,
            self._size,
            self._total,
        )


def _size(pull: HeldPull) -> int:
    """The estimate, the same when a pull is taken and given back."""
    text = pull.request.header.subscription
    return _PULL_BYTES + _CHARACTER_BYTES * len(text) if text else _PULL_BYTES
