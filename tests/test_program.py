"""A forked program of ours is like one that an interpreter of its own runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadline import wait_until
from tests.support.program import ForkedProgram, start_program
from tools.chaos.processes import stat_fields

ROOT = Path(__file__).parents[1]
FRESH = {"MORE_THAN_A_FORK_TAKES_OVER": "1"}
Program = ForkedProgram | subprocess.Popen[bytes]


def start(directory: Path, *arguments: str, **more: str) -> Program:
    """A name server, which prints to the file `output`."""
    directory.mkdir(exist_ok=True)
    conf = directory / "namesrv.conf"
    lines = ["listenPort=0", "bindAddress=127.0.0.1", f"logDir={directory}/logs"]
    conf.write_text("\n".join([*lines, f"kvConfigPath={directory}/kv.json", ""]))
    environment = {"HOME": str(directory), "ROCKETMQ_HOME": str(ROOT)}
    command = [sys.executable, "-m", "namesrv", *(arguments or ("-c", str(conf)))]
    with (directory / "output").open("wb") as output:
        return start_program(
            command,
            output=output.fileno(),
            environment={**os.environ, **environment, **more},
            directory=directory,
        )


def output(directory: Path) -> str:
    return (directory / "output").read_text()


def traits(directory: Path, program: Program) -> list[str]:
    """What /proc knows of a name server that serves, numbers and its directory apart."""
    wait_until(lambda: "boot success" in output(directory), 30)
    process = Path(f"/proc/{program.pid}")
    status = (process / "status").read_text().splitlines()
    kept = ("Name", "Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed")
    found = [line for line in status if line.partition(":")[0] in kept]
    found += [f"{fd.name} {os.readlink(fd)}" for fd in (process / "fd").iterdir()]
    found += (process / "limits").read_text().splitlines()
    found += [f"{os.getsid(program.pid) == program.pid}", os.readlink(process / "cwd")]
    found.append((process / "cmdline").read_text().rstrip("\0").replace("\0", " "))
    texts = [text.replace(str(directory), "<directory>") for text in found]
    return sorted(re.sub(r"^\d+ |(?<=:\[)\d+", "", text) for text in texts)


def test_it_serves_and_ends_like_any_other(tmp_path: Path) -> None:
    forked = start(tmp_path / "forked")
    fresh = start(tmp_path / "fresh", **FRESH)
    assert isinstance(forked, ForkedProgram)
    assert isinstance(fresh, subprocess.Popen)
    assert traits(tmp_path / "forked", forked) == traits(tmp_path / "fresh", fresh)
    for program in (forked, fresh):
        assert program.poll() is None
        os.kill(program.pid, signal.SIGTERM)
        assert program.wait(30) == 0 == program.returncode == program.poll()
    assert not Path(f"/proc/{fresh.pid}").exists()
    wait_until(lambda: not Path(f"/proc/{forked.pid}").exists())


def test_one_that_cannot_start_says_the_same(tmp_path: Path) -> None:
    told = []
    for name, more in (("forked", {}), ("fresh", FRESH)):
        program = start(tmp_path / name, "-c", "none.conf", **more)
        told.append((program.wait(30), output(tmp_path / name)))
    assert told[0] == told[1]
    assert told[0][0] not in (0, None)


def test_its_pid_is_its_own_until_its_end_was_seen(tmp_path: Path) -> None:
    program = start(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.01)
    os.kill(program.pid, signal.SIGKILL)
    wait_until(lambda: stat_fields(program.pid)[0] == "Z")
    assert program.poll() == -signal.SIGKILL
    wait_until(lambda: not stat_fields(program.pid))


def test_a_umask_of_its_own_needs_an_interpreter_of_its_own(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        program = start(tmp_path, "-h")
    finally:
        os.umask(before)
    assert isinstance(program, subprocess.Popen)
    assert program.wait(30) == 0


def test_what_the_tests_of_the_report_set_needs_none(tmp_path: Path) -> None:
    home = str(Path(__file__).parents[1])
    more = {"JAVA_HOME": "/no/java", "PYSPARK_PYTHON": "/no/python", "PYTHONPATH": f"{home}:{home}"}
    program = start(tmp_path, "-h", **more)
    assert isinstance(program, ForkedProgram)
    assert program.wait(30) == 0
