"""broker.wiring.config_application: a changed setting reaches everybody who reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.settings.broker_config import BrokerConfig
from broker.settings.changeable_keys import RETENTION_KEYS
from broker.settings.startup_options import StartupOptions
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.system_topics import AUTO_CREATE_TOPIC_KEY_TOPIC, SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from broker.wiring.config_application import ConfigApplication
from remoting.errors import RequestError
from tests.broker.broker_fakes import FakeClock


class Registration:
    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.calls: list[tuple[BrokerConfig, dict[str, bool]]] = []

    def register_all(self, **how: bool) -> None:
        self.calls.append((self.config, how))


class Store:
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> dict[str, Any]:
        assert timeout_ms == 3_000
        self.calls.append((command, arguments))
        return {}


class World:
    def __init__(self, tmp_path: Path, **settings: str) -> None:
        self.options = StartupOptions.from_settings({"brokerIP1": "127.0.0.2", **settings})
        broker, clock = self.options.broker, FakeClock()
        self.is_slave = self.options.store.is_slave
        self.system_topics = SystemTopics()
        self.topics = TopicConfigManager(
            tmp_path / "topics.json", broker, clock, self.system_topics
        )
        self.groups = SubscriptionGroupManager(tmp_path / "groups.json", broker, clock)
        self.topics.load()
        self.groups.load()
        self.registration = Registration(broker)
        self.store = Store()
        self.on_loop: list[StartupOptions] = []
        self.application = ConfigApplication(
            topics=self.topics,
            groups=self.groups,
            registration=self.registration,  # type: ignore[arg-type]
            is_slave=lambda: self.is_slave,
            use_on_loop=self.on_loop.append,
            store=self.store,  # type: ignore[arg-type]
        )

    def change(self, key: str, **values: object) -> None:
        """Use `values` of BrokerConfig, as a change of `key`."""
        broker = replace(self.options.broker, **values)  # type: ignore[arg-type]
        self.options = replace(self.options, broker=broker)
        self.application.use(self.options, {key})

    def automatic_topic(self) -> bool:
        try:
            self.topics.prepare_for_send(
                "new", AUTO_CREATE_TOPIC_KEY_TOPIC, 4, unit_mode=False, remote="x"
            )
        except RequestError:
            return False
        return True


def test_the_loop_follows(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.change("longPollingEnable", long_polling_enable=False)
    assert world.on_loop == [world.options]
    assert world.registration.calls == []
    assert world.store.calls == []


def test_automatic_groups(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.change("autoCreateSubscriptionGroup", auto_create_subscription_group=False)
    assert world.groups.find_or_create("g") is None
    world.change("autoCreateSubscriptionGroup", auto_create_subscription_group=True)
    assert world.groups.find_or_create("g") is not None


def test_automatic_topics_off_and_on_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.change("autoCreateTopicEnable", auto_create_topic_enable=False)
    assert not world.automatic_topic()
    world.change("autoCreateTopicEnable", auto_create_topic_enable=True)
    assert world.automatic_topic()


def test_automatic_topics_of_a_broker_that_started_without(tmp_path: Path) -> None:
    world = World(tmp_path, autoCreateTopicEnable="false", defaultTopicQueueNums="3")
    assert world.topics.find(AUTO_CREATE_TOPIC_KEY_TOPIC) is None
    world.change("autoCreateTopicEnable", auto_create_topic_enable=True)
    template = world.topics.find(AUTO_CREATE_TOPIC_KEY_TOPIC)
    assert template is not None
    assert (template.read_queue_nums, template.write_queue_nums, template.perm) == (3, 3, 7)
    assert world.system_topics.is_system_topic(AUTO_CREATE_TOPIC_KEY_TOPIC)
    assert world.automatic_topic()


def test_a_template_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    version = world.topics.data_version
    world.change("autoCreateTopicEnable", auto_create_topic_enable=True)
    assert world.topics.data_version == version


def test_a_slave_makes_no_template(tmp_path: Path) -> None:
    world = World(tmp_path, brokerRole="SLAVE", brokerId="1", autoCreateTopicEnable="false")
    world.change("autoCreateTopicEnable", auto_create_topic_enable=True)
    assert world.topics.find(AUTO_CREATE_TOPIC_KEY_TOPIC) is None


def test_a_permission_is_registered_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    version = world.topics.data_version
    world.change("brokerPermission", broker_permission=4)
    assert world.registration.calls == [
        (world.options.broker, {"check_order": False, "force": True})
    ]
    assert world.topics.data_version.counter == version.counter + 1
    assert world.topics.config.broker_permission == 4


@pytest.mark.parametrize("key", ["brokerPermission", "slaveReadEnable"])
def test_nothing_of_the_store_changes(tmp_path: Path, key: str) -> None:
    world = World(tmp_path)
    world.application.offer(world.options, {key})
    assert world.store.calls == []


def test_the_store_gets_its_settings_whole(tmp_path: Path) -> None:
    world = World(tmp_path, fileReservedTime="24", deleteWhen="04;16")
    world.application.offer(world.options, {"fileReservedTime", "brokerPermission"})
    ((command, arguments),) = world.store.calls
    assert command == "change_retention"
    assert arguments["settings"].keys() == RETENTION_KEYS
    assert arguments["settings"]["fileReservedTime"] == "24"
    assert arguments["settings"]["deleteWhen"] == "04;16"
    assert arguments["settings"]["cleanFileForciblyEnable"] == "true"
