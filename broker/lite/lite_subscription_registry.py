"""LiteSubscriptionRegistry: which client subscribes which lite topics.

Owned by the loop thread; in memory only: clients repeat what they have every 30 s. Each step takes
constant time, or time in proportion to the light queues that a client names. What clients can make
grow is bounded: subscriptions, clients and tombstones together by maxLiteSubscriptionCount,
whatever the action. Events are LiteEventDispatcher's, which hears who leaves. Knows no request and
no message. Follows LiteSubscriptionRegistry of RocketMQ 5.5, and 5.5.1's tombstones for a client
that was evicted and does not know it yet.

Tested by tests/broker/lite/test_lite_subscription_registry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from broker.lite.lite_metadata_util import LiteGroup
from broker.lite.lite_subscription import LiteGroupClients, LiteSubscription
from remoting.errors import RequestError
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

MOST_CLIENT_ID: Final = 255
"""Characters; RocketMQ's clients have some 60."""

Evicted = Callable[[LiteSubscription, str], None]
"""(client, light queue): another client of its exclusive group has taken it."""


class SubscriptionListener(Protocol):
    """Who hears of those who leave: LiteEventDispatcher."""

    def left(self, client: LiteSubscription, lmq: str) -> None:
        """The client does not subscribe this light queue any more."""

    def dropped(self, client: LiteSubscription) -> None:
        """The client is in no group any more."""


class LiteSubscriptionRegistry:
    """See the module."""

    def __init__(self, most: Callable[[], int], listener: SubscriptionListener) -> None:
        """most: maxLiteSubscriptionCount."""
        self._most = most
        self._listener = listener
        self._clients: dict[tuple[str, str], LiteSubscription] = {}
        """By id and group: whoever forges the id of another group's client is another client."""
        self._by_parent: dict[str, dict[str, LiteGroupClients]] = {}
        self.subscription_count = 0
        """Pairs of a client and a light queue."""
        self._tombstones = 0
        """Pairs of a client and a light queue that another took from it."""

    # -- reading -------------------------------------------------------------------------------

    @property
    def most(self) -> int:
        """maxLiteSubscriptionCount. Any thread."""
        return self._most()

    @property
    def is_empty(self) -> bool:
        """Whether there is no client."""
        return not self._clients

    @property
    def client_count(self) -> int:
        """Of all groups."""
        return len(self._clients)

    def clients(self) -> Iterator[LiteSubscription]:
        """All of them."""
        return iter(self._clients.values())

    def find(self, client_id: str, group: str) -> LiteSubscription | None:
        """A client of this group."""
        return self._clients.get((client_id, group))

    def groups_of(self, parent: str) -> list[LiteGroupClients]:
        """The groups of a parent that have clients."""
        return list(self._by_parent.get(parent, {}).values())

    def find_group(self, parent: str, group: str) -> LiteGroupClients | None:
        """None: it has no clients."""
        return self._by_parent.get(parent, {}).get(group)

    # -- changes -------------------------------------------------------------------------------

    def client_of(
        self, client_id: str, group: LiteGroup, connection: ConnectionLike, now_ms: int
    ) -> LiteSubscription:
        """The client, who is seen now. Raises RequestError: its group was bound to another parent,
        or there are too many."""
        client = self._clients.get((client_id, group.name))
        if client is None:
            if len(client_id) > MOST_CLIENT_ID:
                raise RequestError(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"clientId of {len(client_id)} characters (limit {MOST_CLIENT_ID})",
                )
            self._check_room()
            groups = self._by_parent.setdefault(group.topic, {})
            clients = groups.setdefault(group.name, LiteGroupClients(group))
            client = LiteSubscription(client_id, clients, connection, now_ms)
            self._clients[client_id, group.name] = clients.clients[client_id] = client
        config = client.group.config
        if config.topic != group.topic:
            raise RequestError(
                ResponseCode.ILLEGAL_OPERATION,
                f"client {client_id} subscribes to {config.topic} in group {config.name} still, "
                f"and cannot to {group.topic}: use another client id",
            )
        if config != group:
            self._reconfigure(client.group, group)
        client.updated_ms, client.connection = now_ms, connection
        return client

    def add(self, client: LiteSubscription, lmq: str, on_evicted: Evicted) -> bool:
        """The client subscribes; False: it did already. Raises RequestError (2018)."""
        self.knows(client, lmq)
        if lmq in client.lmqs:
            return False
        self._check_room()
        group = client.group
        if group.config.is_exclusive:
            for other in group.of(lmq):
                self.remove(other, lmq)
                other.evicted[lmq] = None
                self._tombstones += 1
                on_evicted(other, lmq)
        client.lmqs[lmq] = None
        group.add(lmq, client)
        self.subscription_count += 1
        return True

    def is_lost(self, client: LiteSubscription, lmq: str) -> bool:
        """Whether another client of an exclusive group took it from this one, and still has it."""
        return lmq in client.evicted and client.group.has(lmq)

    def knows(self, client: LiteSubscription, lmq: str) -> None:
        """The client knows that it was evicted, if it was."""
        if lmq in client.evicted:
            del client.evicted[lmq]
            self._tombstones -= 1

    def remove(self, client: LiteSubscription, lmq: str) -> bool:
        """It subscribes no more; False: it did not."""
        if lmq not in client.lmqs:
            return False
        del client.lmqs[lmq]
        client.group.remove(lmq, client)
        self.subscription_count -= 1
        self._listener.left(client, lmq)
        return True

    def drop(self, client: LiteSubscription) -> None:
        """The client is gone."""
        for _ in self.dropping(client):
            pass

    def dropping(self, client: LiteSubscription) -> Iterator[None]:
        """The same in steps, which may be taken one by one: yields after each light queue. One
        that subscribes meanwhile stays."""
        seen_ms = client.updated_ms
        for lmq in list(client.lmqs):
            self.remove(client, lmq)
            yield
        config = client.group.config
        key = client.client_id, config.name
        if self._clients.get(key) is not client or client.updated_ms != seen_ms:
            return
        self._tombstones -= len(client.evicted)
        client.evicted.clear()
        del self._clients[key]
        client.group.clients.pop(client.client_id, None)
        if not client.group.clients:
            groups = self._by_parent.get(config.topic, {})
            groups.pop(config.name, None)
            if not groups:
                self._by_parent.pop(config.topic, None)
        self._listener.dropped(client)

    def remove_lmq(self, parent: str, lmq: str) -> None:
        """A lite topic has ended. Its clients are not told: they get what comes later, when they
        repeat what they have."""
        for group in self.groups_of(parent):
            if not group.config.is_wildcard:
                for client in group.of(lmq):
                    self.remove(client, lmq)

    def expired(self, before_ms: int) -> list[LiteSubscription]:
        """Clients that were not seen since."""
        return [client for client in self._clients.values() if client.updated_ms < before_ms]

    def clear(self) -> None:
        """This broker leads no more. A request that is under way finds nothing to do."""
        for client in self._clients.values():
            client.lmqs.clear()
            client.evicted.clear()
        self._clients.clear()
        self._by_parent.clear()
        self.subscription_count = self._tombstones = 0

    def _check_room(self) -> None:
        most = self._most()
        if self.subscription_count + len(self._clients) + self._tombstones >= most:
            raise RequestError(
                ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                f"lite subscription quota exceeded {most}",
            )

    def _reconfigure(self, clients: LiteGroupClients, group: LiteGroup) -> None:
        """Its attributes were changed. Clients of one that became a wildcard group, or is none any
        more, subscribe anew."""
        if clients.config.is_wildcard != group.is_wildcard:
            for client in list(clients.clients.values()):
                for lmq in list(client.lmqs):
                    self.remove(client, lmq)
        clients.config = group
