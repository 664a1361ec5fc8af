"""The rule for names of topics and groups, as RocketMQ's brokers and clients have it.

Pure checks, any thread; the only place that knows the rule (Java: TopicValidator, Validators). It
holds wherever a request can create or write a name. Names that are there already (a table that a
Java broker wrote, the master's table on a slave) are read as they are: whether one of them can be
a directory is the store's to say. Knows no table and no request code.

    topic   ^[%|a-zA-Z0-9_-]+$, at most 127 characters
    group   ^[%|a-zA-Z0-9_-]+$, at most 255; with more than 120 its retry topic is too long

Only pop's retry topics, which the broker makes, may be longer (255), or have one "+" (with V2
names).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from remoting.errors import RequestError
from remoting.response_code import ResponseCode

TOPIC_MAX_LENGTH: Final = 127
"""Characters; limited by the length of a consume queue path and the one-byte topic length of a
record."""
POP_RETRY_TOPIC_MAX_LENGTH: Final = 255
"""Characters; their records have the version 2 of RocketMQ 5.x."""
GROUP_MAX_LENGTH: Final = 255
"""Characters."""
LEGAL_CHARACTERS: Final = "^[%|a-zA-Z0-9_-]+$"

_SHOWN: Final = 60
"""Characters shown of an illegal name."""
_matches: Final = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch


def is_legal_topic(topic: str) -> bool:
    """Whether a topic of this name may be created."""
    return len(topic) <= TOPIC_MAX_LENGTH and _matches(topic) is not None


def is_legal_pop_retry_topic(topic: str, most: int = POP_RETRY_TOPIC_MAX_LENGTH) -> bool:
    """Whether the broker may make a pop retry topic of this name (key_builder.py). most: the limit
    of its settings, in characters."""
    return len(topic) <= most and _is_pop_retry_name(topic)


@lru_cache(maxsize=1024)
def _is_pop_retry_name(topic: str) -> bool:
    """Kept, as every pop asks; only short names come here."""
    return topic.startswith("%RETRY%") and _matches(topic.replace("+", "_", 1)) is not None


def is_legal_group(group: str) -> bool:
    """Whether a group of this name may be created."""
    return len(group) <= GROUP_MAX_LENGTH and _matches(group) is not None


def validate_topic(topic: str) -> None:
    """Raises RequestError(SYSTEM_ERROR) for an invalid topic name, with RocketMQ's remark."""
    if not topic.strip():
        remark = "The specified topic is blank."
    elif not _matches(topic):
        remark = (
            f"The specified topic contains illegal characters, allowing only {LEGAL_CHARACTERS}"
        )
    elif len(topic) > TOPIC_MAX_LENGTH:
        remark = "The specified topic is longer than topic max length."
    else:
        return
    raise RequestError(ResponseCode.SYSTEM_ERROR, remark)


def validate_group(group: str) -> None:
    """Raises RequestError(SYSTEM_ERROR) for an invalid group name, with the remark of RocketMQ's
    clients (its brokers do not look)."""
    if not group.strip():
        remark = "the specified group is blank"
    elif len(group) > GROUP_MAX_LENGTH:
        remark = "the specified group is longer than group max length 255."
    elif not _matches(group):
        remark = (
            f"the specified group[{group[:_SHOWN]!a}] contains illegal characters, allowing only "
            f"{LEGAL_CHARACTERS}"
        )
    else:
        return
    raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
