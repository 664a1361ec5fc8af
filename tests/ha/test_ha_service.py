"""HAService: what an orderly stop waits for, and that a slave is verified in the background."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ha.ha_config import HaConfig
from ha.ha_environment import HaEnvironment
from ha.ha_service import Bells, HAService
from ha.handshake import OwnIdentity
from ha.slave_progress import ReplicaState, SlaveProgress
from ha.source_files import LogSource
from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.control_page import ProcessIndex
from remoting.selector_seam import new_selector
from tests.ha.master_world import FILE_SIZE, FakeSlave, GrowingLog
from tests.support.deadline import wait_until, within
from tests.support.shared_memory import close_page, fresh_page


def _not_for_a_master(*_arguments: Any, **_named: Any) -> NoReturn:
    raise AssertionError


class _World:
    """A master whose other processes are this class."""

    def __init__(self, root: Path) -> None:
        self.page = fresh_page()
        self.bell_fd = Bell.create()
        bell = Bell(self.page, ProcessIndex.HA, self.bell_fd)
        self.log = GrowingLog(root / "commitlog", self.page, bell, file_size=FILE_SIZE, start=0)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listening.getsockname()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked_for_members = 0
        self.verified: list[tuple[str, int]] = []
        config = HaConfig(ha_slave_fallbehind_max=1000)
        self.service = HAService(
            HaEnvironment(config, SystemClock(), new_selector),
            self.listening,
            LogSource(self.log.directory, FILE_SIZE, self.page),
            Bells(bell, lambda: None, lambda: None),
            OwnIdentity("b", 0, "127.0.0.1:10911"),
            self,
            None,
        )

    def fetch_members(self) -> None:
        self.asked_for_members += 1
        assert self.may_answer.wait(20)

    def verify_replica(self, ip: str, offset: int) -> bool:
        self.verified.append((ip, offset))
        return True

    inspect_master = begin_log = request_resync = staticmethod(_not_for_a_master)

    def progress(self) -> SlaveProgress:
        wait_until(self.service.registry.live)
        return self.service.registry.live()[0]

    def close(self) -> None:
        self.may_answer.set()
        assert self.service._members.shutdown()
        assert self.service._verifier.shutdown()
        self.listening.close()
        os.close(self.bell_fd)
        close_page(self.page)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[_World]:
    world = _World(tmp_path)
    yield world
    world.close()


def test_a_question_to_another_process_does_not_hold_up_the_stop(
    world: _World, caplog: pytest.LogCaptureFixture
) -> None:
    world.may_answer.clear()
    world.service.start()
    wait_until(lambda: world.asked_for_members)
    with caplog.at_level(logging.WARNING):
        assert within(3, world.service.shutdown)
    assert caplog.messages == []


def test_slaves_in_sync_are_waited_for(world: _World, caplog: pytest.LogCaptureFixture) -> None:
    end = world.log.append(500)
    world.service.start()
    with FakeSlave(world.address, 0) as slave:
        slave.read_up_to(end, report=True)
        progress = world.progress()
        wait_until(lambda: progress.state is ReplicaState.in_sync)
        end = world.log.append(100)
        stop = threading.Thread(target=world.service.shutdown)
        stop.start()
        slave.read_up_to(end)
        threading.Event().wait(0.1)  # it takes its time
        slave.report(end)
        stop.join(10)
        assert progress.ack_offset == end
    assert "not everywhere acknowledged" not in caplog.text


def test_a_slave_that_catches_up_is_not_waited_for(
    world: _World, caplog: pytest.LogCaptureFixture
) -> None:
    end = world.log.append(5000)
    world.service.start()
    with FakeSlave(world.address, 0) as slave:
        slave.read_up_to(end)
        progress = world.progress()
        assert within(1.5, world.service.shutdown)
        assert progress.ack_offset == 0
    assert "not everywhere acknowledged" not in caplog.text


def test_a_seeded_slave_is_served_when_it_comes_back(world: _World) -> None:
    end = world.log.append(5000)
    world.service.start()
    with FakeSlave(world.address, 4000) as slave:
        assert slave.is_closed_by_master()
    wait_until(lambda: world.verified == [("127.0.0.1", 4000)] and not _asks(world))
    with FakeSlave(world.address, 4000) as slave:
        slave.read_up_to(end)
    assert world.service.shutdown()


def _asks(world: _World) -> bool:
    return bool(world.service._verifier._questions)
