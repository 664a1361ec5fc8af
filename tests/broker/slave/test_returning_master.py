"""broker.slave.returning_master: whom a starting master asks, when, and what it takes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.out.broker_outer_api import BrokerAnswerError, BrokerOuterAPI
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.slave.group_members import MemberAddress
from broker.slave.returning_master import ReturningMaster
from broker.topic.system_topics import SCHEDULE_TOPIC
from ipc.scheduled_executor import ScheduledExecutor
from remoting.errors import RemotingTimeoutError
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig
from remoting.request_code import RequestCode
from tests.broker.broker_fakes import FakeClock, json_of
from tests.remoting.fake_peer import FakePeer, PeerConnection

ENDS = {("t", 0): 100, ("t", 1): 10} | {(SCHEDULE_TOPIC, queue_id): 8 for queue_id in range(4)}


class World:
    """A master, and slaves by address: a body, None, or an exception."""

    def __init__(self, root: Path, **members: int) -> None:
        self.members: list[MemberAddress] | None = []
        self.answers: dict[str, bytes | Exception | None] = {}
        self.asked: list[str] = []
        self.strangers: set[str] = set()
        self.clock = FakeClock()
        self.executor = ScheduledExecutor(self.clock)
        self.offsets = ConsumerOffsetManager(root / "consumerOffset.json")
        self.offsets.load()
        self.offsets.commit_offset("r", "g", "t", 0, 50)
        self.returning = ReturningMaster(
            lambda: self.members,
            self,
            self.offsets,
            lambda *queue: ENDS.get(queue, 0),
            is_slave=lambda ip: ip not in self.strangers,
        )

    def get_table(self, broker: str, code: RequestCode, timeout_ms: int) -> bytes | None:
        assert (code, timeout_ms) == (43, 3_000)
        self.asked.append(broker)
        outcome = self.answers[broker]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def slaves(self, **answers: bytes | Exception | None) -> None:
        """slaves(a=...): slave "a" is registered and answers this."""
        self.answers = dict(answers)
        self.members = [MemberAddress(number, name) for number, name in enumerate(answers, start=1)]

    def offset(self, queue_id: int = 0) -> int | None:
        return self.offsets.query_offset("g", "t", queue_id)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_larger_offset_up_to_the_end_of_the_queue(world: World, tmp_path: Path) -> None:
    world.slaves(a=b'{"offsetTable":{"t@g":{0:70,1:33}}}', b=b'{"offsetTable":{"t@g":{"0":60}}}')
    world.returning.ask_slaves()
    assert (world.offset(0), world.offset(1)) == (70, 10)
    saved = json_of((tmp_path / "consumerOffset.json").read_bytes())
    assert saved == {"offsetTable": {"t@g": {"0": 70, "1": 10}}}


def test_lower_offsets_change_nothing(world: World, tmp_path: Path) -> None:
    world.offsets.save_if_changed()
    (tmp_path / "consumerOffset.json").unlink()
    world.slaves(a=b'{"offsetTable":{"t@g":{0:49}}}')
    world.returning.ask_slaves()
    assert world.offset() == 50
    assert not (tmp_path / "consumerOffset.json").exists()


@pytest.mark.parametrize("members", [None, [], [MemberAddress(0, "another master")]])
def test_nobody_to_ask(world: World, members: list[MemberAddress] | None) -> None:
    world.members = members
    world.returning.ask_slaves()
    assert world.asked == []


@pytest.mark.parametrize(
    "trouble",
    [RemotingTimeoutError("a", "no response"), BrokerAnswerError("a: code 3"), b"{", b"{}", b"[]"],
)
def test_a_slave_that_does_not_answer_is_skipped_and_asked_again(
    world: World, trouble: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    world.slaves(a=trouble, b=b'{"offsetTable":{"t@g":{0:60}}}')
    world.returning.ask_slaves()
    assert world.offset() == 60
    assert "slave a: skipped" in caplog.text
    world.answers["a"] = b'{"offsetTable":{"t@g":{0:80}}}'
    world.returning.ask_slaves()
    assert sorted(world.asked) == ["a", "a", "b"], "b has answered"
    assert world.offset() == 80


def test_a_slave_without_offsets_has_answered(world: World) -> None:
    world.slaves(a=None)
    world.returning.ask_slaves()
    world.returning.ask_slaves()
    assert world.asked == ["a"]


def test_later_rounds_for_slaves_that_appear(world: World) -> None:
    world.returning.ask_slaves()
    world.returning.schedule_on(world.executor)
    world.clock.advance(4_999)
    assert world.executor.run_due() == 0
    world.slaves(a=b'{"offsetTable":{"t@g":{0:60}}}')
    world.clock.advance(1)
    world.executor.run_due()
    assert (world.asked, world.offset()) == (["a"], 60)
    world.clock.advance(25_000)
    assert world.executor.run_due() == 1
    assert world.asked == ["a"]
    world.clock.advance(3_600_000)
    assert world.executor.run_due() == 0, "from then on slaves follow"


def test_slaves_are_asked_at_once_over_real_sockets(tmp_path: Path) -> None:
    """Each answers only when both have been asked."""
    both = threading.Barrier(2)

    def answer(connection: PeerConnection, command: RemotingCommand) -> None:
        both.wait(5)
        connection.send(command.response(0, None, {}, b'{"offsetTable":{"t@g":{0:99}}}'))

    world = World(tmp_path)
    client = RemotingClient(RemotingClientConfig())
    client.start()
    try:
        with FakePeer(answer) as first, FakePeer(answer) as second:
            world.members = [MemberAddress(1, first.address), MemberAddress(2, second.address)]
            returning = ReturningMaster(
                lambda: world.members,
                BrokerOuterAPI(client),
                world.offsets,
                lambda *queue: ENDS.get(queue, 0),
                is_slave=lambda _ip: True,
            )
            returning.ask_slaves()
    finally:
        client.shutdown()
    assert world.offset() == 99


def test_a_stranger_is_not_asked(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody may register as a slave; with its offsets consumers would skip messages."""
    world.members = [MemberAddress(7, "10.0.0.9:10911")]
    world.answers["10.0.0.9:10911"] = b'{"offsetTable":{"t@g":{0:99}}}'
    world.strangers.add("10.0.0.9")
    world.returning.ask_slaves()
    assert (world.asked, world.offset()) == ([], 50)
    assert "broker 7 at 10.0.0.9:10911: registered as a slave, but" in caplog.text
    world.strangers.clear()
    world.returning.ask_slaves()
    assert world.offset() == 99


class DelayedWorld(World):
    """Slaves answer 45, too, in whose place they delivered."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.delayed: dict[str, bytes | Exception | None] = {}
        self.progress = ScheduleOffsetManager(root / "delayOffset.json")
        self.progress.load()
        self.progress.update_offset(1, 5)
        self.progress.update_offset(2, 9)
        self.returning = ReturningMaster(
            lambda: self.members,
            self,
            self.offsets,
            lambda *queue: ENDS.get(queue, 0),
            is_slave=lambda ip: ip not in self.strangers,
            delay_offsets=self.progress,
        )

    def get_table(self, broker: str, code: RequestCode, timeout_ms: int) -> bytes | None:
        if code != 45:
            return super().get_table(broker, code, timeout_ms)
        outcome = self.delayed[broker]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_what_slaves_delivered_is_not_delivered_again(tmp_path: Path) -> None:
    world = DelayedWorld(tmp_path)
    world.slaves(a=None, b=None, c=None)
    world.delayed = {
        "a": b'{"offsetTable":{1:7,2:3},"dataVersion":{"counter":1}}',
        "b": BrokerAnswerError("no table"),
        "c": b'{"offsetTable":{4:2}}',
    }
    world.returning.adopt_progress()
    assert world.progress.offsets() == {1: 7, 2: 9, 4: 2}
    assert json_of((tmp_path / "delayOffset.json").read_bytes())["offsetTable"]


def test_a_slave_whose_log_is_longer_does_not_pass_over_what_is_delayed_from_now_on(
    tmp_path: Path,
) -> None:
    """This master lost the tail of its log; the queue will have other messages there."""
    world = DelayedWorld(tmp_path)
    world.slaves(a=None)
    world.delayed = {"a": b'{"offsetTable":{1:100,9:1,0:3,-7:2,2147483647:5}}'}
    world.returning.adopt_progress()
    assert world.progress.offsets() == {1: 8, 2: 9}


def test_what_is_committed_at_a_slave_until_the_master_registers_counts(tmp_path: Path) -> None:
    world = DelayedWorld(tmp_path)
    world.slaves(a=b'{"offsetTable":{"t@g":{0:60}}}')
    world.delayed = {"a": b'{"offsetTable":{}}'}
    assert world.members is not None
    world.returning.take_back(world.members[0])
    assert world.offset() == 60
    world.answers["a"] = b'{"offsetTable":{"t@g":{0:70}}}'
    world.returning.ask_slaves()
    assert world.offset() == 70


def test_a_slave_that_has_answered_once_is_asked_for_its_progress_all_the_same(
    tmp_path: Path,
) -> None:
    world = DelayedWorld(tmp_path)
    world.slaves(a=None)
    world.returning.ask_slaves()
    world.delayed = {"a": b'{"offsetTable":{1:7}}'}
    world.returning.adopt_progress()
    assert world.progress.offsets() == {1: 7, 2: 9}


def test_the_progress_of_a_stranger_is_not_adopted(tmp_path: Path) -> None:
    world = DelayedWorld(tmp_path)
    world.members = [MemberAddress(7, "10.0.0.9:10911")]
    world.delayed = {"10.0.0.9:10911": b'{"offsetTable":{1:7}}'}
    world.answers["10.0.0.9:10911"] = None
    world.strangers.add("10.0.0.9")
    world.returning.adopt_progress()
    assert world.progress.offsets() == {1: 5, 2: 9}
    world.strangers.clear()
    world.returning.adopt_progress()
    assert world.progress.offsets() == {1: 7, 2: 9}
