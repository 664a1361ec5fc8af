"""LiteMetadataUtil: what the attributes of a topic and of a group say about lite topics.

Pure, any thread. The attributes were checked when they were set; what an older or another broker
left there is read leniently. Knows no request.

Tested by tests/broker/lite/test_lite_metadata_util.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.subscription.group_attributes import (
    is_lite_exclusive,
    is_wildcard,
    lite_bind_topic,
    lite_client_max_events,
    resets_exclusive,
    resets_unsubscribed,
)
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig

_MESSAGE_TYPE: Final = "message.type"
_LITE: Final = "LITE"
_EXPIRATION: Final = "lite.topic.expiration"
_NEVER: Final = -1


class LiteGroup(NamedTuple):
    """A group that is bound to a parent topic."""

    name: str
    topic: str
    is_exclusive: bool
    """One client at a time for each lite topic: the newest."""
    resets_when_taken: bool
    resets_when_left: bool
    is_wildcard: bool
    """Its clients get every lite topic of the parent."""
    most_events: int
    """That wait for one client; 0: as the broker's settings say."""


def find_lite_group(config: SubscriptionGroupConfig | None) -> LiteGroup | None:
    """None: the group is no lite group, or does not exist."""
    attributes = None if config is None else config.attributes
    topic = lite_bind_topic(attributes)
    if config is None or topic is None:
        return None
    return LiteGroup(
        config.group_name,
        topic,
        is_lite_exclusive(attributes),
        resets_exclusive(attributes),
        resets_unsubscribed(attributes),
        is_wildcard(attributes),
        lite_client_max_events(attributes) or 0,
    )


def is_lite_parent(topic: TopicConfig | None) -> bool:
    """Whether a topic may have lite topics that are popped."""
    return topic is not None and (topic.attributes or {}).get(_MESSAGE_TYPE) == _LITE


def expiration_minutes(topic: TopicConfig | None) -> int:
    """How long after its last message a lite topic of this parent ends; -1: never."""
    if topic is None or not is_lite_parent(topic):
        return _NEVER
    try:
        return int((topic.attributes or {}).get(_EXPIRATION, _NEVER))
    except ValueError:
        return _NEVER
