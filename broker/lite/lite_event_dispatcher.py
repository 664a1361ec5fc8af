"""LiteEventDispatcher: tells one client of each group that a light queue may have something.

Owned by the loop thread. An event is the name of a light queue in the set of one client; a group
has it at one client at a time. So the events of a group are never more than the light queues that
its clients subscribe (or that exist, of a wildcard group), and no event is ever dropped for want of
room: max.event.cnt only says when another client is preferred. (RocketMQ drops what does not fit,
and looks at everything again later.) A queue whose messages are out makes no event: it makes one
when it is free. Every step is constant, or in proportion to the events that it moves; looking at
everything that a client subscribes, or has events of when it is gone, is done in slices.

Tested by tests/broker/lite/test_lite_event_dispatcher.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from broker.lite.lite_subscription import LiteGroupClients, LiteSubscription
from broker.lite.lite_subscription_registry import LiteSubscriptionRegistry
from remoting.lite_names import parse_lite_queue

CHOICE: Final = 16
"""So many clients of a light queue are looked at for an event."""
SLICE: Final = 500
"""Light queues looked at in one step of a full dispatch, or told of as free in one turn."""
LATE_MS: Final = 10_000
"""A client that has events polls within this time, or others get them."""
_DEFAULT_MOST_EVENTS: Final = 100
_EVENTS: Final = "events"
"""Of a client, that others are to get: a work of its own, beside its full dispatch."""


class DispatchParts(NamedTuple):
    """What the dispatcher asks of others."""

    wants: Callable[[str, str], bool]
    """(group, light queue): whether there is something that the group may be given now."""
    is_waiting: Callable[[LiteSubscription], bool]
    """Whether a pop of the client waits."""
    wake: Callable[[LiteSubscription], None]
    """Run one of its pops again, if one waits."""
    lite_topics: Callable[[str], Iterable[str]]
    """The light queues of a parent."""
    monotonic_ms: Callable[[], int]
    most_events: Callable[[], int] = lambda: _DEFAULT_MOST_EVENTS
    """maxClientEventCount."""


class LiteEventDispatcher:
    """See the module."""

    def __init__(self, parts: DispatchParts) -> None:
        self._parts = parts
        self._busy: dict[LiteSubscription, None] = {}
        """Clients with events."""
        self._work: OrderedDict[object, tuple[LiteGroupClients, Iterator[str]]] = OrderedDict()
        """What is to be looked at: full dispatches, by client or group, and what clients left;
        there may be as many as clients, and the first is taken again and again."""
        self.registry: LiteSubscriptionRegistry
        """Set before the first event."""
        self.on_work: Callable[[], None] = lambda: None
        """Called when there is something to look at: `step` is to be called until it says False."""

    @property
    def busy_count(self) -> int:
        """Clients with events."""
        return len(self._busy)

    # -- events --------------------------------------------------------------------------------

    def arrived(self, lmq: str) -> None:
        """A message was dispatched to the light queue of a lite topic."""
        name = parse_lite_queue(lmq)
        if name is not None:
            for group in self.registry.groups_of(name.parent):
                self._offer_wanted(group, lmq)

    def freed(self, parent: str, group_name: str, lmq: str) -> None:
        """The group may be given more of this light queue."""
        group = self.registry.find_group(parent, group_name)
        if group is not None:
            self._offer_wanted(group, lmq)

    def subscribed(self, client: LiteSubscription, lmq: str) -> None:
        """The client subscribes it now."""
        self._offer_wanted(client.group, lmq)

    def _offer_wanted(self, group: LiteGroupClients, lmq: str) -> None:
        if group.has(lmq) and self._parts.wants(group.config.name, lmq):
            self.offer(group, lmq)

    def offer(
        self, group: LiteGroupClients, lmq: str, besides: LiteSubscription | None = None
    ) -> None:
        """One client of the group gets the event, unless one has it that fetches its events.
        besides: the one who had it."""
        holder = group.held.get(lmq)
        if holder is not None:
            if not self._is_late(holder):
                return
            besides = holder
            self._forget(holder, lmq)
        client = self._choose(group, lmq, besides)
        if client is None:
            return
        group.held[lmq] = client
        client.events[lmq] = None
        self._busy[client] = None
        group.chosen(lmq, client)
        self._parts.wake(client)

    def _choose(
        self, group: LiteGroupClients, lmq: str, besides: LiteSubscription | None
    ) -> LiteSubscription | None:
        """One whose pop waits; else one with few events who fetches them; else anybody."""
        clients = group.some_of(lmq, CHOICE)
        others = [client for client in clients if client is not besides]
        most = group.config.most_events or self._parts.most_events()
        fit = [client for client in others if not client.is_away and len(client.events) < most]
        waiting = next((client for client in fit if self._parts.is_waiting(client)), None)
        if waiting is not None:
            return waiting
        for candidates in (fit, others, clients):
            if candidates:
                return candidates[0]
        return None

    def _is_late(self, client: LiteSubscription) -> bool:
        """Whether it does not fetch its events."""
        return _is_gone(client) or self._parts.monotonic_ms() - client.polled_ms > LATE_MS

    def take(self, client: LiteSubscription) -> str | None:
        """The client looks at the next light queue; None: it has no event."""
        lmq = next(iter(client.events), None)
        if lmq is not None:
            self._forget(client, lmq)
        return lmq

    def left(self, client: LiteSubscription, lmq: str) -> None:
        """It does not subscribe this light queue any more: another may want it."""
        if lmq in client.events:
            self._forget(client, lmq)
            self.offer(client.group, lmq)

    def dropped(self, client: LiteSubscription) -> None:
        """The client is in no group any more. Of a wildcard group it may have many events."""
        if client in self._busy:
            del self._busy[client]
            self._begin((client, _EVENTS), client.group, client.events.keys)

    def _forget(self, client: LiteSubscription, lmq: str) -> None:
        del client.events[lmq]
        del client.group.held[lmq]
        if not client.events:
            self._busy.pop(client, None)

    # -- looking at everything -------------------------------------------------------------------

    def dispatch_client(self, client: LiteSubscription) -> None:
        """Every light queue of the client that has something; of a wildcard group's client, of the
        group."""
        group = client.group
        if group.config.is_wildcard:
            self.dispatch_group(group)
        else:
            self._begin(client, group, lambda: client.lmqs)

    def dispatch_group(self, group: LiteGroupClients) -> None:
        """Every light queue of the group's clients that has something."""
        if group.config.is_wildcard:
            self._begin(group, group, lambda: self._parts.lite_topics(group.config.topic))
        else:
            self._begin(group, group, group.subscribed)

    def dispatch_all(self) -> None:
        """The same of all groups: it is not known what arrived."""
        groups = {client.group: None for client in self.registry.clients()}
        for group in groups:
            self.dispatch_group(group)

    def _begin(
        self, of: object, group: LiteGroupClients, lmqs: Callable[[], Iterable[str]]
    ) -> bool:
        """What is under way is not begun again, nor listed: what is subscribed meanwhile is looked
        at then. Whether it begins."""
        if of in self._work:
            return False
        self._work[of] = (group, iter(list(lmqs())))
        self.on_work()
        return True

    def step(self) -> bool:
        """Look at the next ones. Whether others are left."""
        for _ in range(SLICE):
            of = next(iter(self._work), None)
            if of is None:
                break
            group, lmqs = self._work[of]
            lmq = next(lmqs, None)
            if lmq is None:
                del self._work[of]
            else:
                holder = group.held.get(lmq)
                if holder is not None and _is_gone(holder):
                    self._forget(holder, lmq)
                self._offer_wanted(group, lmq)
        return bool(self._work)

    # -- time ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Each liteEventCheckInterval: the events of a client that does not fetch them go to
        others, once; those that are left have no other."""
        for client in list(self._busy):
            if not client.is_away and self._is_late(client):
                client.is_away = self._begin((client, _EVENTS), client.group, client.events.keys)

    def clear(self) -> None:
        """This broker leads no more."""
        for client in self._busy:
            client.events.clear()
            client.group.held.clear()
        self._busy.clear()
        self._work.clear()


def _is_gone(client: LiteSubscription) -> bool:
    """Whether it is in its group no more."""
    return client.group.clients.get(client.client_id) is not client


def tell_free(dispatcher: LiteEventDispatcher, take: Callable[[], tuple[str, str] | None]) -> bool:
    """Very many light queues may become free together: the next ones. Whether others may be left.
    take: the next (light queue, group) whose messages have become visible again; None: no other."""
    for _ in range(SLICE):
        queue = take()
        if queue is None:
            return False
        lmq, group = queue
        name = parse_lite_queue(lmq)
        if name is not None:
            dispatcher.freed(name.parent, group, lmq)
    return True
