"""Attributes of consumer groups (5.5): the table of their names, and how the broker reads them.

Pure, any thread. Names, ranges and defaults are those of RocketMQ's SubscriptionGroupAttributes;
how a change is written and refused is the topics' (broker/topic/topic_attributes.py). Values that
are stored may be anything, since a Java broker or a newer version may have written them: a reader
takes the default for one that it cannot read.

Tested by tests/broker/subscription/test_group_attributes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.topic.topic_attributes import Attribute, altered, number_in, one_of
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

Attributes = Mapping[str, str] | None

PRIORITY_FACTOR: Final = "priority.factor"
LITE_BIND_TOPIC: Final = "lite.bind.topic"
LITE_SUB_MODEL: Final = "lite.sub.model"
LITE_RESET_EXCLUSIVE: Final = "lite.sub.reset.offset.exclusive"
LITE_RESET_UNSUBSCRIBE: Final = "lite.sub.reset.offset.unsubscribe"
LITE_CLIENT_QUOTA: Final = "lite.sub.client.quota"
LITE_CLIENT_MAX_EVENTS: Final = "lite.sub.client.max.event.cnt"
LITE_WILDCARD: Final = "lite.sub.wildcard"

MOST_PRIORITY_FACTOR: Final = 100
DEFAULT_LITE_CLIENT_QUOTA: Final = 2000
_EXCLUSIVE: Final = "Exclusive"


def _boolean(value: str) -> None:
    if value.lower() not in ("true", "false"):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "boolean attribute format is wrong.")


def _text(_value: str) -> None:
    """Anything."""


_NUMBERS: Final[Mapping[str, Callable[[str], None]]] = {
    PRIORITY_FACTOR: number_in(0, MOST_PRIORITY_FACTOR),
    LITE_CLIENT_QUOTA: number_in(-1),
    LITE_CLIENT_MAX_EVENTS: number_in(10),
}
_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    **{name: Attribute(True, verify) for name, verify in _NUMBERS.items()},
    LITE_BIND_TOPIC: Attribute(True, _text),
    LITE_SUB_MODEL: Attribute(True, one_of("Shared", _EXCLUSIVE)),
    LITE_RESET_EXCLUSIVE: Attribute(True, _boolean),
    LITE_RESET_UNSUBSCRIBE: Attribute(True, _boolean),
    LITE_WILDCARD: Attribute(True, _text),
}


def altered_of_group(current: Attributes, changes: Mapping[str, str]) -> dict[str, str]:
    """The attributes after `changes`, by sign and name. current: None for a new group.

    Raises RequestError for changes that are invalid or not supported here.
    """
    return altered(current, changes, _ATTRIBUTES)


def priority_factor(attributes: Attributes) -> int:
    """Of 100 pops of a topic of PRIORITY messages, those that begin with its highest queue."""
    factor = _number(attributes, PRIORITY_FACTOR)
    return MOST_PRIORITY_FACTOR if factor is None else factor


def lite_bind_topic(attributes: Attributes) -> str | None:
    """The parent of the lite topics that a lite group reads; None: it is no lite group."""
    return (attributes or {}).get(LITE_BIND_TOPIC) or None


def is_lite_exclusive(attributes: Attributes) -> bool:
    """Whether a lite topic has one client of the group at a time, the newest."""
    return (attributes or {}).get(LITE_SUB_MODEL) == _EXCLUSIVE


def resets_exclusive(attributes: Attributes) -> bool:
    """Whether the client that takes over a lite topic begins with its first message."""
    return _is_true(attributes, LITE_RESET_EXCLUSIVE)


def resets_unsubscribed(attributes: Attributes) -> bool:
    """Whether a lite topic that was unsubscribed is read from its first message again."""
    return _is_true(attributes, LITE_RESET_UNSUBSCRIBE)


def lite_client_quota(attributes: Attributes) -> int:
    """Lite topics that a client may subscribe to; -1: any number."""
    quota = _number(attributes, LITE_CLIENT_QUOTA)
    return DEFAULT_LITE_CLIENT_QUOTA if quota is None else quota


def lite_client_max_events(attributes: Attributes) -> int | None:
    """Events that are kept for a client; None: as the broker's maxClientEventCount says (not the
    attribute's default of 400, as in RocketMQ)."""
    return _number(attributes, LITE_CLIENT_MAX_EVENTS)


def is_wildcard(attributes: Attributes) -> bool:
    """Whether a lite group gets every lite topic of its parent, whatever the value says."""
    return LITE_WILDCARD in (attributes or {})


def _number(attributes: Attributes, name: str) -> int | None:
    """None: not there, or nothing that it could have been given."""
    value = (attributes or {}).get(name)
    if value is None:
        return None
    try:
        _NUMBERS[name](value)
    except RequestError:
        return None
    return int(value)


def _is_true(attributes: Attributes, name: str) -> bool:
    return (attributes or {}).get(name, "").lower() == "true"
