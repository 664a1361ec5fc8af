"""A date's evidence: what its result was made of and its files, appended to the chain of results.

Called on the driver when all of a date's files but summary.json are written. The lines' digests are
computed in the executors (spark/evidence/dump_chain.py), those of files in Spark's JVM. Knows where
files lie, not what they mean.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

import spark as own_package
from spark.config.objectives import SlaConfig
from spark.evidence.dump_chain import (
    Life,
    LifeRecord,
    Stretch,
    digest_of_records,
    record_of,
    stretches_of_file,
)
from spark.evidence.links import (
    COPIES,
    DIRECTORY,
    KIND,
    VERSION,
    link_name,
    next_link,
    number_and_date,
    sha256,
)
from spark.figures.result_tables import TABLES
from spark.job.dump_source import DumpFiles, DumpSource
from spark.job.hadoop_files import HadoopFiles
from spark.reported_day import Day

_MOST_PROBLEMS: Final = 100


def append_evidence(
    spark: SparkSession,
    source: DumpSource,
    out: str,
    day: Day,
    sla: SlaConfig,
    written: Mapping[str, bytes],
) -> None:
    """Appends the link of a date whose tables are in place; `written`: the report's files (path
    below `out` -> content). Nothing where the date's latest link says the same. Raises FilesError,
    and what Spark raises."""
    root = out.rstrip("/")
    files = HadoopFiles(spark)
    records, problems = _inputs(spark, files, source, day)
    copies = {"sla": sla.text, "exclusions": sla.exclusion_log}
    body = {
        "v": VERSION,
        "kind": KIND,
        "date": str(day.date),
        "window": {"start_ms": day.w0_ms, "end_ms": day.w1_ms},
        "inputs": {
            "digest": digest_of_records(records),
            "lives": [record.as_json() for record in records],
            "problems": problems[:_MOST_PROBLEMS],
            "problem_count": len(problems),
        },
        "copies": {name: sha256(text) for name, text in copies.items() if text},
        "software": _software(),
        "results": _results(files, root, day, written),
    }
    for text in filter(None, copies.values()):
        path = f"{root}/{COPIES}/{sha256(text)}"
        if not files.exists(path):
            files.make_directories(f"{root}/{COPIES}")
            files.write(path, text)
    _append(files, f"{root}/{DIRECTORY}", str(day.date), body)


def _append(files: HadoopFiles, place: str, date: str, body: Mapping[str, Any]) -> None:
    links = {found[0]: name for name in files.names(place) if (found := number_and_date(name))}

    def read(number: int) -> tuple[int, bytes]:
        return number, files.read_text(f"{place}/{links[number]}").encode()

    of_date = [number for number, name in links.items() if name.endswith(f"_{date}.json")]
    last = read(max(links)) if links else None
    content = next_link(body, last, read(max(of_date)) if of_date else None)
    if content is not None:
        files.make_directories(place)
        number = 1 if last is None else last[0] + 1
        files.write(f"{place}/{link_name(number, date)}", content)


def _inputs(
    spark: SparkSession, files: HadoopFiles, source: DumpSource, day: Day
) -> tuple[list[LifeRecord], list[str]]:
    """The date's lives, and what is wrong with its lines and files, each in a fixed order."""
    places = [f"{path.rstrip('/')}/dt={day.date}" for path in source.paths]
    there = [place for place in places if files.exists(place)]
    if not there:
        return [], []
    dumps, bounds = DumpFiles(spark, there, source.bounds), source.bounds
    read = dumps.frame.rdd.map(
        lambda row: stretches_of_file(_below_dt(row[0]), bytes(row[1]), bounds)
    )
    kept = read.cache()
    try:
        stretches = kept.flatMap(lambda found: list(found[0].items()))
        records = stretches.groupByKey().map(_record).collect()
        file_problems = kept.flatMap(lambda found: found[1]).collect()
        file_problems += [
            f"{_below_dt(path)}: is left out: {bounds.stored_problem(size)}"
            for path, size in dumps.too_large
        ]
    finally:
        kept.unpersist()
    records.sort(key=lambda record: record.life)
    problems = [text for record in records for text in record.problems]
    return records, [*sorted(file_problems), *problems]


def _below_dt(path: str) -> str:
    """A file is named by what its path has in every place that it may be copied to."""
    return path[path.rfind("/dt=") + 1 :]


def _record(item: tuple[Life, Any]) -> LifeRecord:
    life, stretches = item
    found: list[Stretch] = list(stretches)
    return record_of(life, found)


def _results(
    files: HadoopFiles, root: str, day: Day, written: Mapping[str, bytes]
) -> dict[str, Any]:
    """Path below `out` -> SHA-256 of a file; of the Parquet files of a table those of all of them,
    sorted, as their names are made up anew by every run."""
    found: dict[str, Any] = {name: sha256(content) for name, content in written.items()}
    for table in sorted(TABLES):
        place = f"parquet/{table}/dt={day.date}"
        names = [name for name in files.names(f"{root}/{place}") if name.endswith(".parquet")]
        found[place] = sorted(files.sha256(f"{root}/{place}/{name}") for name in names)
    return found


@functools.cache
def _software() -> dict[str, str | None]:
    """The version, and a digest of the report's own source files (null in a zip of modules)."""
    try:
        version: str | None = importlib.metadata.version("rocketmq-python-broker")
    except importlib.metadata.PackageNotFoundError:
        version = None
    place = Path(own_package.__file__ or "").parent
    if not place.is_dir():
        return {"version": version, "sha256": None}
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*.py")) + sorted(place.rglob("templates/*")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(place)} {len(content)}\n".encode() + content)
    return {"version": version, "sha256": digest.hexdigest()}
