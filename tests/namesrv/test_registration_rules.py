"""namesrv.registration_rules: which brokers a peer may register, unregister or keep alive.

The guard and the processor of one name server; peers are connections with an address of their own.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from namesrv.holder_probe import HolderProbe
from namesrv.namesrv_config import NamesrvConfig
from namesrv.registrations import BROKER_CHANNEL_EXPIRED_MS
from namesrv.request_guard import RequestGuard
from remoting.body.route import QueueData, TopicRouteData
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseTable
from tests.namesrv.conftest import FakeConnection, Namesrv
from tests.namesrv.namesrv_peer import registration

MASTER, SLAVE, STRANGER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.9:10911"
OK, REFUSED = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION


@dataclass
class World:
    """A name server behind its guard."""

    namesrv: Namesrv
    allowed: str = ""
    has_certificates: bool = False
    ids: int = 0
    guard: RequestGuard = field(init=False)
    responses: ResponseTable = field(default_factory=ResponseTable)

    def __post_init__(self) -> None:
        self.guard = RequestGuard(
            NamesrvConfig(register_allowed_addresses=self.allowed),
            self.namesrv.routes,
            lambda: self.namesrv.now_ms,
            HolderProbe(self.responses, lambda: self.namesrv.now_ms),
            has_certificates=self.has_certificates,
        )

    def peer(self, address: str, *, here: bool = False) -> FakeConnection:
        self.ids += 1
        return FakeConnection(self.ids, address, is_from_this_machine=here)

    def ask(self, peer: FakeConnection, request: RemotingCommand) -> RemotingCommand:
        try:
            self.guard.check(peer, request)
        except RequestError as error:
            return request.response(error.code, error.remark)
        return self.namesrv.ask(request, peer)

    def register(
        self, peer: FakeConnection, address: str, broker_id: int = 0, name: str = "a"
    ) -> RemotingCommand:
        request = registration(name, broker_id)
        request.ext_fields["brokerAddr"] = address
        return self.ask(peer, request)

    def addresses(self, name: str = "a") -> dict[int, str]:
        return self.namesrv.routes.get_broker_member_group(name)


@pytest.fixture
def new_world(namesrv: Namesrv) -> Callable[..., World]:
    return lambda **settings: World(namesrv, **settings)


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    return new_world()


def about(code: int, address: str, name: str = "a") -> RemotingCommand:
    fields = {"brokerName": name, "brokerAddr": address, "clusterName": "C", "brokerId": "0"}
    return RemotingCommand.request(code, fields, b'{"counter":1,"timestamp":1}')


def topic_route(topic: str, *names: str) -> RemotingCommand:
    route = TopicRouteData(
        queue_datas=[QueueData(broker_name=name, read_queue_nums=4) for name in names],
        broker_datas=[],
        filter_server_table={},
    )
    return RemotingCommand.request(217, {"topic": topic}, route.to_json_bytes())


# -- the peer's own address ----------------------------------------------------------------------


def test_a_stranger_changes_nothing_for_another_address(world: World) -> None:
    master, stranger = world.peer("10.0.0.1:5000"), world.peer("10.0.0.9:5000")
    assert world.register(master, MASTER).code == OK
    for request in (about(104, MASTER), about(322, MASTER), about(904, MASTER)):
        answer = world.ask(stranger, request)
        assert answer.code == REFUSED
        assert "10.0.0.9" in (answer.remark or "")
    answer = world.register(stranger, "10.0.0.7:10911", 7)
    assert answer.code == REFUSED
    assert "registerAllowedAddresses (now nobody)" in (answer.remark or "")
    assert world.addresses() == {0: MASTER}
    assert world.ask(master, about(104, MASTER)).code == OK
    assert world.addresses() == {}


def test_it_may_register_itself(world: World) -> None:
    """It is a broker like any other then; being registered proves nothing to anybody."""
    assert world.register(world.peer("10.0.0.9:5000"), STRANGER, 7).code == OK
    assert world.register(world.peer("::ffff:10.0.0.8:5000"), "10.0.0.8:1", 8).code == OK


@pytest.mark.parametrize("setting", ["10.0.0.9", "10.0.0.0/24, 192.0.2.1", "*"])
def test_who_may_register_other_addresses(new_world: Callable[..., World], setting: str) -> None:
    world = new_world(allowed=setting)
    peer = world.peer("10.0.0.9:5000")
    assert world.register(peer, "broker-a.example:10911").code == OK
    assert world.ask(peer, about(904, "broker-a.example:10911")).code == OK


def test_certificates_are_enough(new_world: Callable[..., World]) -> None:
    world = new_world(has_certificates=True)
    assert world.register(world.peer("10.0.0.9:5000"), "172.17.0.2:10911").code == OK


def own_address() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def test_this_machine_registers_any_of_its_addresses(world: World) -> None:
    """A broker beside its name server connects through loopback and registers brokerIP1."""
    own = [address for address in ("127.0.0.1", "127.9.8.7", "localhost", own_address()) if address]
    for number, address in enumerate(own):
        for remote, here in (("127.0.0.1:5000", True), ("10.0.0.5:5000", True)):
            peer = world.peer(remote, here=here)
            assert world.register(peer, f"{address}:10911", number).code == OK, address
    for address in ("192.0.2.1", "0.0.0.0", "224.0.0.1", "", "no such host"):
        assert world.register(world.peer("127.0.0.1:1"), f"{address}:1", 9).code == REFUSED, address


def test_a_name_is_not_looked_up_for_another_host(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would block the thread of all registrations for as long as the stranger's DNS likes."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("looked up"))
    assert world.register(world.peer("10.0.0.9:5000"), "broker.example:10911").code == REFUSED


# -- what a live broker holds ---------------------------------------------------------------------


@pytest.mark.parametrize("allowed", ["", "*"])
def test_a_live_id_is_not_taken_over(new_world: Callable[..., World], allowed: str) -> None:
    world = new_world(allowed=allowed)
    world.register(world.peer("10.0.0.1:5000"), MASTER)
    world.register(slave := world.peer("10.0.0.2:5000"), SLAVE, 1)
    world.namesrv.now_ms = BROKER_CHANNEL_EXPIRED_MS
    answer = world.register(world.peer("10.0.0.9:5000"), STRANGER)
    assert answer.code == REFUSED
    assert answer.remark == (
        "request 103 (REGISTER_BROKER) for broker a at 10.0.0.9:10911 with brokerId 0 is refused: "
        "10.0.0.1:10911 holds that and is alive, its host 10.0.0.1 registered it 120 s ago; it was "
        "asked whether it lives: if it does not answer within 5 s, the next attempt succeeds; else "
        "stop that broker"
    )
    assert world.addresses() == {0: MASTER, 1: SLAVE}
    assert world.register(slave, SLAVE).code == REFUSED, "not even by a slave of the group"
    assert world.addresses() == {0: MASTER, 1: SLAVE}


@pytest.mark.parametrize("by", ["closed", "silent"])
def test_a_dead_masters_id_is_free(world: World, by: str) -> None:
    master = world.peer("10.0.0.1:5000")
    world.register(master, MASTER)
    if by == "closed":
        master.close("killed")
    else:
        world.namesrv.now_ms = BROKER_CHANNEL_EXPIRED_MS + 1
    assert world.register(world.peer("10.0.0.2:5000"), SLAVE).code == OK
    assert world.addresses() == {0: SLAVE}
    assert world.register(world.peer("10.0.0.1:6000"), MASTER).code == REFUSED, "it comes too late"


def test_a_master_whose_host_vanished_is_asked(world: World) -> None:
    """Its connection stays open: without the question its successor waits for two minutes."""
    master, slave = world.peer("10.0.0.1:5000"), world.peer("10.0.0.2:5000")
    world.register(master, MASTER)
    assert world.register(slave, SLAVE).code == REFUSED
    (question,) = master.sent
    assert (question.code, question.is_response) == (28, False)
    world.namesrv.now_ms += 4_999
    assert world.register(slave, SLAVE).code == REFUSED
    assert len(master.sent) == 1
    world.namesrv.now_ms += 1
    assert world.register(slave, SLAVE).code == OK
    assert world.addresses() == {0: SLAVE}


def test_a_master_that_answers_keeps_its_id(world: World) -> None:
    """As a broker of any kind answers a request that comes from its name server: not supported."""
    master, stranger = world.peer("10.0.0.1:5000"), world.peer("10.0.0.9:5000")
    world.register(master, MASTER)
    for _ in range(4):
        assert world.register(stranger, STRANGER).code == REFUSED
        world.responses.complete(master.sent[-1].response(3, "no"), master.remote_address)
        world.namesrv.now_ms += 5_000
    assert len(master.sent) == 4
    assert world.addresses() == {0: MASTER}
    assert len(world.responses) <= 1


def test_nobody_answers_for_the_holder(world: World) -> None:
    master, slave = world.peer("10.0.0.1:5000"), world.peer("10.0.0.2:5000")
    world.register(master, MASTER)
    world.register(slave, SLAVE)
    world.responses.complete(master.sent[-1].response(3, "no"), "10.0.0.7:5000")
    world.namesrv.now_ms += 5_000
    assert world.register(slave, SLAVE).code == OK


def test_who_registers_after_the_question_lives(world: World) -> None:
    master, slave = world.peer("10.0.0.1:5000"), world.peer("10.0.0.2:5000")
    world.register(master, MASTER)
    world.register(slave, SLAVE)
    world.namesrv.now_ms += 3_000
    world.register(master, MASTER)
    world.namesrv.now_ms += 3_000
    assert world.register(slave, SLAVE).code == REFUSED
    assert len(master.sent) == 2


def test_no_announced_timeout_holds_an_id_for_longer(world: World) -> None:
    request = registration("a")
    request.ext_fields |= {"brokerAddr": STRANGER, "heartbeatTimeoutMillis": str(2**60)}
    assert world.ask(world.peer("10.0.0.9:5000"), request).code == OK
    world.namesrv.now_ms = BROKER_CHANNEL_EXPIRED_MS + 1
    assert world.register(world.peer("10.0.0.1:5000"), MASTER).code == OK


def test_the_holder_comes_back_at_once(world: World) -> None:
    """After a crash its old connection may look open for a while; the port may be another."""
    world.register(world.peer("10.0.0.1:5000"), MASTER)
    assert world.register(world.peer("10.0.0.1:5001"), MASTER).code == OK
    assert world.register(world.peer("10.0.0.1:5002"), "10.0.0.1:20911").code == OK
    assert world.addresses() == {0: "10.0.0.1:20911"}
    world.register(world.peer("127.0.0.1:5000", here=True), "127.0.0.1:1", name="b")
    assert world.register(world.peer("127.0.0.3:5000"), "127.0.0.3:1", name="b").code == OK


@pytest.mark.parametrize("code", [104, 322, 904])
def test_who_may_name_any_address_leaves_live_ones_alone(
    new_world: Callable[..., World], code: int
) -> None:
    world = new_world(allowed="10.0.0.9")
    world.register(master := world.peer("10.0.0.1:5000"), MASTER)
    assert world.ask(world.peer("10.0.0.9:5000"), about(code, MASTER)).code == REFUSED
    assert world.register(world.peer("10.0.0.9:5000"), MASTER, 0, "b").code == REFUSED
    assert world.addresses() == {0: MASTER}
    assert world.ask(master, about(code, MASTER)).code == OK


# -- a topic's route ------------------------------------------------------------------------------


def test_a_topic_is_registered_by_a_host_that_serves_it(world: World) -> None:
    master, stranger = world.peer("10.0.0.1:5000"), world.peer("10.0.0.9:5000")
    world.register(master, MASTER)
    world.register(stranger, STRANGER, name="evil")
    answer = world.ask(stranger, topic_route("T2", "evil", "a"))
    assert answer.code == REFUSED
    assert "topic of broker a" in (answer.remark or "")
    assert world.namesrv.routes.pickup_topic_route_data("T2") is None
    assert world.ask(stranger, topic_route("T3", "unknown")).code == OK
    assert world.ask(master, topic_route("T2", "a")).code == OK
    assert world.namesrv.routes.pickup_topic_route_data("T2") is not None


# -- the log --------------------------------------------------------------------------------------


def test_a_stranger_gets_one_line_whatever_it_names(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    stranger: Any = world.peer("10.0.0.9:5000")
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            assert world.register(stranger, f"10.1.1.{number}:10911\nx").code == REFUSED
    (line,) = caplog.messages
    assert line.startswith("10.0.0.9:5000: REGISTER_BROKER rejected: request 103")
    assert "\n" not in line
