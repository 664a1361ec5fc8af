"""What attributes of topics and groups mean for lite topics."""

from __future__ import annotations

from broker.lite.lite_metadata_util import (
    LiteGroup,
    expiration_minutes,
    find_lite_group,
    is_lite_parent,
)
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig


def topic(**attributes: str) -> TopicConfig:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return TopicConfig(topic_name="P", attributes=named)


def test_parents() -> None:
    assert is_lite_parent(topic(message__type="LITE"))
    assert not is_lite_parent(topic(message__type="FIFO"))
    assert not is_lite_parent(TopicConfig(topic_name="P"))
    assert not is_lite_parent(None)


def test_expiration() -> None:
    assert expiration_minutes(topic(message__type="LITE", lite__topic__expiration="30")) == 30
    assert expiration_minutes(topic(message__type="LITE")) == -1
    assert expiration_minutes(topic(message__type="LITE", lite__topic__expiration="x")) == -1
    assert expiration_minutes(topic(message__type="FIFO", lite__topic__expiration="30")) == -1
    assert expiration_minutes(None) == -1


def test_groups() -> None:
    def group(**attributes: str) -> LiteGroup | None:
        named = {name.replace("__", "."): value for name, value in attributes.items()}
        return find_lite_group(SubscriptionGroupConfig(group_name="G", attributes=named))

    assert group() is None
    assert group(lite__bind__topic="") is None
    assert find_lite_group(None) is None
    assert group(lite__bind__topic="P") == LiteGroup("G", "P", False, False, False, False, 0)
    whole = group(
        lite__bind__topic="P",
        lite__sub__model="Exclusive",
        lite__sub__reset__offset__exclusive="true",
        lite__sub__reset__offset__unsubscribe="true",
        lite__sub__wildcard="",
        lite__sub__client__max__event__cnt="12",
    )
    assert whole == LiteGroup("G", "P", True, True, True, True, 12)
