"""SlowConsumerProtection: disables groups that are too far behind.

Off by default (disableConsumeIfConsumerReadSlowly). A task of the scheduled executor in `remoting`;
knows no request and no connection. Follows protectBroker of RocketMQ's BrokerController, which
measures a group by its last pull; here it is measured by its stored offsets, which costs nothing
during pulls, and only while it is online. An operator re-enables it with updateSubGroup.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.settings.broker_config import BrokerConfig
from broker.store_access.store_access import StoreAccess
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from ipc.scheduled_executor import ScheduledExecutor
from store.errors import QueueDamagedError

if TYPE_CHECKING:
    from broker.client.consumer_manager import ConsumerManager

log = logging.getLogger(__name__)

PERIOD_MS: Final = 180_000


class SlowConsumerProtection:
    """See the module. No state."""

    def __init__(
        self,
        config: BrokerConfig,
        offsets: ConsumerOffsetManager,
        online: ConsumerManager,
        groups: SubscriptionGroupManager,
        places: StoreAccess,
    ) -> None:
        self._config = config
        self._offsets = offsets
        self._online = online
        self._groups = groups
        self._places = places

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Check every PERIOD_MS, if enabled."""
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
                    "disabling its consumption; re-enable it with updateSubGroup -s true",
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
            try:
                unit = self._places.unit_at(topic, queue_id, max(offset, low))
            except QueueDamagedError:
                # Reported where it was found; the next round sees it rebuilt.
                continue
            if unit is not None:
                behind = max(behind, end - unit[0])
        return behind
