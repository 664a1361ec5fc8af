"""Pop's retry topics: whether what a group does not acknowledge could come back.

Pure, loop thread. The copies of such messages are stored under a name made of group and topic. If
no topic can have that name, they would never be handed out again: the pop is refused instead.
Ordered pops copy nothing. Knows no table: what names are possible is TopicConfigManager's to say.
"""

from __future__ import annotations

from broker.topic.topic_config_manager import TopicConfigManager
from remoting.errors import RequestError
from remoting.key_builder import RETRY_PREFIX, pop_retry_topic
from remoting.response_code import ResponseCode


def check_can_come_back(topics: TopicConfigManager, topic: str, group: str, *, v2: bool) -> None:
    """Raises RequestError for a pop whose messages could not be copied to a retry topic."""
    if topic.startswith(RETRY_PREFIX):  # they are copied to this one
        return
    name = pop_retry_topic(topic, group, v2)
    if topics.can_be_pop_retry(name):
        return
    raise RequestError(
        ResponseCode.INVALID_PARAMETER,
        f"group[{group}] cannot pop topic[{topic}]: what it does not acknowledge could not come "
        f"back, since no topic can have the name {name} ({len(name)} characters, at most "
        f"{topics.retry_limit} of a-z A-Z 0-9 _ - % |). Use a shorter name, pulls, or "
        "ordered pops",
    )
