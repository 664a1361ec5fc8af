"""A date's evidence: what its result was made of and its files, appended to the chain of results.

Called on the driver when all of a date's files but summary.json are written. Digests of lines come
with the tables of groups (spark/job/report_tasks.py), those of files from Spark's JVM. Knows where
files lie, not what they mean.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import spark as own_package
from spark.config.objectives import SlaConfig
from spark.evidence.dump_chain import digest_of_records
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
from spark.job.hadoop_files import HadoopFiles
from spark.job.report_job import GroupTables
from spark.reported_day import Day

_MOST_PROBLEMS: Final = 100


def append_evidence(
    files: HadoopFiles,
    groups: GroupTables,
    out: str,
    day: Day,
    sla: SlaConfig,
    written: Mapping[str, bytes],
) -> None:
    """Appends the link of a date whose tables are in place; `written`: the report's files (path
    below `out` -> content). Nothing where the date's latest link says the same. Raises
    FilesError."""
    root = out.rstrip("/")
    records = groups.life_records()
    problems = [*groups.file_problems(), *(text for each in records for text in each.problems)]
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
