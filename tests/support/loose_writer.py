"""Writes a body as a careless peer might: other types, spellings and syntax, the same meaning.

Seeded: the same random.Random gives the same text. The rules are fastjson's, see loose_bodies.py;
tests/interop/test_loose_bodies.py lets the real fastjson read what this module writes.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping
from enum import StrEnum
from random import Random
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import camel_case
from remoting.remoting_serializable import IntKeyMap, JavaDouble, ObjectKeyMap

ENUMS: Final[Mapping[str, tuple[str, ...]]] = {
    "ConsumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY"),
    "MessageModel": ("BROADCASTING", "CLUSTERING"),
    "ConsumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
    "TopicFilterType": ("SINGLE_TAG", "MULTI_TAG"),
    "CMResult": (
        "CR_SUCCESS",
        "CR_LATER",
        "CR_ROLLBACK",
        "CR_COMMIT",
        "CR_THROW_EXCEPTION",
        "CR_RETURN_NULL",
    ),
}
"""In the order of RocketMQ's Java source."""

_BLANKS: Final = ("", "", "", " ", "\n\t")
_FILLERS: Final = (*_BLANKS, "/* x:{ */", "// ]\n")
_UNKNOWN: Final = ('"unknown":{"a":[1,{b:null}]}', "unknown:'x'", "unknown_5x:-1.5")
_BARE_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_WORDS: Final = frozenset(("true", "false", "null", "undefined", "NaN"))
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,15}")


class LooseWriter:
    """One text at a time. Owned by: its caller."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def write(self, bean: JsonBean) -> bytes:
        """The whole body, with or without a byte order mark."""
        text = self._bean(bean.to_json(), type(bean))
        return (self._one_of(("", "", "\ufeff")) + text + self._filler()).encode()

    # -- values --------------------------------------------------------------------------------

    def _value(self, value: Any, hint: Any) -> str:
        if isinstance(value, bool):
            return self._one_of(_spellings_of_boolean(value))
        if isinstance(value, JavaDouble):
            return self._one_of((repr(value.value), f'"{value.value!r}"'))
        if isinstance(value, int):
            return self._one_of((str(value), f'"{value}"', f"'{value}'", f"{value}.0"))
        if isinstance(value, StrEnum):
            return self._enum(value)
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, list):
            return self._list(value, get_args(hint)[0])
        return self._map(value, hint)

    def _enum(self, value: StrEnum) -> str:
        names = ENUMS[type(value).__name__]
        spellings = (f'"{value}"', f"'{value.lower()}'")
        if value in names:
            spellings += (str(names.index(value)),)
        return self._one_of(spellings)

    def _string(self, value: str) -> str:
        spellings = [json.dumps(value), json.dumps(value, ensure_ascii=False), _single(value)]
        if _DECIMAL.fullmatch(value):
            spellings.append(value)
        return self._one_of(spellings)

    def _list(self, items: list[Any], hint: Any) -> str:
        parts = [self._value(item, hint) for item in items]
        return self._between("[", parts, "]")

    def _map(self, value: Any, hint: Any) -> str:
        if isinstance(hint, type) and issubclass(hint, JsonBean):
            return self._bean(value, hint)
        key_hint, value_hint = get_args(hint)
        if isinstance(value, ObjectKeyMap):
            pairs = [(self._object_key(key, key_hint), item) for key, item in value.items]
        elif isinstance(value, IntKeyMap):
            pairs = [
                (self._one_of((f"{key}", f'"{key}"')), item) for key, item in value.items.items()
            ]
        else:
            pairs = [(self._name(key), item) for key, item in value.items()]
        return self._between(
            "{", [self._pair(k, self._value(v, value_hint)) for k, v in pairs], "}"
        )

    def _object_key(self, key: Mapping[str, Any], hint: type[JsonBean]) -> str:
        text = self._bean(key, hint)
        return self._one_of((text, json.dumps(text)))

    # -- objects -------------------------------------------------------------------------------

    def _bean(self, tree: Mapping[str, Any], cls: type[JsonBean]) -> str:
        hints = member_hints(cls)
        parts = [
            self._pair(self._respelled(name, hints[name]), self._value(value, hints[name]))
            for name, value in tree.items()
            if not self._left_out(cls, name, value)
        ]
        if self._random.random() < 0.3:
            parts.append(self._one_of(_UNKNOWN))
        self._random.shuffle(parts)
        return self._between("{", parts, "}")

    def _left_out(self, cls: type[JsonBean], name: str, value: Any) -> bool:
        """Numbers and booleans that are Java's initial value need not be written."""
        simple = isinstance(value, bool | int) and not isinstance(value, StrEnum)
        return simple and JAVA_DEFAULTS.get((cls.__name__, name), 0) == value and self._flip()

    def _respelled(self, name: str, hint: Any) -> str:
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
        names = [
            name,
            name,
            name,
            name.lower(),
            snake.lower(),
            snake.upper(),
            snake.replace("_", "-"),
        ]
        if hint is bool:
            names.append("is" + name[0].upper() + name[1:])
        return self._name(self._one_of(names))

    def _name(self, name: str) -> str:
        spellings = [json.dumps(name, ensure_ascii=False), json.dumps(name), _single(name)]
        if _BARE_NAME.fullmatch(name) and name not in _WORDS:
            spellings.append(name)
        return self._one_of(spellings)

    # -- syntax --------------------------------------------------------------------------------

    def _pair(self, name: str, value: str) -> str:
        # Java takes no comment in front of a colon.
        return f"{name}{self._one_of(_BLANKS)}:{self._filler()}{value}"

    def _between(self, opening: str, parts: list[str], closing: str) -> str:
        """`parts` with commas, superfluous ones at the end too."""
        text = f",{self._filler()}".join(parts)
        if parts and self._random.random() < 0.3:
            text += ","
        return f"{opening}{self._filler()}{text}{self._filler()}{closing}"

    def _filler(self) -> str:
        return self._one_of(_FILLERS)

    def _flip(self) -> bool:
        return self._random.random() < 0.5

    def _one_of(self, choices: Any) -> str:
        return str(self._random.choice(choices))


JAVA_DEFAULTS: Final[Mapping[tuple[str, str], int]] = {
    ("TopicConfig", "perm"): 6,
    ("TopicConfig", "readQueueNums"): 16,
    ("TopicConfig", "writeQueueNums"): 16,
    ("SubscriptionGroupConfig", "consumeEnable"): True,
    ("SubscriptionGroupConfig", "consumeFromMinEnable"): True,
    ("SubscriptionGroupConfig", "consumeBroadcastEnable"): True,
    ("SubscriptionGroupConfig", "notifyConsumerIdsChangedEnable"): True,
    ("SubscriptionGroupConfig", "retryQueueNums"): 1,
    ("SubscriptionGroupConfig", "retryMaxTimes"): 16,
    ("SubscriptionGroupConfig", "whichBrokerWhenConsumeSlowly"): 1,
    ("ConsumeMessageDirectlyResult", "autoCommit"): True,
    # The time of creation: leaving it out changes the meaning.
    ("SubscriptionData", "subVersion"): -1,
    ("DataVersion", "timestamp"): -1,
}
"""Initial values of RocketMQ's Java classes other than 0 and false."""


def member_hints(cls: type[JsonBean]) -> dict[str, Any]:
    """Annotation, without None, by wire name."""
    found = {}
    for attribute, hint in get_type_hints(cls).items():
        if get_origin(hint) in (Union, types.UnionType):
            hint = next(arg for arg in get_args(hint) if arg is not types.NoneType)
        found[cls.WIRE_NAMES.get(attribute, camel_case(attribute))] = hint
    return found


def _spellings_of_boolean(value: bool) -> tuple[str, ...]:
    if value:
        return ("true", '"true"', '"TRUE"', "1", '"1"', '"Y"', "'T'")
    return ("false", '"false"', '"False"', "0", '"0"', '"N"', "'F'")


def _single(text: str) -> str:
    """In single quotes."""
    quoted = json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"'{quoted}'"
