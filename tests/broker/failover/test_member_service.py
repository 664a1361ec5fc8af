"""The member's thread, with controllers that answer what a 5.3.3 controller answered."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from broker.failover import member_service
from broker.failover.member import Stage
from broker.failover.member_parts import Member, MemberPlace, build_member
from broker.failover.member_service import CutRefusedError, MemberStatus, MemberStoppedError
from broker.failover.messages import (
    CutHalfRecord,
    CutLog,
    Fenced,
    FlushLog,
    Follow,
    GroupView,
    Lead,
    LogEnds,
    MasterHello,
    NameServersAnswered,
    RegisterAtNameServers,
    Role,
    RoleNotified,
    Step,
    StopReplication,
    Transfer,
)
from broker.settings.broker_config import BrokerConfig
from broker.settings.controller_mode_config import ControllerModeConfig
from ha.epoch_file import decode_epochs, encode_epochs
from ha.epochs import CutStep, epoch_list
from ipc.clock import SystemClock
from ipc.scheduled_executor import ScheduledExecutor
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from remoting.response_table import ResponseCallback
from store.resync_request import ResyncAction, ResyncRequest, find_request, write_request
from tests.remoting.golden_controller import golden_command
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock

CONTROLLER, OTHER = "127.0.0.1:24401", "127.0.0.1:24402"
Answers = Mapping[int, RemotingCommand]
FIRST_START: Answers = {
    1005: golden_command("1005 resp", "01"),
    1012: golden_command("1012 resp", "01"),
    1013: golden_command("1013 resp", "01"),
    1003: golden_command("1003 resp", "01"),
    1002: golden_command("1002 resp", "01"),
    1004: golden_command("1004 resp", "01"),
}
RESTARTED_AS_SLAVE: Answers = {**FIRST_START, 1003: golden_command("1003 resp", "03")}
NO_ANSWER = RemotingConnectError(OTHER, "refused")


class Controllers:
    """A RemotingClient in front of controllers of which one is reached."""

    def __init__(self, answers: Answers) -> None:
        self.answers = dict(answers)
        self.asked: list[tuple[str, int]] = []
        self.heartbeats: list[tuple[str, dict[str, str]]] = []

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        self.asked.append((address, command.code))
        if address == CONTROLLER and command.code in self.answers:
            callback(self.answers[command.code], None)
        else:
            callback(None, NO_ANSWER)

    def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        if address != CONTROLLER:
            raise NO_ANSWER
        self.heartbeats.append((address, command.ext_fields))

    @property
    def codes(self) -> list[int]:
        """What was asked, without questions for the leader."""
        return [code for _, code in self.asked if code != 1005]


class Host:
    """A broker that has 693 bytes in its log as soon as it leads."""

    def __init__(self) -> None:
        self.log_end = 0
        self.done: list[Step | Role | RegisterAtNameServers] = []
        self.threads: set[str] = set()
        self.shown: list[MemberStatus] = []

    def log_ends(self) -> LogEnds:
        self.threads.add(threading.current_thread().name)
        return LogEnds(self.log_end, self.log_end)

    def do(self, step: Step) -> None:
        self.done.append(step)

    def show(self, status: MemberStatus) -> None:
        self.shown.append(status)

    def take_role(self, role: Role) -> None:
        self.done.append(role)
        if isinstance(role, Lead):
            self.log_end = 693

    def register(self, registration: RegisterAtNameServers) -> None:
        self.done.append(registration)


class World:
    """One member, its controllers and its broker."""

    def __init__(self, root: Path, answers: Answers) -> None:
        self.root = root
        self.controllers = Controllers(answers)
        self.host = Host()
        clock = SystemClock()
        self.executor = ScheduledExecutor(clock, threads=1)
        self.member: Member = build_member(
            ControllerModeConfig(
                controller_addr=f"{OTHER};{CONTROLLER}", sync_broker_metadata_period=600_000
            ),
            BrokerConfig(
                broker_cluster_name="CtlCluster", broker_name="cb", broker_heartbeat_interval=20
            ),
            MemberPlace("127.0.0.1:24410", root, 1, 0),
            self.host,
            self.controllers,
            clock,
        )

    def start(self) -> None:
        self.executor.start()
        self.member.start(self.executor)

    def end(self) -> None:
        self.member.service.shutdown()
        self.executor.shutdown(5_000)

    @property
    def stage(self) -> Stage:
        return self.member.service.status.stage

    def wait_for_heartbeats(self, count: int) -> None:
        """So many ticks go by."""
        goal = len(self.controllers.heartbeats) + count
        wait_until(lambda: len(self.controllers.heartbeats) >= goal)

    def bytes_of(self, name: str) -> bytes | None:
        path = self.root / name
        return path.read_bytes() if path.exists() else None


@pytest.fixture
def first_start(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, FIRST_START)
    world.start()
    yield world
    world.end()


def test_a_first_start_becomes_master_in_java_s_order(first_start: World) -> None:
    world = first_start
    wait_until(lambda: world.stage is Stage.RUNNING)
    assert world.controllers.codes[:4] == [1012, 1013, 1003, 1002]
    assert world.bytes_of("brokerIdentity") == b"CtlCluster#cb#1"
    assert world.bytes_of("brokerIdentity-temp") is None
    assert world.bytes_of("epochFileCheckpoint") is not None
    status = world.member.service.status
    assert (status.broker_id, status.is_master, status.master_epoch) == (1, True, 1)
    assert status.sync_state_set == {1}
    assert world.member.client.leader == CONTROLLER
    wait_until(lambda: RegisterAtNameServers(0, 1) in world.host.done)
    assert [type(each) for each in world.host.done[:4]] == [
        *(StopReplication, CutHalfRecord, FlushLog, Lead)
    ]
    assert Lead(1) in world.host.done
    assert world.host.threads <= {"MemberService"}


def test_an_epoch_begins_where_the_log_ends_when_nobody_writes_it_any_more(tmp_path: Path) -> None:
    """What the last master's connection brought between the controller's word and its end had the
    label of the new epoch, though another broker had written it."""
    (tmp_path / "epochFileCheckpoint").write_bytes(encode_epochs(epoch_list([(0, 0)])))
    world = World(tmp_path, FIRST_START)
    host = world.host
    host.log_end = 100

    def do(step: Step) -> None:
        host.done.append(step)
        if isinstance(step, StopReplication):
            host.log_end = 693

    host.do = do  # type: ignore[method-assign]
    world.start()
    try:
        wait_until(lambda: Lead(1) in host.done)
        written = decode_epochs(world.bytes_of("epochFileCheckpoint") or b"")
        assert written == epoch_list([(0, 0), (1, 693)])
        assert world.member.service.status.epochs == written
    finally:
        world.end()


def test_what_is_shown_before_a_role_is_taken_is_of_that_role(first_start: World) -> None:
    """Process remoting may put as soon as it leads."""
    world = first_start
    shown: list[bool] = []
    world.host.take_role = lambda _role: shown.append(world.host.shown[-1].is_master)  # type: ignore[method-assign]
    wait_until(lambda: world.stage is Stage.RUNNING)
    assert shown == [True]


def test_a_stop_ends_a_step_that_waits(tmp_path: Path) -> None:
    failures: list[Exception] = []
    world = World(tmp_path, FIRST_START)

    def do(step: Step) -> None:
        raise MemberStoppedError

    world.host.do = do  # type: ignore[method-assign]
    world.member.service._on_failure = lambda _service, error: failures.append(error)
    world.start()
    wait_until(lambda: world.member.service.stopped)
    assert world.member.shutdown()
    assert not failures
    world.end()


def test_a_cut_that_is_refused_is_said_once_and_nothing_more_is_done(tmp_path: Path) -> None:
    """A process that ends for it would do so again and again; the supervisor stops the broker."""
    failures: list[Exception] = []
    world = World(tmp_path, FIRST_START)

    def do(step: Step) -> None:
        if isinstance(step, FlushLog):
            raise CutRefusedError("a fence")
        world.host.done.append(step)

    world.host.do = do  # type: ignore[method-assign]
    world.member.service._on_failure = lambda _service, error: failures.append(error)
    world.start()
    try:
        # It may have been fenced before, too, while it knew no master.
        wait_until(lambda: world.member.service.status.trouble is not None)
        assert world.member.service.status.trouble == "a fence"
        wait_until(lambda: world.host.done[-2:] == [StopReplication(), Fenced()])
        beats, done = len(world.controllers.heartbeats), len(world.host.done)
        world.member.service.deliver(NameServersAnswered(1))
        wait_until(lambda: world.member.service._events.take() is None)
        world.member.service.wakeup()
        assert (len(world.controllers.heartbeats), len(world.host.done)) == (beats, done)
        assert world.member.service.is_alive
        assert not failures
    finally:
        world.end()


def test_heartbeats_carry_what_an_election_needs(first_start: World) -> None:
    world = first_start
    wait_until(
        lambda: any(beat["confirmOffset"] != "0" for _, beat in world.controllers.heartbeats)
    )
    _, beat = next(one for one in world.controllers.heartbeats if one[1]["confirmOffset"] != "0")
    assert beat == {
        "clusterName": "CtlCluster",
        "brokerName": "cb",
        "brokerAddr": "127.0.0.1:24410",
        "brokerId": "1",
        "epoch": "1",
        "maxOffset": "693",
        "confirmOffset": "693",
        "heartbeatTimeoutMills": "10000",
        "electionPriority": "2147483647",
    }


def test_the_registration_is_repeated_until_it_is_taken(first_start: World) -> None:
    world = first_start
    taken = RegisterAtNameServers(0, 1)
    wait_until(lambda: world.host.done.count(taken) >= 2)
    world.member.service.deliver(NameServersAnswered(1))
    world.wait_for_heartbeats(2)
    before = world.host.done.count(taken)
    world.wait_for_heartbeats(3)
    assert world.host.done.count(taken) == before


def test_a_restart_keeps_its_id_and_follows(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_bytes(b"CtlCluster#cb#1")
    (tmp_path / "epochFileCheckpoint").write_bytes(b"1\n1725254278\n1-0\n")
    world = World(tmp_path, RESTARTED_AS_SLAVE)
    world.start()
    try:
        wait_until(lambda: world.stage is Stage.RUNNING)
        assert world.controllers.codes[0] == 1003
        assert 1012 not in world.controllers.codes
        status = world.member.service.status
        assert (status.is_master, status.master_broker_id, status.master_epoch) == (False, 2, 2)
        assert Follow(2, "127.0.0.1:24420", 2) in world.host.done
    finally:
        world.end()


def _notice(epoch: int) -> RoleNotified:
    return RoleNotified(GroupView(2, "127.0.0.1:24420", epoch, frozenset((2,)), 3))


def test_a_notice_makes_the_leader_say_who_leads(first_start: World) -> None:
    world = first_start
    wait_until(lambda: world.stage is Stage.RUNNING)
    world.controllers.answers[1004] = RemotingCommand.request(1004).response(
        0,
        None,
        {"masterBrokerId": "2", "masterAddress": "127.0.0.1:24420", "masterEpoch": "2"},
        b'{"syncStateSet":[2],"syncStateSetEpoch":3}',
    )
    world.member.service.notified(_notice(2), "10.0.0.1:5")
    wait_until(lambda: Follow(2, "127.0.0.1:24420", 2) in world.host.done)


@pytest.mark.parametrize("epoch", [2, 2**31 - 1])
def test_a_forged_notice_changes_no_role(first_start: World, epoch: int) -> None:
    world = first_start
    wait_until(lambda: world.stage is Stage.RUNNING and 1004 in world.controllers.codes)
    asked = world.controllers.codes.count(1004)
    world.member.service.notified(_notice(epoch), "10.0.0.66:5")
    assert world.controllers.codes.count(1004) > asked, "the controller was asked"
    world.wait_for_heartbeats(2)
    status = world.member.service.status
    assert (status.is_master, status.master_epoch, status.master_broker_id) == (True, 1, 1)


def test_a_notice_of_an_old_epoch_asks_nobody(first_start: World) -> None:
    world = first_start
    wait_until(lambda: world.stage is Stage.RUNNING and 1004 in world.controllers.codes)
    before = world.controllers.codes.count(1004)
    for epoch in (-1, 0, 1):
        world.member.service.notified(_notice(epoch), "10.0.0.66:5")
    assert world.controllers.codes.count(1004) == before


def test_a_broker_that_finds_no_leader_waits_without_a_role(tmp_path: Path) -> None:
    world = World(tmp_path, {})
    world.start()
    try:
        wait_until(lambda: (CONTROLLER, 1005) in world.controllers.asked)
        assert world.stage is Stage.ASKING_ID
        world.controllers.answers = dict(FIRST_START)
        wait_until(lambda: world.stage is Stage.RUNNING)
    finally:
        world.end()


def test_a_file_that_cannot_be_written_ends_the_service(tmp_path: Path) -> None:
    """Going on would be to apply for an id that a restart knows nothing of."""
    failures: list[Exception] = []
    world = World(tmp_path, FIRST_START)
    world.member = build_member(
        ControllerModeConfig(
            controller_addr=CONTROLLER, store_path_broker_identity=f"{tmp_path}/gone/brokerIdentity"
        ),
        BrokerConfig(broker_cluster_name="CtlCluster", broker_name="cb"),
        MemberPlace("127.0.0.1:24410", tmp_path, 1, 0),
        world.host,
        world.controllers,
        SystemClock(),
        on_failure=lambda _service, error: failures.append(error),
    )
    (tmp_path / "gone").write_bytes(b"no directory")
    world.start()
    try:
        wait_until(lambda: failures)
        assert isinstance(failures[0], OSError)
        assert 1013 not in world.controllers.codes
    finally:
        world.end()


class FullDisk:
    """The first writes of a file fail, as os.write on a full disk does, with half of it there."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.left = 3
        self.tried_ms: list[float] = []
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(member_service, "_TRY_AGAIN_MS", 50)

    def fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith(f"/{self.name}.tmp") and self.left:
            self.left -= 1
            self.tried_ms.append(time.monotonic() * 1000)
            os.ftruncate(descriptor, 3)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._fsync(descriptor)


@pytest.mark.parametrize("name", ["brokerIdentity-temp", "brokerIdentity", "epochFileCheckpoint"])
def test_a_full_disk_is_waited_for_before_anything_rests_on_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    disk, world = FullDisk(name, monkeypatch), World(tmp_path, FIRST_START)
    before = {"brokerIdentity-temp": 1012, "brokerIdentity": 1013, "epochFileCheckpoint": 1002}
    world.start()
    try:
        wait_until(lambda: world.member.service.status.trouble is not None)
        assert f"{name}.tmp: cannot be written" in (world.member.service.status.trouble or "")
        assert world.controllers.codes[-1] == before[name]
        assert not any(isinstance(one, Lead) for one in world.host.done)
        wait_until(lambda: world.stage is Stage.RUNNING)
        assert disk.left == 0
        assert any(isinstance(one, Lead) for one in world.host.done)
        assert decode_epochs(world.bytes_of("epochFileCheckpoint") or b"").last_epoch == 1
        assert min(b - a for a, b in itertools.pairwise(disk.tried_ms)) >= 45
        assert world.member.service.status.trouble is None
    finally:
        world.end()
    lines = [one.message for one in caplog.records if "free space" in one.message]
    assert len(lines) == 1


def test_a_full_disk_puts_a_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request (resync.json) is there whole before the shorter list, and before any frame."""
    (tmp_path / "brokerIdentity").write_bytes(b"CtlCluster#cb#1")
    (tmp_path / "epochFileCheckpoint").write_bytes(b"1\n1725254278\n1-0\n")
    FullDisk("resync.json", monkeypatch)
    world = World(tmp_path, RESTARTED_AS_SLAVE)
    world.host.log_end = 100
    seen: list[tuple[int, bytes | None]] = []

    def do(step: Step) -> None:
        if isinstance(step, CutLog) and step.step is CutStep.WRITE_MARKER:
            seen.append((len(world.host.done), world.bytes_of("epochFileCheckpoint")))
            request = ResyncRequest(action=ResyncAction.TRUNCATE, offset=step.cut_to)
            write_request(tmp_path, request)
        world.host.done.append(step)

    world.host.do = do  # type: ignore[method-assign]
    world.start()
    try:
        wait_until(lambda: world.stage is Stage.RUNNING)
        list_before = world.bytes_of("epochFileCheckpoint")
        world.member.service.deliver(MasterHello(2, epoch_list([(1, 0), (2, 50)]), 60))
        wait_until(lambda: any(isinstance(one, Transfer) for one in world.host.done))
        assert len(seen) == 4
        assert set(seen) == {(seen[0][0], list_before)}
        request = find_request(tmp_path)
        assert request is not None
        assert request.offset == 50
    finally:
        world.end()


def test_a_stop_ends_the_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, world = FullDisk("brokerIdentity", monkeypatch), World(tmp_path, FIRST_START)
    disk.left = 1_000_000
    world.start()
    wait_until(lambda: len(disk.tried_ms) > 1)
    assert world.member.service.shutdown(5_000)
    assert world.member.service.failure is None
    world.executor.shutdown(5_000)


def test_heartbeats_leave_while_events_come_without_end(first_start: World) -> None:
    """Whatever is delivered while one is taken waited in front of the tick: the controller took a
    busy broker for dead."""
    world = first_start
    wait_until(lambda: world.stage is Stage.RUNNING)
    service, ends = world.member.service, world.host.log_ends
    until_over = threading.Event()

    def log_ends() -> LogEnds:
        if not until_over.is_set():
            service.deliver(NameServersAnswered(0))
        return ends()

    world.host.log_ends = log_ends  # type: ignore[method-assign]
    service.deliver(NameServersAnswered(0))
    try:
        world.wait_for_heartbeats(3)
    finally:
        until_over.set()


def test_an_answer_that_came_during_a_long_step_is_not_late(tmp_path: Path) -> None:
    """The request counted as unanswered: the time was looked at before the answer."""
    world = World(tmp_path, FIRST_START)
    clock = ManualClock()
    host, controllers = world.host, world.controllers
    member = build_member(
        ControllerModeConfig(controller_addr=CONTROLLER, sync_broker_metadata_period=100),
        BrokerConfig(broker_cluster_name="CtlCluster", broker_name="cb"),
        MemberPlace("127.0.0.1:24410", tmp_path, 1, 0),
        host,
        controllers,
        clock,
    )
    waiting: list[ResponseCallback] = []
    answered_at_once = controllers.invoke_async

    def later(
        address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        if command.code == 1004:
            controllers.asked.append((address, 1004))
            waiting.append(callback)
        else:
            answered_at_once(address, command, timeout_ms, callback)

    controllers.invoke_async = later  # type: ignore[method-assign]
    member.service._client = member.client
    for _ in range(30):
        clock.advance(100)
        member.service.wakeup()
        member.service.step()
    assert (member.service.status.stage, len(waiting)) == (Stage.RUNNING, 1)
    view = RemotingCommand.request(1004).response(
        0,
        None,
        {"masterBrokerId": "2", "masterAddress": "127.0.0.1:24420", "masterEpoch": "2"},
        b'{"syncStateSet":[2],"syncStateSetEpoch":3}',
    )

    def log_ends() -> LogEnds:
        if waiting:
            waiting.pop()(view, None)
            clock.advance(5_000)
        return LogEnds(0, 0)

    host.log_ends = log_ends  # type: ignore[method-assign]
    member.service.deliver(NameServersAnswered(1))
    for _ in range(3):
        member.service.step()
    assert Follow(2, "127.0.0.1:24420", 2) in host.done
