"""bin/mqcompile --background: when it compiles, what it remembers, what its end leaves."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conf.compiled_modules import compiled_directory
from tests.support.deadline import wait_until
from tools import background_compile, mqcompile
from tools.background_compile import DISK, MEMORY, Circumstances, find_obstacle, look, main
from tools.chaos.processes import is_running
from tools.compile_marks import compile_lock, find_failure, forget_failure, note_failure
from tools.free_memory import free_memory

ROOT = Path(__file__).resolve().parents[2]
FINE = Circumstances(need="there is none")


def test_it_compiles_where_there_is_need_and_room() -> None:
    assert find_obstacle(FINE) is None


@pytest.mark.parametrize(
    ("differing", "words"),
    [
        ({"need": None}, "up to date"),
        ({"lacking": "there is no C compiler (cc): apt"}, "there is no C compiler (cc): apt"),
        ({"is_writable": False}, "the checkout cannot be written"),
        ({"failure": "x.py:1: no"}, "did not compile before (x.py:1: no); bin/mqcompile tries"),
        ({"memory": MEMORY - 1}, "1535 MiB of memory are free, 1536 are needed"),
        ({"disk": DISK - 1}, "1023 MiB of the disk are free, 1024 are needed"),
    ],
)
def test_what_keeps_it_from_compiling_is_said(differing: dict[str, object], words: str) -> None:
    assert words in str(find_obstacle(dataclasses.replace(FINE, **differing)))  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/one.py").write_text("")
    return tmp_path


def test_it_looks_at_this_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "sh")
    before = look(home)
    assert str(before.need).startswith("there is none in")
    assert before.is_writable
    assert before.memory > 0
    assert before.disk > 0
    assert before.failure == ""
    note_failure_of(home, "why")
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(background_compile.os, "access", lambda _path, _mode: False)
    after = look(home)
    assert after.failure == "why"
    assert not after.is_writable
    assert "no-such-compiler" in after.lacking


def note_failure_of(home: Path, why: str) -> None:
    with compile_lock(home, waits=False):
        note_failure(home, why)


def test_a_failure_is_remembered_until_the_sources_change_or_compile(home: Path) -> None:
    assert find_failure(home) == ""
    note_failure_of(home, "why")
    assert find_failure(home) == "why"
    (home / "store/one.py").write_text("#")
    assert find_failure(home) == ""
    (home / "store/one.py").write_text("")
    assert find_failure(home) == "why"
    forget_failure(home)
    assert find_failure(home) == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"why": "x"}', "5"])
def test_a_damaged_note_is_none(home: Path, text: str) -> None:
    note_failure_of(home, "why")
    (note,) = compiled_directory(home).parent.glob("*.failed")
    note.write_text(text)
    assert find_failure(home) == ""


def test_one_compiles_at_a_time_and_the_lock_ends_with_its_process(home: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tools.compile_marks import compile_lock\n"
        f"with compile_lock(Path({str(home)!r}), waits=False) as mine:\n"
        "    print(mine, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with compile_lock(home, waits=False) as is_mine:
            assert not is_mine
        other.kill()
    with compile_lock(home, waits=False) as is_mine:
        assert is_mine


@pytest.fixture
def compiles(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home where there is nothing against it, in a process that stays as it is."""
    monkeypatch.setattr(background_compile, "_stand_back", lambda: None)
    monkeypatch.setattr(background_compile.signal, "signal", lambda _number, _handler: None)
    monkeypatch.setattr(background_compile, "look", lambda _home: FINE)
    monkeypatch.setattr(background_compile, "_fetch_compiler_of_python", lambda _home: True)
    return home


def test_what_does_not_compile_is_told_and_remembered(
    compiles: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(compiles) == 1, "the modules of the list are not there"
    said = capfd.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith("mqcompile: compiling ")
    assert said.out.splitlines()[-1].endswith("; bin/mqcompile tries again")
    assert find_failure(compiles)
    left = {path.suffix for path in compiled_directory(compiles).parent.iterdir()}
    assert left == {".lock", ".failed"}


def test_what_compiles_is_forgiven_and_told(
    compiles: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(_home: Path, work: Path, _optimize: str) -> Path:
        (work / "made").mkdir()
        return work / "made"

    monkeypatch.setattr(mqcompile, "compile_modules", made)
    note_failure_of(compiles, "of before")
    left = compiled_directory(compiles).parent / "part-of-one-that-was-killed"
    left.mkdir()
    assert main(compiles) == 0
    assert capfd.readouterr().out.endswith(
        f": {compiled_directory(compiles)}; the next start uses them\n"
    )
    assert compiled_directory(compiles).exists()
    assert not left.exists()
    assert find_failure(compiles) == ""


def test_without_a_network_there_is_one_quiet_line(
    compiles: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_compile, "_fetch_compiler_of_python", lambda _home: False)
    assert main(compiles) == 0
    said = capfd.readouterr()
    assert said.err == ""
    assert said.out.count("\n") == 1
    assert "mypy is not there and could not be fetched" in said.out
    assert find_failure(compiles) == "", "it is not the sources' fault"


def test_nothing_is_done_beside_another(compiles: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with compile_lock(compiles, waits=False):
        assert main(compiles) == 0
    assert capfd.readouterr() == ("nothing is compiled: another mqcompile is at work\n", "")


def test_it_takes_what_nobody_wants_and_ends_with_what_it_started() -> None:
    code = (
        "import os, signal, subprocess, sys; from tools import background_compile as it\n"
        "it._stand_back(); signal.signal(signal.SIGTERM, it._end)\n"
        "started = subprocess.Popen(['sleep', '900'])\n"
        "print(os.getpgrp() == os.getpid(), os.sched_getscheduler(started.pid) == os.SCHED_IDLE,"
        " os.getpriority(os.PRIO_PROCESS, started.pid),"
        " open(f'/proc/{started.pid}/oom_score_adj').read().strip(), started.pid, flush=True)\n"
        "started.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        *said, started = process.stdout.readline().split()
        assert said == ["True", "True", "19", "1000"]
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 1
    wait_until(lambda: not is_running(int(started)))


MIB = 1 << 20


def machine(directory: Path, available: int) -> Path:
    """/proc, of a process in the cgroup a/b."""
    (directory / "self").mkdir(parents=True)
    (directory / "meminfo").write_text(
        f"MemTotal:       9 kB\nMemAvailable: {available >> 10} kB\n"
    )
    (directory / "self/cgroup").write_text("0::/a/b\n")
    return directory


def group(path: Path, limit: str, current: int, cache: int) -> None:
    path.mkdir(parents=True)
    (path / "memory.max").write_text(f"{limit}\n")
    (path / "memory.current").write_text(f"{current}\n")
    (path / "memory.stat").write_text(
        f"anon {current - cache}\nfile {cache}\ninactive_file {cache - 5}\nactive_file 5\n"
    )


def test_free_memory_is_the_least_of_machine_and_groups(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path / "proc", 800 * MIB), tmp_path / "cgroup"
    assert free_memory(proc, cgroups) == 800 * MIB, "no groups to be seen"
    group(cgroups / "a", str(1000 * MIB), 900 * MIB, 300 * MIB)
    assert free_memory(proc, cgroups) == 400 * MIB
    group(cgroups / "a/b", "max", 5 * MIB, MIB)
    assert free_memory(proc, cgroups) == 400 * MIB
    (cgroups / "a/b/memory.max").write_text(str(4 * MIB))
    assert free_memory(proc, cgroups) == 0
    (proc / "self/cgroup").write_text("4:memory:/a\n")
    assert free_memory(proc, cgroups) == 800 * MIB
