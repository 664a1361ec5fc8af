"""Whether spark-submit started this program. Its own module: imports no PySpark, so that the
command's arguments are checked without it.
"""

from __future__ import annotations

from collections.abc import Mapping


def is_under_spark_submit(environment: Mapping[str, str]) -> bool:
    """Whether spark-submit runs this program: then there is a JVM, and the master is its option."""
    return "PYSPARK_GATEWAY_PORT" in environment
