"""Compacted dumps give the same report, whatever happens in between."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import gzip
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark.command import command_line
from spark.dumps import compaction as compact
from tests.spark.both_ways import Question, plain_tables
from tests.spark.dump_lines_builder import DATE, T0, Life, every, replica, write_dump, write_file
from tests.spark.plain_samples import Tables, Window

HOUR = 3_600_000
NOW = T0 + 3 * 24 * HOUR
PLACE = f"dt={DATE}/cluster=c/broker=b"


def dumps(root: Path) -> Path:
    """Four hours of a master with a restart, and of its slave; with a bad line, a line that comes
    twice, and a file that breaks off."""
    interval = 60_000
    life = Life(interval_ms=interval, start_ms=T0)
    lines = [
        life.line(ts, replicas=[replica("b:1", "in_sync" if ts % 7 else "catching_up")])
        for ts in every(T0, T0 + 2 * HOUR, interval)
    ]
    after = life.restarted(T0 + 2 * HOUR + 90_000)
    lines += after.lines(T0 + 2 * HOUR + 91_000, 100)
    slave = Life(interval_ms=interval, broker_id=1, role="SLAVE", boot="00000009" * 2)
    lines += slave.lines(T0 + 1_000, 200)
    write_dump(root, lines)
    first = sorted((root / PLACE).glob("0100-0-*"))[0]
    text = gzip.decompress(first.read_bytes()).decode().splitlines()
    write_file(first.with_suffix(""), [*text, "no line", text[0]], compress=True)
    torn = sorted((root / PLACE).glob("0300-0-*"))[0]
    torn.write_bytes(torn.read_bytes()[:-300])
    return root


def report(root: Path) -> Tables:
    """All tables but for what files are called."""
    window = Window(DATE, T0, T0 + 5 * HOUR)
    tables = plain_tables(Question([root], window))
    tables["bad_lines"] = sorted(
        ({"text": row["text"]} for row in tables["bad_lines"]), key=lambda row: row["text"]
    )
    return tables


def counted_once(tables: Tables) -> Tables:
    """Without how often lines were seen."""
    return {
        name: [{k: v for k, v in row.items() if k != "duplicates"} for row in rows]
        for name, rows in tables.items()
        if name != "bad_lines"
    }


def run(root: Path, *arguments: str, now_ms: int = NOW) -> int:
    return command_line.main(["compact", "--dumps", str(root), *arguments], lambda: now_ms)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / PLACE).iterdir())


def test_the_same_report_from_few_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = dumps(tmp_path / "dumps")
    before, torn = report(root), sorted((root / PLACE).glob("0300-0-*"))[0]
    assert len(before["bad_lines"]) == 2
    assert len(names(root)) == 9
    content = torn.read_bytes()
    assert run(root) == 0
    out, err = capsys.readouterr()
    assert out == "7 files became 2; 1 left as they are\n"
    assert f"{torn}: kept: damaged" in err
    assert len(names(root)) == 4
    assert torn.read_bytes() == content
    assert report(root) == before


def test_again_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = dumps(tmp_path / "dumps")
    assert run(root) == 0
    files = {path: path.stat().st_mtime_ns for path in (root / PLACE).iterdir()}
    capsys.readouterr()
    assert run(root) == 0
    assert capsys.readouterr().out == "0 files became 0; 1 left as they are\n"
    assert files == {path: path.stat().st_mtime_ns for path in (root / PLACE).iterdir()}


class Killed(BaseException):
    """The process is no more."""


@contextlib.contextmanager
def killed_at(patch: pytest.MonkeyPatch, step: int) -> Iterator[None]:
    """At the given one of the calls that change something on the disk or make it durable."""
    steps = itertools.count()

    def deadly(act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(steps) == step:
                raise Killed
            return act(*arguments, **options)

        return call

    with patch.context() as patched:
        patched.setattr(os, "replace", deadly(os.replace))
        patched.setattr(os, "fsync", deadly(os.fsync))
        patched.setattr(Path, "unlink", deadly(Path.unlink))
        yield


def test_killed_at_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dumps(tmp_path / "whole")
    before = report(whole)
    for step in itertools.count():
        root = tmp_path / str(step)
        shutil.copytree(whole, root)
        try:
            with killed_at(monkeypatch, step):
                assert run(root) == 0
        except Killed:
            assert counted_once(report(root)) == counted_once(before), step
            assert run(root) == 0
            assert report(root) == before, step
            assert len(names(root)) == 4, step
        else:
            break
    assert step > 20


def test_what_is_written_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    life = Life(interval_ms=60_000)
    write_dump(tmp_path, life.lines(T0 + 30_000, 150), compress=False)
    first, second, third = sorted((tmp_path / PLACE).iterdir())
    with second.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run(tmp_path, "--date", str(DATE), now_ms=T0 + 2 * HOUR + 1_800_000) == 0
    err = capsys.readouterr().err
    assert f"{second}: kept: it is still being written" in err
    assert f"{third}: kept: it is still being written" in err
    assert names(tmp_path) == [first.name, second.name, third.name]
    assert run(tmp_path, "--date", str(DATE), now_ms=T0 + 3 * HOUR) == 0
    assert names(tmp_path) == [f"{first.name}.gz"]


def test_dates_that_are_not_over_only_when_asked_for(tmp_path: Path) -> None:
    root = dumps(tmp_path)
    assert run(root, now_ms=T0 + 23 * HOUR) == 0
    assert len(names(root)) == 9
    yesterday = str(DATE - datetime.timedelta(days=1))
    assert run(root, "--date", yesterday) == 0
    assert len(names(root)) == 9
    assert run(root, "--date", str(DATE), now_ms=T0 + 23 * HOUR) == 0
    assert len(names(root)) == 4


def test_an_end_that_is_no_line_and_a_name_that_no_broker_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life()
    write_dump(tmp_path, life.lines(T0, 2000))
    first, second, third = sorted((tmp_path / PLACE).iterdir())
    second.write_bytes(gzip.compress(gzip.decompress(second.read_bytes())[:-1]))
    other = third.rename(third.with_name("other.jsonl.gz"))
    assert run(tmp_path) == 0
    err = capsys.readouterr().err
    assert f"{second}: kept: its last line is incomplete" in err
    assert f"{other}: kept: not the name of a file that a broker writes" in err
    assert names(tmp_path) == sorted(path.name for path in (first, second, other))


def test_large_files_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dump(tmp_path, Life().lines(T0, 3000))
    sizes = [path.stat().st_size for path in sorted((tmp_path / PLACE).iterdir())]
    assert len(sizes) == 5
    monkeypatch.setattr(compact, "MOST_BYTES", sizes[0] + sizes[1] + 10)
    assert run(tmp_path) == 0
    assert len(names(tmp_path)) == 3


def test_a_file_that_changed_after_the_kill_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal names the files as they were: what has come since is in no merged file."""
    write_dump(tmp_path, Life().lines(T0, 1000))
    first, second = sorted((tmp_path / PLACE).iterdir())
    with pytest.raises(Killed), killed_at(monkeypatch, 6):
        run(tmp_path)
    assert second.exists()
    more = gzip.compress(b'{"new": 1}\n')
    second.write_bytes(second.read_bytes() + more)
    assert run(tmp_path) == 0
    assert b'{"new": 1}' in gzip.decompress(first.read_bytes())


def test_two_runs_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = dumps(tmp_path)
    descriptor = os.open(root / PLACE, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert run(root) == 0
    finally:
        os.close(descriptor)
    assert "another run is compacting it" in capsys.readouterr().err
    assert len(names(root)) == 9


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("s3a://bucket/metrics", "compact works on local directories"),
        ("/nowhere/at/all", "there is no such directory"),
    ],
)
def test_paths_that_cannot_be(path: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["compact", "--dumps", path], lambda: NOW) == 3
    assert text in capsys.readouterr().err


def test_a_file_that_is_made_to_be_large_is_kept_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dump(tmp_path, Life(start_ms=T0).lines(T0 + 1_000, 2_000))
    bomb, *others = sorted((tmp_path / PLACE).iterdir())
    bomb.write_bytes(gzip.compress(b"\n" * 40_000_000))
    before = bomb.read_bytes()
    assert run(tmp_path) == 0
    told = capsys.readouterr()
    assert f"{bomb}: kept: unpacks to more than 300 times its size" in told.err
    assert bomb.read_bytes() == before
    assert len(others) > 1
    assert f"{len(others)} files became 1; 1 left as they are" in told.out


def test_no_merged_file_is_larger_than_what_the_report_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(tmp_path, Life(start_ms=T0).lines(T0 + 1_000, 4_000))
    files = sorted((tmp_path / PLACE).iterdir())
    sizes = [len(gzip.decompress(path.read_bytes())) for path in files]
    assert len(files) == 6
    monkeypatch.setattr(compact, "MOST_TEXT_BYTES", sizes[0] + sizes[1])
    assert run(tmp_path) == 0
    merged = [len(gzip.decompress(path.read_bytes())) for path in (tmp_path / PLACE).glob("*.gz")]
    assert sum(merged) == sum(sizes)
    assert len(merged) < len(files)
    assert max(merged) <= sizes[0] + sizes[1]
