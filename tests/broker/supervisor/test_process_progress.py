"""What a process does, as the kernel counts it: real processes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from broker.supervisor.process_progress import progress_of
from tests.support.deadline import wait_until


def test_processor_time_is_what_the_kernel_says_of_this_process() -> None:
    def used_s() -> float:
        own = resource.getrusage(resource.RUSAGE_SELF)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime

    before_s = used_s()
    ticks, _ = progress_of(os.getpid())
    after_s = used_s()
    # Each of the four numbers is cut to whole ticks.
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert before_s - 5 * tick_s <= ticks * tick_s <= after_s + 5 * tick_s


def test_bytes_grow_by_what_is_written(tmp_path: Path) -> None:
    _, before = progress_of(os.getpid())
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    _, after = progress_of(os.getpid())
    assert after - before >= 1 << 20


@pytest.mark.parametrize(
    ("program", "grows"),
    [
        ("while True: pass", True),
        ("while True: os.pread(f, 1, 0)", True),
        ("import time; time.sleep(600)", False),
    ],
)
def test_a_process_that_works_and_one_that_waits(program: str, grows: bool) -> None:
    start = f"import os; f = os.open({__file__!r}, os.O_RDONLY)\nprint('ready', flush=True)\n"
    with subprocess.Popen([sys.executable, "-c", start + program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            if not grows:
                wait_until(lambda: stands(child.pid))
            first = progress_of(child.pid)
            if grows:
                wait_until(lambda: progress_of(child.pid) > first)
            else:
                assert all(progress_of(child.pid) == first for _ in range(1000))
        finally:
            child.kill()


def stands(pid: int) -> bool:
    """Whether a process sleeps, as /proc says of every thread."""
    paths = Path(f"/proc/{pid}/task").glob("*/status")
    lines = (line for path in paths for line in path.read_text().splitlines())
    states = {line.split()[1] for line in lines if line.startswith("State:")}
    return states == {"S"}


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert progress_of(child.pid) == (0, 0)
