"""ha_request_service: every command is answered, and a slow one holds back no other."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker.slave.ha_request_service import HaRequestService
from ipc.clock import SystemClock
from ipc.command_channel import CommandClient, CommandError, create_channel
from ipc.service_thread import ServiceThread
from tests.support.deadline import wait_until

TIMEOUT_MS = 5_000


class World:
    def __init__(self) -> None:
        self.asking, answering = create_channel()
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.failures: list[str] = []
        handlers = {
            "inspect_master": self.inspect,
            "group_members": lambda _arguments: {"members": {"1": "10.0.0.2"}},
            "ha_link": lambda arguments: arguments,
            "broken": _broken,
        }
        self.service = HaRequestService(answering, handlers, SystemClock(), on_failure=self.failed)
        self.client = CommandClient(self.asking, "remoting", SystemClock())
        self.service.start()

    def failed(self, service: ServiceThread, _error: Exception) -> None:
        self.failures.append(service.name)

    def inspect(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        self.entered.set()
        assert self.go_on.wait(10)
        return {"verdict": "go"}

    def close(self) -> None:
        self.go_on.set()
        self.service.shutdown()


def _broken(_arguments: dict[str, Any]) -> dict[str, Any]:
    raise TypeError("a mistake of ours")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_slow_master_keeps_nobody_out(world: World) -> None:
    """The inspection hangs; who is in the group is answered meanwhile, over the same client."""
    found: list[Any] = []
    inspecting = threading.Thread(
        target=lambda: found.append(world.client.call("inspect_master", TIMEOUT_MS))
    )
    inspecting.start()
    assert world.entered.wait(10)
    for _ in range(3):
        assert world.client.call("group_members", 2_000) == {"members": {"1": "10.0.0.2"}}
    assert world.client.call("ha_link", 2_000, local=None) == {"local": None}
    with pytest.raises(CommandError, match="unknown command nonsense"):
        world.client.call("nonsense", 2_000)
    assert found == []
    world.go_on.set()
    inspecting.join()
    assert found == [{"verdict": "go"}]


def test_its_descriptor_is_given_back_and_not_written_to_afterwards(world: World) -> None:
    """Its number is soon another file's."""
    fd = world.service._stop_fd
    world.go_on.set()
    assert world.service.shutdown()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    other = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        os.dup2(other, fd)
        world.service.interrupt()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)
    finally:
        for number in {other, fd}:
            os.close(number)


def test_a_mistake_in_a_handler_ends_the_process(world: World) -> None:
    with pytest.raises(CommandError):
        world.client.call("broken", 50)
    wait_until(lambda: world.failures == ["HaRequest-broken"])


def test_a_stop_waits_for_all_of_its_threads(world: World) -> None:
    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate() if "HaRequest" in thread.name]

    assert len(names()) == 5
    assert world.service.shutdown()
    assert names() == []
