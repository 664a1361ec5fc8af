"""PeekingCheck: may a group look at a topic without taking messages (200052, 200054, 200055)?

Runs on the loop thread. The checks that RocketMQ's PeekMessageProcessor, NotificationProcessor and
PollingInfoProcessor share, in their order and words; and where the next pop of a queue begins.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.pop.pop_targets import check_queue_id, consuming_group, readable_topic
from broker.settings.broker_config import BrokerConfig
from broker.topic.table_protocols import FindGroup, FindTopic
from ipc.queue_table import QueueTableReader
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from remoting.key_builder import pop_retry_topic, pop_retry_topic_v1
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

_PERM_READ = 4

PopOffset = Callable[[str, str, int], int | None]
"""(topic, group, queue id): where the next pop begins; None: the group has no offset there."""


class PeekingCheck:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        settings: BrokerConfig,
        find_topic: FindTopic,
        find_group: FindGroup,
        table: QueueTableReader,
        pop_offset: PopOffset,
    ) -> None:
        self._settings = settings
        self._find_topic = find_topic
        self._find_group = find_group
        self._table = table
        self._pop_offset = pop_offset

    def use(self, settings: BrokerConfig) -> None:
        """Apply changed settings."""
        self._settings = settings

    def check(
        self, connection: ConnectionLike, topic: str, group: str, queue_id: int
    ) -> TopicConfig:
        """The topic's configuration. Raises RequestError."""
        if not self._settings.broker_permission & _PERM_READ:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._settings.broker_ip1}] peeking message is forbidden",
            )
        found = readable_topic(self._find_topic(topic), topic)
        check_queue_id(found, topic, queue_id, connection.remote_address)
        consuming_group(self._find_group(group), group)
        return found

    def retry_topics(self, topic: str, group: str) -> list[TopicConfig]:
        """The group's retry topics that exist, in the order in which they are looked at."""
        settings = self._settings
        names = [pop_retry_topic(topic, group, settings.enable_retry_topic_v2)]
        if settings.enable_retry_topic_v2 and settings.retrieve_message_from_pop_retry_topic_v1:
            names.append(pop_retry_topic_v1(topic, group))
        found = (self._find_topic(name) for name in names)
        return [config for config in found if config is not None]

    def range_left(self, topic: str, group: str, queue_id: int) -> tuple[int, int]:
        """(where the next pop of a queue begins, where the queue ends)."""
        low, high = self._table.offsets(topic, queue_id)
        offset = self._pop_offset(topic, group, queue_id)
        return low if offset is None else offset, high


def queues_from(count: int, chance: int) -> list[int]:
    """All queue ids, beginning at one that depends on `chance`."""
    return [(chance + number) % count for number in range(count)]
