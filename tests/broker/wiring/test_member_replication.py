"""What process `remoting` does for process `ha` in controller mode, and whose tables it copies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.out.broker_outer_api import BrokerOuterAPI, RegisterBrokerResult
from broker.out.member_registration import MemberRegistration, Registered
from broker.wiring.member_replication import MemberReplication
from ha.control_slots import MASTER_LINKED, MemberRole
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import dumps_java
from remoting.request_code import RequestCode
from tests.broker.member_world import Member

MASTER, OLD_MASTER = "127.0.0.9:10911", "127.0.0.8:10911"
HA_ADDRESS = "127.0.0.9:10912"


class NameServer:
    """One name server, as BrokerOuterAPI sees it: what it was told, in order, and who leads."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int | None]] = []
        """("103" or "104", broker id, state version)"""
        self.master: str | None = MASTER
        self.refuses = False
        self.is_silent = False
        self.on_register = lambda: None

    def register(self, identity: Any, topics: Any, **_: Any) -> list[RegisterBrokerResult]:
        if self.is_silent:
            return []
        self.told.append(("103", identity.broker_id, topics.data_version.state_version))
        self.on_register()
        if self.refuses:
            return []
        is_slave = identity.broker_id != 0
        return [
            RegisterBrokerResult(
                name_server="n",
                master_addr=self.master if is_slave else None,
                ha_server_addr=HA_ADDRESS if is_slave and self.master else None,
                order_topics=None,
            )
        ]

    def unregister(self, identity: Any, *_: Any) -> int:
        self.told.append(("104", identity.broker_id, None))
        return 1


class World:
    """A member, its name server, and what process `ha` asks of it."""

    def __init__(
        self,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        first_role: MemberRole = MemberRole.FENCED,
    ) -> None:
        self.name_server = server = NameServer()
        self.tables: dict[int, bytes] = {}
        self.on_ask: Any = lambda _code: None

        def get_page(
            _api: Any, broker: str, code: RequestCode, _fields: object, _ms: int
        ) -> RemotingCommand | None:
            """All tables are asked for here (BrokerOuterAPI.get_table)."""
            assert broker.startswith("127.0.0.9:")
            self.on_ask(code)
            body = self.tables.get(code)
            return None if body is None else RemotingCommand(code=0, body=body)

        for name, function in {
            "register_broker_all": lambda _api, *args, **named: server.register(*args, **named),
            "unregister_broker_all": lambda _api, *args: server.unregister(*args),
            "registration_refused_by": lambda _api: ["n"] if server.refuses else [],
            "get_page": get_page,
        }.items():
            monkeypatch.setattr(BrokerOuterAPI, name, function)
        monkeypatch.setattr(BrokerOuterAPI, "name_servers", ("n",))
        self.member = Member(root, first_role=first_role)
        self.member.address = MASTER
        outside = self.member.controller._outside
        assert isinstance(outside.registration, MemberRegistration)
        assert isinstance(outside.replication, MemberReplication)
        self.registration, self.replication = outside.registration, outside.replication
        self.executor = self.member.controller._executor
        self.replication._requests = SimpleNamespace(start=lambda: None)  # type: ignore[assignment]
        self.replication.damage_repair.service.start = lambda: None  # type: ignore[method-assign]
        self.replication.start(self.executor)

    def run_due(self) -> None:
        self.executor.run_due()

    def register(self, broker_id: int, epoch: int) -> Registered:
        """The command of process `ha`."""
        arguments = {"broker_id": broker_id, "state_version": epoch}
        return Registered(**self.replication._register_member(arguments))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    found = World(tmp_path / "a", monkeypatch)
    yield found
    found.member.close()


def test_without_a_role_nothing_is_registered(world: World) -> None:
    world.registration.register_all(check_order=True, force=True)
    assert not world.register(0, 1).taken
    world.member.follow(1)
    assert not world.register(0, 1).taken, "an order that came too late"
    assert world.name_server.told == []


def test_each_role_is_registered_with_its_id_and_epoch(world: World) -> None:
    world.member.lead(3)
    assert world.register(0, 3) == Registered(taken=True, ha_address=None)
    world.member.follow(4)
    world.run_due()
    assert world.register(2, 4) == Registered(taken=True, ha_address=HA_ADDRESS)
    world.member.lead(5)
    assert world.register(0, 5).taken
    world.registration.register_all(check_order=True, force=True)
    world.member.clock.advance(10_000)
    world.run_due()
    assert world.name_server.told == [
        ("103", 0, 3),
        ("103", 2, 4),
        ("103", 0, 5),
        ("103", 0, 5),
    ], "nobody was unregistered on the way"


def test_who_stays_without_a_role_is_unregistered(world: World) -> None:
    world.member.lead(3)
    assert world.register(0, 3).taken
    world.member.order(MemberRole.FENCED, 3)
    world.run_due()
    assert world.name_server.told == [("103", 0, 3)]
    world.member.clock.advance(1_000)
    world.run_due()
    assert world.name_server.told == [("103", 0, 3), ("104", 0, None)]
    world.registration.unregister()
    assert len(world.name_server.told) == 2, "once"


def test_a_registration_during_which_the_role_ends_counts_for_nothing(world: World) -> None:
    world.member.lead(3)
    world.name_server.on_register = lambda: world.member.order(MemberRole.FENCED, 3)
    assert not world.register(0, 3).taken
    world.name_server.on_register = lambda: None
    world.member.clock.advance(1_000)
    world.run_due()
    assert world.name_server.told == [("103", 0, 3), ("104", 0, None)]


def test_a_follower_needs_the_ha_address_of_the_master_that_the_controllers_name(
    world: World,
) -> None:
    world.member.follow(4)
    world.run_due()
    world.name_server.master = OLD_MASTER
    assert world.register(2, 4) == Registered(taken=False, ha_address=None)
    world.name_server.master = None
    assert world.register(2, 4) == Registered(taken=False, ha_address=None)
    world.name_server.master = MASTER
    world.name_server.refuses = True
    assert not world.register(2, 4).taken
    world.name_server.refuses = False
    assert world.register(2, 4) == Registered(taken=True, ha_address=HA_ADDRESS)


@pytest.mark.parametrize(
    ("role", "broker_id"), [(MemberRole.LEAD, 0), (MemberRole.FOLLOW, 2)], ids=["lead", "follow"]
)
def test_a_process_that_was_started_anew_registers_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: MemberRole, broker_id: int
) -> None:
    """The name servers have dropped the broker when its predecessor's connections closed."""
    world = World(tmp_path / "a", monkeypatch, role)
    world.name_server.is_silent = True
    for _ in range(3):
        world.run_due()
        world.member.clock.advance(1_000)
    world.name_server.is_silent = False
    for _ in range(3):
        world.run_due()
        world.member.clock.advance(1_000)
    assert world.name_server.told == [("103", broker_id, 1)]
    world.member.order(MemberRole.FENCED, 1)
    for _ in range(3):
        world.member.clock.advance(1_000)
        world.run_due()
    assert world.name_server.told[1:] == [("104", broker_id, None)]
    world.member.close()


def test_a_role_that_comes_back_in_its_epoch_is_registered_without_being_asked_for(
    world: World,
) -> None:
    """Process `ha` has registered the epoch, and asks no more."""
    world.member.lead(3)
    assert world.register(0, 3).taken
    world.member.order(MemberRole.FENCED, 3)
    world.member.clock.advance(1_000)
    world.run_due()
    world.member.order(MemberRole.LEAD, 3)
    for _ in range(8):
        world.member.clock.advance(1_000)
        world.run_due()
    assert world.name_server.told == [("103", 0, 3), ("104", 0, None), ("103", 0, 3)]


def test_a_leader_is_taken_once_a_name_server_has_answered(world: World) -> None:
    world.member.lead(3)
    world.name_server.is_silent = True
    assert not world.register(0, 3).taken
    world.name_server.is_silent = False
    assert world.register(0, 3).taken


def _offsets(offset: int) -> bytes:
    return dumps_java({"offsetTable": {"T@G": {0: offset}}})


def test_offsets_are_copied_while_the_link_with_the_master_stands(world: World) -> None:
    member, offsets = world.member, world.member.controller._tables.offsets
    member.counters[MASTER_LINKED] = 0
    world.tables[RequestCode.GET_ALL_CONSUMER_OFFSET] = _offsets(7)
    world.tables[RequestCode.GET_BROKER_RUNTIME_INFO] = dumps_java(
        {"table": {"commitLogMinOffset": "0", "commitLogMaxOffset": "0"}}
    )
    member.follow(4)
    member.counters[MASTER_LINKED] = 0
    for _ in range(3):
        world.run_due()
    assert offsets.query_offset("G", "T", 0) is None
    member.counters[MASTER_LINKED] = 1
    member.clock.advance(1_000)
    for _ in range(3):
        world.run_due()
    assert offsets.query_offset("G", "T", 0) == 7


def test_nothing_comes_into_the_tables_of_a_leader(world: World) -> None:
    """The old master answers when this broker leads already."""
    member, offsets = world.member, world.member.controller._tables.offsets
    world.tables[RequestCode.GET_ALL_CONSUMER_OFFSET] = _offsets(7)
    world.tables[RequestCode.GET_BROKER_RUNTIME_INFO] = dumps_java(
        {"table": {"commitLogMinOffset": "0", "commitLogMaxOffset": "0"}}
    )
    asked = []

    def lead_meanwhile(code: RequestCode) -> None:
        asked.append(code)
        if code is RequestCode.GET_ALL_CONSUMER_OFFSET:
            member.lead(5)

    world.on_ask = lead_meanwhile
    member.follow(4)
    for _ in range(4):
        world.run_due()
        member.clock.advance(1_000)
    assert RequestCode.GET_ALL_CONSUMER_OFFSET in asked
    assert offsets.query_offset("G", "T", 0) is None
