"""Starts, stops and pauses of a controller, as its brokers see them, and what holds up an election.

Brokers are connections that send what brokers send; who is master is asked for, or read in the
file.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import conf.changeable_settings as settings_module
import controller.controller_request_processor as processor_module
import controller.controller_service as service_module
from controller.controller_config import ControllerConfig
from controller.controller_service import ControllerService
from controller.core import ControllerCore, ControllerSettings
from controller.election import LogReport
from controller.embedded_store import EmbeddedStore
from controller.events import (
    Asked,
    ChannelClosed,
    LeadershipGranted,
    Outcome,
    Ready,
    Reply,
    Stored,
    Swap,
    SwapEnded,
    Tick,
)
from controller.group_state import GroupState, Replica
from controller.live_brokers import Heartbeat
from controller.request_guard import RequestGuard
from controller.requests import ApplyBrokerId, RegisterBroker
from controller.role_notifier import RoleNotifier
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from tests.controller.controller_peer import DEADLINE_S, Peer, running
from tests.namesrv.conftest import FakeConnection
from tests.support.deadline import wait_until

GROUP = {"clusterName": "C", "brokerName": "b"}
ELECT = {**GROUP, "designateElect": "false", "invokeTime": 1}


def stored(directory: Path) -> dict[str, Any]:
    """The group in the file."""
    text = (directory / "store" / "groups.json").read_text().splitlines()[0]
    group: dict[str, Any] = json.loads(text)["groups"]["b"]["group"]
    return group


def beat(peer: Peer, number: int, timeout_ms: int = 60_000) -> int:
    fields = {"brokerId": number, "brokerAddr": f"127.0.0.1:{number}"}
    return peer.call(904, {**GROUP, **fields, "heartbeatTimeoutMills": timeout_ms}).code


@contextmanager
def group_of_two(port: int) -> Iterator[tuple[Peer, Peer]]:
    """Broker 1 is master, both are in the set."""
    with ExitStack() as stack:
        peers = []
        for number in (1, 2):
            peer = stack.enter_context(Peer(port))
            peers.append(peer)
            code = f"127.0.0.1:{number};1"
            apply = {**GROUP, "appliedBrokerId": number, "registerCheckCode": code}
            assert peer.call(1013, apply).code == 0
            address = {"brokerId": number, "brokerAddress": f"127.0.0.1:{number}"}
            assert peer.call(1003, {**GROUP, **address, "invokeTime": 1}).code == 0
            assert beat(peer, number) == 0
        assert peers[0].call(1002, {**ELECT, "brokerId": 1}).code == 0
        body = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
        alter = {"brokerName": "b", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
        assert peers[0].call(1001, alter, body).code == 0
        yield peers[0], peers[1]


def test_a_stop_is_no_death_of_brokers(tmp_path: Path) -> None:
    """It closes the connections itself: nobody has died of that."""
    with ExitStack() as stack, running(tmp_path, leader_warm_up_millis=500) as port:
        stack.enter_context(group_of_two(port))
        time.sleep(0.6)  # The warm-up, which would hide it.
        before = stored(tmp_path)
    assert stored(tmp_path) == before
    assert (before["masterBrokerId"], before["masterEpoch"]) == (1, 1)


def test_a_change_whose_write_was_under_way_at_the_stop_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop waits for the write, and no half of it is left; its answer may be lost."""
    started, goes_on = threading.Event(), threading.Event()
    swap = EmbeddedStore.swap

    def slow(self: EmbeddedStore, one: Swap) -> SwapEnded:
        started.set()
        assert goes_on.wait(DEADLINE_S)
        return swap(self, one)

    monkeypatch.setattr(EmbeddedStore, "swap", slow)
    timer = threading.Timer(0.3, goes_on.set)
    with running(tmp_path) as port, Peer(port) as peer:
        apply = {**GROUP, "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:1;1"}
        peer.post(1013, apply)
        assert started.wait(DEADLINE_S)
        timer.start()
    assert list(stored(tmp_path)["replicas"]) == ["1"]
    monkeypatch.setattr(EmbeddedStore, "swap", swap)
    with running(tmp_path) as port, Peer(port) as peer:
        assert peer.call(1013, apply).code == 0, "asked again with the same code"


def test_a_bug_in_the_store_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than a group that waits for ever."""

    def broken(_self: EmbeddedStore, _swap: Swap) -> SwapEnded:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(EmbeddedStore, "swap", broken)
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_value))
    with running(tmp_path) as port, Peer(port) as peer:
        apply = {**GROUP, "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:1;1"}
        with pytest.raises(OSError):  # noqa: PT011 - the connection ends
            peer.call(1013, apply)
    assert [type(one) for one in raised] == [ZeroDivisionError]


def test_a_bug_in_a_decision_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(processor_module, "response_of", broken)
    with running(tmp_path) as port, Peer(port) as peer:
        answer = peer.call(1012, GROUP)
        assert (answer.code, answer.remark) == (1, "ZeroDivisionError: a bug")
        monkeypatch.setattr(processor_module, "replicas_info", broken)
        assert peer.call(1006, {}, b'["b"]').code == 1
        assert peer.call(1005, {}).code == 0


# The core alone


def core_with(group: GroupState | None, **settings: int) -> ControllerCore:
    """Leading since 0; brokers 1 to 3 alive over the connections of their numbers, for a minute."""
    core = ControllerCore(ControllerSettings(**settings))  # type: ignore[arg-type]
    groups = {} if group is None else {"b": Stored(1, group)}
    core.step(LeadershipGranted(1, 0, groups), 0)
    for number in (1, 2, 3):
        core.step(
            Heartbeat("b", number, f"h:{number}", number, 60_000, LogReport(1, 1)),
            0,
        )
    return core


def led() -> GroupState:
    group = GroupState("C", "b")
    for number in (1, 2, 3):
        group = group.with_replica(number, Replica(f"h:{number}", f"h:{number};1"))
    return group.with_master(1).with_sync_state_set(frozenset((1, 2)))


def test_a_short_warm_up_ends() -> None:
    """Ticks are half a second apart: that is no pause of the controller's own."""
    core = core_with(led(), warm_up_ms=500)
    for now_ms in range(500, 3_000, 500):
        assert core.step(Tick(), now_ms) == Ready()
    (swap,) = core.step(ChannelClosed(1), 3_000).swaps
    assert swap.group is not None
    assert swap.group.master_broker_id == 2


@pytest.mark.parametrize("pause_ms", [1_001, 30_000])
def test_a_pause_of_its_own_is_nobodys_death(pause_ms: int) -> None:
    """SIGSTOP: whoever was not heard meanwhile is presumed alive for another warm-up."""
    core = core_with(led(), warm_up_ms=2_000)
    for now_ms in range(0, 61_000, 500):
        for number in (1, 2, 3):
            core.step(Heartbeat("b", number, "h:1", number, 1_000, LogReport(1, 1)), now_ms)
        core.step(Tick(), now_ms)
    now_ms += pause_ms
    assert core.step(ChannelClosed(1), now_ms) == Ready()
    for passed_ms in range(0, 2_000, 500):
        assert core.step(Tick(), now_ms + passed_ms) == Ready()
        core.step(Heartbeat("b", 2, "h:2", 2, 60_000, LogReport(1, 1)), now_ms + passed_ms)
    assert any(core.step(Tick(), now_ms + ms).swaps for ms in range(2_000, 9_000, 500))


def test_who_asks_without_a_pause_puts_no_election_off() -> None:
    """A broker that registers at another port again and again, which is a write each time."""
    core = core_with(led(), warm_up_ms=500)
    core.step(Tick(), 1_000)
    ticket = 0

    def register() -> Ready:
        nonlocal ticket
        ticket += 1
        return core.step(Asked(ticket, RegisterBroker("C", "b", 3, f"h:{100 + ticket}")), 1_000)

    (swap,) = register().swaps
    for _ in range(20):
        assert register().swaps == ()
    assert core.step(ChannelClosed(1), 1_000) == Ready()
    assert core.step(ChannelClosed(1), 1_000) == Ready()
    ready = core.step(SwapEnded("b", swap.number, Outcome.DONE, 2), 1_000)
    assert [one.ticket for one in ready.sends if isinstance(one, Reply)] == [1]
    (swap,) = ready.swaps
    assert swap.group is not None
    assert (swap.group.master_broker_id, swap.group.master_epoch) == (2, 2)
    version, answered = 2, 1
    while ready.swaps:
        (swap,) = ready.swaps
        version += 1
        ready = core.step(SwapEnded("b", swap.number, Outcome.DONE, version), 1_000)
        answered += sum(isinstance(one, Reply) for one in ready.sends)
    assert answered == 21
    found = core.find("b", 1_000)
    assert found is not None
    assert (found[0].master_epoch, found[0].replicas[3].address) == (2, "h:121")
    (swap,) = core.step(ChannelClosed(2), 1_000).swaps
    assert swap.group is not None
    assert swap.group.master_broker_id is None, "the next loss counts, too"


def test_a_disk_that_hangs_collects_no_elections() -> None:
    """Each scan finds the dead master again."""
    core = core_with(led(), warm_up_ms=500, scan_inactive_master_interval_ms=500)
    core.step(Asked(1, RegisterBroker("C", "b", 3, "h:9")), 1_000)
    core.step(ChannelClosed(1), 1_000)
    for now_ms in range(1_000, 50_000, 500):
        assert core.step(Tick(), now_ms) == Ready()
    assert len(core._lanes["b"].waiting) == 2


def test_a_group_that_is_being_stored_counts() -> None:
    core = core_with(None)
    for number in range(3):
        name = f"b{number}"
        assert core.step(Asked(number, ApplyBrokerId("C", name, 1, "h:1;1")), 0).swaps
        assert core.has_room_for(name, 1)
        assert not core.has_room_for("other", number + 1)
        assert core.has_room_for("other", number + 2)
    core.step(Asked(9, ApplyBrokerId("C", "other", 2, "h:1;1")), 0)
    assert core.has_room_for("another", 4), "it was refused"


def test_many_groups_at_once_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk has not stored the first ones."""
    goes_on = threading.Event()
    swap = EmbeddedStore.swap

    def slow(self: EmbeddedStore, one: Swap) -> SwapEnded:
        assert goes_on.wait(DEADLINE_S)
        return swap(self, one)

    monkeypatch.setattr(EmbeddedStore, "swap", slow)
    with running(tmp_path, max_broker_groups=2) as port, Peer(port) as peer:
        for number in range(10):
            apply = {"appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:1;1"}
            last = peer.post(1013, {"clusterName": "C", "brokerName": f"b{number}", **apply})
        assert "maxBrokerGroups" in str(peer.take(last).remark)
        goes_on.set()
        with Peer(port) as other:
            names = json.dumps([f"b{number}" for number in range(10)]).encode()

            def count() -> int:
                body = other.call(1006, {}, names).body
                return len(json.loads(body)["replicasInfoTable"])

            wait_until(lambda: count() == 2, DEADLINE_S)


def test_a_name_that_is_repeated_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of many brokers, named 100,000 times in one body."""
    looked_up = []
    find = ControllerService.find

    def counting(self: ControllerService, name: str) -> Any:
        looked_up.append(name)
        return find(self, name)

    monkeypatch.setattr(ControllerService, "find", counting)
    with running(tmp_path) as port, Peer(port) as peer:
        body = json.dumps(["b"] * 100_000, separators=(",", ":")).encode()
        assert peer.call(1006, {}, body).code == 0
    assert looked_up == ["b"]


def test_a_settings_file_that_hangs_holds_up_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def slow(_path: Path, _changes: object) -> None:
        assert goes_on.wait(DEADLINE_S)

    monkeypatch.setattr(settings_module, "save_or_explain", slow)
    with running(tmp_path) as port, Peer(port) as operator, Peer(port) as broker:
        asked = operator.post(1009, {}, b"maxBrokerGroups=7\n")
        assert beat(broker, 1) == 0
        apply = {**GROUP, "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:1;1"}
        assert broker.call(1013, apply).code == 0
        goes_on.set()
        assert operator.take(asked).code == 0


def test_settings_that_1009_changes_count_at_once(tmp_path: Path) -> None:
    """Without notices and without electOnChannelClosed a closed connection is nobody's death."""
    with running(tmp_path, leader_warm_up_millis=500) as port, Peer(port) as other:
        with group_of_two(port):
            assert other.call(1009, {}, b"electOnChannelClosed=false\n").code == 0
            time.sleep(0.6)
        assert other.call(1004, {"brokerName": "b"}).ext_fields["masterBrokerId"] == "1"
        settings = b"electOnChannelClosed=true\nnotifyBrokerRoleChanged=false\n"
        assert other.call(1009, {}, settings).code == 0
        with Peer(port) as again:
            assert beat(again, 1) == 0

        def has_another_master() -> bool:
            fields = other.call(1004, {"brokerName": "b"}).ext_fields
            return fields.get("masterBrokerId") != "1"

        wait_until(has_another_master, DEADLINE_S)
        assert other.call(1004, {"brokerName": "b"}).ext_fields["masterEpoch"] == "2", "one loss"


def test_too_many_waiting_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may hang for long."""
    goes_on = threading.Event()
    swap = EmbeddedStore.swap

    def slow(self: EmbeddedStore, one: Swap) -> SwapEnded:
        assert goes_on.wait(DEADLINE_S)
        return swap(self, one)

    monkeypatch.setattr(EmbeddedStore, "swap", slow)
    monkeypatch.setattr(service_module, "MOST_WAITING", 3)
    with running(tmp_path) as port, Peer(port) as peer, Peer(port) as other:
        apply = {**GROUP, "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:1;1"}
        asked = [peer.post(1013, apply) for _ in range(3)]
        wait_until(lambda: other.call(1013, apply).code == 2, DEADLINE_S)
        assert other.call(1005, {}).code == 0
        goes_on.set()
        assert [peer.take(one).code for one in asked] == [0, 0, 0]
        assert other.call(1013, apply).code == 0


def test_oneway_requests_count_and_have_no_answer(tmp_path: Path) -> None:
    with running(tmp_path) as port, Peer(port) as peer:
        apply = {**GROUP, "appliedBrokerId": "1", "registerCheckCode": "127.0.0.1:1;1"}
        beat_fields = {**GROUP, "brokerId": "1", "brokerAddr": "127.0.0.1:1"}
        for code, fields in ((1013, apply), (1012, GROUP), (904, beat_fields), (1005, {})):
            command = RemotingCommand.request(code, fields, oneway=True)
            peer._sock.sendall(encode_command(command))
        asked = peer.post(1013, apply)
        came = []
        while not came or came[-1] != asked:
            peer._frames.feed(peer._sock.recv(1 << 16))
            while (command_come := peer._frames.next_command()) is not None:
                came.append(command_come.opaque)
        assert came == [asked]
        assert stored(tmp_path)["nextBrokerId"] == 2


def test_a_wildcard_is_no_address_to_come_to(tmp_path: Path) -> None:
    with running(tmp_path, host="0.0.0.0") as port, Peer(port) as peer:
        fields = peer.call(1005, {}).ext_fields
        assert fields["controllerLeaderAddress"] == f"127.0.0.1:{port}"


def test_the_last_heartbeat_of_a_closed_connection_is_dropped() -> None:
    """Its end was told already: the broker would seem alive for the whole timeout."""
    calls: list[Callable[[], None]] = []
    service = ControllerService(
        ControllerCore(ControllerSettings()), EmbeddedStore(Path()), lambda: 0, calls.append, print
    )
    service.lead({"b": Stored(1, led())})
    config = ControllerConfig()
    processor = processor_module.ControllerRequestProcessor(
        service,
        RequestGuard(config, lambda: 0, has_certificates=True),
        settings_module.ChangeableSettings(settings_module.Program("c", 1009), config),
        calls.append,
        str,
    )
    fields = {**GROUP, "brokerId": "1", "brokerAddr": "127.0.0.1:1"}
    processor._holders.note("b", 77, "cleaned away")
    for is_open in (False, True):
        connection = FakeConnection(remote_address="127.0.0.1:5")
        processor.process_request(connection, RemotingCommand.request(904, fields))
        connection.is_open = is_open
        calls.pop()()
        seen = service.find("b")
        assert seen is not None
        assert seen.alive == (frozenset((1,)) if is_open else frozenset())
    assert not processor._holders.is_holder("b", 77, "cleaned away"), "the group has no such id"
    service.shutdown()


@pytest.mark.parametrize("notify", [True, False])
def test_who_is_told_of_a_new_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, notify: bool
) -> None:
    """Each living broker, at the address of its heartbeats, if anybody."""
    told: list[str] = []
    monkeypatch.setattr(RoleNotifier, "notify", lambda _, one: told.append(one.address))
    with running(tmp_path, notify_broker_role_changed=notify) as port, group_of_two(port):
        pass
    assert told == (["127.0.0.1:1", "127.0.0.1:2"] if notify else [])
