"""Registry and dispatcher of lite topics over plain tables: what has messages, who waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from broker.lite.lite_event_dispatcher import DispatchParts, LiteEventDispatcher
from broker.lite.lite_metadata_util import LiteGroup
from broker.lite.lite_subscription import LiteSubscription
from broker.lite.lite_subscription_registry import LiteSubscriptionRegistry
from remoting.lite_names import to_lmq_name
from remoting.request_processor import ConnectionLike

PARENT = "P"


def lite_group(name: str = "G", **changed: Any) -> LiteGroup:
    """A shared group of the parent."""
    usual: dict[str, Any] = {
        "topic": PARENT,
        "is_exclusive": False,
        "resets_when_taken": False,
        "resets_when_left": False,
        "is_wildcard": False,
        "most_events": 0,
    }
    return LiteGroup(name=name, **(usual | changed))


def lmq(lite: str) -> str:
    """The light queue of a lite topic of the parent."""
    return to_lmq_name(PARENT, lite)


class LiteWorld:
    """See the module. Times in ms, monotonic."""

    def __init__(self, most: int = 100) -> None:
        self.now_ms = 1_000_000
        self.most = most
        self.messages: dict[str, int] = {}
        """Light queue to its end."""
        self.got: dict[tuple[str, str], int] = {}
        """(group, light queue) to what it got."""
        self.waiting: set[str] = set()
        """Clients whose pop waits."""
        self.woken: list[str] = []
        self.listed = 0
        """How often all lite topics were asked for."""
        self.evicted: list[tuple[str, str]] = []
        self.dispatcher = LiteEventDispatcher(
            DispatchParts(
                wants=lambda group, name: (
                    self.messages.get(name, 0) > self.got.get((group, name), 0)
                ),
                is_waiting=lambda client: client.client_id in self.waiting,
                wake=lambda client: self.woken.append(client.client_id),
                lite_topics=self._lite_topics,
                monotonic_ms=lambda: self.now_ms,
                most_events=lambda: 3,
            )
        )
        self.registry = LiteSubscriptionRegistry(lambda: self.most, self.dispatcher)
        self.dispatcher.registry = self.registry

    def _lite_topics(self, _parent: str) -> Iterable[str]:
        self.listed += 1
        return self.messages

    def client(self, client_id: str, group: LiteGroup | None = None) -> LiteSubscription:
        """A client that is seen now."""
        connection = cast("ConnectionLike", None)
        return self.registry.client_of(client_id, group or lite_group(), connection, self.now_ms)

    def subscribe(self, client: LiteSubscription, *lites: str) -> None:
        """Lite topics of the parent."""
        for lite in lites:
            self.registry.add(
                client, lmq(lite), lambda other, name: self.evicted.append((other.client_id, name))
            )
            self.dispatcher.subscribed(client, lmq(lite))

    def arrive(self, *lites: str) -> None:
        """A message in each."""
        for lite in lites:
            name = lmq(lite)
            self.messages[name] = self.messages.get(name, 0) + 1
            self.dispatcher.arrived(name)

    def take_all(self, client: LiteSubscription) -> list[str]:
        """The client polls, and looks at each of its events."""
        client.polled_ms, client.is_away = self.now_ms, False
        taken = []
        while (name := self.dispatcher.take(client)) is not None:
            taken.append(name.rpartition("$")[2])
            self.got[client.group.config.name, name] = self.messages.get(name, 0)
        return taken
