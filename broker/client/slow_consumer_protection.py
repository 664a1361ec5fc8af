"""SlowConsumerProtection: a group that reads too far behind is not served any more.

Off by default (disableConsumeIfConsumerReadSlowly). A task of the scheduled executor in `remoting`;
knows no request and no connection. Follows protectBroker of the original's BrokerController, which
measures a group by its last pull; here it is measured by its stored progress, so that pulls pay
nothing, and only while it is online. An operator lets it read again with updateSubGroup.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.settings.broker_config import BrokerConfig
from ipc.scheduled_executor import ScheduledExecutor

log = logging.getLogger(__name__)

PERIOD_MS: Final = 180_000


class OnlineGroups(Protocol):
    """What is needed of ConsumerManager."""

    def has_group(self, group: str) -> bool:
        """Whether the group has a live member."""


class Disabling(Protocol):
    """What is needed of SubscriptionGroupManager."""

    def disable_consume(self, group: str) -> None:
        """Refuse its pulls from now on."""


class QueuePlaces(Protocol):
    """What is needed of StoreAccess."""

    @property
    def max_phy_offset(self) -> int:
        """Where the log ends."""

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offsets."""

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags code) of a queue entry."""


class SlowConsumerProtection:
    """See the module. No state."""

    def __init__(
        self,
        config: BrokerConfig,
        offsets: ConsumerOffsetManager,
        online: OnlineGroups,
        groups: Disabling,
        places: QueuePlaces,
    ) -> None:
        self._config = config
        self._offsets = offsets
        self._online = online
        self._groups = groups
        self._places = places

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Look each PERIOD_MS, where that is asked for."""
        if self._config.disable_consume_if_consumer_read_slowly:
            executor.schedule(
                "protect-broker", self.protect, first_delay_ms=PERIOD_MS, period_ms=PERIOD_MS
            )

    def protect(self) -> None:
        """Disable every group that is online and too far behind."""
        threshold = self._config.consumer_fallbehind_threshold
        for topic, group in self._offsets.pairs():
            if not self._online.has_group(group):
                continue
            behind = self._bytes_behind(topic, group)
            if behind > threshold:
                log.warning(
                    "group %s is %s bytes behind in topic %s, consumerFallbehindThreshold is %s: "
                    "it is not served any more; updateSubGroup -s true lets it read again",
                    group,
                    behind,
                    topic,
                    threshold,
                )
                self._groups.disable_consume(group)

    def _bytes_behind(self, topic: str, group: str) -> int:
        """From the group's next message in its slowest queue to the end of the log."""
        end = self._places.max_phy_offset
        behind = 0
        for queue_id, offset in self._offsets.query_offsets(group, topic).items():
            low = self._places.offsets(topic, queue_id)[0]
            unit = self._places.unit_at(topic, queue_id, max(offset, low))
            if unit is not None:
                behind = max(behind, end - unit[0])
        return behind
