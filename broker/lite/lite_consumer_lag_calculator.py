"""LiteConsumerLagCalculator: how far lite groups have come in their lite topics.

Called on the scheduled executor of `remoting` for the metrics, and in the pool of administration
for operators; reads tables that others write. A look at a group takes time in proportion to the
parent's lite topics, so the metrics are not found again before twenty times that time has passed. A
group without an offset in a lite topic has no lag there. Follows LiteConsumerLagCalculator of
RocketMQ 5.5, where a lite topic's age is noted by its pops: here it is read, and a message that is
out counts until it is acknowledged, as in other groups. Knows no metric and no request.

Tested by tests/broker/lite/test_lite_consumer_lag_calculator.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.lite.lite_metadata_util import LiteGroup, find_lite_group
from broker.lite.lite_queues import LiteQueues
from broker.lite.lite_settings import LiteSettings
from broker.metrics.consumer_lag_calculator import LiteProgress
from broker.processor.queue_times import QueueTimes
from broker.store_access.store_access import StoreAccess
from broker.topic.table_protocols import FindGroup
from store.errors import QueueDamagedError
from store.lmq_places import LMQ_QUEUE_ID

_TIMES_THE_COST: Final = 20


class LiteLag(NamedTuple):
    """What a group has not consumed of one lite topic, at least one message."""

    lmq: str
    messages: int
    offset: int
    """Of the oldest of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteLagSources:
    """Where the figures come from."""

    lite_topics: Callable[[str], Iterable[str]]
    """The light queues of a parent."""
    queues: LiteQueues
    store: StoreAccess
    find_group: FindGroup
    """Of known groups; makes none."""
    group_names: Callable[[], list[str]]
    settings: Callable[[], LiteSettings]
    monotonic_ms: Callable[[], int]


class LiteConsumerLagCalculator:
    """See the module."""

    def __init__(self, sources: LiteLagSources) -> None:
        self._from: Final = sources
        self._times: Final = QueueTimes(sources.store)
        self._found: list[LiteProgress] = []
        self._again_ms = 0
        """Not before is the progress of all groups looked for again."""

    def lags(self, group: LiteGroup) -> Iterator[LiteLag]:
        """Of the lite topics that the group has begun and not finished."""
        queues = self._from.queues
        for lmq in self._from.lite_topics(group.topic):
            committed = queues.committed(group.name, lmq)
            messages = queues.end(lmq) - committed
            if committed >= 0 and messages > 0:
                yield LiteLag(lmq, messages, committed)

    def stored_ms(self, lmq: str, offset: int) -> int:
        """When a message was stored; -1: there is none."""
        return self._times.store_timestamp(lmq, LMQ_QUEUE_ID, offset)

    def all_progress(self) -> list[LiteProgress]:
        """Each lite group, as the metrics show it. The scheduled executor."""
        known = self._from
        settings, now_ms = known.settings(), known.monotonic_ms()
        if not (settings.shows_lag_counts or settings.shows_lag_times):
            self._found = []
        elif now_ms >= self._again_ms:
            self._found = list(self._look(settings))
            end_ms = known.monotonic_ms()
            self._again_ms = end_ms + _TIMES_THE_COST * (end_ms - now_ms)
        return self._found

    def _look(self, settings: LiteSettings) -> Iterator[LiteProgress]:
        for name in self._from.group_names():
            group = find_lite_group(self._from.find_group(name))
            if group is None:
                continue
            lags = list(self.lags(group))
            yield LiteProgress(
                name,
                group.topic,
                sum(lag.messages for lag in lags) if settings.shows_lag_counts else None,
                self._oldest_ms(lags) if settings.shows_lag_times else None,
            )

    def _oldest_ms(self, lags: list[LiteLag]) -> int:
        """The one that comes first in the log; its record alone is read."""
        place = min(filter(None, map(self._place, lags)), default=None)
        return 0 if place is None else max(0, self._from.store.store_timestamp_at(place[0]))

    def _place(self, lag: LiteLag) -> tuple[int, int, int] | None:
        store = self._from.store
        low, _high = store.offsets(lag.lmq, LMQ_QUEUE_ID)
        try:
            return store.unit_at(lag.lmq, LMQ_QUEUE_ID, max(lag.offset, low))
        except QueueDamagedError:
            return None  # Reported where it was found; the next look sees it rebuilt.
