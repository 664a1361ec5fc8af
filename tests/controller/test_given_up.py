"""Requests that wait for the store longer than their asker: nobody expects them to be carried out.

In the core, and with a disk that fails under a running controller.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import controller.controller_service as service_module
from conf.changeable_settings import ChangeableSettings, Program
from controller.controller_config import ControllerConfig
from controller.controller_request_processor import ControllerRequestProcessor
from controller.controller_service import ControllerService
from controller.core import ControllerCore, ControllerSettings
from controller.embedded_store import EmbeddedStore
from controller.events import (
    Asked,
    ChannelClosed,
    Loaded,
    Outcome,
    Ready,
    Reply,
    Stored,
    SwapEnded,
    Tick,
)
from controller.request_guard import RequestGuard
from controller.requests import ElectMaster, GetReplicaInfo, RegisterBroker, Request
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from tests.controller.controller_peer import Peer, running
from tests.controller.test_life import GROUP, core_with, group_of_two, led, stored
from tests.controller.test_store_failures import Failing
from tests.namesrv.conftest import FakeConnection

MOVE_FIELDS = {**GROUP, "brokerId": 2, "designateElect": "true", "invokeTime": 1}
MOVE = ElectMaster("C", "b", 2, designate_elect=True)


def given_up(ready: Ready) -> list[int]:
    """The tickets that are told so."""
    replies = [one for one in ready.sends if isinstance(one, Reply)]
    assert all("carried out" in one.answer.remark for one in replies)
    assert all(one.answer.code == ResponseCode.SYSTEM_BUSY for one in replies)
    return [one.ticket for one in replies]


def master_of(core: ControllerCore, now_ms: int) -> int | None:
    found = core.find("b", now_ms)
    assert found is not None
    return found[0].master_broker_id


def test_neither_an_operator_who_left_nor_one_who_waited_moves_the_master() -> None:
    core = core_with(led(), warm_up_ms=500)
    (swap,) = core.step(Asked(1, RegisterBroker("C", "b", 3, "h:9"), 7), 1_000).swaps
    core.step(Asked(2, MOVE, 8), 1_000)
    core.step(Asked(3, MOVE, 9), 1_500)
    core.step(Asked(4, GetReplicaInfo("C", "b"), 10), 2_000)
    assert core.step(ChannelClosed(8), 2_100) == Ready()
    assert core.step(ChannelClosed(7), 2_200) == Ready(), "its write is under way"
    assert given_up(core.step(Tick(), 2_500)) == [2]
    assert core.step(Tick(), 4_499) == Ready()
    assert given_up(core.step(Tick(), 4_500)) == [3]
    assert core.step(SwapEnded("b", swap.number, Outcome.UNKNOWN), 4_900).loads == ("b",)
    (barrier,) = core.step(Loaded("b", Stored(1, led())), 4_950).swaps
    ended = core.step(SwapEnded("b", barrier.number, Outcome.DONE, 2), 5_100)
    assert (ended.swaps, given_up(ended)) == ((), [1, 4])
    words = [one.answer.remark.partition(":")[0] for one in ended.sends if isinstance(one, Reply)]
    assert words == ["carried out or not", "not carried out"], "1 was written, or was not"
    assert master_of(core, 5_100) == 1


def test_who_hung_up_is_passed_over_before_the_next_tick_too() -> None:
    core = core_with(led(), warm_up_ms=500)
    (swap,) = core.step(Asked(1, RegisterBroker("C", "b", 3, "h:9"), 7), 1_000).swaps
    core.step(Asked(2, MOVE, 8), 1_100)
    core.step(ChannelClosed(8), 1_200)
    ended = core.step(SwapEnded("b", swap.number, Outcome.DONE, 2), 1_300)
    codes = {one.ticket: one.answer.code for one in ended.sends if isinstance(one, Reply)}
    assert (ended.swaps, codes) == ((), {1: 0, 2: ResponseCode.SYSTEM_BUSY})
    assert master_of(core, 1_300) == 1


def test_a_connection_that_ends_costs_nothing_of_what_waits() -> None:
    """Anybody may hang up as often as he likes."""
    core = core_with(led(), warm_up_ms=500)
    core.step(Asked(0, RegisterBroker("C", "b", 3, "h:9"), 7), 1_000)
    looked = 0

    class Counting(deque[Any]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal looked
            looked += 1
            return super().__iter__()

    lane = core._lanes["b"]
    lane.waiting = Counting(lane.waiting)
    for channel in range(100, 200):
        core.step(ChannelClosed(channel), 1_000)
    assert looked == 0
    core.step(Tick(), 1_100)
    assert looked == 1


def test_a_write_that_came_through_is_answered_however_late() -> None:
    core = core_with(led(), warm_up_ms=500)
    (swap,) = core.step(Asked(1, MOVE, 8), 1_000).swaps
    core.step(Tick(), 8_000)
    core.step(ChannelClosed(8), 8_000)
    ready = core.step(SwapEnded("b", swap.number, Outcome.DONE, 2), 9_000)
    assert [one.ticket for one in ready.sends if isinstance(one, Reply)] == [1]
    assert master_of(core, 9_000) == 2


def test_what_still_has_an_asker_is_carried_out() -> None:
    core = core_with(led(), warm_up_ms=500)
    (swap,) = core.step(Asked(1, RegisterBroker("C", "b", 3, "h:9"), 7), 1_000).swaps
    core.step(Asked(2, MOVE, 8), 2_500)
    core.step(ChannelClosed(99), 2_500)
    core.step(Tick(), 4_500)
    (moved,) = core.step(SwapEnded("b", swap.number, Outcome.DONE, 2), 5_499).swaps
    assert moved.group is not None
    assert moved.group.master_broker_id == 2


def test_the_controllers_own_election_waits_for_any_time() -> None:
    core = core_with(led(), warm_up_ms=500)
    (swap,) = core.step(Asked(1, RegisterBroker("C", "b", 3, "h:9"), 7), 1_000).swaps
    core.step(ChannelClosed(1), 1_100)
    for now_ms in range(1_500, 50_000, 500):
        assert core.step(Tick(), now_ms) == Ready()
    (elected,) = core.step(SwapEnded("b", swap.number, Outcome.DONE, 2), 50_000).swaps
    assert elected.group is not None
    assert elected.group.master_broker_id == 2


def test_on_a_disk_that_fails_for_longer_than_anybody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mqadmin waits 5 s: it is told. Whoever hung up changes nothing either."""
    monkeypatch.setattr(service_module, "_RETRY_S", 0.05)
    with (
        running(tmp_path, leader_warm_up_millis=500) as port,
        group_of_two(port),
        Peer(port) as operator,
        pytest.MonkeyPatch.context() as patch,
    ):
        failing = Failing(patch, "replace", 1, 10**6)
        hangs_up = Peer(port)
        hangs_up.post(1002, MOVE_FIELDS)
        time.sleep(0.3)
        hangs_up.close()
        time.sleep(0.3)
        failing.left = 0
        assert operator.call(1004, GROUP).ext_fields["masterBrokerId"] == "1"
        failing.left = 10**6
        began = time.monotonic()
        answer = operator.call(1002, MOVE_FIELDS)
        assert 2.9 < time.monotonic() - began < 20
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "carried out or not" in (answer.remark or "")
        failing.left = 0
        assert operator.call(1004, GROUP).ext_fields["masterBrokerId"] == "1"
        assert (stored(tmp_path)["masterBrokerId"], stored(tmp_path)["masterEpoch"]) == (1, 1)


def test_whoever_has_hung_up_before_the_loop_comes_to_it(tmp_path: Path) -> None:
    """The end of its connection was seen first, and says nothing of this request any more."""
    calls: list[Callable[[], None]] = []
    store = EmbeddedStore(tmp_path)
    service = ControllerService(
        ControllerCore(ControllerSettings()), store, lambda: 0, calls.append, lambda _: None
    )
    service.lead({"b": Stored(1, led())})
    config = ControllerConfig()
    processor = ControllerRequestProcessor(
        service,
        RequestGuard(config, lambda: 0, has_certificates=True),
        ChangeableSettings(Program("c", 1009), config),
        calls.append,
        str,
    )
    asked: list[Request] = []
    service.ask = lambda *arguments: asked.append(arguments[0])  # type: ignore[method-assign]
    for is_open in (False, True):
        connection = FakeConnection(remote_address="127.0.0.1:5")
        processor.process_request(connection, RemotingCommand.request(1004, GROUP))
        connection.is_open = is_open
        calls.pop()()
        assert asked == ([GetReplicaInfo("", "b")] if is_open else [])
    service.shutdown()
