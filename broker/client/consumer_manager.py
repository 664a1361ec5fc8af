"""ConsumerManager: the connected consumers and their subscriptions; notifies members of changes.

Updated by heartbeats (34), unregister requests (35) and closed connections; read by pulls, 38 and
mqadmin. Members are keyed by connection: a client id on two connections is listed twice. All
changes are made under one lock by pool threads and the loop; the lookups of the pull path take no
lock. Listeners are called without the lock. In memory only.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Collection, Sequence
from typing import Final

from broker.client.client_channel_info import ClientChannelInfo
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from ipc.clock import Clock
from remoting.body.heartbeat import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from remoting.command_custom_header import encode_header
from remoting.headers.consumer import NotifyConsumerIdsChangedRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike

log = logging.getLogger(__name__)

CHANNEL_EXPIRED_MS: Final = 120_000
"""A client without a heartbeat for longer is removed and disconnected."""
_REVISIONS: Final = itertools.count(1)


class DefaultConsumerIdsChangeListener:
    """Sends NOTIFY_CONSUMER_IDS_CHANGED (40), so that the group rebalances at once; keeps the
    groups' property filters up to date."""

    def __init__(
        self, filters: ConsumerFilterManager, *, notify_consumer_ids_changed_enable: bool = True
    ) -> None:
        self.notify_consumer_ids_changed_enable = notify_consumer_ids_changed_enable
        self._filters = filters

    def on_change(self, group: str, connections: Sequence[ConnectionLike]) -> None:
        """Send one oneway request to each member, unless notifications are disabled."""
        if not self.notify_consumer_ids_changed_enable:
            return
        ext_fields = encode_header(NotifyConsumerIdsChangedRequestHeader(consumer_group=group))
        for connection in connections:
            connection.send_command(
                RemotingCommand.request(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields, oneway=True
                )
            )

    def on_register(self, group: str, subscriptions: Sequence[SubscriptionData]) -> None:
        """Compile new filter expressions; nothing is sent."""
        self._filters.register(group, subscriptions)

    def on_unregister(self, group: str) -> None:
        """No member is left to notify; the group's filters are kept for a while."""
        self._filters.unregister(group)


class ConsumerGroupInfo:
    """One live group. Owned by: ConsumerManager's lock; single lookups are safe without it."""

    __slots__ = (
        "consume_from_where",
        "consume_type",
        "group_name",
        "members",
        "message_model",
        "revision",
        "subscriptions",
    )

    def __init__(self, data: ConsumerData) -> None:
        self.group_name = data.group_name
        self.members: dict[ConnectionLike, ClientChannelInfo] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.revision = next(_REVISIONS)
        """Another number, never used before, when mode or subscriptions are others."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where

    def set_mode(self, data: ConsumerData) -> None:
        """The newest heartbeat wins, silently, as in RocketMQ."""
        mode = (data.consume_type, data.message_model, data.consume_from_where)
        if mode == (self.consume_type, self.message_model, self.consume_from_where):
            return
        self.consume_type, self.message_model, self.consume_from_where = mode
        self.revision = next(_REVISIONS)

    def update_member(self, info: ClientChannelInfo) -> bool:
        """Record a heartbeat; True for a new connection."""
        known = self.members.get(info.connection)
        if known is not None and known.client_id == info.client_id:
            known.renew(info)
            return False
        self.members[info.connection] = info
        if known is not None:
            log.error("group %s: %r was %s before", self.group_name, info, known.client_id)
            return False
        log.info("group %s: new consumer %r, %s", self.group_name, info, self.consume_type)
        return True

    def update_subscriptions(self, subscriptions: Sequence[SubscriptionData]) -> bool:
        """Apply the subscriptions of a heartbeat; True if a topic was added or removed.

        A higher subVersion replaces a subscription; topics missing from the heartbeat are removed.
        """
        changed = False
        for subscription in subscriptions:
            old = self.subscriptions.get(subscription.topic)
            changed |= old is None
            if old is None or subscription.sub_version > old.sub_version:
                self.subscriptions[subscription.topic] = subscription
                self.revision = next(_REVISIONS)
        named = {subscription.topic for subscription in subscriptions}
        for topic in [topic for topic in self.subscriptions if topic not in named]:
            log.warning("group %s: no longer subscribes to topic %s", self.group_name, topic)
            del self.subscriptions[topic]
            self.revision = next(_REVISIONS)
            changed = True
        return changed

    def connections(self) -> list[ConnectionLike]:
        """Every member's connection."""
        return list(self.members.copy())

    def infos(self) -> list[ClientChannelInfo]:
        """Every member."""
        return list(self.members.copy().values())


class ConsumerManager:
    """Live consumer groups. Owned by: `_lock`."""

    def __init__(self, clock: Clock, listener: DefaultConsumerIdsChangeListener) -> None:
        self._clock = clock
        self._listener = listener
        self._lock = threading.Lock()
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._groups_of: dict[ConnectionLike, set[str]] = {}
        """The groups of each connection: closing one must not look at those of everybody."""

    # -- lookups, no lock -----------------------------------------------------------------------

    def find_group(self, group: str) -> ConsumerGroupInfo | None:
        """The live group, or None."""
        return self._groups.get(group)

    def has_group(self, group: str) -> bool:
        """Whether the group has a live member."""
        return group in self._groups

    def is_broadcasting(self, group: str) -> bool:
        """Whether the group's latest heartbeat said BROADCASTING."""
        info = self._groups.get(group)
        return info is not None and info.message_model == MessageModel.BROADCASTING

    def broadcast_client_id(self, group: str, connection: ConnectionLike) -> str | None:
        """The client id behind `connection`, if the group is pushed to in broadcasting mode; asked
        for every pull."""
        info = self._groups.get(group)
        if info is None or info.message_model != MessageModel.BROADCASTING:
            return None
        member = info.members.get(connection)
        is_pushed = info.consume_type == ConsumeType.CONSUME_PASSIVELY
        return member.client_id if member is not None and is_pushed else None

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The group's subscription to `topic`, from its latest heartbeat."""
        info = self._groups.get(group)
        return None if info is None else info.subscriptions.get(topic)

    def subscription_count(self, group: str) -> int:
        """How many topics the live group subscribes to."""
        info = self._groups.get(group)
        return 0 if info is None else len(info.subscriptions)

    def client_ids(self, group: str) -> list[str]:
        """Ids of the live members; a client on two connections is there twice (38)."""
        info = self._groups.get(group)
        return [] if info is None else [member.client_id for member in info.infos()]

    def find_member(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """A member by its client id."""
        info = self._groups.get(group)
        if info is None:
            return None
        return next((each for each in info.infos() if each.client_id == client_id), None)

    def group_names(self) -> list[str]:
        """The groups that have members."""
        return list(self._groups)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Live groups that subscribe to `topic`."""
        groups = self._groups.copy()
        return [name for name, info in groups.items() if topic in info.subscriptions]

    def groups_of(self, connection: ConnectionLike) -> Collection[str]:
        """The groups that the connection is in: a copy."""
        return frozenset(self._groups_of.get(connection, ()))

    def connections_of(self, group: str) -> list[ConnectionLike]:
        """Connections of the live members."""
        info = self._groups.get(group)
        return [] if info is None else info.connections()

    # -- changes --------------------------------------------------------------------------------

    def register_consumer(
        self, data: ConsumerData, info: ClientChannelInfo, *, notify: bool
    ) -> bool:
        """Apply the heartbeat `data` of `info`; True if members or topics changed.

        `notify` is the group's notifyConsumerIdsChangedEnable.
        """
        group = data.group_name
        info.heard_ms = self._clock.monotonic_ms()
        with self._lock:
            found = self._groups.get(group) or ConsumerGroupInfo(data)
            found.set_mode(data)
            is_new = found.update_member(info)
            changed = found.update_subscriptions(data.subscription_data_set) or is_new
            # A group is published to the lookups only after it is complete.
            self._groups[group] = found
            self._groups_of.setdefault(info.connection, set()).add(group)
            connections = found.connections()
        if changed and notify:
            self._listener.on_change(group, connections)
        self._listener.on_register(group, data.subscription_data_set)
        if not info.connection.is_open:
            # It closed while its heartbeat was queued for a thread: nothing else would remove it.
            self.on_connection_close(info.connection)
        return changed

    def revision(self, group: str) -> int:
        """Of a group's mode and subscriptions: another number when they are others; 0 for a group
        without members."""
        info = self._groups.get(group)
        return 0 if info is None else info.revision

    def renew(self, group: str, connection: ConnectionLike, revision: int) -> bool:
        """A member was heard again, with what it said when the group had this revision. False: the
        group has another one, or the connection is no member."""
        with self._lock:
            info = self._groups.get(group)
            if info is None or info.revision != revision:
                return False
            member = info.members.get(connection)
            if member is None:
                return False
            member.hear(self._clock.now_ms(), self._clock.monotonic_ms())
        return True

    def unregister_consumer(self, group: str, connection: ConnectionLike, *, notify: bool) -> None:
        """The client leaves `group`."""
        with self._lock:
            left = self._remove(group, connection, "unregistered")
        self._notify_remaining(group, left, notify=notify)

    def on_connection_close(self, connection: ConnectionLike) -> None:
        """Remove a closed connection, and notify the rest of its groups at once."""
        with self._lock:
            left = {
                group: self._remove(group, connection, "connection closed")
                for group in sorted(self._groups_of.get(connection, ()))
            }
        for group, connections in left.items():
            self._notify_remaining(group, connections, notify=True)

    def scan_not_active_channel(self) -> list[ConnectionLike]:
        """Remove clients without a heartbeat for CHANNEL_EXPIRED_MS, then close their connections.

        The other members are not notified: they find out at their next rebalance, as with RocketMQ.
        """
        limit_ms = self._clock.monotonic_ms() - CHANNEL_EXPIRED_MS
        with self._lock:
            expired = [
                (group, member.connection)
                for group, info in self._groups.items()
                for member in info.members.values()
                if member.heard_ms < limit_ms
            ]
            gone = {
                group: self._remove(group, connection, f"no heartbeat for {CHANNEL_EXPIRED_MS} ms")
                for group, connection in expired
            }
        for group, left in gone.items():
            if not left:
                self._listener.on_unregister(group)
        connections = list(dict.fromkeys(connection for _, connection in expired))
        for connection in connections:
            connection.close("consumer sent no heartbeat")
        return connections

    def _remove(
        self, group: str, connection: ConnectionLike, reason: str
    ) -> list[ConnectionLike] | None:
        """Remove a member; returns the remaining connections, or None if it was not a member."""
        info = self._groups.get(group)
        if info is None:
            return None
        member = info.members.pop(connection, None)
        if member is None:
            return None
        groups = self._groups_of[connection]
        groups.discard(group)
        if not groups:
            del self._groups_of[connection]
        log.info("group %s: consumer %r removed: %s", group, member, reason)
        if not info.members:
            del self._groups[group]
            log.info("group %s: no member left", group)
        return info.connections()

    def _notify_remaining(
        self, group: str, left: list[ConnectionLike] | None, *, notify: bool
    ) -> None:
        if left is None:
            return
        if not left:
            self._listener.on_unregister(group)
        elif notify:
            self._listener.on_change(group, left)
