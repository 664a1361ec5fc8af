"""Supervisor with real children: start, restart with back-off, give up, hang, stop in order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.metrics import readiness
from broker.slave.sync_kind import SLAVE_SYNC_SUCCESS
from broker.supervisor import supervisor as supervisor_module
from broker.supervisor.boot_info import EXIT_CANNOT_BOOT, EXIT_FLUSH_FAILED, EXIT_REOPEN, BootInfo
from broker.supervisor.child_state import ChildSpec
from broker.supervisor.control_slots import REMOTING_READY, WRITERS_STOPPED
from broker.supervisor.life_stages import ChildTimeouts, LifeStages
from broker.supervisor.supervisor import Supervisor
from ha.control_slots import (
    HA_REFUSALS,
    HIGHEST_SENT,
    LENT_ACKED,
    LENT_NUMBER,
    LENT_SENT,
    LOAN,
    MEMBER_ORDER,
    ORDER_TAKEN,
    REPLICA_COUNT,
)
from ipc.clock import SystemClock
from ipc.control_page import ENDS, SLEEPS, STARTS, ControlPage, ProcessIndex
from store.control_slots import (
    APPEND_END,
    CONFIRM_OFFSET,
    MAX_PHY_OFFSET,
    READING,
    STORE_STATE,
    StoreState,
)
from store.put_aside import ReadBy

CHILD = '''
"""Notes its start and stop; what it does is its setting `does`."""
import json, mmap, os, signal, sys, time
boot = json.loads(os.pread(int(sys.argv[1]), 1 << 20, 0))
notes = os.open(boot["settings"]["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(text):  # No buffer: a signal may come while it writes.
    os.write(notes, f"{text}\\n".encode())
does = boot["settings"]["does"]
slot, start_slot = 8 * (24 + boot["index"]), 8 * (56 + boot["index"])
page = mmap.mmap(boot["control_page_fd"], 8192)
def stop(*_):
    note(f"stop {boot['name']}")
    if does != "stays":
        sys.exit(0)
signal.signal(signal.SIGTERM, stop)
def lines():
    return open(boot["settings"]["notes"]).read().splitlines()
note(f"start {boot['name']} {boot['parent_pid'] == os.getppid()}")
if does.startswith("then exit") and lines().count(f"start {boot['name']} True") > 1:
    sys.exit(int(does[9:]))
if does.startswith("exit"):
    sys.exit(int(does[4:]))
if does == "says":
    words, at = b"ValueError: no number", 4096 + 512 * boot["index"]
    page[at:at + 2 + len(words)] = len(words).to_bytes(2, "little") + words
    reading = 8 * (144 + 2 * boot["index"])
    page[reading:reading + 16] = (1 + 3).to_bytes(8, "little") + (77).to_bytes(8, "little")
    sys.exit(1)
if does.startswith("once") and len([x for x in lines() if x.startswith("start ha ")]) == 1:
    while len(lines()) < int(does[4:]):
        time.sleep(0.01)
    sys.exit(5)
def stop_otherwise(*_):
    if does == "tells":
        os.kill(os.getppid(), signal.SIGTERM)
    sys.exit({"fails": 4, "asks": 5}.get(does, 0))
if does in ("fails", "asks", "tells"):
    signal.signal(signal.SIGTERM, stop_otherwise)
def is_over():
    return time.monotonic() - began > float(boot["settings"]["start_s"])
began, beat = time.monotonic(), 0
while does.startswith("starts ") and not is_over():
    if does == "starts on a busy machine":
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
    elif does == "starts on a slow disk":
        note("#")
    elif does == "starts after another":
        beat += 1
        page[start_slot:start_slot + 8] = beat.to_bytes(8, "little")
    time.sleep(0.05)
while True:
    if does != "never beats" and not (does in ("beats once", "spins") and beat):
        beat += 1
        page[slot:slot + 8] = beat.to_bytes(8, "little")
    if does != "spins":
        time.sleep(0.01)
'''
INDEX = {name.name.lower(): name for name in ProcessIndex}
START_S = "4"
"""How long a slow start takes: more than twice BUSY_MS."""
BUSY_MS = 1_500
"""A limit that a child keeps on a busy machine, too."""


class World:
    def __init__(self, directory: Path) -> None:
        self.directory, self.notes_path = directory, directory / "notes"
        self.notes_path.touch()
        (directory / "supervised_child.py").write_text(CHILD)
        self.page_fd = ControlPage.create()
        self.page = ControlPage(self.page_fd)

    def notes(self) -> list[str]:
        return self.notes_path.read_text().splitlines()

    def spec(self, name: str, does: str, *, is_vital: bool = True) -> ChildSpec:
        boot = BootInfo(
            name=name,
            index=INDEX[name],
            parent_pid=0,
            broker_started_ms=0,
            settings={"notes": str(self.notes_path), "does": does, "start_s": START_S},
            log_dir="",
            control_page_fd=self.page_fd,
            queue_table_fd=-1,
            metrics_fd=-1,
            changes_fd=-1,
            life_fd=-1,
            bell_fds={},
        )
        return ChildSpec(
            name, INDEX[name], "supervised_child", boot, (self.page_fd,), is_vital=is_vital
        )

    def run(
        self,
        children: dict[str, str],
        until: Callable[[Supervisor], bool],
        *,
        hang_timeout_ms: int = 60_000,
        start_timeout_ms: int = 60_000,
        stop_timeout_ms: int = 5_000,
        on_reopen: Callable[[], None] = lambda: None,
        on_answered: Callable[[bool], None] = lambda _in_order: None,
        not_vital: tuple[str, ...] = (),
    ) -> tuple[Supervisor, int]:
        """Runs a supervisor until the condition holds, then stops it orderly."""
        deadline = time.monotonic() + 60

        def tick() -> None:
            if until(supervisor):
                supervisor.request_stop()
            elif time.monotonic() > deadline:
                supervisor.stop_with("the test's deadline", 99)

        supervisor = Supervisor(
            [
                self.spec(name, does, is_vital=name not in not_vital)
                for name, does in children.items()
            ],
            self.page,
            SystemClock(),
            ChildTimeouts(
                hang_ms=hang_timeout_ms, start_ms=start_timeout_ms, stop_ms=stop_timeout_ms
            ),
            LifeStages(on_tick=tick, on_reopen=on_reopen, on_answered=on_answered),
            home=self.directory,
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
    assert (code, supervisor.stop_reason) == (0, "")
    notes = world.notes()
    assert sorted(notes[:3]) == ["start ha True", "start remoting True", "start store True"]
    assert notes[3:] == ["stop remoting", "stop ha", "stop store"]
    assert [child.process for child in supervisor.children()] == [None] * 3


def test_remoting_has_ended_when_nothing_is_answered_any_more(world: World) -> None:
    told: list[tuple[bool, list[str]]] = []
    world.run(
        {"store": "runs", "ha": "runs", "remoting": "runs"},
        lambda _s: len(world.notes()) == 3,
        on_answered=lambda in_order: told.append((in_order, world.notes()[3:])),
    )
    assert told == [(True, ["stop remoting"])]


def test_remoting_that_had_to_be_killed_did_not_end_in_order(world: World) -> None:
    told: list[bool] = []
    world.run(
        {"store": "runs", "remoting": "stays"},
        lambda _s: len(world.notes()) == 2,
        stop_timeout_ms=300,
        on_answered=told.append,
    )
    assert told == [False]


def test_remoting_that_was_not_running_did_not_end_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "_BACK_OFF_MS", (60_000,))
    told: list[bool] = []

    def until(supervisor: Supervisor) -> bool:
        remoting = supervisor.children()[1]
        if remoting.has_served and not remoting.restarts and remoting.process is not None:
            remoting.process.kill()
        return bool(remoting.restarts)

    world.run({"store": "runs", "remoting": "runs"}, until, on_answered=told.append)
    assert told == [False]


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
    assert world.page.counters[ENDS + ProcessIndex.STORE] == 3
    assert world.page.counters[ENDS + ProcessIndex.REMOTING] == 0
    assert world.page.counters[STARTS + ProcessIndex.REMOTING] == 1
    assert world.notes().count("start remoting True") == 1
    assert len(set(killed)) == 3


@pytest.mark.parametrize("exit_code", [7, EXIT_CANNOT_BOOT])
def test_the_others_go_on_without_one_that_is_not_vital(
    world: World, monkeypatch: pytest.MonkeyPatch, exit_code: int
) -> None:
    monkeypatch.setattr(supervisor_module, "_BACK_OFF_MS", (0, 1))

    def until(supervisor: Supervisor) -> bool:
        namesrv, store = supervisor.children()
        if namesrv.has_served and not namesrv.restarts and namesrv.process is not None:
            namesrv.process.kill()
        return namesrv.restarts >= 8 and store.has_served

    children = {"namesrv": f"then exit{exit_code}", "store": "runs"}
    supervisor, code = world.run(children, until, not_vital=("namesrv",))
    assert (code, supervisor.stop_reason) == (0, "")
    assert world.page.counters[STARTS + ProcessIndex.STORE] == 1


def test_what_is_not_vital_has_to_start_once(world: World) -> None:
    children = {"namesrv": f"exit{EXIT_CANNOT_BOOT}", "store": "runs"}
    supervisor, code = world.run(children, lambda _s: False, not_vital=("namesrv",))
    assert code == 255
    assert "process namesrv cannot start" in supervisor.stop_reason


def test_the_last_words_name_the_record(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Of a child that died while it read one; those of an earlier child are not repeated."""
    supervisor, code = world.run({"remoting": "says"}, lambda _s: False)
    assert code == 1
    assert (
        "process remoting ended 6 times within 60 s (last exit code 1; its last words: ValueError: "
        f"no number; it was reading a record: {ReadBy(3).label}, phy offset 77); the broker stops"
    ) in supervisor.stop_reason
    assert caplog.text.count("; its last words: ValueError: no number; ") == 6
    assert world.page.take_last_words(ProcessIndex.REMOTING) == ""
    assert world.page.counters[READING + 2 * ProcessIndex.REMOTING] == 0


def test_six_quick_deaths_stop_the_broker(world: World) -> None:
    supervisor, code = world.run({"remoting": "runs", "store": "exit7"}, lambda _s: False)
    assert code == 1
    assert "process store ended 6 times within 60 s (last exit code 7)" in supervisor.stop_reason
    assert world.notes().count("start store True") == 6
    assert world.notes()[-1] == "stop remoting"


@pytest.mark.parametrize(
    ("exit_code", "code", "words"),
    [
        (EXIT_CANNOT_BOOT, 255, "process store cannot start"),
        (EXIT_FLUSH_FAILED, EXIT_FLUSH_FAILED, "fdatasync"),
    ],
)
def test_exits_that_a_restart_does_not_help(
    world: World, exit_code: int, code: int, words: str
) -> None:
    supervisor, ended = world.run({"store": f"exit{exit_code}"}, lambda _s: False)
    assert ended == code
    assert words in supervisor.stop_reason
    assert world.notes() == ["start store True"]


@pytest.mark.parametrize(
    ("does", "start_timeout_ms"), [("beats once", 60_000), ("never beats", BUSY_MS)]
)
def test_a_child_without_beats_is_aborted_and_started_again(
    world: World, caplog: pytest.LogCaptureFixture, does: str, start_timeout_ms: int
) -> None:
    """How long its start may take is another matter than how long it may stand still."""
    supervisor, code = world.run(
        {"store": does, "remoting": "runs"},
        lambda s: s.children()[0].restarts >= 1,
        hang_timeout_ms=BUSY_MS,
        start_timeout_ms=start_timeout_ms,
    )
    assert code == 0
    assert supervisor.children()[1].restarts == 0
    words = "no beat" if does == "beats once" else "no progress in its start"
    assert f"store: {words} for" in caplog.text
    assert "ended with code -6" in caplog.text


@pytest.mark.parametrize(
    "does", ["starts on a busy machine", "starts on a slow disk", "starts after another"]
)
def test_a_slow_start_that_makes_progress_is_left_alone(
    world: World, caplog: pytest.LogCaptureFixture, does: str
) -> None:
    supervisor, code = world.run(
        {"store": does},
        lambda s: s.children()[0].last_beat > 0 or s.children()[0].restarts > 0,
        hang_timeout_ms=BUSY_MS,
        start_timeout_ms=BUSY_MS,
    )
    assert (code, supervisor.children()[0].restarts) == (0, 0)
    assert "no beat" not in caplog.text
    assert "store: still starting after" in caplog.text


def test_a_child_that_hangs_in_its_start_is_ended(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGSTOP in the middle of it: what it did before does not count."""
    stopped: list[int] = []

    def until(supervisor: Supervisor) -> bool:
        child = supervisor.children()[0]
        if not stopped and child.process is not None and world.notes():
            os.kill(child.process.pid, signal.SIGSTOP)
            stopped.append(child.process.pid)
        return child.restarts == 1

    _, code = world.run(
        {"store": "starts after another"}, until, hang_timeout_ms=400, start_timeout_ms=600
    )
    assert code == 0
    assert "store: no progress in its start for" in caplog.text


def test_work_is_no_excuse_once_it_serves(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A loop that spins answers nobody."""
    supervisor, code = world.run(
        {"store": "spins"}, lambda s: s.children()[0].restarts == 1, hang_timeout_ms=400
    )
    assert (code, supervisor.children()[0].restarts) == (0, 1)
    assert "store: no beat for" in caplog.text


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


def test_readyz_knows_a_process_that_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP and SIGCONT: its word that it serves is on the page all the time."""
    monkeypatch.setattr(readiness, "REMOTING_SILENT_MS", 300)
    world.page.counters[STORE_STATE], world.page.counters[REMOTING_READY] = StoreState.READY, 1
    said: list[str] = []

    def until(supervisor: Supervisor) -> bool:
        remoting = supervisor.children()[1]
        reason = readiness.ready_reason(
            world.page, supervisor.children(), SystemClock().monotonic_ms()
        )
        if remoting.process is not None and remoting.last_beat > 0 and reason not in said[-1:]:
            said.append(reason)
            os.kill(remoting.process.pid, signal.SIGCONT if reason else signal.SIGSTOP)
        return len(said) == 3

    world.run({"store": "runs", "remoting": "runs"}, until)
    assert said == ["", "process remoting hangs", ""]


def test_a_child_that_does_not_stop_is_killed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.run({"store": "stays"}, lambda _s: bool(world.notes()), stop_timeout_ms=300)
    assert world.notes() == ["start store True", "stop store"]
    assert "store: did not stop in time, killed" in caplog.text


def test_the_first_words_are_the_last_words(world: World) -> None:
    supervisor = Supervisor(
        [],
        world.page,
        SystemClock(),
        ChildTimeouts(hang_ms=1),
        LifeStages(),
        home=world.directory,
    )
    supervisor.stop_with("first", 4)
    supervisor.stop_with("second", 1)
    assert (supervisor.stop_reason, supervisor.run()) == ("first", 4)


def test_a_broker_that_serves_is_looked_at_seldom(world: World) -> None:
    supervisor = Supervisor(
        [world.spec("store", "runs")],
        world.page,
        SystemClock(),
        ChildTimeouts(hang_ms=30_000),
        LifeStages(),
        home=world.directory,
    )
    [child] = supervisor.children()
    assert supervisor._tick_ms() == 10, "it is not ready"
    world.page.counters[REMOTING_READY] = 1
    assert supervisor._tick_ms() == 500
    child.start_at_ms = 1
    assert supervisor._tick_ms() == 10, "a child waits for its start"
    child.start_at_ms, child.aborted_at_ms = 0, 1
    assert supervisor._tick_ms() == 10, "a child may have to be killed"


# -- reopening ---------------------------------------------------------------------------------

GROUP = {"namesrv": "runs", "store": "runs", "ha": "once4", "remoting": "runs"}


def test_all_but_the_name_server_stop_and_start_again(world: World) -> None:
    at_reopen: list[list[str]] = []
    supervisor, code = world.run(
        GROUP,
        lambda _s: len(world.notes()) == 9,
        on_reopen=lambda: at_reopen.append(world.notes()),
    )
    assert (code, supervisor.stop_reason) == (0, "")
    assert len(at_reopen) == 1
    assert at_reopen[0][4:] == ["stop remoting", "stop store"]
    notes = world.notes()
    assert sorted(notes[6:9]) == ["start ha True", "start remoting True", "start store True"]
    assert notes[9:] == ["stop remoting", "stop ha", "stop store", "stop namesrv"]
    assert notes.count("start namesrv True") == 1
    assert [child.restarts for child in supervisor.children()] == [0] * 4
    starts = [world.page.counters[STARTS + INDEX[name]] for name in GROUP]
    assert starts == [1, 2, 2, 2]


def test_the_page_is_fresh_but_for_what_counts_on(world: World) -> None:
    stale = [APPEND_END, MAX_PHY_OFFSET, STORE_STATE, REPLICA_COUNT]
    stale += [REMOTING_READY, WRITERS_STOPPED]
    # A role of a group with a controller is of the store that was open.
    stale += [CONFIRM_OFFSET, *range(MEMBER_ORDER, ORDER_TAKEN + 1)]
    # How far a slave was sent the log, too, is of the log that was open.
    stale += [HIGHEST_SENT, LOAN, LENT_NUMBER, LENT_SENT, LENT_ACKED]
    stale += [SLEEPS + index for index in (ProcessIndex.STORE, ProcessIndex.HA)]
    lasting = [HA_REFUSALS + 13, SLAVE_SYNC_SUCCESS]
    seen: list[list[int]] = []
    for slot in (*stale, *lasting):
        world.page.counters[slot] = 7
    world.run(
        GROUP,
        lambda _s: len(world.notes()) == 9,
        on_reopen=lambda: seen.append([world.page.counters[s] for s in (*stale, *lasting)]),
    )
    assert seen == [[0] * len(stale) + [7] * len(lasting)]


def test_reopening_without_end_stops_the_broker(world: World) -> None:
    supervisor, code = world.run(
        {"namesrv": "runs", "store": "runs", "ha": f"exit{EXIT_REOPEN}"}, lambda _s: False
    )
    assert code == 1
    assert "process ha requested 6 store reopens within 60 s" in supervisor.stop_reason
    assert world.notes().count("start ha True") == 6
    assert world.notes()[-1] == "stop namesrv"


def test_a_failed_flush_while_it_reopens_stops_the_broker(world: World) -> None:
    supervisor, code = world.run({"store": "fails", "ha": "once2"}, lambda _s: False)
    assert code == EXIT_FLUSH_FAILED
    assert "fdatasync" in supervisor.stop_reason
    assert world.notes().count("start store True") == 1


def test_a_child_that_does_not_stop_for_it_is_killed(world: World) -> None:
    """Recovery is for that."""
    supervisor, code = world.run(
        {"store": "stays", "ha": "once2"},
        lambda _s: world.notes().count("start store True") == 2,
        stop_timeout_ms=300,
    )
    assert supervisor.stop_reason.startswith("process store ended with code -9 while")
    assert code == 1


def test_a_stop_that_comes_while_it_reopens(world: World) -> None:
    reopened: list[bool] = []
    supervisor, code = world.run(
        {"namesrv": "runs", "store": "tells", "ha": "once3"},
        lambda _s: False,
        on_reopen=lambda: reopened.append(True),
    )
    assert (code, supervisor.stop_reason) == (0, "")
    assert not reopened
    assert world.notes()[-1] == "stop namesrv"
    assert world.notes().count("start store True") == 1


def test_a_child_that_asks_while_the_broker_stops(world: World) -> None:
    """What it asked for is done by the next start."""
    supervisor, code = world.run({"ha": "asks"}, lambda _s: bool(world.notes()))
    assert (code, supervisor.stop_reason) == (0, "")
