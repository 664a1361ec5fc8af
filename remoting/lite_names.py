"""LiteUtil: the light queue behind a lite topic, and the names of both.

Pure text, any thread (Java: LiteUtil). A lite topic is a name below an ordinary topic of
message.type LITE, its parent; it has no configuration. Its messages are in the parent, and in the
light queue

    %LMQ%$<parent>$<lite>      queue id 0

"$" is in no topic's name, so it separates. The broker itself checks the name of a lite topic, which
RocketMQ's leaves to its proxy (its issue 10897). Knows no topic and no queue that exists.

Tested by tests/remoting/test_lite_frames.py.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LITE_PREFIX: Final = "%LMQ%$"
LITE_TOPIC_PROPERTY: Final = "__LITE_TOPIC"
"""Of a message: the name of its lite topic."""
MOST_LITE_NAME: Final = 64
"""Bytes, as maxLiteTopicSize of a proxy by default."""
LITE_NAME_RULE: Final = (
    f"1 to {MOST_LITE_NAME} alphanumeric characters, hyphens(-), and underscores(_)"
)
_SEPARATOR: Final = "$"
_LITE_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MOST_LITE_NAME}}}", re.ASCII)


class LiteName(NamedTuple):
    """What the name of a light queue says."""

    parent: str
    lite: str


def is_lite_name(lite: str) -> bool:
    """Whether a lite topic can have this name."""
    return _LITE_NAME.fullmatch(lite) is not None


def to_lmq_name(parent: str, lite: str) -> str:
    """The light queue of a lite topic."""
    return f"{LITE_PREFIX}{parent}{_SEPARATOR}{lite}"


def is_lite_queue(name: str) -> bool:
    """Whether a light queue is one of a lite topic, by its name."""
    return name.startswith(LITE_PREFIX)


def parse_lite_queue(name: str) -> LiteName | None:
    """Parent and lite topic of a light queue; None: it is no lite topic's."""
    if not name.startswith(LITE_PREFIX):
        return None
    parts = name[len(LITE_PREFIX) :].split(_SEPARATOR)
    if len(parts) != 2 or not (parts[0] and parts[1]):
        return None
    return LiteName(*parts)
