"""ConfigApplication: passes changed settings to the objects that use them while the broker runs.

Used by BrokerConfigUpdate, on a thread of the `admin` pool. The one place that knows which object
holds which of the settings that apply immediately (broker/settings/changeable_keys.py); each of
those objects gets a complete new frozen config. Settings of process `store` are sent over the
command channel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from broker.out.broker_registration import BrokerRegistration
from broker.settings.broker_config import BrokerConfig
from broker.settings.changeable_keys import CHANGE_RETENTION, RETENTION_KEYS
from broker.settings.startup_options import StartupOptions
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.system_topics import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    PERM_INHERIT,
    PERM_READ_WRITE,
)
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.command_channel import CommandClient
from remoting.body.topic_config import TopicConfig

_COMMAND_TIMEOUT_MS: Final = 3_000


class ConfigApplication:
    """A SettingsUser. Stateless apart from its collaborators."""

    def __init__(
        self,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        registration: BrokerRegistration,
        use_on_loop: Callable[[StartupOptions], None],
        is_slave: Callable[[], bool],
        store: CommandClient,
    ) -> None:
        """use_on_loop: apply options to the processors on the loop; returns once they are
        applied. is_slave: now."""
        self._is_slave = is_slave
        self._topics = topics
        self._groups = groups
        self._registration = registration
        self._use_on_loop = use_on_loop
        self._store = store

    def offer(self, options: StartupOptions, keys: Collection[str]) -> None:
        """Send process `store` all of its changed settings. Raises CommandError."""
        if RETENTION_KEYS.intersection(keys):
            settings = options.settings()
            retention = {key: settings[key] for key in sorted(RETENTION_KEYS)}
            self._store.call(CHANGE_RETENTION, _COMMAND_TIMEOUT_MS, settings=retention)

    def use(self, options: StartupOptions, keys: Collection[str]) -> None:
        """Pass `options` to their readers; register a new brokerPermission with the name
        servers."""
        self._topics.config = options.broker
        self._groups.config = options.broker
        self._registration.config = options.broker
        self._use_on_loop(options)
        if "autoCreateTopicEnable" in keys and not self._is_slave():
            self._offer_template(options.broker)
        if "brokerPermission" in keys:
            self._topics.bump_data_version()
            self._registration.register_all(check_order=False, force=True)

    def _offer_template(self, broker: BrokerConfig) -> None:
        """Create the template of automatic topics (TBW102), which a start creates only if
        autoCreateTopicEnable is on."""
        if not broker.auto_create_topic_enable:
            return
        perm = PERM_INHERIT | PERM_READ_WRITE
        found = self._topics.find(AUTO_CREATE_TOPIC_KEY_TOPIC)
        if found is not None and found.perm == perm:
            return
        self._topics.system_topics.add(AUTO_CREATE_TOPIC_KEY_TOPIC)
        self._topics.update(
            TopicConfig(
                topic_name=AUTO_CREATE_TOPIC_KEY_TOPIC,
                read_queue_nums=broker.default_topic_queue_nums,
                write_queue_nums=broker.default_topic_queue_nums,
                perm=perm,
            )
        )
