"""What a settings dataclass declares, as data: key, type, bounds; text to value and back.

A settings class is `@dataclass(frozen=True, slots=True, kw_only=True)`; each field has a default
and metadata: "key" (Java's name), "doc", and where it applies "unit", "min", "max", "important"
(shown by -m), "env" (environment variable that sets it). Types: int, float, bool, str, an Enum
(by member name), and `X | None` (the empty text is None). Any thread; knows no file.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FALSE_TRUE = {"false": False, "true": True}


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a settings class. `minimum` and `maximum` are inclusive."""

    name: str
    key: str
    kind: type
    optional: bool
    doc: str
    unit: str
    minimum: float | None
    maximum: float | None
    important: bool
    env: str | None

    def parse(self, text: str) -> Any:
        """The value of `text`. Raises ValueError whose text is what was expected."""
        if self.optional and not text:
            return None
        value = _parse_kind(self.kind, text)
        low, high = self.minimum, self.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError(self.expectation())
        return value

    def expectation(self) -> str:
        """What a value of this field looks like, for error messages."""
        words = _expected(self.kind)
        if self.minimum is not None or self.maximum is not None:
            low = "" if self.minimum is None else self.minimum
            high = "" if self.maximum is None else self.maximum
            words += f" in {low}..{high}"
        return f"{words} ({self.unit})" if self.unit else words


def _parse_kind(kind: type, text: str) -> Any:
    try:
        if kind is bool:
            return FALSE_TRUE[text.lower()]
        if issubclass(kind, enum.Enum):
            return kind[text]
        if kind is int and not text.lstrip("+-").isdecimal():
            raise ValueError(text)
        constructor: Callable[[str], Any] = kind
        return constructor(text)
    except (KeyError, ValueError):
        raise ValueError(f"expected {_expected(kind)}") from None


def _expected(kind: type) -> str:
    if kind is bool:
        return "true or false"
    if issubclass(kind, enum.Enum):
        return "one of " + ", ".join(kind.__members__)
    return {int: "a whole number", float: "a number"}.get(kind, "text")


def value_text(value: object) -> str:
    """The text that a settings file would hold for `value` (None is the empty text)."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return value.name
    return str(value)


def field_specs(cls: type) -> tuple[FieldSpec, ...]:
    """The fields of a settings class in their order."""
    return _read_specs(cls)


@functools.cache
def _read_specs(cls: type) -> tuple[FieldSpec, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(_spec(item, hints[item.name]) for item in dataclasses.fields(cls))


def _spec(item: dataclasses.Field[Any], hint: Any) -> FieldSpec:
    optional = isinstance(hint, types.UnionType)
    if optional:
        hint = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    meta = item.metadata
    return FieldSpec(
        name=item.name,
        key=meta["key"],
        kind=hint,
        optional=optional,
        doc=meta["doc"],
        unit=meta.get("unit", ""),
        minimum=meta.get("min"),
        maximum=meta.get("max"),
        important=meta.get("important", False),
        env=meta.get("env"),
    )
