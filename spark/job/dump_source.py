"""The files of metrics dumps for Spark: which are read, and which are too large for it.

On the driver, for the report and for its evidence. Spark reads a file whole, in the JVM's memory;
one with more bytes than `bounds` allow is not opened. Knows directories and files, no line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from spark.dumps.dump_text import DEFAULT_BOUNDS, Bounds

_FILES: Final = "*.jsonl*"


@dataclass(frozen=True, slots=True)
class DumpSource:
    """Directories that hold `dt=YYYY-MM-DD` (Hadoop paths: local, hdfs://, s3a://)."""

    paths: Sequence[str]
    bounds: Bounds = DEFAULT_BOUNDS


class DumpFiles:
    """All files below some directories. `frame` has `path` and `content` of those that are read."""

    def __init__(self, spark: SparkSession, directories: Sequence[str], bounds: Bounds) -> None:
        # Without the lookup Spark would take the directories' names for columns, and refuse a tree
        # that has files on two levels.
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        every = reader.option("pathGlobFilter", _FILES).load(list(directories))
        self.size = _size(every)
        self.too_large: list[tuple[str, int]] = []
        """Path and bytes of those that are not read."""
        if self.size > bounds.stored_bytes:  # else none of them is too large
            large = every.where(fn.col("length") > bounds.stored_bytes)
            found = large.select("path", "length").collect()
            self.too_large = sorted((row["path"], row["length"]) for row in found)
            every = every.where(fn.col("length") <= bounds.stored_bytes)
        self.frame = every.select("path", "content")


def _size(frame: DataFrame) -> int:
    """Bytes of the files as they lie there, from Spark's own statistics."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    return int(plan.stats().sizeInBytes())
