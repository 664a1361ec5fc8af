"""ConsumerFilterManager: the SQL92 expression of each group for each topic (consumerFilter.json).

Updated by heartbeats (pool threads) and when the last member of a group leaves (any thread, the
loop too); read by pulls on the loop thread without a lock. An expression is compiled outside the
lock, so that the loop never waits for it. The filter of a group without members is kept, marked
dead, for filterDataCleanTimeSpan; a group that returns with the same version reuses it. Saved by
the scheduled executor and on shutdown. Follows ConsumerFilterManager of RocketMQ. Bit maps are not
computed here; their positions are in the file for a Java broker that uses it later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from broker.filter.bloom_filter import BloomFilter
from broker.filter.filter_factory import FilterFactory, is_tag_type
from broker.filter.selector import InvalidSelectorError, Selector
from broker.json_config_manager import JsonConfigManager
from broker.settings.broker_config import BrokerConfig
from ipc.clock import Clock
from remoting.body.consumer_filter import (
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
)
from remoting.body.heartbeat import SubscriptionData

log = logging.getLogger(__name__)

_ASSUMED_AWAY_MS: Final = 30_000
"""A group in a loaded file is assumed to have been away for this long."""


@dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """One group's filter for one topic: its row of the file and the compiled expression."""

    data: ConsumerFilterData
    selector: Selector

    @property
    def client_version(self) -> int:
        """subVersion of the subscription."""
        return self.data.client_version

    @property
    def is_dead(self) -> bool:
        """Whether the group has no members or no longer subscribes to the topic."""
        return self.data.dead_time >= self.data.born_time

    def row(self) -> ConsumerFilterData:
        """The file's row."""
        return replace(self.data, dead=self.is_dead)


class ConsumerFilterManager(JsonConfigManager):
    """Filters by group and topic. Owned by: `_lock`; single lookups are safe without it."""

    def __init__(self, path: Path, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(path)
        self._clock = clock
        self._clean_span_ms = config.filter_data_clean_time_span
        self._bloom = BloomFilter(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self._factory = FilterFactory()
        self._lock = threading.Lock()
        self._table: dict[str, dict[str, ConsumerFilter]] = {}
        """By group, then by topic, since heartbeats look up groups."""

    # -- lookups, no lock -----------------------------------------------------------------------

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        """The group's filter for `topic`, dead or alive."""
        topics = self._table.get(group)
        return None if topics is None else topics.get(topic)

    def find_selector(self, topic: str, group: str) -> Selector | None:
        """The compiled expression of that filter."""
        found = self.find(topic, group)
        return None if found is None else found.selector

    # -- changes --------------------------------------------------------------------------------

    def register(self, group: str, subscriptions: Sequence[SubscriptionData]) -> None:
        """Apply the subscriptions of a heartbeat of `group`; those by tags are ignored.

        The filter of a topic that is no longer subscribed to is marked dead.
        """
        for subscription in subscriptions:
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)
        if group in self._table:
            named = {subscription.topic for subscription in subscriptions}
            self._mark_dead(group, "no longer subscribed", but=named)

    def unregister(self, group: str) -> None:
        """The last member of `group` has left."""
        if group in self._table:
            self._mark_dead(group, "its group has no members", but=())

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic = subscription.topic
        while True:
            old = self.find(topic, group)
            new = self._next(old, group, subscription)
            if new is old:
                return
            with self._lock:
                # Another heartbeat may have changed it meanwhile; if so, retry.
                if self.find(topic, group) is old:
                    self._put(group, topic, new)
                    return

    def _next(
        self, old: ConsumerFilter | None, group: str, subscription: SubscriptionData
    ) -> ConsumerFilter | None:
        """The filter that a subscription results in; None if it cannot be compiled."""
        if old is None:
            return self._build(group, subscription)
        data, version = old.data, subscription.sub_version
        wanted = (subscription.sub_string, subscription.expression_type)
        changed = wanted != (data.expression, data.expression_type)
        if version > old.client_version:
            if changed:
                return self._build(group, subscription)
            return replace(old, data=replace(data, client_version=version, dead_time=0))
        if changed:
            log.warning(
                "group %s, topic %s: ignored %r of version %s, the current version is %s: %r",
                group,
                subscription.topic,
                subscription.sub_string,
                version,
                old.client_version,
                data.expression,
            )
        if version == old.client_version and old.is_dead:
            log.info("group %s, topic %s: the filter is in use again", group, subscription.topic)
            return replace(old, data=replace(data, dead_time=0))
        return old

    def _build(self, group: str, subscription: SubscriptionData) -> ConsumerFilter | None:
        data = ConsumerFilterData(
            consumer_group=group,
            topic=subscription.topic,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type,
            born_time=self._clock.now_ms(),
            client_version=subscription.sub_version,
        )
        built = self._compiled(data)
        if built is not None:
            log.info("group %s, topic %s: new filter %r", group, data.topic, data.expression)
        return built

    def _compiled(self, data: ConsumerFilterData) -> ConsumerFilter | None:
        """`data` with bloom filter positions and compiled expression; None, with a log line, if the
        expression cannot be compiled."""
        group, topic = data.consumer_group, data.topic
        try:
            selector = self._factory.compile(data.expression_type or "", data.expression)
        except InvalidSelectorError as error:
            log.warning(
                "group %s, topic %s: no filter %r: %s", group, topic, data.expression, error
            )
            return None
        if selector.ignored:
            log.warning(
                "group %s, topic %s: text after the end of the filter expression is ignored, as "
                "in RocketMQ: %r",
                group,
                topic,
                selector.ignored,
            )
        bits = self._bloom.generate(f"{group}#{topic}")
        return ConsumerFilter(replace(data, bloom_filter_data=bits), selector)

    def _put(self, group: str, topic: str, new: ConsumerFilter | None) -> None:
        """Caller holds the lock."""
        if new is None:
            topics = self._table[group]
            del topics[topic]
            if not topics:
                del self._table[group]
        else:
            self._table.setdefault(group, {})[topic] = new
        self.mark_changed()

    def _mark_dead(self, group: str, reason: str, *, but: Collection[str]) -> None:
        """Mark the group's filters dead, except those of the topics `but`."""
        with self._lock:
            topics = self._table.get(group, {})
            for topic, known in list(topics.items()):
                if topic not in but and not known.is_dead:
                    dead = replace(known.data, dead_time=self._clock.now_ms())
                    self._put(group, topic, replace(known, data=dead))
                    log.info("group %s, topic %s: filter out of use, %s", group, topic, reason)

    def clean(self) -> None:
        """Remove filters that have been dead for filterDataCleanTimeSpan."""
        limit_ms = self._clock.now_ms() - self._clean_span_ms
        with self._lock:
            for group, topics in list(self._table.items()):
                for topic, known in list(topics.items()):
                    if known.is_dead and known.data.dead_time <= limit_ms:
                        self._put(group, topic, None)
                        log.info("group %s, topic %s: dead filter removed", group, topic)

    # -- file -----------------------------------------------------------------------------------

    def save_if_changed(self) -> bool:
        """Clean, then save when something changed."""
        self.clean()
        return super().save_if_changed()

    def decode(self, value: dict[str, Any]) -> None:
        """Replace the table by the file's. Its groups are assumed to have been away for 30 s.

        Unlike in RocketMQ, a changed bloom filter setting does not clear the table: the positions
        are recomputed. A filter that cannot be compiled is skipped with a warning.
        """
        wrapper = ConsumerFilterWrapper.from_json(value)
        table: dict[str, dict[str, ConsumerFilter]] = {}
        for by_group in wrapper.filter_data_by_topic.values():
            for data in by_group.group_filter_data.values():
                if data.dead_time == 0:
                    away_since = self._clock.now_ms() - _ASSUMED_AWAY_MS
                    data = replace(data, dead_time=max(away_since, data.born_time))
                known = self._compiled(data)
                if known is not None:
                    table.setdefault(data.consumer_group, {})[data.topic] = known
        with self._lock:
            self._table = table

    def snapshot(self) -> dict[str, Any]:
        """The file's shape: by topic, then by group."""
        by_topic: dict[str, dict[str, ConsumerFilterData]] = {}
        with self._lock:
            for group, topics in self._table.items():
                for topic, known in topics.items():
                    by_topic.setdefault(topic, {})[group] = known.row()
        wrapper = ConsumerFilterWrapper(
            filter_data_by_topic={
                topic: FilterDataMapByTopic(group_filter_data=groups, topic=topic)
                for topic, groups in by_topic.items()
            }
        )
        return wrapper.to_json()
