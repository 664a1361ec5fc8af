"""KeyBuilder: the names of pop's retry topics, and the keys of what waits for a queue.

Pure text, any thread (Java: KeyBuilder). A group's messages of `topic` that were handed out and not
acknowledged are copied to

    V1  %RETRY%<group>_<topic>
    V2  %RETRY%<group>+<topic>     a retry topic with a "+" is V2
"""

from __future__ import annotations

from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
POP_ORDER_REVIVE_QUEUE: Final = 999
"""The "revive queue id" in the handles of ordered pops, which have no check points."""
_SEPARATOR_V1: Final = "_"
_SEPARATOR_V2: Final = "+"


def pop_retry_topic_v1(topic: str, group: str) -> str:
    """The name that RocketMQ 5 uses unless enableRetryTopicV2 is set."""
    return f"{RETRY_PREFIX}{group}{_SEPARATOR_V1}{topic}"


def pop_retry_topic_v2(topic: str, group: str) -> str:
    """The name with enableRetryTopicV2: it can be taken apart without knowing the group."""
    return f"{RETRY_PREFIX}{group}{_SEPARATOR_V2}{topic}"


def pop_retry_topic(topic: str, group: str, enable_retry_v2: bool) -> str:
    """The retry topic that is written to."""
    return (pop_retry_topic_v2 if enable_retry_v2 else pop_retry_topic_v1)(topic, group)


def is_pop_retry_topic_v2(topic: str) -> bool:
    """Whether RocketMQ takes `topic` for a V2 retry topic."""
    return topic.startswith(RETRY_PREFIX) and _SEPARATOR_V2 in topic


def parse_normal_topic(topic: str, group: str) -> str:
    """The topic that the group asked for, from itself or from one of its own pop retry topics. Any
    other name is returned as it is, other groups' retry topics, too (RocketMQ cuts as many
    characters from these): rights are asked for under this name."""
    for separator in (_SEPARATOR_V1, _SEPARATOR_V2):
        own = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(own) and len(topic) > len(own):
            return topic[len(own) :]
    return topic


def parse_retry_topic_v2(topic: str) -> tuple[str, str] | None:
    """(normal topic, group) of a V2 retry topic; None: it is none, or has more than one "+"."""
    if not is_pop_retry_topic_v2(topic):
        return None
    parts = topic.split(_SEPARATOR_V2)
    if len(parts) != 2 or not parts[1]:
        return None
    return parts[1], parts[0][len(RETRY_PREFIX) :]


def polling_key(topic: str, group: str, queue_id: int) -> str:
    """The key of a queue's lock and of those who wait for it; queue id -1: any queue."""
    return f"{topic}@{group}@{queue_id}"
