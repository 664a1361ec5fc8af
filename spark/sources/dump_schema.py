"""The columns of `rocketmq_dumps`: those of a dump's line as spark/dumps/dump_line.py has it.

Pure; driver and executors. The types are derived from the class `Line`, so that the table and the
nightly report read the same fields.

Tested by tests/spark/sources/test_rocketmq_dumps.py.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark.dumps.dump_line import Groups, Line, decode_groups

_PLAIN: Final[dict[Any, type[DataType]]] = {
    int: LongType,
    str: StringType,
    float: DoubleType,
    bool: BooleanType,
}
_PLACE: Final = (StructField("dt", DateType()), StructField("file", StringType()))


_LATER: Final = {"groups": (Groups, decode_groups)}
"""Fields that are text until somebody asks: what they hold, and how it is asked for."""


def _struct(kind: type[msgspec.Struct]) -> StructType:
    hints = typing.get_type_hints(kind)
    if kind is Line:
        hints |= {name: struct for name, (struct, _) in _LATER.items()}
    return StructType([StructField(name, _type(hints[name])) for name in kind.__struct_fields__])


def _type(hint: Any) -> DataType:
    """Of a field; whatever bounds it has, the decoder has checked them."""
    if hint in _PLAIN:
        return _PLAIN[hint]()
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return StringType()
    if origin is list:
        return ArrayType(_type(inner[0]))
    if origin in (typing.Union, types.UnionType):
        (kind,) = (each for each in inner if each is not types.NoneType)
        return _type(kind)
    raise TypeError(f"a line's field has a type that no column has: {hint!r}")


LINES_SCHEMA: Final = StructType([*_PLACE, *_struct(Line).fields])
BAD_LINES_SCHEMA: Final = StructType(
    [*_PLACE, StructField("reason", StringType()), StructField("text", StringType())]
)


def values_of(line: Line) -> dict[str, Any]:
    """The columns of a good line, but for its place."""
    found = {name: getattr(line, name) for name in Line.__struct_fields__ if name not in _LATER}
    found |= {name: ask(line) for name, (_, ask) in _LATER.items()}
    values: dict[str, Any] = msgspec.to_builtins(found)
    return values
