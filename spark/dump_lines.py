"""Reads metrics dumps: every line once, typed, with the lines that are not good kept beside them.

The first stage of the pipeline, native Spark SQL. Text is read, not JSON, so that a bad line keeps
its words. Lines go to the partition of their broker group, once, and stay on disk from then on.
What a good line is stands in docs/sla_report.md ("Samples"), the files in docs/metrics_dump.md.
Must not know what the lines are used for.
"""

from __future__ import annotations

import datetime
import functools
import logging
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    StringType,
    StructType,
)

from spark.dump_words import DAY_MS, GROUP, HOUR_MS
from spark.hadoop_files import HadoopFiles
from spark.local_frames import local_frame
from spark.schema import LINE, NULLABLE, NULLABLE_NESTED, Day, InputError

_LOG = logging.getLogger(__name__)

_FILES: Final = "*.jsonl*"
_LAST_FILES_OF_A_DAY: Final = "2[23]*.jsonl*"
"""Files turn with the hour: only these can hold what precedes the next day by two hours
(spark/schema.py, PREDECESSOR_MS)."""

_BAD_TEXT: Final = 1000
_BYTES_OF_A_PART: Final = 8_000_000
"""Of gz files: 60,000 lines, some 80 MB of rows."""
_ATTEMPTS: Final = 3
"""Of reading, when files vanish meanwhile: the supervisor replaces a file by its compressed one."""

_JSON: Final = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_OF_WHOLE_LINE: Final = 3
"""The first checks: one object, a version, and the right one."""
_LEAST: Final = -(2**63)
_UNUSED: Final = ("v", "final", "version", "ready", "min_offset", "replicated_offset")
_NOT_KEPT: Final = ("text", "file", "is_today", "_objects", *_UNUSED)
_Failure = (Py4JJavaError, PySparkException)
_PATTERN_SIGNS: Final = frozenset("{}[]*?\\")
_READING_FAILED: Final = "FAILED_READ_FILE"
"""Spark's name for whatever happens while it reads a file, and for nothing else."""
_DAMAGE: Final = frozenset({"EOFException", "ZipException", "ChecksumException"})
_DECOMPRESSION: Final = "org.apache.hadoop.io.compress."
"""Where what is no gz file, or a broken one, is found out."""
_MANY_FILES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Lines:
    """What the dumps of one date hold; persisted on disk until `release`.

    `good`: a row for each good line (also those of D-1 that may precede D's), the fields of
    spark/schema.py LINE but the unused, and `text_hash`. Partitioned by (cluster, broker).
    `bad`: file, reason, text (at most 1000 characters) of every line of D's directory that is not
    good, and of every file that cannot be read to its end.
    """

    good: DataFrame
    bad: DataFrame
    _texts: DataFrame

    def smallest_text_hash(self, keys: DataFrame) -> DataFrame:
        """`keys` (cluster, broker, broker_id, boot, seq) with `kept_hash`, the hash of the smallest
        text that the lines of this key have. Reads all dumps again."""
        names = keys.columns
        found = self._texts.join(keys, names, "left_semi")
        return found.groupBy(*names).agg(fn.min_by("text_hash", "text").alias("kept_hash"))

    def release(self) -> None:
        """Frees the disk."""
        self.good.unpersist()


def read_lines(spark: SparkSession, paths: Sequence[str], day: Day) -> Lines:
    """Reads the dumps of `day` below each of `paths` (Hadoop paths: local, hdfs://, s3a://).

    This is the action that reads. Raises InputError for a path that is not there, and for one
    that cannot be listed or read; and what else Spark raises, of which a full disk is an example.
    """
    files = HadoopFiles(spark)
    for path in paths:
        if _PATTERN_SIGNS.intersection(path):
            raise InputError(
                f"{path}: Spark takes a name with one of {' '.join(sorted(_PATTERN_SIGNS))} for a"
                " pattern; give the directory another name, or --dumps a link to it"
            )
        if not files.exists(path):
            raise InputError(
                f"{path}: there is no such directory; --dumps names what metricsDumpPath of the"
                " brokers is (or a copy of it), the directory that holds dt=YYYY-MM-DD"
            )
    reader = _Reader(spark, files, paths, day)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return reader.read()
        except _UnreadableError as error:
            is_explained = reader.look_for_damage()
            if not is_explained or attempt == _ATTEMPTS:
                raise InputError(f"{', '.join(paths)}: cannot be read: {error}") from error
    raise AssertionError("not reached")


class _UnreadableError(Exception):
    """Spark did not come to the end of all files; the text says why."""


class _Reader:
    """Reads; remembers which files are damaged, so that the next attempt takes them as they are."""

    def __init__(
        self, spark: SparkSession, files: HadoopFiles, paths: Sequence[str], day: Day
    ) -> None:
        self._spark = spark
        self._files = files
        self._day = day
        yesterday = day.date - datetime.timedelta(days=1)
        self._sources = [
            (f"{path}/dt={date}", pattern, date == day.date)
            for path in paths
            for date, pattern in ((day.date, _FILES), (yesterday, _LAST_FILES_OF_A_DAY))
            if files.exists(f"{path}/dt={date}")
        ]
        self._listed: list[str] = []
        self._size = 0
        """Bytes of the files as they lie there."""
        self._damaged: dict[str, tuple[bool, str]] = {}
        """File -> whether it is one of D's, and why it cannot be read."""

    def read(self) -> Lines:
        """One attempt. Raises _UnreadableError."""
        seen = Observation()
        try:
            texts = self._texts()
        except AnalysisException as error:  # the directory went while it was listed
            raise _UnreadableError(_cause(error)) from error
        judged = _fields(texts).withColumn("_good", _is_good(self._day))
        bad_file = fn.when(~fn.col("_good") & fn.col("is_today"), fn.col("file"))
        judged = judged.observe(seen, fn.collect_set(bad_file).alias("bad_files"))
        kept = judged.where("_good").drop("_good", *_NOT_KEPT).repartition(self._parts(), *GROUP)
        kept = kept.persist(StorageLevel.DISK_ONLY)
        try:
            kept.count()
        except _Failure as error:
            if not _is_of_reading(error):
                raise
            kept.unpersist()
            raise _UnreadableError(_cause(error)) from error
        bad = self._damage().unionAll(
            _bad(_fields(_of_files(texts, seen.get["bad_files"])), self._day)
        )
        every = _fields(texts).where(_is_good(self._day)).drop("_objects", *_UNUSED)
        return Lines(kept, bad, every)

    def _parts(self) -> int:
        """Into how many parts lines are shuffled: few, but each small enough to be sorted in
        memory."""
        least = self._spark.conf.get("spark.sql.shuffle.partitions") or "1"
        return max(int(least), -(-self._size // _BYTES_OF_A_PART))

    def _damage(self) -> DataFrame:
        """The files that cannot be read to their end, like bad lines."""
        rows = [(_shown(file), why, "") for file, (today, why) in self._damaged.items() if today]
        return local_frame(self._spark, dict.fromkeys(("file", "reason", "text"), "string"), rows)

    def look_for_damage(self) -> bool:
        """After a failure: whether files that are damaged or gone explain it. Raises InputError for
        one that cannot be read though it may be whole."""
        found = False
        for file, error in self._unreadable(self._listed):
            if self._files.exists(file):
                if not _is_damage(error):
                    raise InputError(f"{_shown(file)}: cannot be read: {_cause(error)}") from error
                reason = f"the file breaks off: {_cause(error)}"
                self._damaged[file] = (self._is_today(file), reason)
                _LOG.warning("%s: %s", file, reason)
            found = True
        return found

    def _unreadable(self, files: list[str]) -> Iterator[tuple[str, Exception]]:
        """Those that Spark cannot read to the end: by halves, each half by one job."""
        if not files:
            return
        try:
            self._spark.read.text(files).agg(fn.max(fn.length("value"))).collect()
        except _Failure as error:
            if not _is_of_reading(error):
                raise
            if len(files) == 1:
                yield files[0], error
                return
            middle = len(files) // 2
            yield from self._unreadable(files[:middle])
            yield from self._unreadable(files[middle:])

    def _is_today(self, file: str) -> bool:
        return f"/dt={self._day.date}/" in file

    def _texts(self) -> DataFrame:
        """text, file, is_today of every line. A damaged file gives what is before the damage."""
        frames: list[DataFrame] = []
        self._listed = []
        self._size = 0
        for directory, pattern, is_today in self._sources:
            whole = self._read_text(directory, pattern)
            self._size += _size_of(whole)
            listed = [unquote(file) for file in whole.inputFiles()]
            sound = [file for file in listed if file not in self._damaged]
            self._listed += sound
            if len(sound) < len(listed):
                broken = [file for file in listed if file in self._damaged]
                frames.append(_of_source(self._read_broken(broken), is_today))
                whole = self._spark.read.text(sound)
            if sound:
                frames.append(_of_source(whole, is_today))
        nothing = {"text": "string", "file": "string", "is_today": "boolean"}
        texts = frames or [local_frame(self._spark, nothing, [])]
        return functools.reduce(DataFrame.unionAll, texts)

    def _read_text(self, directory: str, pattern: str) -> DataFrame:
        # Without the lookup Spark would take the directories' names for columns, and refuse a
        # tree that has files on two levels.
        options = {"recursiveFileLookup": "true", "pathGlobFilter": pattern}
        return self._spark.read.options(**options).text(directory)

    def _read_broken(self, files: list[str]) -> DataFrame:
        return self._spark.read.option("ignoreCorruptFiles", "true").text(files)


def _size_of(files: DataFrame) -> int:
    """Bytes of the files that `files` reads, from Spark's own statistics."""
    plan: Any = files._jdf.queryExecution().optimizedPlan()
    return int(plan.stats().sizeInBytes())


def _of_files(texts: DataFrame, files: Sequence[str]) -> DataFrame:
    """The texts of some files. Bad lines are rare: parsing their files once more is cheaper than
    carrying all texts along, and Spark does not open the others. A query with very many names is
    slower than all files."""
    return texts.where(fn.col("file").isin(files)) if len(files) <= _MANY_FILES else texts


def _of_source(lines: DataFrame, is_today: bool) -> DataFrame:
    return lines.select(
        fn.col("value").alias("text"),
        fn.col("_metadata.file_path").alias("file"),
        fn.lit(is_today).alias("is_today"),
    )


def _fields(texts: DataFrame) -> DataFrame:
    """The fields of every line beside its text, and `text_hash`."""
    # In brackets, the parser has to look behind the object: two lines on one, or a torn end, are
    # no good line. The generator keeps Spark from parsing once more for every filter on it.
    in_brackets = fn.concat(fn.lit("["), "text", fn.lit("]"))
    line = fn.from_json(in_brackets, ArrayType(LINE), _JSON)
    rows = texts.select("*", line.alias("_line"), fn.xxhash64("text").alias("text_hash"))
    objects = fn.coalesce(fn.size("_line"), fn.lit(0)).alias("_objects")
    return rows.select(*texts.columns, "text_hash", objects, fn.inline_outer("_line"))


def _is_good(day: Day) -> Column:
    # Spark would parse every line twice, for this and for its fields, if the number of objects
    # could be known without the fields.
    good = fn.col("_objects") * fn.col("v") == 1
    for check, _ in _checks(day)[_OF_WHOLE_LINE:]:
        good = good & check
    return fn.coalesce(good, fn.lit(False))


def _bad(fields: DataFrame, day: Day) -> DataFrame:
    """file, reason, text of D's lines that are not good; the reason is the first that holds."""
    reason = fn.coalesce(
        *(fn.when(~fn.coalesce(check, fn.lit(False)), reason) for check, reason in _checks(day))
    )
    # Spark names a file by its URI, in which a plus sign is one and no blank.
    path = fn.url_decode(fn.replace("file", fn.lit("+"), fn.lit("%2B")))
    shown = fn.regexp_replace(path, "^file:/+", "/")
    return (
        fields.where("is_today")
        .select(
            shown.alias("file"),
            reason.alias("reason"),
            fn.substring("text", 1, _BAD_TEXT).alias("text"),
        )
        .where(fn.col("reason").isNotNull())
    )


def _checks(day: Day) -> list[tuple[Column, Column]]:
    """What is true of a good line, each with the reason why a line where it is not is bad."""
    midnight = fn.when(fn.col("is_today"), day.start_ms).otherwise(day.start_ms - DAY_MS)
    in_day = fn.col("ts").between(midnight - HOUR_MS, midnight + DAY_MS + HOUR_MS - 1)
    version = fn.concat(fn.lit("version "), "v", fn.lit(", this report reads 1"))
    checks: list[tuple[Column, Column]] = [
        (fn.col("_objects") == 1, fn.lit("not one JSON object")),
        (fn.col("v").isNotNull(), fn.lit("v: missing or of a wrong type")),
        (fn.col("v") == 1, version),
    ]
    for field in LINE.fields:
        wrong = fn.lit(f"{field.name}: missing, incomplete or of a wrong type")
        checks += [(check, wrong) for check in _whole(field.name, field.dataType)]
    counts, bounds = fn.size("ack_latency.counts"), fn.size("ack_latency.le")
    return [
        *checks,
        (counts == bounds + 1, fn.lit("ack_latency: needs one count more than bounds")),
        (~fn.isnan("ack_latency.sum"), fn.lit("ack_latency: sum is no number")),
        (fn.col("seq") >= 1, fn.lit("seq: below 1")),
        (fn.col("interval_ms") > 0, fn.lit("interval_ms: not above 0")),
        (in_day, fn.lit("ts: more than an hour away from the date of the directory")),
    ]


def _whole(path: str, kind: DataType) -> list[Column]:
    """What is true of a field that is there, with all that lies inside of it."""
    if path in NULLABLE:
        whole = []
        if isinstance(kind, ArrayType):
            whole = _elements(path, kind.elementType)
        return [fn.when(fn.col(path).isNull(), _is_absent(path)).otherwise(_all_of(whole))]
    whole = [fn.col(path).isNotNull()]
    if isinstance(kind, StructType):
        for field in kind.fields:
            whole += _whole(f"{path}.{field.name}", field.dataType)
    elif isinstance(kind, ArrayType):
        whole += _elements(path, kind.elementType)
    return whole


def _is_absent(name: str) -> Column:
    """Of a field that is null: the text has none, or null. Else the parser could not take it."""
    is_null = fn.contains("text", fn.lit(f'"{name}":null'))
    no_such = ~fn.contains("text", fn.lit(f'"{name}"'))
    return is_null | no_such | ~fn.col("text").rlike(rf'"{name}"\s*+:\s*+(?!null)')


def _elements(path: str, kind: DataType) -> list[Column]:
    """What is true of an array without holes, and rows without holes.

    Looking for a value that cannot be there gives null when a null is: a lambda does the same ten
    times as slowly.
    """
    if isinstance(kind, StructType):
        fields = [field for field in kind.fields if field.name not in NULLABLE_NESTED]
        return [
            column
            for field in fields
            for column in _elements(f"{path}.{field.name}", field.dataType)
        ]
    column, impossible = fn.col(path), fn.lit(_LEAST)
    if isinstance(kind, StringType):
        impossible = fn.lit("")
    elif isinstance(kind, BooleanType):
        column, impossible = column.cast("array<int>"), fn.lit(-1)
    elif isinstance(kind, DoubleType):
        impossible = fn.lit(float("-inf"))
    return [~fn.array_contains(column, impossible)]


def _all_of(checks: Sequence[Column]) -> Column:
    return functools.reduce(operator.and_, checks, fn.lit(True))


def _shown(file: str) -> str:
    return file.removeprefix("file://")


def _cause(error: Exception) -> str:
    """The innermost reason of Spark's exception, one line."""
    if not isinstance(error, Py4JJavaError):
        return " ".join(str(error).split())[:300]
    cause = _java_causes(error)[-1]
    return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"


def _java_causes(error: Exception) -> list[Any]:
    """Java's exception and what caused it, the innermost last; empty where there is none."""
    cause: Any = getattr(error, "_origin", None)  # what PySpark makes an exception of its own of
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
    causes = []
    while cause is not None:
        causes.append(cause)
        cause = cause.getCause()
    return causes


def _is_of_reading(error: Exception) -> bool:
    """Whether a file could not be read; else it is Spark's own trouble."""
    texts = [str(error), *(str(cause.getMessage()) for cause in _java_causes(error))]
    return any(_READING_FAILED in text for text in texts)


def _is_damage(error: Exception) -> bool:
    """Whether what was read of the file is broken."""
    causes = _java_causes(error)
    if not causes:
        return False
    frames = causes[-1].getStackTrace()
    is_unpacking = len(frames) > 0 and frames[0].getClassName().startswith(_DECOMPRESSION)
    return is_unpacking or causes[-1].getClass().getSimpleName() in _DAMAGE
