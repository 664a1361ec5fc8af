"""The rule for names of topics and groups, as RocketMQ's brokers and clients have it.

Pure checks, any thread; the only place that knows the rule (Java: TopicValidator of 5.5). It
holds wherever a request can create or write a name. Names that are there already (a table that a
Java broker wrote, the master's table on a slave) are read as they are: whether one of them can be
a directory is the store's to say. Knows no table and no request code.

    topic   ^[%|a-zA-Z0-9_-]+$, at most 127 characters; 255 of a retry or dead-letter topic
    group   ^[%|a-zA-Z0-9_-]+$, at most 120: with its prefix it is the name of a topic

Only pop's retry topics, which the broker makes, may have one "+" (with V2 names).

Tested by tests/remoting/test_resource_names.py.
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
RETRY_TOPIC_MAX_LENGTH: Final = 255
"""Characters of a retry or dead-letter topic; records of one with more than 127 have the version 2
of RocketMQ 5.x."""
GROUP_MAX_LENGTH: Final = 120
"""Characters."""
LEGAL_CHARACTERS: Final = "^[%|a-zA-Z0-9_-]+$"

_LONG_PREFIXES: Final = ("%RETRY%", "%DLQ%")
_SHOWN: Final = 300
"""Characters shown of an illegal name."""
_ILLEGAL: Final = f"contains illegal characters, allowing only {LEGAL_CHARACTERS}"
_matches: Final = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch


def is_legal_topic(topic: str, retry_limit: int = RETRY_TOPIC_MAX_LENGTH) -> bool:
    """Whether a topic of this name may be created. retry_limit: characters of a retry or
    dead-letter topic that the settings allow."""
    return len(topic) <= _limit_of(topic, retry_limit) and _matches(topic) is not None


def is_legal_pop_retry_topic(topic: str, retry_limit: int = RETRY_TOPIC_MAX_LENGTH) -> bool:
    """Whether the broker may make a pop retry topic of this name (key_builder.py). retry_limit: as
    of is_legal_topic."""
    return len(topic) <= retry_limit and _is_pop_retry_name(topic)


@lru_cache(maxsize=1024)
def _is_pop_retry_name(topic: str) -> bool:
    """Kept, as every pop asks; only short names come here."""
    return topic.startswith("%RETRY%") and _matches(topic.replace("+", "_", 1)) is not None


def is_legal_group(group: str) -> bool:
    """Whether a group of this name may be created."""
    return len(group) <= GROUP_MAX_LENGTH and _matches(group) is not None


def validate_topic(topic: str, retry_limit: int = RETRY_TOPIC_MAX_LENGTH) -> None:
    """Raises RequestError(SYSTEM_ERROR, as 4.9) for an invalid topic name, with 5.5's remark."""
    if not topic.strip():
        remark = "The specified topic is blank."
    elif not _matches(topic):
        remark = f"The specified topic: {_shown(topic)}, {_ILLEGAL}"
    elif len(topic) <= (limit := _limit_of(topic, retry_limit)):
        return
    elif topic.startswith(_LONG_PREFIXES):
        remark = (
            f"The specified topic is DLQ or Retry topic: {_shown(topic)}, and it's longer than "
            f"topic max length: {limit}"
        )
    else:
        remark = f"The specified topic: {_shown(topic)}, is longer than topic max length: {limit}"
    raise RequestError(ResponseCode.SYSTEM_ERROR, remark)


def validate_group(group: str) -> None:
    """Raises RequestError(INVALID_PARAMETER) for an invalid group name, with 5.5's remark."""
    if not group.strip():
        remark = "The specified group is blank."
    elif not _matches(group):
        remark = f"The specified group: {_shown(group)}, {_ILLEGAL}"
    elif len(group) > GROUP_MAX_LENGTH:
        remark = (
            f"The specified group: {_shown(group)}, is longer than group max length: "
            f"{GROUP_MAX_LENGTH}"
        )
    else:
        return
    raise RequestError(ResponseCode.INVALID_PARAMETER, remark)


def _limit_of(topic: str, retry_limit: int) -> int:
    return retry_limit if topic.startswith(_LONG_PREFIXES) else TOPIC_MAX_LENGTH


def _shown(name: str) -> str:
    """A refused name in an answer and in the log: one that prints as it is, up to a length."""
    return (name if name.isprintable() else ascii(name)[1:-1])[:_SHOWN]
