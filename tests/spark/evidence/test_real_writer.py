"""The chain that a broker's own MetricsDump writes, over midnight, kills and full disks."""

from __future__ import annotations

import datetime
import errno
import os
from pathlib import Path

import pytest

from spark.evidence.dump_chain import DateLines, Join, LifeRecord, join
from tests.broker.metrics.test_metrics_dump import World, kill


def found_in(directory: Path) -> tuple[list[str], list[Join], int]:
    """Problems of lines and files, problems between lives and dates, and how many lines."""
    problems: list[str] = []
    records: list[tuple[datetime.date, LifeRecord]] = []
    for place in sorted(directory.glob("dt=*")):
        files = [path for path in place.rglob("*.jsonl*") if not path.name.startswith(".")]
        lines = DateLines((path.name, path.read_bytes()) for path in sorted(files))
        problems += lines.file_problems
        for record in lines.records():
            problems += record.problems
            records.append((datetime.date.fromisoformat(place.name[3:]), record))
    return problems, list(join(records)), sum(record.lines for _, record in records)


def test_the_brokers_own_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path / "metrics")
    first = world.dump()
    world.turn(first, 30)  # over an hour's and a day's end
    kill(first)
    second = world.dump()

    def fail(_fd: int, _line: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:  # a life whose first lines could not be written
        patch.setattr(os, "write", fail)
        world.turn(second, 2)
    world.turn(second, 3)
    second.finish()
    world.turn(world.dump(), 4)
    world.close()
    problems, joins, count = found_in(world.directory)
    assert (problems, joins, count) == ([], [], 30 + 3 + 1 + 4)

    (plain,) = (path for path in world.directory.rglob("*.jsonl") if path.is_file())
    lines = plain.read_bytes().splitlines(keepends=True)
    plain.write_bytes(b"".join([lines[0], *lines[2:]]))
    problems, _, _ = found_in(world.directory)
    assert [text.partition(" line ")[2][:9] for text in problems] == ["2: missin"]
