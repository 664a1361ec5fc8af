"""Converts header dataclasses to extFields and back. Sans I/O, any thread.

A header is a frozen slots dataclass in remoting/headers. The attribute `queue_offset` is the key
`queueOffset` on the wire; the class's WIRE_NAMES lists exceptions. A field without default is
declared not-null in Java. Java accepts a missing one and fails later with a NullPointerException;
here it is rejected by name (HeaderError, answered SYSTEM_ERROR like the exception). Values are text
on the wire: decimal integers checked against Java's range, true/false, or the text itself.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from remoting.errors import HeaderError

Int32 = Annotated[int, 32]
"""A Java int: the field must fit 32 bits."""

Int64 = Annotated[int, 64]
"""A Java long: the field must fit 64 bits."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommandCustomHeader:
    """Base of every header (Java: CommandCustomHeader)."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {}
    """Wire name by attribute, if it is not the camelCase form of the attribute."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RpcRequestHeader(CommandCustomHeader):
    """Base of the request headers that may carry the broker's name; brokers ignore it."""

    bname: str | None = None


_Header = TypeVar("_Header", bound=CommandCustomHeader)


class _Field(NamedTuple):
    attribute: str
    wire_name: str
    parse: Callable[[str], Any] | None
    required: bool


def camel_case(attribute: str) -> str:
    """queue_offset -> queueOffset."""
    first, *rest = attribute.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def decode_header(cls: type[_Header], ext_fields: Mapping[str, str]) -> _Header:
    """Parse a header; unknown keys are ignored.

    Raises HeaderError naming the first field that is missing or invalid.
    """
    values: dict[str, Any] = {}
    for attribute, wire_name, parse, required in _fields(cls):
        text = ext_fields.get(wire_name)
        if text is None:
            if required:
                raise HeaderError(cls.__name__, wire_name, "is missing")
            continue
        if parse is None:
            values[attribute] = text
            continue
        try:
            values[attribute] = parse(text)
        except ValueError as error:
            raise HeaderError(cls.__name__, wire_name, str(error)) from error
    return cls(**values)


def encode_header(header: CommandCustomHeader) -> dict[str, str]:
    """The extFields of a header, in declaration order; None is omitted."""
    result: dict[str, str] = {}
    for field in _fields(type(header)):
        value = getattr(header, field.attribute)
        if value is None:
            continue
        if value is True:
            value = "true"
        elif value is False:
            value = "false"
        result[field.wire_name] = str(value)
    return result


_plans: Final[dict[type[CommandCustomHeader], tuple[_Field, ...]]] = {}
"""Cached on first use; two threads that build the same plan build equal ones."""


def _fields(cls: type[CommandCustomHeader]) -> tuple[_Field, ...]:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _make_plan(cls)
    return plan


def _make_plan(cls: type[CommandCustomHeader]) -> tuple[_Field, ...]:
    """One _Field for each attribute, `bname` last as in Java's encoders."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        _Field(
            field.name,
            cls.WIRE_NAMES.get(field.name, camel_case(field.name)),
            _parser(hints[field.name]),
            field.default is dataclasses.MISSING,
        )
        for field in sorted(dataclasses.fields(cls), key=lambda field: field.name == "bname")
    )


def _parser(hint: Any) -> Callable[[str], Any] | None:
    """The parser for a field with this annotation; None for text."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not types.NoneType)
    return _PARSERS[hint]


def _parse_int32(text: str) -> int:
    return _parse_int(text, 2**31)


def _parse_int64(text: str) -> int:
    return _parse_int(text, 2**63)


def _parse_int(text: str, bound: int) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text!r:.60} is not an integer")
    number = int(text)
    if not -bound <= number < bound:
        raise ValueError(f"{number} is out of range")
    return number


def _parse_bool(text: str) -> bool:
    """Java's Boolean.parseBoolean: anything but "true" is false."""
    return text.lower() == "true"


_PARSERS: Final[dict[Any, Callable[[str], Any] | None]] = {
    str: None,
    bool: _parse_bool,
    Int32: _parse_int32,
    Int64: _parse_int64,
}
