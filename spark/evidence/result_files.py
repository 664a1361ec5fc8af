"""Results below `out` beside the links that name them: reports, tables, copies of sla.yaml.

For `mqreport verify`. Who can write below `out` may have put anything there: only files are
opened, since a pipe would never end. Must not know dumps or signatures.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from spark.evidence.finding import EDITED, UNPROVED, Finding
from spark.evidence.links import COPIES, Link

_DATE: Final = re.compile(r"dt=(\d{4}-\d\d-\d\d)")
_DAY: Final = datetime.timedelta(days=1)
Dates = tuple[datetime.date, datetime.date]
"""First and last."""


def copies_of(out: Path, links: Iterable[Link]) -> Iterator[Finding]:
    """What is wrong with the copies that links name."""
    for digest in sorted({digest for link in links for digest in link.copies.values()}):
        path = out / COPIES / digest
        if not path.exists():
            yield Finding(EDITED, f"{path}: is missing")
        elif _file_digest(path) != digest:
            yield Finding(EDITED, f"{path}: was changed")


def results_of(
    out: Path, asked: Dates, links: Mapping[datetime.date, Link], since: datetime.date | None
) -> Iterator[Finding]:
    """What is wrong with the results of the dates of `links`, and results of other dates that were
    asked for, from `since` on, about which there is no link."""
    for date, link in links.items():
        for name, expected in sorted(link.results.items()):
            path = out / name
            if isinstance(expected, str):
                if not path.exists():
                    code = UNPROVED if path.name == "summary.json" else EDITED
                    yield Finding(code, f"{date}: {path}: is missing")
                elif _file_digest(path) != expected:
                    yield Finding(EDITED, f"{date}: {path}: was changed")
            elif sorted(map(_file_digest, _files_of_table(path))) != sorted(expected):
                yield Finding(EDITED, f"{date}: {path}: was changed")
    for path in sorted((out / "report").glob("dt=*")):
        found = _other_date(path, asked, links, since)
        if found is not None and (path / "summary.json").exists():
            yield Finding(EDITED, f"{found}: {path}: no link is about it")
    for path in sorted((out / "parquet").glob("*/dt=*")):
        found = _other_date(path, asked, links, since)
        is_table = not path.parent.name.startswith(("_", "."))  # what a run makes is none yet
        if found is not None and is_table and any(_files_of_table(path)):
            text = f"{found}: {path}: no link is about it, and windows may be made of it"
            yield Finding(UNPROVED, text)


def _other_date(
    path: Path, asked: Dates, links: Mapping[datetime.date, Link], since: datetime.date | None
) -> datetime.date | None:
    """Of a directory of a date that has no link and should have one."""
    found = date_of(path)
    if found is None or found in links or since is None:
        return None
    return found if max(since, asked[0]) <= found <= asked[1] else None


def holes_in(dates: Sequence[datetime.date]) -> Iterator[Finding]:
    """Dates between the first and the last one that were never reported."""
    for before, behind in itertools.pairwise(dates):
        first, last = before + _DAY, behind - _DAY
        if first == last:
            yield Finding(UNPROVED, f"{first}: has no result")
        elif first < last:
            yield Finding(UNPROVED, f"{first} to {last}: have no result")


def _files_of_table(path: Path) -> Iterator[Path]:
    """All that a reader of the table may take for its files, at any depth and of any suffix; Spark
    leaves out names that begin so."""
    for file in path.rglob("*"):
        if file.name.startswith((".", "_")) and file.suffix != ".parquet":
            continue
        if file.is_symlink() or not file.is_dir():
            yield file


def _file_digest(path: Path) -> str:
    if not path.is_file():
        return "no file"  # One that others made may be a pipe: it would never end.
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def date_of(place: Path) -> datetime.date | None:
    """Of a directory `dt=YYYY-MM-DD`; None of any other."""
    match = _DATE.fullmatch(place.name)
    try:
        return datetime.date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None
