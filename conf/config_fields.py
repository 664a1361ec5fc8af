"""Settings as fields of a dataclass: declared with `setting`, read back with `field_specs`.

A settings class is `@dataclass(frozen=True, slots=True, kw_only=True)`, and each of its fields is
a `setting(...)`. Types: int, float, bool, str, an Enum (by member name), and `X | None` (the empty
text is None). Any thread. Knows no file and no key, and imports the standard library only, so that
every room may declare its settings with it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

FALSE_TRUE = {"false": False, "true": True}
_METADATA_KEY: Final = "setting"

ValueT = TypeVar("ValueT")


class Applies(enum.StrEnum):
    """When a value that an admin request has changed takes effect."""

    NOW = "now"
    AFTER_RESTART = "after a restart"


NOW: Final = Applies.NOW
AFTER_RESTART: Final = Applies.AFTER_RESTART


@dataclass(frozen=True, slots=True)
class _Computed:
    """What `computed` gives."""

    compute: Callable[[], Any]
    shown: str


def computed(compute: Callable[[], ValueT], shown: str) -> ValueT:
    """For `setting`: a default that depends on the host; `shown` describes it in the docs."""
    return typing.cast("ValueT", _Computed(compute, shown))


@dataclass(frozen=True, slots=True)
class _Declaration:
    """The arguments of one `setting` call, but for a plain default."""

    doc: str
    unit: str
    ge: float | None
    le: float | None
    key: str | None
    important: bool
    env: str | None
    changeable: Applies | None
    shown_default: str | None


def setting(
    default: ValueT,
    doc: str,
    *,
    unit: str = "",
    ge: float | None = None,
    le: float | None = None,
    key: str | None = None,
    important: bool = False,
    env: str | None = None,
    changeable: Applies | None = None,
) -> ValueT:
    """Declare one field of a settings class.

    doc: its meaning, in one line of docs/settings.md. ge, le: inclusive bounds, in `unit`.
    key: RocketMQ's name of it, where that is not the field's name in camelCase. important: shown
    by -m. env: the environment variable that sets it, too. changeable: an admin request may change
    it, and when the change takes effect; only for a setting that is no path, address, port or name
    and that no file on disk depends on, and NOW only if every reader of it sees the new value.
    """
    shown = default.shown if isinstance(default, _Computed) else None
    metadata = {
        _METADATA_KEY: _Declaration(doc, unit, ge, le, key, important, env, changeable, shown)
    }
    field: Any  # the dataclass decorator replaces it by a value of the annotated type
    if isinstance(default, _Computed):
        field = dataclasses.field(default_factory=default.compute, metadata=metadata)
    else:
        field = dataclasses.field(default=default, metadata=metadata)
    return typing.cast("ValueT", field)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a settings class, as declared.

    `shown_default` is the default's text, or a description of one that is computed.
    """

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
    changeable: Applies | None
    shown_default: str

    def parse(self, text: str) -> Any:
        """The value of `text`. Raises ValueError that says what was expected."""
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
    declared: _Declaration = item.metadata[_METADATA_KEY]
    optional = isinstance(hint, types.UnionType)
    if optional:
        hint = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    shown = declared.shown_default
    return FieldSpec(
        name=item.name,
        key=declared.key or _camel_case(item.name),
        kind=hint,
        optional=optional,
        doc=declared.doc,
        unit=declared.unit,
        minimum=declared.ge,
        maximum=declared.le,
        important=declared.important,
        env=declared.env,
        changeable=declared.changeable,
        shown_default=value_text(item.default) if shown is None else shown,
    )


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
