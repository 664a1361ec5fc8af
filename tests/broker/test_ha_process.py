"""The composition root of process `ha`: what it asks of the others, and how their errors end."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.processes.child import Child
from broker.processes.ha import BrokerProcesses
from broker.settings.startup_options import StartupOptions
from broker.supervisor.boot_info import BootInfo
from ipc.clock import SystemClock
from ipc.command_channel import Arguments, CommandHandler, CommandServer, create_channel
from ipc.control_page import ControlPage, ProcessIndex
from ipc.metric_slots import create_metric_slots
from store.errors import StoreError
from store.resync_request import find_request
from tests.support.deadline import wait_until


class World:
    """A Child of this very process; `answers` is what process remoting does with a command."""

    def __init__(self, root: Path) -> None:
        self.answers: dict[str, CommandHandler] = {}
        self._ends: dict[str, socket.socket] = {}
        fds = {}
        for name in ("ha->remoting", "ha->store"):
            asking, self._ends[name] = create_channel()
            fds[name] = asking.detach()
        self.child = Child(
            BootInfo(
                name="ha",
                index=3,
                parent_pid=0,
                broker_started_ms=0,
                settings={},
                log_dir=str(root),
                control_page_fd=ControlPage.create(),
                queue_table_fd=-1,
                metrics_fd=create_metric_slots(),
                metrics_max_series=1,
                changes_fd=-1,
                life_fd=-1,
                bell_fds={},
                channel_fds=fds,
            )
        )
        self.clock = SystemClock()
        self.turns = 0
        options = StartupOptions.from_settings({"storePathRootDir": str(root / "store")})
        self.others = BrokerProcesses(self.child, options, self.clock)
        servers = [CommandServer(end, self.answers, self.clock) for end in self._ends.values()]
        self._thread = threading.Thread(
            target=self.child.serve, args=servers, kwargs={"each_turn": self._turn, "turn_ms": 20}
        )
        self._thread.start()

    def _turn(self) -> None:
        self.turns += 1

    def stop(self) -> None:
        self.child.stopping.set()
        self._thread.join(5)
        assert not self._thread.is_alive()
        for end in self._ends.values():
            end.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.stop()


@pytest.mark.parametrize(
    ("result", "verified"),
    [({"verified": True}, True), ({"verified": False}, False), ({"verified": None}, None)],
)
def test_a_replica_is_verified_by_process_remoting(
    world: World, result: Arguments, verified: bool | None
) -> None:
    asked: list[Arguments] = []

    def verify(arguments: Arguments) -> Arguments:
        asked.append(arguments)
        return result

    world.answers["verify_replica"] = verify
    assert world.others.verify_replica("10.0.0.2", 4_096) is verified
    assert asked == [{"ip": "10.0.0.2", "offset": 4_096}]


def test_a_replica_that_nobody_can_ask_is_not_known(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.others.verify_replica("10.0.0.2", 4_096) is None
    assert "slave 10.0.0.2: could not compare its log at 4096" in caplog.text


def test_a_new_start_that_cannot_be_written_down_is_told(world: World, tmp_path: Path) -> None:
    """As on a full disk; process ha must live on."""
    (tmp_path / "store" / "resync.json.tmp").mkdir(parents=True)
    with pytest.raises(StoreError, match=f"{tmp_path}/store: .*free space") as raised:
        world.others.request_resync("start_over", 8_192, "gone")
    assert "Is a directory" in str(raised.value)


def test_a_new_start_is_written_down_and_the_process_ends(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("broker.processes.ha.os._exit", ended.append)
    (tmp_path / "store").mkdir()
    world.others.request_resync("start_over", 8_192, "gone")
    request = find_request(tmp_path / "store")
    assert request is not None
    assert (request.offset, ended) == (8_192, [5])


def test_commands_of_several_processes_are_served(world: World) -> None:
    """Child.serve."""
    world.answers["group_members"] = lambda _arguments: {"members": {"1": "10.0.0.2"}}
    world.answers["begin_log"] = lambda arguments: {"begun": arguments["phy_offset"]}
    assert world.others.fetch_members() == {1: "10.0.0.2"}
    world.others.begin_log(4_096)
    wait_until(lambda: world.turns >= 2)


def test_metrics_max_series_is_not_for_replicas(world: World) -> None:
    """What it writes are totals: two replicas in one series would make them fall."""
    slots = world.child.metrics
    assert len({slots.find("of replicas", (f"b:{number}",)) for number in range(100)}) == 100
    world.child.boot.index = ProcessIndex.REMOTING
    others = Child(world.child.boot).metrics
    assert len({others.find("of topics", (f"t{number}",)) for number in range(100)}) == 2


def test_a_main_thread_without_a_turn_of_its_own_is_woken_by_a_signal(world: World) -> None:
    """Whichever thread the kernel gave it to: its number is in the pipe."""
    world.stop()
    world.child.stopping.clear()
    woken = threading.Thread(target=world.child.serve, daemon=True)
    woken.start()
    world.child.stopping.set()
    os.write(world.child._signals, bytes([signal.SIGTERM]))
    woken.join(5)
    assert not woken.is_alive()


def test_a_signal_that_asks_for_no_stop_costs_one_turn(world: World) -> None:
    os.write(world.child._signals, bytes([signal.SIGUSR1]) * 100)
    poll = select.poll()  # select() knows no descriptor above 1,023.
    poll.register(world.child._signalled, select.POLLIN)
    wait_until(lambda: not poll.poll(0))
