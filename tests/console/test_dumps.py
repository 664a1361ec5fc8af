"""Dumps: known events come out of files as a supervisor writes them; damage is a sentence."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from broker.metrics import dump_file_names
from console import dumps as console_dumps
from console.dumps import Dumps, Spell, path_component
from tests.spark.dump_lines_builder import T0, Life, exposure, replica, write_dump

HOUR = 3_600_000
GROUP = ("c", "b")


def read(
    root: Path, first: int = T0, last: int = T0 + HOUR - 1, step: int = 5_000, **more: Any
) -> Any:
    return Dumps(root).read(GROUP, first, last, step, **more)


def an_hour(root: Path) -> None:
    """In sync for a minute, catching up for two lines, gone for 20 s, silent for a minute, well."""
    life = Life()
    lines = life.lines(T0, 12, replicas=[replica(lag_ms=100)], exposure=exposure(0, 0))
    at = T0 + 60_000
    lines += life.lines(at, 2, replicas=[replica(state="catching_up", lag_ms=2_000, lag_bytes=9)])
    lines += life.lines(at + 10_000, 4, replicas=[replica(state="disconnected", lag_ms=25_000)])
    after = life.restarted(at + 90_000)
    lines += after.lines(at + 90_000, 3, replicas=[replica()], exposure=exposure(1, 5_000))
    write_dump(root, lines)


def test_known_events(tmp_path: Path) -> None:
    an_hour(tmp_path)
    found = read(tmp_path)
    at = T0 + 60_000
    assert found.spells == [
        Spell("b:0", "was started", T0, T0),
        Spell("b:1", "catching_up", at, at + 10_000),
        Spell("b:1", "disconnected", at + 10_000, at + 25_000),
        Spell("b:0", "was started", at + 90_000, at + 90_000),
    ]
    lag = dict(zip(found.lag_s["b:1"].times_ms, found.lag_s["b:1"].values, strict=True))
    assert lag[T0] == 0.1
    assert lag[at] == 2.0
    assert lag[at + 15_000] == 25.0
    assert lag[at + 30_000] is None  # nobody told anything: no line through it
    assert lag[at + 90_000] == 0.0
    assert max(v for v in found.lag_bytes["b:1"].values if v is not None) == 9.0
    assert max(v for v in found.exposed.values if v is not None) == 5_000.0
    assert (found.files, found.unread, found.problems) == (2, 0, [])


def test_coarse_steps_have_the_worst(tmp_path: Path) -> None:
    an_hour(tmp_path)
    series = read(tmp_path, step=1_800_000).lag_s["b:1"]
    assert series.values == [25.0, None]


def test_an_incident_over_two_files_is_one(tmp_path: Path) -> None:
    life = Life()
    lines = life.lines(T0 + HOUR - 10_000, 4, replicas=[replica(state="disconnected")])
    write_dump(tmp_path, lines)
    found = read(tmp_path, T0, T0 + 2 * HOUR)
    assert found.files == 2
    assert found.spells[1:] == [Spell("b:1", "disconnected", T0 + HOUR - 10_000, T0 + HOUR + 5_000)]


def test_an_incident_ends_where_the_lines_do(tmp_path: Path) -> None:
    life = Life()
    lines = life.lines(T0, 2, replicas=[replica(state="disconnected")])
    write_dump(tmp_path, lines + life.lines(T0 + 600_000, 1, replicas=[replica()]))
    assert read(tmp_path).spells[1:] == [Spell("b:1", "disconnected", T0, T0 + 5_000)]


def test_an_election_is_a_moment(tmp_path: Path) -> None:
    role = {"ts": T0 + 5, "role": "LEAD", "epoch": 4, "cause": "notified", "without_master_ms": 900}
    life = Life()
    lines = [life.line(T0), life.line(T0 + 5_000, roles=[role])]
    write_dump(tmp_path, lines)
    assert read(tmp_path).spells[1] == Spell(
        "b:0", "LEAD in epoch 4 (notified), 900 ms without a master", T0 + 5, T0 + 5
    )


def test_damage_is_said(tmp_path: Path) -> None:
    life = Life()
    write_dump(tmp_path, life.lines(T0, 3, replicas=[replica()]), compress=False)
    (path,) = tmp_path.rglob("*.jsonl")
    path.write_bytes(b'{"ts":\n[[[\n' + b"[" * 100_000 + b"\n" + path.read_bytes() + b'{"ts":1')
    torn = path.with_name("0001-0-00000009-00000001.jsonl.gz")
    torn.write_bytes(gzip.compress(path.read_bytes())[:-20])
    path.with_name("notes.txt").write_text("x")
    found = read(tmp_path)
    assert found.files == 2
    assert found.problems[0].startswith(f"{torn.name} breaks off")
    assert found.problems[1].endswith("lines cannot be read.")
    assert found.lag_s["b:1"].values[0] == 0.0


def test_a_bomb_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_dumps, "MAX_FILE", 1 << 20)
    write_dump(tmp_path, Life().lines(T0, 1))
    (path,) = tmp_path.rglob("*.gz")
    path.write_bytes(gzip.compress(bytes(5 << 20)))
    (problem,) = [text for text in read(tmp_path).problems if "MiB" in text]
    assert "the rest is left" in problem


def test_another_groups_lines_and_odd_numbers_count_for_nothing(tmp_path: Path) -> None:
    life = Life()
    lines = [
        life.line(T0, cluster="other", replicas=[replica("x:1")]),
        life.line(-5),
        life.line(10**30, replicas=[replica("x:2")]),
        life.line(T0 + 5_000, replicas=[replica(lag_ms=10**40)]),
    ]
    write_dump(tmp_path, lines[3:])
    (path,) = tmp_path.rglob("*.gz")
    import json

    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()))
    assert set(read(tmp_path).lag_s) == {"b:1"}


def test_what_the_time_does_not_suffice_for_is_read_the_next_time(tmp_path: Path) -> None:
    write_dump(tmp_path, Life().lines(T0, 3 * 720, replicas=[replica()]))
    ticks = iter(range(10**6))
    dumps = Dumps(tmp_path, lambda: float(next(ticks)))
    first = dumps.read(GROUP, T0, T0 + 3 * HOUR, 60_000, patience_s=1.5)
    assert (first.files, first.unread) == (3, 2)
    newest = first.lag_s["b:1"].values
    assert newest[-2] == 0.0
    assert newest[0] is None


def test_a_closed_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dump(tmp_path, Life().lines(T0, 3, replicas=[replica()]))
    dumps = Dumps(tmp_path)
    first = dumps.read(GROUP, T0, T0 + HOUR, 60_000)
    with monkeypatch.context() as patched:
        patched.setattr(console_dumps, "read_file", None)
        assert dumps.read(GROUP, T0, T0 + HOUR, 60_000) == first
    (path,) = tmp_path.rglob("*.gz")
    path.write_bytes(b"")
    os.utime(path, ns=(1, 1))
    assert dumps.read(GROUP, T0, T0 + HOUR, 60_000).lag_s == {}


@pytest.mark.parametrize(
    "name",
    ["plain-1.x_", "../..", "~a", "ä/b c", "n" * 247, "n" * 300, "漢" * 28, "\ud800"[:0] or "x"],
)
def test_paths_are_those_that_brokers_write(name: str) -> None:
    assert path_component(name) == dump_file_names.path_component(name)
