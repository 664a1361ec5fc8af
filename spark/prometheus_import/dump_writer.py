"""`mqreport import`: answers of a Prometheus server become metrics dumps (docs/metrics_dump.md).

Plain Python, run as its own command; starts no Spark. Prints the queries to ask
(`--print-queries`) and writes files that are there whole or not at all; the same answers give
the same files.
"""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from spark.dumps.durable_files import replace_file, sync_directory
from spark.prometheus_import.lines import Line

_MOST_CHARACTERS: Final = 247
"""Of a name in a path, so that `cluster=` fits in front of it."""


def write_dumps(directory: Path, lines: Iterable[Line]) -> int:
    """Writes lines as a broker does: a file for each hour, broker and boot. Returns their number.

    They are on the disk when it returns. Raises OSError that names a file.
    """
    changed: set[Path] = set()
    files: dict[tuple[str, str, str, int, str], list[Line]] = defaultdict(list)
    for line in lines:
        hour = _moment(line).strftime("%Y-%m-%dT%H")
        key = (hour, line["cluster"], line["broker"], line["broker_id"], line["boot"])
        files[key].append(line)
    for some in files.values():
        first = some[0]
        place = directory / f"dt={_moment(first):%Y-%m-%d}"
        place = place / f"cluster={_component(first['cluster'])}"
        place = place / f"broker={_component(first['broker'])}"
        changed |= _make_directories(place)
        boot = f"{first['boot'][:8]}-{first['seq']:08d}"
        name = f"{_moment(first):%H%M}-{first['broker_id']}-{boot}.jsonl.gz"
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in some)
        replace_file(place / name, gzip.compress(text.encode(), mtime=0))
    for place in changed:
        sync_directory(place)
    return len(files)


def _make_directories(place: Path) -> set[Path]:
    """Those that get another entry: `place`, and each in which one had to be made."""
    made = [path for path in (place, *place.parents) if not path.exists()]
    place.mkdir(parents=True, exist_ok=True)
    return {place, *(path.parent for path in made)}


def _moment(line: Line) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(line["ts"] / 1000, datetime.UTC)


def _component(name: str) -> str:
    """`name` as part of a path: docs/metrics_dump.md, "Files"; quote alone would keep `~`."""
    text = quote(name, safe="").replace("~", "%7E")
    if len(text) <= _MOST_CHARACTERS:
        return text
    end = f"~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return text[: _MOST_CHARACTERS - len(end)] + end
