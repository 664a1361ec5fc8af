"""Dataclasses to Java-shaped JSON and back, by their annotations. Sans I/O, any thread.

A body is a frozen dataclass derived from JsonBean. The attribute `queue_id` is the member
`queueId`; WIRE_NAMES lists exceptions. Writing: members in alphabetical order, None is omitted,
dict[Int32 or Int64, ...] has bare keys, dict[MessageQueue, ...] has object keys, floats are
formatted as Java's doubles. Reading is as lenient as in Java: unknown members are ignored,
alternative spellings of names are accepted (group_name), values of other types are cast
(remoting/java_casts.py). A member that is missing, null or has no value after its cast gets the
default; a field without default is required. Knows no particular body.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, Self, Union, get_args, get_origin
from typing import get_type_hints as type_hints

from remoting.command_custom_header import Int32, Int64, camel_case
from remoting.errors import BodyError
from remoting.java_casts import cast_bool, cast_enum, cast_float, cast_int, cast_string
from remoting.remoting_serializable import (
    MOST_TOKENS_OF_A_REQUEST,
    IntKeyMap,
    JavaDouble,
    JsonError,
    ObjectKeyMap,
    dumps_java,
    dumps_java_pretty,
    loads_body,
)

_Reader = Callable[[Any], Any]
"""Converts the value of a member that is not null; None means as if it were missing."""
_Writer = Callable[[Any], Any] | None


class _Member(NamedTuple):
    attribute: str
    wire_name: str
    read: _Reader
    write: _Writer
    required: bool


class _Plan(NamedTuple):
    members: tuple[_Member, ...]
    """Members in alphabetical order of their wire names."""
    names: frozenset[str]
    folded_names: Mapping[str, str]
    """Wire name by folded name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JsonBean:
    """Base of every body and of the objects inside."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {}
    """Wire name by attribute, if it is not the camelCase form of the attribute."""

    def to_json(self) -> dict[str, Any]:
        """The tree for the writers of remoting_serializable."""
        result: dict[str, Any] = {}
        for attribute, wire_name, _, write, _ in _plan(type(self)).members:
            value = getattr(self, attribute)
            if value is not None:
                result[wire_name] = value if write is None else write(value)
        return result

    def to_json_bytes(self) -> bytes:
        """The compact form, as Java puts it on the wire."""
        return dumps_java(self.to_json())

    def to_pretty_json_bytes(self) -> bytes:
        """The form of config/*.json."""
        return dumps_java_pretty(self.to_json())

    @classmethod
    def from_json(cls, tree: Any) -> Self:
        """Build from parsed JSON. Raises ValueError naming the invalid member."""
        if not isinstance(tree, dict):
            raise ValueError(f"a {type(tree).__name__} where a {cls.__name__} was expected")
        plan = _plan(cls)
        if not tree.keys() <= plan.names:
            tree = _with_wire_names(tree, plan)
        values: dict[str, Any] = {}
        for attribute, wire_name, read, _, required in plan.members:
            value = tree.get(wire_name)
            try:
                value = None if value is None else read(value)
            except ValueError as error:
                raise ValueError(f"{wire_name}: {error}") from error
            if value is not None:
                values[attribute] = value
            elif required:
                raise ValueError(f"{wire_name} is missing")
        return cls(**values)

    @classmethod
    def from_request(cls, data: bytes | memoryview) -> Self:
        """The body of a request: as from_json_bytes, but members are bounded, and what is no strict
        JSON. Raises BodyError."""
        if (found := bytes(data).count(b":")) > _MOST_COLONS:
            raise BodyError(cls.__name__, f"{found} members, the limit is {_MOST_COLONS}; split it")
        return cls.from_json_bytes(data, MOST_TOKENS_OF_A_REQUEST)

    @classmethod
    def from_json_bytes(cls, data: bytes | memoryview, most_tokens: int | None = None) -> Self:
        """Parse a body. most_tokens: see loads_body. Raises BodyError naming the class, and the
        member or the character that is invalid.
        """
        try:
            return cls.from_json(loads_body(data, most_tokens))
        except JsonError as error:
            raise BodyError(cls.__name__, f"invalid JSON in {len(data)} bytes: {error}") from error
        except ValueError as error:
            raise BodyError(cls.__name__, str(error)) from error


_MOST_COLONS: Final = 100_000
"""Of a request, within texts included: a dictionary of more members than a processor's cache holds
costs more for each of them."""
_NAME_END: Final = "\0"
"""No known name has it."""
_plans: Final[dict[type[JsonBean], _Plan]] = {}
"""Cached on first use; two threads that build the same plan build equal ones."""


def _plan(cls: type[JsonBean]) -> _Plan:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _make_plan(cls)
    return plan


def _make_plan(cls: type[JsonBean]) -> _Plan:
    hints = type_hints(cls, include_extras=True)
    members = []
    folded_names = {}
    for field in dataclasses.fields(cls):
        hint = _without_none(hints[field.name])
        wire_name = cls.WIRE_NAMES.get(field.name, camel_case(field.name))
        missing = dataclasses.MISSING
        members.append(
            _Member(
                field.name,
                wire_name,
                _reader(hint),
                _writer(hint),
                field.default is missing and field.default_factory is missing,
            )
        )
        folded_names[_fold(wire_name)] = wire_name
        if hint is bool:
            folded_names["is" + _fold(wire_name)] = wire_name
    members.sort(key=attrgetter("wire_name"))
    return _Plan(tuple(members), frozenset(each.wire_name for each in members), folded_names)


def _fold(name: str) -> str:
    """The form that fastjson compares if no member has the exact name: group_name is groupName."""
    return name.lower().replace("_", "").replace("-", "")


def _with_wire_names(tree: dict[str, Any], plan: _Plan) -> dict[str, Any]:
    """The known members of `tree` under their own names; an exact name takes precedence.

    All names are folded together: a request may bring 100,000 that nobody knows.
    """
    names = [*tree]
    folded = _fold(_NAME_END.join(names)).split(_NAME_END)
    if len(folded) > len(names):
        names = [name for name in names if _NAME_END not in name]
        folded = _fold(_NAME_END.join(names)).split(_NAME_END)
    renamed: dict[str, Any] = {}
    if not plan.folded_names.keys().isdisjoint(folded):
        for name, folded_name in zip(names, folded, strict=False):
            wire_name = plan.folded_names.get(folded_name)
            if wire_name is not None:
                renamed.setdefault(wire_name, tree[name])
    for wire_name in plan.names & tree.keys():
        renamed[wire_name] = tree[wire_name]
    return renamed


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        return next(arg for arg in get_args(hint) if arg is not types.NoneType)
    return hint


def _reader(hint: Any) -> _Reader:
    if hint in _SIMPLE_READERS:
        return _SIMPLE_READERS[hint]
    origin = get_origin(hint)
    if origin is list:
        return _list_reader(_reader(get_args(hint)[0]))
    if origin is dict:
        key_hint, value_hint = get_args(hint)
        return _dict_reader(_key_reader(key_hint), _reader(value_hint))
    if issubclass(hint, StrEnum):
        return _enum_reader(hint)
    if issubclass(hint, JsonBean):
        return _bean_reader(hint)
    raise TypeError(f"no JSON form for {hint}")


def _writer(hint: Any) -> _Writer:
    """The converter of a value that is not None; None if it is used unchanged."""
    if hint is float:
        return JavaDouble
    origin = get_origin(hint)
    if origin is list:
        write = _writer(get_args(hint)[0])
        return None if write is None else lambda items: [write(item) for item in items]
    if origin is dict:
        return _dict_writer(*get_args(hint))
    if isinstance(hint, type) and issubclass(hint, JsonBean):
        return hint.to_json
    return None


def _dict_writer(key_hint: Any, value_hint: Any) -> _Writer:
    write = _writer(value_hint) or _as_it_is
    if key_hint in (Int32, Int64):
        return lambda items: IntKeyMap({key: write(value) for key, value in items.items()})
    if isinstance(key_hint, type) and issubclass(key_hint, JsonBean):
        return lambda items: ObjectKeyMap(
            [(key.to_json(), write(value)) for key, value in items.items()]
        )
    return lambda items: {key: write(value) for key, value in items.items()}


def _as_it_is(value: Any) -> Any:
    return value


def _key_reader(hint: Any) -> Callable[[str], Any]:
    if hint is str:
        return _as_it_is
    if hint in (Int32, Int64):
        return _SIMPLE_READERS[hint]

    def read_object_key(key: str) -> Any:
        return None if not key else hint.from_json(loads_body(key.encode()))

    return read_object_key


def _bean_reader(cls: type[JsonBean]) -> _Reader:
    def read_bean(value: Any) -> JsonBean | None:
        # Java reads nothing from an empty text and from an empty list.
        return None if value in ("", []) else cls.from_json(value)

    return read_bean


def _list_reader(read: _Reader) -> _Reader:
    """A value that is not a list becomes its only item, as Java does for most lists."""

    def read_list(value: Any) -> list[Any] | None:
        if value == "":
            return None
        items = value if isinstance(value, list) else [value]
        found = (read(item) for item in items if item is not None)
        return [item for item in found if item is not None]

    return read_list


def _dict_reader(read_key: Callable[[str], Any], read: _Reader) -> _Reader:
    def read_dict(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"a {type(value).__name__} where a map was expected")
        result: dict[Any, Any] = {}
        for key, item in value.items():
            if item is None:
                continue
            try:
                read_name, found = read_key(key), read(item)
            except ValueError as error:
                raise ValueError(f"{key:.80}: {error}") from error
            if read_name is not None and found is not None:
                result[read_name] = found
        return result

    return read_dict


def _enum_reader(enum: type[StrEnum]) -> _Reader:
    """A StrEnum has Java's order, so that an ordinal has the same meaning."""
    names = tuple(member.value for member in enum)

    def read_enum(value: Any) -> StrEnum | None:
        name = cast_enum(value, names)
        return None if name is None else enum(name)

    return read_enum


def _read_int32(value: Any) -> int | None:
    return cast_int(value, 2**31)


def _read_int64(value: Any) -> int | None:
    return cast_int(value, 2**63)


_SIMPLE_READERS: Final[dict[Any, _Reader]] = {
    str: cast_string,
    bool: cast_bool,
    float: cast_float,
    Int32: _read_int32,
    Int64: _read_int64,
}
