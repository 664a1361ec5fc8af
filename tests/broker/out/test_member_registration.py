"""MemberRegistration: what the name servers are told of a member, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.out.broker_outer_api import BrokerOuterAPI
from broker.out.broker_registration import FIRST_DELAY_MS
from broker.out.member_registration import MemberRegistration, RegisteredMember
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.register_broker import RegisterBrokerBody
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import CONFIG, FakeClock
from tests.broker.out.test_broker_outer_api import (
    IDENTITY,
    Behaviour,
    FakeClient,
    answer,
    fails,
)


class World:
    def __init__(self, tmp_path: Path, **behaviours: Behaviour) -> None:
        self.clock = FakeClock()
        self.executor = ScheduledExecutor(self.clock)
        self.client = FakeClient()
        self.client.behaviours = behaviours
        self.topics = TopicConfigManager(
            tmp_path / "topics.json", CONFIG, self.clock, SystemTopics()
        )
        self.topics.load()
        self.masters: list[tuple[str | None, str | None]] = []
        self.registration = MemberRegistration(
            CONFIG,
            replace(IDENTITY, broker_id=-1),
            BrokerOuterAPI(self.client, list(behaviours)),
            self.topics,
            self.executor,
            on_master=lambda master, ha: self.masters.append((master, ha)),
        )

    def told(self) -> list[tuple[int, int | None]]:
        """Broker id and state version of the registrations since the last call."""
        found = []
        for _, command in self.client.calls:
            assert command.code == 103
            body = RegisterBrokerBody.from_json_bytes(command.body)
            version = body.topic_config_serialize_wrapper.data_version.state_version
            found.append((int(command.ext_fields["brokerId"]), version))
        self.client.calls.clear()
        return found

    def wait(self, delay_ms: int) -> None:
        self.clock.advance(delay_ms)
        self.executor.run_due()


def test_nothing_is_registered_before_there_is_a_role(tmp_path: Path) -> None:
    """Two masters would be registered while one of them is only starting again."""
    world = World(tmp_path, n=answer())
    ready: list[int] = []
    world.registration.start(lambda: ready.append(1))
    world.executor.run_due()
    assert ready == [1]
    world.topics.prepare_for_send("T", "TBW102", 4, unit_mode=False, remote="r")
    world.registration.register_new(["T"])
    world.registration.register_one("T")
    world.registration.master_is_silent()
    world.wait(FIRST_DELAY_MS)
    world.wait(60_000)
    world.registration.unregister()
    assert world.told() == []


def test_each_registration_has_the_role_and_its_epoch(tmp_path: Path) -> None:
    world = World(tmp_path, n=answer())
    world.registration.start()
    assert world.registration.register_as(0, 7).taken
    assert world.told() == [(0, 7)]
    world.wait(FIRST_DELAY_MS)
    world.registration.register_new(["TBW102"])
    assert world.told() == [(0, 7)] * 2
    world.registration.register_as(2, 8)
    world.wait(60_000)
    assert set(world.told()) == {(2, 8)}


def test_a_follower_hears_of_the_master_that_the_name_servers_know(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        empty=answer(),
        n=answer(masterAddr="10.0.0.1:10911", haServerAddr="10.0.0.1:10912"),
    )
    found = world.registration.register_as(2, 7)
    assert found == RegisteredMember(True, "10.0.0.1:10911", "10.0.0.1:10912")
    assert world.masters == [], "whom it follows the controller says"


def test_a_name_server_that_refuses_is_told_again(tmp_path: Path) -> None:
    world = World(tmp_path, n=answer(), m=answer(code=1))
    world.registration.start()
    assert not world.registration.register_as(0, 7).taken
    assert world.registration.register_as(0, 7).taken, "nothing waits for one that is ill"
    world.told()
    world.wait(1_000)
    assert world.told() == [(0, 7)] * 2
    world.client.behaviours["m"] = answer()
    world.wait(2_000)
    assert world.told() == [(0, 7)] * 2
    world.wait(4_000)
    assert world.told() == [], "all have taken it"


def test_a_name_server_that_is_gone_holds_nothing_up(tmp_path: Path) -> None:
    world = World(tmp_path, n=answer(), m=fails("m"))
    assert world.registration.register_as(0, 7).taken
    world.client.behaviours["n"] = fails("n")
    assert not world.registration.register_as(0, 7).taken, "nobody has"


def test_without_name_servers_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    assert World(tmp_path).registration.register_as(0, 7).taken


def test_a_stop_unregisters_the_role_of_now(tmp_path: Path) -> None:
    world = World(tmp_path, n=answer())
    world.registration.register_as(3, 7)
    world.client.calls.clear()
    world.registration.unregister()
    commands: list[RemotingCommand] = [command for _, command in world.client.calls]
    assert [(each.code, each.ext_fields["brokerId"]) for each in commands] == [(104, "3")]
    assert not world.registration.register_as(0, 8).taken
