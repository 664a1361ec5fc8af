"""BroadcastOffsetManager: how far each client of a broadcasting group has pulled.

In memory: topic and group -> client id -> queue id -> the highest offset it has pulled from. The
broker needs it where a client moves between it and a proxy: its own offsets stay behind, and the
first pull on the other side is told to go on where it was (OFFSET_RESET). Every five seconds the
lowest offset of a queue is committed for `<group>@broadcast`, where new clients of a proxy begin.
The loop updates, the scheduled executor scans: under `_lock`. Knows no request.

Corresponds to RocketMQ's BroadcastOffsetManager and BroadcastOffsetStore (5.x).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager
from ipc.clock import Clock

BROADCAST_GROUP_POSTFIX: Final = f"{TOPIC_GROUP_SEPARATOR}broadcast"
SCAN_INTERVAL_MS: Final = 5_000
_MOST_CLIENTS: Final = 100_000
"""Beyond these, clients that nobody knows are not followed: a proxy names them as it likes."""


class BroadcastClient(NamedTuple):
    """Who pulls: by its own connection, or through a proxy."""

    client_id: str
    from_proxy: bool


@dataclass(slots=True)
class _Followed:
    """One client (BroadcastTimedOffsetStore)."""

    from_proxy: bool
    updated_ms: int
    offsets: dict[int, int] = field(default_factory=dict)
    """Queue id to the highest offset pulled from."""


class BroadcastOffsetManager:
    """See the module. Guarded by: `_lock`."""

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        is_online: Callable[[str, str], bool],
        clock: Clock,
        *,
        expire_ms: int,
        expire_max_ms: int,
    ) -> None:
        """is_online(group, client id). expire_ms, expire_max_ms: how long a client without pulls
        is known, offline or online."""
        self._offsets = offsets
        self._is_online = is_online
        self._clock = clock
        self._expire_ms = expire_ms
        self._expire_max_ms = expire_max_ms
        self._lock = threading.Lock()
        self._groups: dict[tuple[str, str], dict[str, _Followed]] = {}
        """By (topic, group), then by client id."""
        self._clients = 0

    def update_offset(
        self, topic: str, group: str, queue_id: int, offset: int, client: BroadcastClient
    ) -> None:
        """The client has pulled from `offset`."""
        with self._lock:
            followed = self._follow(topic, group, client)
            if followed is None:
                return
            followed.updated_ms = self._clock.monotonic_ms()
            followed.from_proxy = client.from_proxy
            followed.offsets[queue_id] = max(offset, followed.offsets.get(queue_id, offset))

    def query_init_offset(
        self,
        topic: str,
        group: str,
        queue_id: int,
        client: BroadcastClient,
        asked: int,
        start: Callable[[], int],
    ) -> int:
        """Where a pull from `asked` has to go on instead; -1: it may go on there.

        start: where a queue begins for those that nothing is known of.
        """
        with self._lock:
            if (topic, group) not in self._groups:
                if client.from_proxy and asked < 0:
                    return self._stored_offset(None, topic, group, queue_id, start)
                return -1
            followed = self._follow(topic, group, client)
            if followed is None:
                return -1
            asks_for_start = followed.from_proxy and asked < 0
            if asks_for_start or followed.from_proxy != client.from_proxy:
                return self._stored_offset(followed, topic, group, queue_id, start)
            return -1

    def _follow(self, topic: str, group: str, client: BroadcastClient) -> _Followed | None:
        clients = self._groups.get((topic, group))
        followed = None if clients is None else clients.get(client.client_id)
        if followed is None and self._clients < _MOST_CLIENTS:
            followed = _Followed(client.from_proxy, self._clock.monotonic_ms())
            self._groups.setdefault((topic, group), {})[client.client_id] = followed
            self._clients += 1
        return followed

    def _stored_offset(
        self,
        followed: _Followed | None,
        topic: str,
        group: str,
        queue_id: int,
        start: Callable[[], int],
    ) -> int:
        offset = -1 if followed is None else followed.offsets.get(queue_id, -1)
        if offset < 0:
            stored = self._offsets.query_offset(group + BROADCAST_GROUP_POSTFIX, topic, queue_id)
            offset = -1 if stored is None else stored
        return offset if offset >= 0 else start()

    def scan(self) -> None:
        """Forget who pulls no more, and commit the lowest offsets of the others."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            lowest = [
                (topic, group, self._scan_group(group, clients, now_ms))
                for (topic, group), clients in self._groups.items()
            ]
            self._groups = {key: clients for key, clients in self._groups.items() if clients}
            self._clients = sum(map(len, self._groups.values()))
        for topic, group, offsets in lowest:
            for queue_id, offset in offsets.items():
                self._offsets.commit_offset(
                    "BroadcastOffset", group + BROADCAST_GROUP_POSTFIX, topic, queue_id, offset
                )

    def _scan_group(self, group: str, clients: dict[str, _Followed], now_ms: int) -> dict[int, int]:
        lowest: dict[int, int] = {}
        for client_id, followed in list(clients.items()):
            silent_ms = now_ms - followed.updated_ms
            online = self._is_online(group, client_id)
            if online or silent_ms < self._expire_ms:
                for queue_id, offset in followed.offsets.items():
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
            if silent_ms >= (self._expire_max_ms if online else self._expire_ms):
                del clients[client_id]
        return lowest
