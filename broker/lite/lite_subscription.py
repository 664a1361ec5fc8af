"""LiteSubscription: one client of a lite group, and LiteGroupClients: all of one group's.

Plain data of LiteSubscriptionRegistry and LiteEventDispatcher, which keep them in step. Owned by
the loop thread. Most lite topics have one subscriber in a group, who is kept without a table of his
own; of several the one who has waited longest comes first.

Tested by tests/broker/lite/test_lite_subscription_registry.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from broker.lite.lite_metadata_util import LiteGroup
from remoting.request_processor import ConnectionLike


class LiteSubscription:
    """What one client has subscribed. `lmqs`: its light queues, in order; none of a wildcard
    group's client, who gets all."""

    __slots__ = (
        "client_id",
        "connection",
        "events",
        "evicted",
        "group",
        "is_away",
        "lmqs",
        "polled_ms",
        "updated_ms",
    )

    def __init__(
        self, client_id: str, group: LiteGroupClients, connection: ConnectionLike, now_ms: int
    ) -> None:
        """now_ms: monotonic, as all times here."""
        self.client_id: Final = client_id
        self.group: Final = group
        self.connection = connection
        """Where its last change came from."""
        self.lmqs: dict[str, None] = {}
        self.evicted: dict[str, None] = {}
        """Those that another client of an exclusive group took; it may not know yet."""
        self.events: OrderedDict[str, None] = OrderedDict()
        """Light queues that may have something for it; the first is looked at first. (To take the
        first of a dict again and again takes quadratic time.)"""
        self.updated_ms = self.polled_ms = now_ms
        self.is_away = False
        """It has not fetched its events since: others are preferred."""


class LiteGroupClients:
    """The clients of one lite group, as it is configured."""

    __slots__ = ("_subscribers", "clients", "config", "held")

    def __init__(self, config: LiteGroup) -> None:
        self.config = config
        self.clients: OrderedDict[str, LiteSubscription] = OrderedDict()
        self.held: dict[str, LiteSubscription] = {}
        """Light queue to the client that has its event."""
        self._subscribers: dict[str, LiteSubscription | OrderedDict[str, LiteSubscription]] = {}

    def has(self, lmq: str) -> bool:
        """Whether anybody is to get the messages of this light queue."""
        return bool(self.clients) if self.config.is_wildcard else lmq in self._subscribers

    def of(self, lmq: str) -> list[LiteSubscription]:
        """Who subscribes it; not for wildcard groups."""
        found = self._subscribers.get(lmq)
        if found is None:
            return []
        return [found] if isinstance(found, LiteSubscription) else list(found.values())

    def some_of(self, lmq: str, count: int) -> list[LiteSubscription]:
        """Up to `count` of those who are to get its messages; who was chosen last comes last."""
        if self.config.is_wildcard:
            return list(islice(self.clients.values(), count))
        found = self._subscribers.get(lmq)
        if found is None:
            return []
        if isinstance(found, LiteSubscription):
            return [found]
        return list(islice(found.values(), count))

    def chosen(self, lmq: str, client: LiteSubscription) -> None:
        """The client got an event of this light queue."""
        table = self.clients if self.config.is_wildcard else self._subscribers.get(lmq)
        if isinstance(table, OrderedDict):
            table.move_to_end(client.client_id)

    def add(self, lmq: str, client: LiteSubscription) -> None:
        """A client subscribes."""
        found = self._subscribers.get(lmq)
        if found is None:
            self._subscribers[lmq] = client
        elif isinstance(found, OrderedDict):
            found[client.client_id] = client
        elif found is not client:
            both = ((found.client_id, found), (client.client_id, client))
            self._subscribers[lmq] = OrderedDict(both)

    def remove(self, lmq: str, client: LiteSubscription) -> None:
        """It does so no longer."""
        found = self._subscribers.get(lmq)
        if found is client:
            del self._subscribers[lmq]
        elif isinstance(found, OrderedDict):
            found.pop(client.client_id, None)
            if len(found) == 1:
                (self._subscribers[lmq],) = found.values()

    def subscribed(self) -> Iterator[str]:
        """Light queues that somebody subscribes."""
        return iter(self._subscribers)
