"""What Spark's tasks do for a report, without Spark: files to groups, groups to rows."""

from __future__ import annotations

import ast
import gzip
import json
import pickle
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from spark.config.objectives import Objective, ReplicaName, SlaConfig
from spark.dumps.dump_text import GZIP
from spark.evidence.dump_chain import DateLines, LifeRecord
from spark.figures.report_context import Context
from spark.figures.result_tables import TABLES
from spark.job.report_tasks import (
    FILE_PROBLEMS,
    LIVES,
    BadLines,
    Rows,
    bad_lines_by_reason,
    item_of_expected,
    items_of_file,
    items_of_rows,
    part_of,
    rows_of_part,
)
from spark.reported_day import Day
from tests.spark.dump_lines_builder import DATE, T0, Life

ROOT = Path(__file__).resolve().parents[3]
DAY = Day(DATE, T0, T0 + 600_000)
SLA = SlaConfig((Objective("default"),), expect=(ReplicaName("c", "lost", "lost:1"),))
FOLDER = f"file:/dt=2020-01-01/dt={DATE}/cluster=c/broker=b"


def packed(*lines: Any) -> bytes:
    return gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode(), mtime=0)


def rows(items: list[Any]) -> dict[str, list[dict[str, Any]]]:
    """Of all groups, by table, as they come out of one part of the shuffle."""
    context = Context(DAY, SLA, is_reported=False, result_dates=())
    sent = pickle.loads(pickle.dumps((items, context)))
    found: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
    for some in (each for each in rows_of_part(*sent) if each.table in TABLES):
        unpacked = some.unpacked()
        assert some.length == len(unpacked) > 0
        found[some.table] += [dict(zip(TABLES[some.table], row, strict=True)) for row in unpacked]
    return found


def test_lines_of_a_group_come_together_from_several_files() -> None:
    """The first line of a file follows the last line of another, whatever their order."""
    life = Life(start_ms=T0 - 60_000)
    lines = life.lines(T0 - 5_000, 122)
    halves = [packed(*lines[60:]), packed(*lines[:60])]
    items = [
        item
        for number, content in enumerate(halves)
        for item in items_of_file(f"{FOLDER}/{number}.jsonl.gz", content, DAY)
    ]
    found = rows(items)
    (row,) = found["replica_days"]
    assert (row["received"], row["good_s"], row["unknown_s"]) == (120, 600, 0)
    assert len(found["minutes"]) == 10
    assert found["bad_lines"] == []


def test_bad_lines_of_groups_and_of_none() -> None:
    line = Life().line(T0 + 5_000)
    content = packed(line, line | {"interval_ms": 0}, "garbage")
    found = rows(list(items_of_file(f"{FOLDER}/x.jsonl", content, DAY)))["bad_lines"]
    assert sorted((row["file"], row["reason"]) for row in found) == [
        (f"{FOLDER[5:]}/x.jsonl", "interval_ms: below 1"),
        (f"{FOLDER[5:]}/x.jsonl", "not one JSON object"),
    ]


def evidence(items: list[Any]) -> tuple[list[LifeRecord], list[str]]:
    """Lives, sorted, and problems of files, sorted."""
    context = Context(DAY, SLA, is_reported=False, result_dates=())
    found: dict[str, list[Any]] = {LIVES: [], FILE_PROBLEMS: []}
    for some in rows_of_part(items, context):
        found.setdefault(some.table, []).extend(some.unpacked())
    return sorted(found[LIVES], key=lambda record: record.life), sorted(found[FILE_PROBLEMS])


def chained(life: Life, count: int, first: int = 0) -> bytes:
    """Lines of version 1 and one of version 2, each a dump's; the chain's fields stand in some."""
    lines = [life.line(T0 + (first + number) * 5_000) for number in range(count)]
    lines[-1] |= {"v": 2, "prev_digest": "0" * 64}
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text,
        lambda text: gzip.compress(text, mtime=0),
        lambda text: gzip.compress(text, mtime=0)[:-9],
        lambda text: text[:-1],
        lambda text: text[:-30],
        lambda text: gzip.compress(text[:-30], mtime=0),
        lambda text: text[:-30] + b"\r" + text[-30:-20],
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.replace(b"\n", b"\r\n", 2),
        lambda text: text.replace(b'"seq": 2', b'"seq": 0', 1),
        lambda text: text.replace(b'"seq": 2', b'"seq": 9223372036854775808', 1),
        lambda text: text.replace(b'"boot_ts"', b'"boots"', 1),
        lambda text: text.replace(b'"ts"', b'"ts": 1e999, "old"', 1),
        lambda text: text.replace(b'"broker"', b'"breaker"', 1),
        lambda text: b"garbage\n\n" + text + b"\xff\n",
        lambda text: text + b'{"v": 3}',
        lambda text: text + text,
        lambda _text: b"",
    ],
)
def test_the_evidence_is_of_the_lines_that_are_read(spoil: Any) -> None:
    """What comes with the tables is what `verify` finds in the files, whatever lies there: two
    groups in one file, a file of its own, plain and packed, the day before."""
    one, other = Life(), Life(broker="x")
    alone = spoil(chained(one, 3, first=6))
    files = {
        f"{FOLDER}/mixed.jsonl": spoil(chained(one, 3) + chained(other, 4)),
        f"{FOLDER}/own.jsonl": spoil(chained(one, 3, first=3)),
        f"{FOLDER}/own.jsonl.gz": alone if alone[:2] == GZIP else gzip.compress(alone, mtime=0),
        f"{FOLDER}/other.jsonl.gz": packed(other.line(T0 + 20_000)),
    }
    before = FOLDER.replace(f"/dt={DATE}", "/dt=2026-03-09")
    extra = list(items_of_file(f"{before}/x.jsonl", chained(Life(broker="y"), 2), DAY))
    items = [item for path, content in files.items() for item in items_of_file(path, content, DAY)]
    known = DateLines((path[path.rfind("/dt=") + 1 :], text) for path, text in files.items())
    assert evidence([*items, *extra]) == (known.records(), sorted(known.file_problems))
    assert known.records()


def test_who_reports_on_a_group_unpacks_each_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a file of the date, of which the evidence needs the digests."""
    lines = Life().lines(T0 + 5_000, 40)
    items = [
        item
        for number in range(4)
        for item in items_of_file(f"{FOLDER}/{number}.gz", packed(*lines[number * 10 :][:10]), DAY)
    ]
    opened = 0
    unpack = zlib.decompressobj

    def counted(*given: Any) -> Any:
        nonlocal opened
        opened += 1
        return unpack(*given)

    monkeypatch.setattr(zlib, "decompressobj", counted)
    records, problems = evidence(items)
    assert ([record.lines for record in records], problems) == ([40], [])
    assert opened == 4


def test_of_a_file_that_goes_to_its_group_no_digests_travel() -> None:
    """Two lives of one group; 40 digests are 2,560 bytes that no compression makes fewer."""
    lines = [*Life().lines(T0 + 5_000, 20), *Life(boot="f" * 16).lines(T0 + 105_000, 20)]
    content = packed(*lines)
    path = f"{FOLDER}/whole.jsonl.gz"
    items = list(items_of_file(path, content, DAY))
    assert len(pickle.dumps(items)) < len(content) + 500
    records, problems = evidence(items)
    assert ([record.lines for record in records], problems) == ([20, 20], [])


def test_groups_without_lines() -> None:
    """Expected, or in an earlier result: they are there, unknown."""
    stored = dict.fromkeys(TABLES["group_days"]) | {"cluster": "c", "broker": "b", "dt": "x"}
    items = [item_of_expected(("c", "lost")), *items_of_rows("group_days", [stored])]
    (row,) = rows(items)["replica_days"]
    assert (row["replica"], row["unknown_s"]) == ("lost:1", 600)


def test_where_a_key_goes_is_the_same_in_every_process() -> None:
    assert part_of(("c", "b")) == 376_220_703
    assert part_of(("c", "\ud800")) != part_of(("c", "b"))


def test_bad_lines_are_counted_by_reason() -> None:
    lines = [("/f", "torn", "b"), ("/f", "torn", "a"), ("/g", "torn", "0"), ("/g", "v", "x")]
    counted = bad_lines_by_reason(Rows("bad_lines", ("/f",), 4, pickle.dumps(lines)))
    assert counted == {
        "torn": BadLines(3, frozenset({"/f", "/g"}), ("/f", "a")),
        "v": BadLines(1, frozenset({"/g"}), ("/g", "x")),
    }
    both = counted["torn"].and_also(BadLines(2, frozenset({"/e"}), ("/e", "z")))
    assert both == BadLines(5, frozenset({"/e", "/f", "/g"}), ("/e", "z"))


def test_executors_need_the_standard_library_and_msgspec() -> None:
    """So a cluster's nodes need a Python with msgspec and nothing else (docs/sla_at_scale.md)."""
    left = ["job.report_tasks"]
    seen: set[str] = set()
    libraries: set[str] = set()
    while left:
        name = left.pop()
        seen.add(name)
        tree = ast.parse(
            (ROOT / "spark" / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("spark"):
                package = str(node.module).partition(".")[2]
                path = ROOT / "spark" / package.replace(".", "/")
                inside = [f"{package}.{each.name}".lstrip(".") for each in node.names]
                names = inside if path.is_dir() else [package]
            else:
                names = []
                if isinstance(node, ast.ImportFrom):
                    libraries.add(str(node.module).partition(".")[0])
                elif isinstance(node, ast.Import):
                    libraries |= {each.name.partition(".")[0] for each in node.names}
            left += [each for each in names if each not in seen]
    assert libraries - set(sys.stdlib_module_names) == {"msgspec"}
    assert {f"figures.{each}" for each in ("group_report", "verdicts", "windows", "events")} <= seen
