"""Attributes of topics (5.x): parses and applies operators' changes.

Pure, any thread. A change is text like `+message.type=FIFO,-reserve.time`; a topic stores its
attributes without signs. Rules and remarks are those of AttributeParser, AttributeUtil and
TopicAttributes of RocketMQ 5.5.0. cleanup.policy (docs/compaction.md) and queue.type say how a
topic is stored, and COMPACTION with BatchCQ is refused; message.type is used by proxies, and by
pops of a topic of PRIORITY messages (docs/pop.md); lite.topic.expiration by lite topics. Groups
have attributes by the same rules (broker/subscription/group_attributes.py).

Tested by tests/broker/topic/test_topic_attributes.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from remoting.errors import RequestError
from remoting.response_code import ResponseCode

_LONG: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MAX_LONG: Final = (1 << 63) - 1
_COMPACTION: Final = ("cleanup.policy", "COMPACTION")
_BATCH: Final = ("queue.type", "BatchCQ")
_BOTH: Final = (
    "cleanup.policy=COMPACTION with queue.type=BatchCQ is not supported by this broker, which "
    "keeps the newest message of each key for simple consume queues only: omit one of the two."
)


class Attribute(NamedTuple):
    """What a name of an attribute may be given."""

    changeable: bool
    verify: Callable[[str], None]
    """Raises RequestError for a value that it cannot have."""


def one_of(*values: str) -> Callable[[str], None]:
    """An enum. values: in the order in which Java prints its set."""

    def verify(value: str) -> None:
        if value not in values:
            raise _error(f"value is not in set: [{', '.join(values)}]")

    return verify


def number_in(least: int, most: int = _MAX_LONG) -> Callable[[str], None]:
    """A long in a range, both ends included."""

    def verify(value: str) -> None:
        number = int(value) if _LONG.fullmatch(value) and len(value) <= 20 else None
        if number is None or not -_MAX_LONG - 1 <= number <= _MAX_LONG:
            raise _error(f'For input string: "{value}"')
        if not least <= number <= most:
            raise _error(f"value is not in range({least}, {most})")

    return verify


_PRIORITY: Final = "PRIORITY"
_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "message.type": Attribute(
        True,
        one_of("UNSPECIFIED", "MIXED", "TRANSACTION", _PRIORITY, "FIFO", "DELAY", "LITE", "NORMAL"),
    ),
    "cleanup.policy": Attribute(False, one_of("DELETE", "COMPACTION")),
    "queue.type": Attribute(False, one_of("SimpleCQ", "BatchCQ")),
    "reserve.time": Attribute(True, number_in(-1)),
    "lite.topic.expiration": Attribute(True, number_in(-1, 30 * 24 * 60)),
}


def parse_changes(text: str | None) -> dict[str, str]:
    """Parse the changes of a request: signed name to value. Raises RequestError."""
    changes: dict[str, str] = {}
    parts = (text or "").rstrip(",")
    for part in parts.split(",") if parts else ():
        name, equals, value = part.partition("=")
        value = value.partition("=")[0]
        if equals and "+" not in name:
            raise _error(f"add/alter attribute format is wrong: {name}")
        if equals and not value:
            raise _error(
                f"attribute {name} has no value; write {name}=value, or -name to remove it"
            )
        if not equals and "-" not in name:
            raise _error(f"delete attribute format is wrong: {name}")
        if name in changes:
            raise _error(f"key duplication: {name}")
        changes[name] = value
    return changes


def check_message_type(changes: Mapping[str, str] | None, *, enable_mixed: bool) -> None:
    """Raises RequestError for a topic of MIXED messages where these are not enabled
    (enableMixedMessageType)."""
    if not enable_mixed and (changes or {}).get("+message.type") == "MIXED":
        raise RequestError(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")


def altered(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    known: Mapping[str, Attribute] = _ATTRIBUTES,
) -> dict[str, str]:
    """The attributes after `changes`. current: None for a new topic or group.

    Raises RequestError for changes that are invalid or not supported here.
    """
    result = dict(current or {})
    seen: set[str] = set()
    for signed in changes:
        name = signed[1:]
        if not name or "+" in name or "-" in name:
            raise _error("kv string format wrong.")
        if name in seen:
            raise _error(f"alter duplication key. key: {name}")
        seen.add(name)
        _check_sign(signed, current)
    for signed, value in changes.items():
        _alter(result, signed, value, known, is_new=current is None)
    if current is None and unsupported(result):
        raise RequestError(ResponseCode.INVALID_PARAMETER, _BOTH)
    return result


def _check_sign(signed: str, current: Mapping[str, str] | None) -> None:
    sign, name = signed[0], signed[1:]
    if current is None and sign != "+":
        raise _error(f"only add attribute is supported while creating topic. key: {name}")
    if sign not in "+-":
        raise _error(f"wrong format key: {name}")
    if current is not None and sign == "-" and name not in current:
        raise _error(f"attempt to delete a nonexistent key: {name}")


def _alter(
    result: dict[str, str],
    signed: str,
    value: str,
    known: Mapping[str, Attribute],
    *,
    is_new: bool,
) -> None:
    name = signed[1:]
    attribute = known.get(name)
    if attribute is None:
        raise _error(f"unsupported key: {name}")
    if not is_new and not attribute.changeable:
        raise _error(f"attempt to update an unchangeable attribute. key: {name}")
    if signed.startswith("-"):
        del result[name]
        return
    attribute.verify(value)
    result[name] = value


def is_compaction(attributes: Mapping[str, str] | None) -> bool:
    """Whether a topic keeps the newest message of each key (cleanup.policy=COMPACTION), which one
    with batch consume queues never does."""
    return attributes is not None and _is(attributes, _COMPACTION) and not _is(attributes, _BATCH)


def has_priorities(attributes: Mapping[str, str] | None) -> bool:
    """Whether a topic is one of PRIORITY messages."""
    return attributes is not None and attributes.get("message.type") == _PRIORITY


def unsupported(attributes: Mapping[str, str] | None) -> list[str]:
    """The attributes of another broker's topic that are not supported here."""
    if attributes is None or not (_is(attributes, _COMPACTION) and _is(attributes, _BATCH)):
        return []
    return ["=".join(_COMPACTION)]


def _is(attributes: Mapping[str, str], pair: tuple[str, str]) -> bool:
    return attributes.get(pair[0]) == pair[1]


def _error(remark: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)
