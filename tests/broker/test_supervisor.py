"""Supervisor with real children: start, restart with back-off, give up, hang, stop in order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker import supervisor as supervisor_module
from broker.processes.child import EXIT_CANNOT_BOOT, EXIT_FLUSH_FAILED, BootInfo
from broker.supervisor import ChildSpec, Supervisor
from store.clock import SystemClock
from store.control_page import STARTS, ControlPage, ProcessIndex

CHILD = '''
"""Notes its start and stop; what it does is its setting `does`."""
import json, mmap, os, signal, sys, time
boot = json.loads(os.pread(int(sys.argv[1]), 1 << 20, 0))
notes = open(boot["settings"]["notes"], "a", buffering=1)
does = boot["settings"]["does"]
slot = 8 * (24 + boot["index"])
page = mmap.mmap(boot["control_page_fd"], 4096)
def stop(*_):
    notes.write(f"stop {boot['name']}\\n")
    if does != "stays":
        sys.exit(0)
signal.signal(signal.SIGTERM, stop)
notes.write(f"start {boot['name']} {boot['parent_pid'] == os.getppid()}\\n")
if does.startswith("exit"):
    sys.exit(int(does[4:]))
beat = 0
while True:
    if does != "hangs":
        beat += 1
        page[slot:slot + 8] = beat.to_bytes(8, "little")
    time.sleep(0.01)
'''
INDEX = {"store": ProcessIndex.STORE, "ha": ProcessIndex.HA, "remoting": ProcessIndex.REMOTING}


class World:
    def __init__(self, directory: Path) -> None:
        self.directory, self.notes_path = directory, directory / "notes"
        self.notes_path.touch()
        (directory / "supervised_child.py").write_text(CHILD)
        self.page_fd = ControlPage.create()
        self.page = ControlPage(self.page_fd)

    def notes(self) -> list[str]:
        return self.notes_path.read_text().splitlines()

    def spec(self, name: str, does: str) -> ChildSpec:
        boot = BootInfo(
            name=name,
            index=INDEX[name],
            parent_pid=0,
            settings={"notes": str(self.notes_path), "does": does},
            log_dir="",
            control_page_fd=self.page_fd,
            queue_table_fd=-1,
            life_fd=-1,
            bell_fds={},
        )
        return ChildSpec(name, INDEX[name], "supervised_child", boot, (self.page_fd,))

    def run(
        self,
        children: dict[str, str],
        until: Callable[[Supervisor], bool],
        *,
        hang_timeout_ms: int = 60_000,
        stop_timeout_ms: int = 5_000,
    ) -> tuple[Supervisor, int]:
        """Runs a supervisor until the condition holds, then stops it orderly."""
        deadline = time.monotonic() + 20

        def tick() -> None:
            if until(supervisor):
                supervisor.request_stop()
            elif time.monotonic() > deadline:
                supervisor.stop_with("the test's deadline", 99)

        supervisor = Supervisor(
            [self.spec(name, does) for name, does in children.items()],
            self.page,
            SystemClock(),
            home=self.directory,
            hang_timeout_ms=hang_timeout_ms,
            stop_timeout_ms=stop_timeout_ms,
            on_tick=tick,
        )
        try:
            return supervisor, supervisor.run()
        finally:
            for child in supervisor.children():
                if child.process is not None:
                    child.process.kill()
                    child.process.wait()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(supervisor_module, "_TICK_MS", 10)
    monkeypatch.setattr(supervisor_module, "_BACK_OFF_MS", (0, 10, 20, 30, 40))
    monkeypatch.setattr(supervisor_module, "_ABORT_GRACE_MS", 200)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    before = {number: signal.getsignal(number) for number in numbers}
    yield World(tmp_path)
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_children_start_in_order_and_stop_in_reverse(world: World) -> None:
    supervisor, code = world.run(
        {"store": "runs", "ha": "runs", "remoting": "runs"},
        lambda _s: len(world.notes()) == 3,
    )
    assert (code, supervisor.last_words) == (0, "")
    notes = world.notes()
    assert sorted(notes[:3]) == ["start ha True", "start remoting True", "start store True"]
    assert notes[3:] == ["stop remoting", "stop ha", "stop store"]
    assert [child.process for child in supervisor.children()] == [None] * 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it(world: World, number: signal.Signals) -> None:
    def send(_supervisor: Supervisor) -> bool:
        if world.notes():
            os.kill(os.getpid(), number)
        return False

    _, code = world.run({"store": "runs"}, send)
    assert code == 0
    assert world.notes() == ["start store True", "stop store"]


def test_a_killed_child_is_started_again_and_the_others_are_left_alone(world: World) -> None:
    killed: list[int] = []

    def until(supervisor: Supervisor) -> bool:
        store = supervisor.children()[0].process
        starts = world.notes().count("start store True")
        if store is not None and starts == len(killed) + 1 and len(killed) < 3:
            os.kill(store.pid, signal.SIGKILL)
            killed.append(store.pid)
        return starts == 4

    supervisor, code = world.run({"store": "runs", "remoting": "runs"}, until)
    assert code == 0
    store, remoting = supervisor.children()
    assert (store.restarts, remoting.restarts) == (3, 0)
    assert world.page.counters[STARTS + ProcessIndex.STORE] == 4
    assert world.page.counters[STARTS + ProcessIndex.REMOTING] == 1
    assert world.notes().count("start remoting True") == 1
    assert len(set(killed)) == 3


def test_six_quick_deaths_stop_the_broker(world: World) -> None:
    supervisor, code = world.run({"remoting": "runs", "store": "exit7"}, lambda _s: False)
    assert code == 1
    assert "process store ended 6 times within 60 s (last exit code 7)" in supervisor.last_words
    assert world.notes().count("start store True") == 6
    assert world.notes()[-1] == "stop remoting"


@pytest.mark.parametrize(
    ("exit_code", "code", "words"),
    [
        (EXIT_CANNOT_BOOT, 1, "process store cannot start"),
        (EXIT_FLUSH_FAILED, EXIT_FLUSH_FAILED, "fdatasync"),
    ],
)
def test_exits_that_a_restart_does_not_help(
    world: World, exit_code: int, code: int, words: str
) -> None:
    supervisor, ended = world.run({"store": f"exit{exit_code}"}, lambda _s: False)
    assert ended == code
    assert words in supervisor.last_words
    assert world.notes() == ["start store True"]


def test_a_child_without_beats_is_aborted_and_started_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor, code = world.run(
        {"store": "hangs", "remoting": "runs"},
        lambda s: s.children()[0].restarts >= 1,
        hang_timeout_ms=400,
    )
    assert code == 0
    assert supervisor.children()[1].restarts == 0
    assert "store: no beat for" in caplog.text
    assert "ended with code -6" in caplog.text


def test_a_stopped_child_is_killed(world: World) -> None:
    """SIGSTOP: it dumps nothing until it is continued, then dies of its SIGABRT."""
    stopped: list[int] = []

    def until(supervisor: Supervisor) -> bool:
        child = supervisor.children()[0]
        if not stopped and child.process is not None and child.last_beat > 0:
            os.kill(child.process.pid, signal.SIGSTOP)
            stopped.append(child.process.pid)
        return child.restarts == 1

    supervisor, code = world.run({"store": "runs"}, until, hang_timeout_ms=600)
    assert (code, supervisor.children()[0].restarts) == (0, 1)


def test_a_child_that_does_not_stop_is_killed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.run({"store": "stays"}, lambda _s: bool(world.notes()), stop_timeout_ms=300)
    assert world.notes() == ["start store True", "stop store"]
    assert "store: did not stop in time, killed" in caplog.text


def test_the_first_words_are_the_last_words(world: World) -> None:
    supervisor = Supervisor([], world.page, SystemClock(), home=world.directory, hang_timeout_ms=1)
    supervisor.stop_with("first", 4)
    supervisor.stop_with("second", 1)
    assert (supervisor.last_words, supervisor.run()) == ("first", 4)
