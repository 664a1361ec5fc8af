"""conf.pid_file: only what really runs is found; what is gone is cleaned away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conf.pid_file import PidRecord, remove_pid_file, run_directory, running, write_pid_file


def test_own_process_is_found_until_removed(tmp_path: Path) -> None:
    path = write_pid_file("mqbroker", os.getpid(), tmp_path)
    assert running("mqbroker", tmp_path) == [PidRecord(os.getpid(), path)]
    assert running("mqnamesrv", tmp_path) == []
    remove_pid_file(path)
    remove_pid_file(path)
    assert running("mqbroker", tmp_path) == []


def test_ended_process_is_cleaned_away(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        path = write_pid_file("mqbroker", child.pid, tmp_path)
        assert [record.pid for record in running("mqbroker", tmp_path)] == [child.pid]
        child.communicate(b"\n")
    assert running("mqbroker", tmp_path) == []
    assert not path.exists()


def test_pid_of_another_process_by_now(tmp_path: Path) -> None:
    path = write_pid_file("mqbroker", os.getpid(), tmp_path)
    path.write_text(path.read_text().replace("start_time=", "start_time=9"))
    assert running("mqbroker", tmp_path) == []
    assert not path.exists()


def test_other_boot_is_gone_other_host_is_left_alone(tmp_path: Path) -> None:
    path = write_pid_file("mqbroker", os.getpid(), tmp_path)
    text = path.read_text()
    path.write_text(text.replace("host=", "host=other-"))
    assert running("mqbroker", tmp_path) == []
    assert path.exists()
    path.write_text(text.replace("boot_id=", "boot_id=0"))
    assert running("mqbroker", tmp_path) == []
    assert not path.exists()


def test_damaged_file_is_cleaned_away(tmp_path: Path) -> None:
    for name in ("mqbroker-1.pid", "mqbroker-2.pid"):
        (tmp_path / name).write_text("" if "1" in name else "pid=x\nhost=y\n")
    assert running("mqbroker", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_directory_can_be_named() -> None:
    assert run_directory({"ROCKETMQ_RUN_DIR": "/x"}) == Path("/x")
    assert run_directory({}) == Path.home() / ".rocketmq-python" / "run"
