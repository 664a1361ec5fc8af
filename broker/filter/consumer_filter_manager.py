"""ConsumerFilterManager: the SQL92 expression of each group for each topic (consumerFilter.json).

Fed by heartbeats (pool threads) and by groups whose last member leaves (any thread, the loop too),
read by pulls on the loop thread without a lock. An expression is compiled outside the lock, so that
the loop never waits for it. What its group left behind stays, dead, for filterDataCleanTimeSpan; a
group that comes back with the same version finds it again. Saved by the scheduled executor and at
the stop. Follows ConsumerFilterManager of the original; bit maps are not computed here, their
positions are in the file for a Java broker that takes it over.
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
from broker.filter.selector_parser import InvalidSelectorError, Selector
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
"""A group in a loaded file counts as gone for that long."""


@dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """One group's filter for one topic: what the file says, and the compiled expression."""

    data: ConsumerFilterData
    selector: Selector

    @property
    def client_version(self) -> int:
        """subVersion of the subscription."""
        return self.data.client_version

    @property
    def is_dead(self) -> bool:
        """Whether the group is gone or does not subscribe the topic any more."""
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
        """By group, then by topic: heartbeats ask for groups."""

    # -- lookups, no lock -----------------------------------------------------------------------

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        """The group's filter for `topic`, dead or alive."""
        topics = self._table.get(group)
        return None if topics is None else topics.get(topic)

    def find_selector(self, topic: str, group: str) -> Selector | None:
        """Its expression."""
        found = self.find(topic, group)
        return None if found is None else found.selector

    # -- changes --------------------------------------------------------------------------------

    def register(self, group: str, subscriptions: Sequence[SubscriptionData]) -> None:
        """A heartbeat of `group` names these subscriptions; those by tags are none of ours.

        A filter of a topic that is not named any more is dead.
        """
        for subscription in subscriptions:
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)
        if group in self._table:
            named = {subscription.topic for subscription in subscriptions}
            self._bury(group, "not subscribed any more", but=named)

    def unregister(self, group: str) -> None:
        """The last member of `group` is gone."""
        if group in self._table:
            self._bury(group, "its group is gone", but=())

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic = subscription.topic
        while True:
            old = self.find(topic, group)
            new = self._next(old, group, subscription)
            if new is old:
                return
            with self._lock:
                # Another heartbeat may have been quicker: then look again.
                if self.find(topic, group) is old:
                    self._put(group, topic, new)
                    return

    def _next(
        self, old: ConsumerFilter | None, group: str, subscription: SubscriptionData
    ) -> ConsumerFilter | None:
        """What a subscription makes of the filter there is; None when it cannot be compiled."""
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
                "group %s, topic %s: %r of version %s is ignored, version %s is known: %r",
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
        """`data` with bloom filter positions and expression; None, said in the log, if it has no
        expression that can be compiled."""
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
                "group %s, topic %s: what stands behind the filter's expression has no effect, as "
                "in the original: %r",
                group,
                topic,
                selector.ignored,
            )
        bits = self._bloom.generate(f"{group}#{topic}")
        return ConsumerFilter(replace(data, bloom_filter_data=bits), selector)

    def _put(self, group: str, topic: str, new: ConsumerFilter | None) -> None:
        """Under the lock."""
        if new is None:
            topics = self._table[group]
            del topics[topic]
            if not topics:
                del self._table[group]
        else:
            self._table.setdefault(group, {})[topic] = new
        self.mark_changed()

    def _bury(self, group: str, reason: str, *, but: Collection[str]) -> None:
        """The group's filters are dead from now on, but those of the topics `but`."""
        with self._lock:
            topics = self._table.get(group, {})
            for topic, known in list(topics.items()):
                if topic not in but and not known.is_dead:
                    dead = replace(known.data, dead_time=self._clock.now_ms())
                    self._put(group, topic, replace(known, data=dead))
                    log.info("group %s, topic %s: filter out of use, %s", group, topic, reason)

    def clean(self) -> None:
        """Forget what is dead for filterDataCleanTimeSpan."""
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
        """Replace the table by the file's. Its groups are taken to be away since 30 s.

        Other than in the original, a changed bloom filter setting does not empty the table: the
        positions are computed anew. A filter that cannot be compiled is left out, with a warning.
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
