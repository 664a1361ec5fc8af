"""ConfiguredSource: what the DataSource classes of all formats share.

The classes are pickled to Python workers of the driver and of executors. register(spark) makes a
subclass of each that holds the connection's defaults of Spark's configuration, secrets included:
so they are in no option and no plan.

Tested by tests/spark/sources/test_registration.py.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark.sources.errors import OptionError
from spark.sources.options import Options

MISSING: Final = (
    "an executor cannot import {module} ({error}): install the package there with its extra "
    "(pip install 'rocketmq-python-broker[spark]'), or give it with --py-files"
)


class Defaults:
    """Defaults of options, some of them secret: shown nowhere."""

    def __init__(self, values: Mapping[str, str], *, pushes_filters: bool = False) -> None:
        """pushes_filters: whether Spark hands over the filters of queries."""
        self.values = dict(values)
        self.pushes_filters = pushes_filters

    def __repr__(self) -> str:
        return f"Defaults({', '.join(sorted(self.values))})"


class ConfiguredSource(DataSource):
    """A format. Subclasses set KNOWN, the names of their options, and `name`."""

    KNOWN: ClassVar[tuple[str, ...]] = ()
    DEFAULTS: ClassVar[Defaults] = Defaults({})

    def checked_options(self) -> Options:
        """The options, after their names were checked. OptionError."""
        options = Options(self.options, self.DEFAULTS.values)
        options.check_names(self.KNOWN, self.name())
        return options

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Refused where a format has none."""
        return RefusedStream(f"format {self.name()} has no streams: read it with spark.read")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The same."""
        raise self._only_read()

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """The same."""
        raise self._only_read()

    def _only_read(self) -> OptionError:
        return OptionError(f"format {self.name()} is only read: format rocketmq writes to topics")


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot be, which says why at the first thing that it is asked: PySpark hides an
    error that streamReader itself raises behind one of its own (UnboundLocalError)."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def _refuse(self) -> NoReturn:
        raise OptionError(self.reason)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Raises OptionError, as all others."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The same."""
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The same."""
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The same."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The same."""
        self._refuse()


def check_columns(schema: StructType, table: StructType) -> None:
    """OptionError unless each field is a column of the table with its type, and is there once: a
    schema of the user's own reads only those columns, which saves the others' work."""
    seen: set[str] = set()
    for each in schema.fields:
        if each.name not in table.names:
            raise OptionError(
                f"the table has no column {each.name}: it has {', '.join(table.names)}"
            )
        known, said = table[each.name].dataType, each.dataType
        if known != said:
            raise OptionError(
                f"column {each.name} is {known.simpleString()}, the schema says "
                f"{said.simpleString()}"
            )
        if each.name in seen:
            raise OptionError(f"column {each.name} is in the schema twice: name it once")
        seen.add(each.name)


class Shipped:
    """Mixin of readers and writers: a worker without this package says so.

    They are pickled by a function that is pickled by value, so it runs where nothing of this
    package can be imported. Attributes that begin with _ are left out.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        kind = type(self)
        kept = {name: value for name, value in vars(self).items() if name[0] != "_"}
        state = pickle.dumps(kept)
        return _load, (kind.__module__, kind.__qualname__, state, MISSING)


def _load(module: str, name: str, state: bytes, missing: str) -> Any:
    import importlib
    import pickle

    try:
        kind = getattr(importlib.import_module(module), name)
        values = pickle.loads(state)
    except ImportError as error:
        raise RuntimeError(missing.format(module=module, error=error)) from None
    made = object.__new__(kind)
    made.__dict__.update(values)
    return made


_load.__module__ = "__main__"  # cloudpickle takes such functions by value
