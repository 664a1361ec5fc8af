"""The columns of a result table as Spark's types, made in Python.

Called on the driver. Spark could read the same from text, but its parser of SQL is then the first
thing that a JVM loads and compiles for it: a third of a second of processor time. Knows the types
that spark/figures/result_tables.py uses, and no table.
"""

from __future__ import annotations

import functools
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from spark.figures.result_tables import TABLES

_SIMPLE: Final[dict[str, type[DataType]]] = {
    "string": StringType,
    "bigint": LongType,
    "int": IntegerType,
    "double": DoubleType,
    "boolean": BooleanType,
}


@functools.cache
def schema_of(table: str, *, with_date: bool) -> StructType:
    """The schema of a table, `dt` last if it is wanted."""
    columns = TABLES[table] | ({"dt": "string"} if with_date else {})
    return StructType([StructField(name, type_of(kind)) for name, kind in columns.items()])


def type_of(kind: str) -> DataType:
    """Of a type as Spark SQL writes it. Raises ValueError for one that no table has."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]()
    name, _, rest = kind.partition("<")
    parts = _parts(rest.removesuffix(">"))
    if name == "array" and len(parts) == 1:
        return ArrayType(type_of(parts[0]))
    if name == "map" and len(parts) == 2:
        return MapType(type_of(parts[0]), type_of(parts[1]))
    if name == "struct":
        fields = [part.partition(":") for part in parts]
        return StructType([StructField(field, type_of(inner)) for field, _, inner in fields])
    raise ValueError(f"no type of a table: {kind}")


def _parts(text: str) -> list[str]:
    """Between the commas that are in no brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "<") - (sign == ">")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
