"""tools.chaos.scratch_process: a process is waited for, and what is wrong at its start is said."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.chaos.scratch_process import ChaosError, wait_for
from tools.chaos.scratch_server import ScratchServer, server_command

SERVES = "import os, time; print('ready', os.environ['ROCKETMQ_RUN_DIR'], flush=True)"
MakeServer = Callable[[str], ScratchServer]


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    made = []

    def make(program: str) -> ScratchServer:
        command = [sys.executable, "-c", program]
        made.append(ScratchServer("it", tmp_path / "it", command, "^ready .*it/run$", port=1))
        return made[-1]

    yield make
    for server in made:
        server.kill_all()


def test_it_is_started_again_in_its_own_directory(make_server: MakeServer) -> None:
    server, begun = make_server(f"{SERVES}; time.sleep(60)"), []
    assert (server.pid, server.is_alive) == (0, False)
    server.start(lambda: begun.append(server.pid))
    assert server.is_alive
    server.kill_all()
    assert not server.is_alive
    server.start(lambda: begun.append(server.pid))
    assert begun[1] == server.pid != begun[0] > 0


def test_one_that_ends_at_its_start(make_server: MakeServer) -> None:
    """What an earlier life has printed does not count."""
    server = make_server("import os; print('no port left'); os._exit(3)")
    server.directory.mkdir()
    (server.directory / "output.txt").write_text("ready of/it/run\n")
    with pytest.raises(ChaosError, match=r"^it did not start: no port left\n$"):
        server.start()


def test_what_does_not_come() -> None:
    with pytest.raises(ChaosError, match=r"^the end: not within 0 s$"):
        wait_for(lambda: False, 0.0, "the end")


def test_settings_of_a_server_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "new" / "server.conf"
    command = server_command("namesrv", path, {"listenPort": 5, "logDir": tmp_path})
    assert command[-4:] == ["-m", "namesrv", "-c", str(path)]
    assert path.read_text() == f"listenPort=5\nlogDir={tmp_path}\n"
