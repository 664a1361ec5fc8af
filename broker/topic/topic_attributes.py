"""Attributes of topics (5.x): what operators may write, and what a topic's attributes become.

Pure, any thread. A change is text like `+message.type=FIFO,-reserve.time`; a topic has its
attributes without signs. Rules and words are those of AttributeParser, AttributeUtil and
TopicAttributes of RocketMQ 5.3.3. Two of its values are refused: they say what a store does with a
topic's messages, and this one does not do it. Nothing here acts on an attribute; message.type is
looked at by proxies only, there as here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from remoting.errors import RequestError
from remoting.response_code import ResponseCode

_LONG: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MAX_LONG: Final = (1 << 63) - 1
_NOT_SUPPORTED: Final = {
    ("message.type", "MIXED"): "MIXED message type is not supported.",
    ("cleanup.policy", "COMPACTION"): (
        "COMPACTION cleanup policy is not supported by this broker, which only deletes what has "
        "expired: leave cleanup.policy out or set it to DELETE."
    ),
    ("queue.type", "BatchCQ"): (
        "BatchCQ queue type is not supported by this broker, whose consume queues are simple: "
        "leave queue.type out or set it to SimpleCQ."
    ),
}


class _Attribute(NamedTuple):
    changeable: bool
    verify: Callable[[str], None]


def _one_of(*values: str) -> Callable[[str], None]:
    """values: in the order in which Java prints its set."""

    def verify(value: str) -> None:
        if value not in values:
            raise _error(f"value is not in set: [{', '.join(values)}]")

    return verify


def _number_from(least: int) -> Callable[[str], None]:
    def verify(value: str) -> None:
        number = int(value) if _LONG.fullmatch(value) and len(value) <= 20 else None
        if number is None or not -_MAX_LONG - 1 <= number <= _MAX_LONG:
            raise _error(f'For input string: "{value}"')
        if number < least:
            raise _error(f"value is not in range({least}, {_MAX_LONG})")

    return verify


_ATTRIBUTES: Final[Mapping[str, _Attribute]] = {
    "message.type": _Attribute(
        True, _one_of("UNSPECIFIED", "TRANSACTION", "FIFO", "MIXED", "DELAY", "NORMAL")
    ),
    "cleanup.policy": _Attribute(False, _one_of("DELETE", "COMPACTION")),
    "queue.type": _Attribute(False, _one_of("SimpleCQ", "BatchCQ")),
    "reserve.time": _Attribute(True, _number_from(-1)),
}


def parse_changes(text: str | None) -> dict[str, str]:
    """The changes of a request, name with its sign to value. Raises RequestError."""
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


def altered(current: Mapping[str, str] | None, changes: Mapping[str, str]) -> dict[str, str]:
    """The attributes after `changes`. current: None for a topic that is to be created.

    Raises RequestError for changes that are against the rules or not supported here.
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
        _alter(result, signed, value, is_new=current is None)
    return result


def _check_sign(signed: str, current: Mapping[str, str] | None) -> None:
    sign, name = signed[0], signed[1:]
    if current is None and sign != "+":
        raise _error(f"only add attribute is supported while creating topic. key: {name}")
    if sign not in "+-":
        raise _error(f"wrong format key: {name}")
    if current is not None and sign == "-" and name not in current:
        raise _error(f"attempt to delete a nonexistent key: {name}")


def _alter(result: dict[str, str], signed: str, value: str, *, is_new: bool) -> None:
    name = signed[1:]
    attribute = _ATTRIBUTES.get(name)
    if attribute is None:
        raise _error(f"unsupported key: {name}")
    if not is_new and not attribute.changeable:
        raise _error(f"attempt to update an unchangeable attribute. key: {name}")
    if signed.startswith("-"):
        del result[name]
        return
    attribute.verify(value)
    refusal = _NOT_SUPPORTED.get((name, value))
    if refusal is not None:
        raise RequestError(ResponseCode.INVALID_PARAMETER, refusal)
    result[name] = value


def unsupported(attributes: Mapping[str, str] | None) -> list[str]:
    """What a topic of another broker's table asks for and does not get here."""
    pairs = (attributes or {}).items()
    return [f"{name}={value}" for name, value in pairs if (name, value) in _NOT_SUPPORTED]


def _error(remark: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)
