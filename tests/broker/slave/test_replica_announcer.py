"""broker.slave.replica_announcer: each link is announced once, to whoever understands it."""

from __future__ import annotations

import logging

import pytest

from broker.slave.replica_announcer import ReplicaAnnouncer
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseCallback

LINK, MASTER = "10.0.0.1:4711", "10.0.0.9:10911"


class World:
    """A client whose answers come when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, RemotingCommand, ResponseCallback]] = []
        self.announcer = ReplicaAnnouncer(self, "b", 3)

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        assert 0 < timeout_ms <= 5000
        self.calls.append((address, command, callback))

    def answer(self, code: int, remark: str | None = None) -> None:
        """The oldest call is answered."""
        _, command, callback = self.calls.pop(0)
        callback(command.response(code, remark), None)

    def fail(self) -> None:
        self.calls.pop(0)[2](None, RemotingConnectError(MASTER, "refused"))


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_said(world: World) -> None:
    world.announcer.master_changed(MASTER)
    world.announcer.link_opened(LINK)
    [(address, command, _)] = world.calls
    assert (address, command.code) == (MASTER, RequestCode.ANNOUNCE_HA_LINK)
    assert command.ext_fields == {"link": LINK, "brokerName": "b", "brokerId": "3"}
    assert command.code < 2**15, "the ROCKETMQ header has an int16 for it"


def test_nothing_without_a_link_and_a_master(world: World) -> None:
    world.announcer.tick()
    world.announcer.link_opened(LINK)
    assert not world.calls
    world.announcer.link_closed()
    world.announcer.master_changed(MASTER)
    world.announcer.master_changed(None)
    world.announcer.link_opened(LINK)
    assert not world.calls
    world.announcer.master_changed(MASTER)
    assert len(world.calls) == 1


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SUCCESS,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.NO_PERMISSION,
    ],
)
def test_an_answer_is_final_for_its_link(world: World, code: ResponseCode) -> None:
    world.announcer.master_changed(MASTER)
    world.announcer.link_opened(LINK)
    world.announcer.tick()
    assert len(world.calls) == 1, "the answer is still to come"
    world.answer(code)
    world.announcer.tick()
    world.announcer.master_changed(MASTER)
    assert not world.calls
    world.announcer.link_opened("10.0.0.1:4712")
    assert len(world.calls) == 1
    world.answer(code)
    world.announcer.master_changed("10.0.0.8:10911")
    assert [call[0] for call in world.calls] == ["10.0.0.8:10911"]


def test_a_failure_is_tried_again(world: World) -> None:
    world.announcer.master_changed(MASTER)
    world.announcer.link_opened(LINK)
    world.fail()
    world.announcer.tick()
    world.answer(ResponseCode.SYSTEM_ERROR, "ha does not answer")
    world.announcer.tick()
    world.answer(ResponseCode.SUCCESS)
    world.announcer.tick()
    assert not world.calls


def test_a_late_answer_for_an_old_link(world: World) -> None:
    world.announcer.master_changed(MASTER)
    world.announcer.link_opened(LINK)
    world.announcer.link_opened("10.0.0.1:4712")
    world.answer(ResponseCode.SUCCESS)
    world.announcer.tick()
    assert len(world.calls) == 1, "the new link's own call is under way"
    world.fail()
    world.announcer.tick()
    assert world.calls[0][1].ext_fields["link"] == "10.0.0.1:4712"


def test_a_call_that_fails_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def fail(
        address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        tries.append(address)
        callback(None, RemotingConnectError(address, "not running"))

    monkeypatch.setattr(world, "invoke_async", fail)
    world.announcer.master_changed(MASTER)
    world.announcer.link_opened(LINK)
    world.announcer.tick()
    assert tries == [MASTER, MASTER]


def test_the_log_says_each_thing_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "broker.slave.replica_announcer")
    world.announcer.master_changed(MASTER)
    world.announcer.link_opened(LINK)
    for _ in range(3):
        world.fail()
        world.announcer.tick()
    world.answer(ResponseCode.SUCCESS)
    world.announcer.link_opened("10.0.0.1:4712")
    world.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "unknown")
    world.announcer.link_opened("10.0.0.1:4713")
    world.answer(ResponseCode.NO_PERMISSION, "b:3 is no replica of c")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"HA link {LINK}: master {MASTER}: not announced yet: {MASTER}: refused"),
        ("INFO", f"HA link {LINK}: announced to master {MASTER}"),
        (
            "INFO",
            f"HA link 10.0.0.1:4712: master {MASTER}: does not support announcements "
            "(a Java broker); it identifies this slave by IP",
        ),
        (
            "WARNING",
            f"HA link 10.0.0.1:4713: master {MASTER}: rejected the announcement: NO_PERMISSION "
            "b:3 is no replica of c",
        ),
    ]
