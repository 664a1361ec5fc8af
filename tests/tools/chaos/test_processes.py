"""tools.chaos.processes and descriptor_fault, against processes of this test."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.support.deadline import wait_until
from tools.chaos import descriptor_fault
from tools.chaos.processes import children_of, cpu_s, figures_of, is_running, open_descriptors


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", "sum(range(5_000_000)); input()"], stdin=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


def test_figures_of_this_process() -> None:
    pid = os.getpid()
    before = figures_of(pid)
    assert before is not None
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    with socket.socket():
        thread.start()
        held = bytearray(64 << 20)
        after = figures_of(pid)
        end.set()
        thread.join()
    assert after is not None
    assert after.threads - before.threads == 1
    assert after.descriptors - before.descriptors == 1
    assert 60 < after.memory_mb - before.memory_mb < 80, len(held)


def test_a_child_until_it_is_gone(child: subprocess.Popen[bytes]) -> None:
    assert child.pid in children_of(os.getpid())
    assert is_running(child.pid)
    wait_until(lambda: cpu_s(child.pid) > 0)
    child.kill()
    child.wait()
    assert not is_running(child.pid)
    assert (cpu_s(child.pid), open_descriptors(child.pid), figures_of(child.pid)) == (0, [], None)


@pytest.mark.parametrize(
    ("serves", "connects", "found"),
    [
        (True, True, []),
        (False, True, ["P without descriptors serves no client for 0 s"]),
        (True, False, ["P has descriptors again and serves no new client"]),
    ],
)
def test_descriptors_run_out_and_come_back(
    child: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    serves: bool,
    connects: bool,
    found: list[str],
) -> None:
    monkeypatch.setattr(descriptor_fault, "_LIMIT_S", 0.2)
    answers = iter(range(0, 10_000, 100))
    limits = []

    def answered() -> int:
        limits.append(resource.prlimit(child.pid, resource.RLIMIT_NOFILE)[0])
        return next(answers) if serves else 0

    before = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        violations = descriptor_fault.exhaust_descriptors(
            "P", child.pid, listening.getsockname(), 0.1, answered, lambda: connects
        )
    assert violations == found
    assert limits[0] <= 3 + 4 + 1
    assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == before


def test_a_process_that_is_gone_has_no_descriptors_to_lose(
    child: subprocess.Popen[bytes],
) -> None:
    child.kill()
    child.wait()
    assert (
        descriptor_fault.exhaust_descriptors(
            "P", child.pid, ("127.0.0.1", 9), 0.1, lambda: 0, lambda: True
        )
        == []
    )
