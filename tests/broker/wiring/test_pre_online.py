"""An isolated broker's way online, over real sockets, as RocketMQ 5.3.3 was seen to go it.

The peers of a broker (name server, slave, master) are scripted; what a Java broker asked them, and
what they answered, is tests/golden/pre-online-5.3.3.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.slave.group_members import GroupMembers, MemberAddress
from broker.slave.pre_online import ComeOnline
from broker.slave.pre_online_service import PreOnlineService
from broker.slave.returning_master import ReturningMaster
from broker.slave.timer_take_back import TimerTakeBack
from broker.wiring.pre_online import pre_online_service
from ha.control_slots import ISOLATED, MASTER_LINKED, isolation_text
from ipc.command_channel import CommandError
from remoting.headers.ha import ExchangeHAInfoResponseHeader
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig
from store.timer.timer_checkpoint import TimerCheckpoint
from store.timer.timer_slots import TIMER_TAKEN_BACK_MS
from tests.broker.broker_fakes import FakeClock
from tests.remoting.fake_peer import FakePeer, PeerConnection
from tests.support.shared_memory import close_page, fresh_page

GOLDEN = Path(__file__).parents[2] / "golden" / "pre-online-5.3.3"
NAME = "pb"
_ASKED = re.compile(r" port (\d+) <- (\d+) (\{.*\}) body \d+$")


def asked_of(file: str) -> list[tuple[int, int, dict[str, str]]]:
    """What a Java broker asked its peer: (port, code, fields), in order."""
    lines = (GOLDEN / file).read_text().splitlines()
    found = (match.groups() for line in lines if (match := _ASKED.search(line)))
    return [(int(port), int(code), ast.literal_eval(fields)) for port, code, fields in found]


class Identity:
    """What 906 says of the master under test."""

    ha_address = "127.0.0.1:31712"
    broker_address = "127.0.0.1:31710"
    initial_max_offset = 0


class World:
    """One isolated broker. Its replica and its VIP port are two peers, and so is a name server."""

    def __init__(self, root: Path, broker_id: int, **settings: object) -> None:
        self.page = fresh_page()
        self.clock = FakeClock()
        self.registered: dict[int, str] = {}
        self.links: list[dict[str, str]] | None = []
        """None: process `ha` does not answer."""
        self.answers: dict[int, tuple[int, dict[str, str], bytes]] = {906: (0, {}, b"")}
        self.asked: list[tuple[str, int, dict[str, str]]] = []
        self.online: list[ComeOnline] = []
        self.masters: list[tuple[MemberAddress, ExchangeHAInfoResponseHeader]] = []
        self.names = FakePeer(self._answer_names)
        self.peer = FakePeer(lambda *each: self._answer("main", *each))
        self.vip = FakePeer(lambda *each: self._answer("vip", *each))
        self.client = RemotingClient(RemotingClientConfig())
        self.client.start()
        api = BrokerOuterAPI(self.client, [self.names.address])
        identity = BrokerIdentity(
            cluster_name="PreCluster",
            broker_name=NAME,
            broker_id=broker_id,
            broker_addr="127.0.0.1:31710",
            ha_server_addr="127.0.0.1:31712",
        )
        self.offsets = ConsumerOffsetManager(root / "consumerOffset.json")
        self.delays = ScheduleOffsetManager(root / "delayOffset.json")
        self.offsets.load()
        self.delays.load()
        self.returning = ReturningMaster(
            GroupMembers(identity, api).fetch_member_ips,
            api,
            self.offsets,
            lambda _topic, _queue_id: 100,
            is_slave=lambda _ip: False,
            delay_offsets=self.delays,
            timers=TimerTakeBack(
                api,
                self.page.counters,
                lambda: 3,
                SimpleNamespace(end=lambda *_queue: 3, began_ms=0),  # type: ignore[arg-type]
                self.clock.now_ms,
            ),
        )
        broker = SimpleNamespace(
            begins_isolated=True,
            compatible_with_old_name_srv=True,
            pre_online_max_wait=60_000,
        )
        vars(broker).update(settings)
        made = pre_online_service(
            SimpleNamespace(  # type: ignore[arg-type]
                options=SimpleNamespace(broker=broker),
                page=self.page,
                clock=self.clock,
                on_failure=None,
            ),
            identity,
            api,
            SimpleNamespace(  # type: ignore[arg-type]
                ha_identity=Identity,
                ha=SimpleNamespace(call=lambda *_each: self._ha_status()),
                is_slave_of_ours=lambda _ip: False,
                returning=self.returning,
                use_master=lambda *each: self.masters.append(each),
            ),
            self.online.append,
        )
        assert made is not None
        self.service: PreOnlineService = made
        self.service.wait_for_running = lambda _ms: True  # type: ignore[method-assign, assignment]

    def close(self) -> None:
        self.client.shutdown()
        for peer in (self.names, self.peer, self.vip):
            peer.stop()
        close_page(self.page)

    def _ha_status(self) -> dict[str, Any]:
        if self.links is None:
            raise CommandError("process ha is being started")
        return {"haConnectionInfo": self.links}

    def _answer_names(self, connection: PeerConnection, request: RemotingCommand) -> None:
        assert request.ext_fields["topic"] == f"rmq_sys_SYNC_BROKER_MEMBER_{NAME}"
        if not self.registered:
            connection.send(request.response(17, "no topic route info"))
            return
        group = {"cluster": "PreCluster", "brokerName": NAME, "brokerAddrs": self.registered}
        other = {"cluster": "PreCluster", "brokerName": "x", "brokerAddrs": {"7": "127.0.0.1:1"}}
        body = json.dumps({"queueDatas": [], "brokerDatas": [other, group]}).encode()
        connection.send(request.response(0, None, {}, body))

    def _answer(self, port: str, connection: PeerConnection, request: RemotingCommand) -> None:
        self.asked.append((port, request.code, dict(request.ext_fields)))
        code, fields, body = self.answers.get(request.code, (3, {}, b""))
        connection.send(request.response(code, "scripted", fields, body))

    def link(self, replica: str = f"{NAME}:1", state: str = "in_sync") -> None:
        assert self.links is not None
        self.links.append({"id": replica, "addr": "127.0.0.1:5555", "state": state})

    def codes(self) -> list[int]:
        return [code for _port, code, _fields in self.asked]


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path, 0)
    world.registered = {1: world.peer.address}
    monkeypatch.setattr(
        "broker.slave.timer_take_back.vip_address",
        lambda address: world.vip.address if address == world.peer.address else None,
    )
    timers = TimerCheckpoint(last_read_time_ms=1_600_000_000_000, last_timer_queue_offset=3)
    world.answers[45] = (0, {}, b'{"offsetTable":{3:5}}')
    world.answers[43] = (0, {}, b'{"offsetTable":{"t@g":{0:7}}}')
    world.answers[60] = (0, {}, timers.encode())
    try:
        yield world
    finally:
        world.close()


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, 1)
    world.registered = {0: world.peer.address}
    try:
        yield world
    finally:
        world.close()


def test_a_master_asks_its_slave_what_a_java_master_asks(master: World) -> None:
    """906 to the port, and once it is linked 45, 43 to the port, 60 to port − 2."""
    golden = asked_of("fake-slave.txt")[:4]
    master.service.step()
    assert isolation_text(master.page.counters).endswith("waits for broker id 1")
    assert master.codes() == [906]
    master.link()
    master.service.step()
    ports = {31730: "main", 31728: "vip"}
    assert master.asked == [(ports[port], code, fields) for port, code, fields in golden]
    assert master.online == [ComeOnline(0, "127.0.0.1:31710")]
    assert master.offsets.query_offset("g", "t", 0) == 7
    assert master.delays.offsets() == {3: 5}
    assert master.page.counters[TIMER_TAKEN_BACK_MS] == 1_600_000_000_000


def test_a_slave_asks_its_master_what_a_java_slave_asks(slave: World) -> None:
    (_port, code, fields), *_ = asked_of("fake-master.txt")
    said = {
        "masterHaAddress": "127.0.0.1:31742",
        "masterFlushOffset": "1234",
        "masterAddress": "127.0.0.1:31740",
    }
    slave.answers[906] = (0, said, b"")
    slave.service.step()
    assert slave.asked == [("main", code, fields)]
    ((member, answer),) = slave.masters
    assert member == MemberAddress(0, slave.peer.address)
    assert (answer.master_ha_address, answer.master_flush_offset) == ("127.0.0.1:31742", 1234)
    assert slave.online == []
    slave.page.counters[MASTER_LINKED] = 1
    slave.service.step()
    assert slave.online == [ComeOnline(0, slave.peer.address)]


@pytest.mark.parametrize("said", [{}, {"masterHaAddress": ""}])
def test_a_master_without_an_ha_port_keeps_no_slave_away(
    slave: World, said: dict[str, str]
) -> None:
    """ "" is not null in RocketMQ, where an empty address is followed."""
    slave.answers[906] = (0, said, b"")
    slave.service.step()
    assert slave.online == [ComeOnline(0, slave.peer.address)]
    assert slave.masters == []


def test_a_lone_broker_is_online_at_once(master: World) -> None:
    master.registered = {}
    master.service.step()
    assert (master.asked, master.online) == ([], [ComeOnline(0, "127.0.0.1:31710")])


def test_a_slave_whose_timers_are_off_has_nothing_to_take(master: World) -> None:
    """It keeps a Java master offline for ever [captured]."""
    master.answers[60] = (1, {}, b"")
    master.link()
    master.service.step()
    assert len(master.online) == 1
    assert (master.delays.offsets(), master.page.counters[TIMER_TAKEN_BACK_MS]) == ({3: 5}, 0)


@pytest.mark.parametrize("code", [43, 45])
@pytest.mark.parametrize("answer", [(1, {}, b""), (0, {}, b"{"), (0, {}, b"{}")])
def test_nothing_is_taken_of_a_slave_that_does_not_say_all(
    master: World, code: int, answer: tuple[int, dict[str, str], bytes]
) -> None:
    good = master.answers[code]
    master.answers[code] = answer
    master.link()
    master.service.step()
    assert master.online == []
    assert (master.delays.offsets(), master.offsets.query_offset("g", "t", 0)) == ({}, None)
    master.answers[code] = good
    master.service.step()
    assert len(master.online) == 1
    assert (master.delays.offsets(), master.offsets.query_offset("g", "t", 0)) == ({3: 5}, 7)


def test_a_link_that_is_gone_is_none(master: World) -> None:
    master.link(state="disconnected")
    master.service.step()
    assert (master.codes(), master.online) == ([906], [])


def test_whom_it_waits_for_is_in_the_log_every_ten_seconds(
    master: World, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(25):
        master.service.step()
        master.clock.advance(1_000)
    said = [text for text in caplog.messages if "waiting for the HA link of broker 1" in text]
    assert len(said) == 2
    assert master.peer.address in said[0]
    assert master.codes() == [906] * 3, "told again every ten seconds"


def test_what_ends_the_wait(master: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(60):
        master.service.step()
        assert master.online == []
        master.clock.advance(1_000)
    master.service.step()
    assert [step.waited_in_vain for step in master.online] == [True]
    assert "coming online without broker 1" in caplog.text


@pytest.mark.parametrize("trouble", ["slave", "names", "ha"])
def test_no_failure_ends_the_wait_or_makes_it_longer(master: World, trouble: str) -> None:
    if trouble == "slave":
        master.answers[906] = (1, {}, b"")
    elif trouble == "names":
        master.names.answer = lambda connection, request: connection.send(request.response(1, "no"))
    else:
        master.links = None
    master.service.step()
    master.service.step()
    assert (master.online, bool(master.page.counters[ISOLATED])) == ([], True)
    master.clock.advance(60_000)
    master.service.step()
    assert [step.waited_in_vain for step in master.online] == [True]


@pytest.mark.parametrize("broker_id", [2**62, 2**63 - 1])
def test_an_id_that_no_page_holds_is_waited_for_as_any_other(
    master: World, broker_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Name servers take any of 63 bits from anybody."""
    master.registered = {broker_id: master.peer.address}
    master.service.step()
    assert master.codes() == [906]
    assert "waits for broker id" in isolation_text(master.page.counters)
    master.link(f"{NAME}:{broker_id}")
    master.service.step()
    assert len(master.online) == 1
    assert "ValueError" not in caplog.text


def test_a_round_that_failed_is_followed_by_a_pause(master: World) -> None:
    """RocketMQ tries again at once."""
    pauses: list[float] = []
    master.service.wait_for_running = pauses.append  # type: ignore[method-assign, assignment]
    master.answers[906] = (1, {}, b"")
    master.service.step()
    assert pauses == [1_000]


def test_a_name_server_that_flaps_is_asked_once_more_and_then_after_a_pause(
    master: World,
) -> None:
    """It names another replica each time: without the pause both were asked for ever."""
    looks = 0

    def flap(_servers: object = None, **_named: object) -> list[MemberAddress]:
        nonlocal looks
        looks += 1
        assert looks < 100, "no pause"
        return [MemberAddress(1 + looks % 2, master.peer.address)]

    master.service._peers.members = flap  # type: ignore[method-assign]
    for rounds in (1, 2, 3):
        master.service.step()
        assert rounds <= looks <= 2 * rounds
    assert not master.online


def test_name_servers_of_5_x_are_asked_for_the_group_itself(tmp_path: Path) -> None:
    world = World(tmp_path, 0, compatible_with_old_name_srv=False)

    def answer(connection: PeerConnection, request: RemotingCommand) -> None:
        assert request.code == 901
        assert request.ext_fields == {"clusterName": "PreCluster", "brokerName": NAME}
        group = {"cluster": "PreCluster", "brokerName": NAME, "brokerAddrs": {"1": "127.0.0.1:9"}}
        body = json.dumps({"brokerMemberGroup": group}).encode()
        connection.send(request.response(0, None, {}, body))

    world.names.answer = answer
    try:
        world.service.step()
        assert isolation_text(world.page.counters).endswith("waits for broker id 1")
    finally:
        world.close()
