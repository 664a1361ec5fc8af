"""Dataclasses to Java-shaped JSON and back, by their annotations. Sans I/O, any thread.

A body is a frozen dataclass derived from JsonBean. An attribute `queue_id` is the member
`queueId`; exceptions stand in WIRE_NAMES. Written: members in alphabetical order, what is None
left out, dict[Int32 or Int64, ...] with bare keys, dict[MessageQueue, ...] with object keys,
floats as Java's doubles. Read: unknown members ignored, missing and null ones take the default,
numbers may be text; a field without default is required. It knows no body in particular.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, Self, Union, get_args, get_origin
from typing import get_type_hints as type_hints

from remoting.command_custom_header import Int32, Int64, camel_case
from remoting.errors import BodyError
from remoting.remoting_serializable import (
    IntKeyMap,
    JavaDouble,
    JsonError,
    ObjectKeyMap,
    dumps_java,
    dumps_java_pretty,
    json_text,
    loads_lenient,
)

_Reader = Callable[[Any], Any]
_Writer = Callable[[Any], Any] | None


class _Member(NamedTuple):
    attribute: str
    wire_name: str
    read: _Reader
    write: _Writer
    required: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JsonBean:
    """Base of every body and of the objects inside."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {}
    """Wire name by attribute, where it is not the camelCase of the attribute."""

    def to_json(self) -> dict[str, Any]:
        """The tree that the writers of remoting_serializable take."""
        result: dict[str, Any] = {}
        for attribute, wire_name, _, write, _ in _members(type(self)):
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
        """Build from parsed JSON. Raises ValueError naming the member that does not fit."""
        if not isinstance(tree, dict):
            raise ValueError(f"a {type(tree).__name__} where a {cls.__name__} was expected")
        values: dict[str, Any] = {}
        for attribute, wire_name, read, _, required in _members(cls):
            value = tree.get(wire_name)
            if value is None:
                if required:
                    raise ValueError(f"{wire_name} is missing")
                continue
            try:
                values[attribute] = read(value)
            except ValueError as error:
                raise ValueError(f"{wire_name}: {error}") from error
        return cls(**values)

    @classmethod
    def from_json_bytes(cls, data: bytes | memoryview) -> Self:
        """Read a body of the wire or a whole config file.

        Raises BodyError naming the class, and the member or the character that does not fit.
        """
        try:
            return cls.from_json(loads_lenient(data))
        except JsonError as error:
            raise BodyError(cls.__name__, f"no JSON in {len(data)} bytes: {error}") from error
        except ValueError as error:
            raise BodyError(cls.__name__, str(error)) from error


_plans: Final[dict[type[JsonBean], tuple[_Member, ...]]] = {}
"""Made on first use; two threads that make the same plan make equal ones."""


def _members(cls: type[JsonBean]) -> tuple[_Member, ...]:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _make_plan(cls)
    return plan


def _make_plan(cls: type[JsonBean]) -> tuple[_Member, ...]:
    hints = type_hints(cls, include_extras=True)
    members = []
    for field in dataclasses.fields(cls):
        hint = _without_none(hints[field.name])
        missing = dataclasses.MISSING
        members.append(
            _Member(
                field.name,
                cls.WIRE_NAMES.get(field.name, camel_case(field.name)),
                _reader(hint),
                _writer(hint),
                field.default is missing and field.default_factory is missing,
            )
        )
    return tuple(sorted(members, key=attrgetter("wire_name")))


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
        read_bean: _Reader = hint.from_json
        return read_bean
    raise TypeError(f"no JSON form for {hint}")


def _writer(hint: Any) -> _Writer:
    """How a value that is not None goes into the tree; None: as it is."""
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
        return hint.from_json(loads_lenient(key))

    return read_object_key


def _list_reader(read: _Reader) -> _Reader:
    def read_list(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"a {type(value).__name__} where a list was expected")
        return [read(item) for item in value if item is not None]

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
                result[read_key(key)] = read(item)
            except ValueError as error:
                raise ValueError(f"{key:.80}: {error}") from error
        return result

    return read_dict


def _enum_reader(enum: type[StrEnum]) -> _Reader:
    names = {member.value: member for member in enum}

    def read_enum(value: Any) -> StrEnum:
        member = names.get(value) if isinstance(value, str) else None
        if member is None:
            raise ValueError(f"{json_text(value):.60} is no {enum.__name__}")
        return member

    return read_enum


def _read_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json_text(value)


def _read_int(value: Any, bound: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise ValueError(f"{json_text(value):.60} is not an integer")
    try:
        number = int(value)
    except OverflowError as error:
        raise ValueError(f"{value} is not an integer") from error
    if not -bound <= number < bound:
        raise ValueError(f"{number} is out of range")
    return number


def _read_int32(value: Any) -> int:
    return _read_int(value, 2**31)


def _read_int64(value: Any) -> int:
    return _read_int(value, 2**63)


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in (0, 1, "0", "1"):
        return bool(int(value))
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"{json_text(value):.60} is not a boolean")


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise ValueError(f"{json_text(value):.60} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{value!r:.60} is not a number")
    return number


_SIMPLE_READERS: Final[dict[Any, _Reader]] = {
    str: _read_str,
    bool: _read_bool,
    float: _read_float,
    Int32: _read_int32,
    Int64: _read_int64,
}
