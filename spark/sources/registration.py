"""register(spark): makes the formats of this package known to a session.

Runs on the driver, once a session. Says clearly when Python, PySpark or a library is too old or
missing; so at its top it imports nothing but the standard library.

Tested by tests/spark/sources/test_registration.py.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON: Final = (3, 11)
PYSPARK: Final = (4, 2)
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""Off by default; register turns it on unless the session turned it off."""
FORMATS: Final = (
    ("spark.sources.rocketmq", "RocketmqSource"),
    ("spark.sources.rocketmq_log", "RocketmqLogSource"),
    ("spark.sources.rocketmq_dumps", "RocketmqDumpsSource"),
    ("spark.sources.rocketmq_lag", "RocketmqLagSource"),
)
"""Modules and their DataSource classes."""


class TooOldError(Exception):
    """Python, PySpark or a library is too old for these formats, or is not installed."""


def register(spark: SparkSession) -> None:
    """Register every format with the session. Settings `spark.rocketmq.*` of the session become
    defaults of options, secrets among them. Raises TooOldError, OptionError."""
    check_versions()
    from spark.sources.data_source import Defaults
    from spark.sources.options import configured

    settings = {**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll}
    pushes = settings.get(PUSHDOWN, "true") == "true"
    if pushes:
        spark.conf.set(PUSHDOWN, "true")
    use_this_python(spark.sparkContext)
    defaults = Defaults(configured(settings.items()), pushes_filters=pushes)
    for module, name in FORMATS:
        kind: Any = getattr(importlib.import_module(module), name)
        # Of no module: so it is pickled whole, with the defaults.
        made = type(name, (kind,), {"DEFAULTS": defaults, "__module__": "__main__"})
        spark.dataSource.register(made)


def use_this_python(context: Any) -> None:
    """Workers on this machine run the Python that calls, whose libraries are known to be there,
    unless PYSPARK_PYTHON names another one; PySpark takes the first `python3` of PATH."""
    if context.master.partition("[")[0] == "local" and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def check_versions() -> None:
    """TooOldError when a format would fail later with an obscure error."""
    if sys.version_info < PYTHON:
        raise TooOldError(
            f"Python {sys.version.split()[0]} is too old: the formats need {_text(PYTHON)} or later"
        )
    pyspark = _imported("pyspark", "PySpark")
    found = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if found < PYSPARK:
        raise TooOldError(
            f"PySpark {pyspark.__version__} is too old: the formats need {_text(PYSPARK)} or later"
        )
    _imported("pyarrow", "PyArrow")


def _imported(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TooOldError(
            f"{name} cannot be imported ({error}): pip install 'rocketmq-python-broker[spark]'"
        ) from error


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
