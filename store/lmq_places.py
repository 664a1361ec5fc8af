"""Light message queues (LMQ) in a record's properties: which queues it belongs to, and where.

Pure functions, any thread; they know the two properties, no file and no setting. A record of an
ordinary topic that is dispatched to light queues carries

    INNER_MULTI_DISPATCH      names, separated by commas: %LMQ%a,%LMQ%b  (the sender's)
    INNER_MULTI_QUEUE_OFFSET  queue offsets in the same order: 7,0       (the log's writer's)

Every light queue has the queue id 0. Corresponds to RocketMQ's MixAll (LMQ_PREFIX, topicAllowsLMQ),
ConsumeQueue.multiDispatchLmqQueue and MultiDispatchUtils.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from store.consume_queue_files import is_safe_topic
from store.message_properties import find_property

log = logging.getLogger(__name__)

LMQ_PREFIX: Final = "%LMQ%"
LMQ_PREFIX_BYTES: Final = LMQ_PREFIX.encode()
LMQ_QUEUE_ID: Final = 0
MULTI_DISPATCH: Final = b"INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET: Final = b"INNER_MULTI_QUEUE_OFFSET"
_SEPARATOR: Final = ","
_NAME_LIMIT: Final = 127
"""Bytes; as of every topic."""
_WITHOUT_LMQ: Final = ("%RETRY%", "rmq_sys_")
_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
_JAVA_LONG: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)


def is_lmq(name: str | None) -> bool:
    """Whether a topic or a group is named as a light one."""
    return name is not None and name.startswith(LMQ_PREFIX)


def is_lmq_name(name: str) -> bool:
    """Whether a light queue can have this name: a directory name of at most 127 bytes."""
    return (
        name.startswith(LMQ_PREFIX)
        and is_safe_topic(name)
        and len(name.encode("utf-8", "replace")) <= _NAME_LIMIT
    )


def topic_allows_lmq(topic: str) -> bool:
    """Whether records of `topic` are dispatched to light queues. Those of the half topic are not:
    nobody may consume them (RocketMQ does dispatch them)."""
    return not topic.startswith(_WITHOUT_LMQ) and topic not in (_SCHEDULE_TOPIC, _HALF_TOPIC)


def split_names(text: str) -> list[str]:
    """The names in a value of INNER_MULTI_DISPATCH; empty ones at the end do not count (Java's
    String.split)."""
    names = text.split(_SEPARATOR)
    while names and not names[-1]:
        names.pop()
    return names


def lmq_places(properties: bytes) -> dict[str, int]:
    """Light queue to queue offset, as the properties of a record say.

    Of a queue that is named twice the first place counts. Names that are no light queue's are
    skipped, and so is what has another number of offsets than of names.
    """
    names_text = find_property(properties, MULTI_DISPATCH)
    offsets_text = find_property(properties, MULTI_QUEUE_OFFSET)
    if names_text is None or offsets_text is None:
        return {}
    names = split_names(str(names_text, "utf-8", "replace"))
    offsets = split_names(str(offsets_text, "utf-8", "replace"))
    if len(names) != len(offsets):
        log.error("%s light queues with %s offsets: not dispatched", len(names), len(offsets))
        return {}
    places: dict[str, int] = {}
    for name, offset in zip(names, offsets, strict=True):
        if is_lmq_name(name) and _JAVA_LONG.fullmatch(offset) and int(offset) >= 0:
            places.setdefault(name, int(offset))
    return places
