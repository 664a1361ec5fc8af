"""Light topics and groups exist without being in any table."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.metrics.broker_stats_manager import BrokerStatsManager
from broker.settings.broker_config import BrokerConfig
from broker.subscription.lmq_subscription_group_manager import LmqSubscriptionGroupManager
from broker.topic.lmq_topic_config_manager import LmqTopicConfigManager
from broker.topic.system_topics import SystemTopics
from broker.wiring.lost_tables import stored_queues
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from tests.support.manual_clock import ManualClock


def test_topics(tmp_path: Path) -> None:
    topics = LmqTopicConfigManager(
        tmp_path / "topics.json", BrokerConfig(), ManualClock(), SystemTopics()
    )
    topics.load()
    before = topics.wrapper()
    found = topics.find("%LMQ%a")
    assert found == TopicConfig(topic_name="%LMQ%a", read_queue_nums=1, write_queue_nums=1, perm=6)
    sent = topics.prepare_for_send("%LMQ%a", "TBW102", 4, unit_mode=False, remote="c")
    assert sent == found
    with pytest.raises(RequestError):
        topics.prepare_for_send("%LMQ%a/b", "TBW102", 4, unit_mode=False, remote="c")
    assert topics.update(TopicConfig(topic_name="%LMQ%a", read_queue_nums=9))
    assert topics.find("%LMQ%a") == found
    assert topics.wrapper() == before
    assert topics.find("a") is None
    made = topics.prepare_for_send("T", "TBW102", 4, unit_mode=False, remote="c")
    assert topics.find("T") == made
    assert topics.update(TopicConfig(topic_name="T", read_queue_nums=3), found)
    assert "%LMQ%a" not in topics.topic_names()


def test_groups(tmp_path: Path) -> None:
    groups = LmqSubscriptionGroupManager(
        tmp_path / "subscriptionGroup.json",
        BrokerConfig(auto_create_subscription_group=False),
        ManualClock(),
    )
    groups.load()
    before = groups.wrapper()
    wanted = SubscriptionGroupConfig(group_name="%LMQ%g")
    assert groups.find("%LMQ%g") == groups.find_or_create("%LMQ%g") == wanted
    assert groups.update(SubscriptionGroupConfig(group_name="%LMQ%g", consume_enable=False))
    assert groups.find("%LMQ%g") == wanted
    assert groups.wrapper() == before
    assert groups.find_or_create("g") is None


def test_statistics_join_them() -> None:
    stats = BrokerStatsManager(ManualClock(), "c", joins_lmq=True)
    assert stats.shown_name("%LMQ%a") == "%LMQ%"
    assert stats.shown_name("T") == "T"
    assert BrokerStatsManager(ManualClock(), "c").shown_name("%LMQ%a") == "%LMQ%a"


def test_they_are_not_put_back(tmp_path: Path) -> None:
    """A lost topics.json."""
    for name in ("T/0", "T/3", "%LMQ%a/0"):
        (tmp_path / name).mkdir(parents=True)
    assert stored_queues(tmp_path) == {"T": 4}
