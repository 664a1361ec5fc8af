"""SIGKILL of a metrics dump at each of its steps; what readers and the next life find."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.faults.dump_child import START_MS, TURNS, dump_in
from tests.support.manual_clock import ManualClock
from tests.support.our_broker import HOME

Key = tuple[str, int]


class Dying:
    """The helper that forks the dying child."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.dump_child"],
            cwd=HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def root(self) -> Path:
        return self.directory / "metrics"

    def play(self, kill_at: int) -> int:
        """One child; its exit code, -9 for SIGKILL."""
        request = {
            "root": str(self.root),
            "kill_at": kill_at,
            "steps": str(self.directory / "steps"),
            "told": str(self.directory / "told"),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def told(self) -> tuple[str, list[int]]:
        """Boot id, and the lines that the child was told were written."""
        boot, *rest = (self.directory / "told").read_text().splitlines()
        assert "failures 0" in rest or not any(text.startswith("failures") for text in rest)
        return boot, [int(text) for text in rest if text.isdecimal()]

    def close(self) -> None:
        self._process.communicate(timeout=10)


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[Dying]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as directory:
        found = Dying(Path(directory))
        yield found
        found.close()


@dataclass
class Seen:
    """What a reader finds: each line's texts, and the files it stands in."""

    lines: dict[Key, str] = field(default_factory=dict)
    places: dict[Key, list[str]] = field(default_factory=dict)
    prev: dict[str, Key | None] = field(default_factory=dict)


def look(root: Path) -> Seen:
    """Reads as a reader does; every whole line parses, and equal ones have equal texts."""
    seen = Seen()
    for path in sorted(root.rglob("*.jsonl*")):
        if path.name.startswith("."):
            continue
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)  # also checks that it is whole
            assert data.endswith(b"\n")
        for text in data[: data.rfind(b"\n") + 1].decode().splitlines():
            line = json.loads(text)
            key = (line["boot"], line["seq"])
            assert seen.lines.setdefault(key, text) == text
            seen.places.setdefault(key, []).append(str(path))
            prev = (line["prev_boot"], line["prev_seq"]) if line["prev_boot"] else None
            assert seen.prev.setdefault(line["boot"], prev) == prev
    return seen


def assert_only_known_duplicates(seen: Seen) -> None:
    """A line is twice only while its file and the compressed one are both there."""
    for places in seen.places.values():
        assert len(places) == 1 or places[1:] == [f"{places[0]}.gz"]


def judge(dying: Dying, before: Seen) -> None:
    """After the death, and after the next life's orderly stop."""
    boot, told = dying.told()
    after = kept(look(dying.root))
    assert_only_known_duplicates(after)
    own = sorted(seq for life, seq in after.lines if life == boot)
    assert own in (told, [*told, len(told) + 1])
    assert told == list(range(1, len(told) + 1))
    for key, text in before.lines.items():
        assert after.lines[key] == text
    last = max(before.lines, key=lambda key: json.loads(before.lines[key])["boot_ts"], default=None)
    if last is not None:
        last = (last[0], max(seq for life, seq in before.lines if life == last[0]))
    if own:
        assert after.prev[boot] == last
        last = (boot, own[-1])

    clock = ManualClock(now_ms=START_MS + 60_000)
    successor = dump_in(dying.root, clock)
    for _ in range(4):
        successor.turn()
        clock.advance(5_000)
    successor.finish()

    assert successor.failures == 0
    end = kept(look(dying.root))
    assert [key for key, places in end.places.items() if len(places) > 1] == []
    assert {key: end.lines[key] for key in after.lines} == after.lines
    assert {key for key in end.lines if key not in after.lines} == {
        (successor.boot, seq) for seq in range(1, 6)
    }
    assert end.prev[successor.boot] == last
    names = [path.name for path in dying.root.rglob("*") if path.is_file()]
    assert [name for name in names if name.startswith(".") or not name.endswith(".gz")] == []


def each_step(dying: Dying, prepare: Callable[[Path], None]) -> list[str]:
    """The child dies at every step; returns the steps' names."""
    original = dying.directory / "original"
    original.mkdir()
    prepare(original)
    before = kept(look(original))

    def run(kill_at: int) -> None:
        shutil.rmtree(dying.root, ignore_errors=True)
        shutil.copytree(original, dying.root)
        assert dying.play(kill_at) == (0 if kill_at < 0 else -signal.SIGKILL)
        judge(dying, before)

    run(-1)
    assert dying.told()[1] == list(range(1, TURNS + 2))
    names = (dying.directory / "steps").read_text().splitlines()
    for number in range(len(names)):
        try:
            run(number)
        except BaseException as error:
            error.add_note(f"killed at step {number}: {names[max(number - 3, 0) : number + 1]}")
            raise
    return names


def kept(seen: Seen) -> Seen:
    """Without what is too old: it may be there or not."""
    lines = {key: text for key, text in seen.lines.items() if not key[0].startswith(OLD)}
    return Seen(lines, {key: seen.places[key] for key in lines}, seen.prev)


OLD = "0000000"
"""How boot ids begin whose lines shall go."""


def nothing(root: Path) -> None:
    """A broker's first start."""


def leftovers(root: Path) -> None:
    """Of a life that was killed while it compressed, and of one that was killed while it wrote."""
    for number, minutes in enumerate((90, 30)):
        clock = ManualClock(now_ms=START_MS - minutes * 60_000)
        dump = dump_in(root, clock)
        for _ in range(3):
            dump.turn()
            clock.advance(5_000)
        dump.finish()
        packed = next(p for p in root.rglob("*.gz") if dump.boot[:8] in p.name)
        plain = packed.with_suffix("")
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
        if number == 1:
            packed.rename(packed.with_name(f".{packed.name}.tmp"))
            with plain.open("ab") as file:
                file.write(b'{"v":1,"ts":1767')


def too_old(root: Path) -> None:
    """Three days that shall go, with their directories, and an earlier life that stays."""
    for days in (3, 4, 5):
        moment = datetime.fromtimestamp(START_MS / 1000 - days * 86_400, UTC)
        directory = root / f"dt={moment:%Y-%m-%d}" / "cluster=C1" / "broker=broker-a"
        directory.mkdir(parents=True)
        boot = f"{OLD}{days}"
        line = {"boot": boot * 2, "boot_ts": 1, "seq": 1, "prev_boot": None, "prev_seq": None}
        path = directory / f"1200-0-{boot}-00000001.jsonl.gz"
        path.write_bytes(gzip.compress(json.dumps(line).encode() + b"\n"))
    dump_in(root / "later", ManualClock(now_ms=START_MS - 600_000)).finish()
    for path in (root / "later").iterdir():
        path.rename(root / path.name)
    (root / "later").rmdir()


def test_first_start(dying: Dying) -> None:
    names = each_step(dying, nothing)
    assert sum("torn" in name for name in names) >= TURNS + 1
    assert names.count("after rename") == 2


def test_start_over_leftovers(dying: Dying) -> None:
    names = each_step(dying, leftovers)
    assert names.count("after rename") == 3
    assert names.count("after ftruncate") == 1


def test_removal_of_what_is_too_old(dying: Dying) -> None:
    names = each_step(dying, too_old)
    assert names.count("after rmdir") == 9
