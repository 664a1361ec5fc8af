"""Replication of process remoting, wired: who may name our master, and what an inspection stops."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.admin.admin_ha_processor import MasterNews
from broker.out.broker_outer_api import BrokerIdentity, TimerCheckPointAnswer
from broker.out.control_slots import EMBEDS_NAME_SERVER
from broker.settings.startup_options import StartupOptions
from broker.slave import master_inspector
from broker.slave.sync_kind import SyncKind
from broker.wiring.process_resources import ProcessResources
from broker.wiring.replication import Replication
from ha.inspection import Inspection, Verdict
from ipc.clock import SystemClock
from ipc.command_channel import CommandClient, CommandServer, create_channel
from ipc.scheduled_executor import ScheduledExecutor
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from store.control_slots import MAX_PHY_OFFSET
from store.errors import StoreError
from store.resync_request import ResyncAction, ResyncRequest, finish_request, write_request
from tests.support.shared_memory import close_page, fresh_page

OWN, MASTER = "10.0.0.2:10911", "10.0.0.1:10911"


class World:
    """A slave; the channel's other end keeps what process ha was told."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.page = fresh_page()
        self.told: list[Any] = []
        asking, self.answering = create_channel()
        self.spare = create_channel()
        values = {
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "storePathRootDir": str(root),
            "haTrustedAddresses": "127.0.0.1,10.0.0.0/24",
            **settings,
        }
        self.options = StartupOptions.from_settings(values)
        self.client = SimpleNamespace(invoke_async=lambda *_: None)
        self.asking = asking
        self.replication = self.build(self.spare[1])

    def build(self, answering: socket.socket) -> Replication:
        channels = {"remoting->ha": AnsweringEnd(self.asking, self), "remoting<-ha": answering}
        return Replication(
            ProcessResources(
                options=self.options,
                page=self.page,
                queue_table_fd=-1,
                bells={},
                channels=channels,  # type: ignore[arg-type]
                clock=SystemClock(),
                metric_slots=None,  # type: ignore[arg-type]
                metrics_fd=-1,
                config_file=None,
                changed=None,  # type: ignore[arg-type]
                on_failure=lambda _service, _error: None,
            ),
            BrokerIdentity(
                cluster_name="C",
                broker_name="b",
                broker_id=1,
                broker_addr=OWN,
                ha_server_addr="10.0.0.2:10912",
            ),
            SimpleNamespace(  # type: ignore[arg-type]
                client=self.client,
                get_broker_cluster_info=list,
                get_table=lambda *_: None,
                get_page=lambda *_: None,
                get_timer_check_point=lambda *_: TimerCheckPointAnswer(bytes(56), 0),
            ),
            SimpleNamespace(  # type: ignore[arg-type]
                table=SimpleNamespace(),
                access=SimpleNamespace(),
                store_commands=SimpleNamespace(delete_topic_queues=None),
                commands=None,
                claim_queue_offsets=None,
            ),
            SimpleNamespace(  # type: ignore[arg-type]
                topics=None,
                mappings=None,
                groups=None,
                offsets=None,
                schedule_offsets=None,
                request_modes=None,
            ),
            min_broker_id_changed=lambda _peer: None,
            master_is_silent=lambda: None,
            on_failure=lambda _service, _error: None,
        )

    def serve(self) -> None:
        """Process ha answers what waits."""

        def tell(arguments: dict[str, Any]) -> dict[str, Any]:
            self.told.append(arguments)
            return {}

        CommandServer(self.answering, {"master_address": tell}, SystemClock()).step()

    def close(self) -> None:
        close_page(self.page)


class AnsweringEnd:
    """The asking socket; a request is answered before the asker waits."""

    def __init__(self, sock: socket.socket, world: World) -> None:
        self._sock, self._world = sock, world

    def send(self, packet: bytes) -> int:
        size = self._sock.send(packet)
        self._world.serve()
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def tell(world: World, remote: str, ha: str, master: str | None) -> None:
    world.replication._on_master_from_peer(
        MasterNews(peer=remote, ha_address=ha, address=master, flush_offset=None)
    )


def test_a_new_ha_address_reaches_process_ha_once(world: World) -> None:
    for ha in ("10.0.0.1:10912", "10.0.0.1:10912", None, "10.0.0.3:10912"):
        world.replication.on_master("10.0.0.1:10911", ha)
    assert [told["ha_address"] for told in world.told] == ["10.0.0.1:10912", "10.0.0.3:10912"]


def test_only_a_trusted_peer_may_name_our_master(world: World) -> None:
    tell(world, "192.0.2.66:4711", "192.0.2.66:10912", "192.0.2.66:10911")
    assert world.told == []
    tell(world, "127.0.0.1:4711", "10.0.0.1:10912", "10.0.0.1:10911")
    assert [told["ha_address"] for told in world.told] == ["10.0.0.1:10912"]


def test_a_fixed_master_stays(tmp_path: Path) -> None:
    world = World(tmp_path, haMasterAddress="10.0.0.9:10912")
    tell(world, "127.0.0.1:4711", "10.0.0.1:10912", "10.0.0.1:10911")
    world.replication.on_master("10.0.0.1:10911", "10.0.0.1:10912")
    assert world.told == []
    world.close()


def test_a_master_that_could_not_be_followed_does_not_replace_one_that_is(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It would close the open link, for nothing."""
    world.replication.on_master(MASTER, "10.0.0.1:10912")
    for _ in range(2):
        world.replication.on_master("192.0.2.66:10911", "192.0.2.66:10912")
    assert [told["ha_address"] for told in world.told] == ["10.0.0.1:10912"]
    assert world.replication.master_address == MASTER
    assert caplog.text.count("ignoring master 192.0.2.66:10911, HA 192.0.2.66:10912") == 1


def test_what_a_stranger_says_is_no_finding(tmp_path: Path) -> None:
    """With a secret an address proves nothing: the master's hello says which one is its own."""
    world = World(tmp_path, haSharedSecretFile="/secret", haTrustedAddresses="")
    tables, replication = Tables(world), world.replication
    replication.on_master(MASTER, "10.0.0.1:10912")
    replication._inspected(found(Verdict.AHEAD, 10))
    assert "anybody may be, and has not proved" in str(synchronize(world))
    assert (tables.asked, replication.master_address) == ([], None)
    assert replication._journal.divergence is None
    told = {"local": "10.0.0.2:4711", "named_broker": MASTER}
    replication._announcer = SimpleNamespace(  # type: ignore[assignment]
        link_opened=lambda _local: None, link_closed=lambda: None
    )
    replication._ha_link(told)
    assert replication.master_address == MASTER
    assert replication._journal.divergence == Verdict.AHEAD, "it was our master's word"
    replication._inspected(found(Verdict.GO, 500))
    assert synchronize(world) is None
    assert set(tables.asked) <= {MASTER, "10.0.0.1:10909"}
    assert tables.asked
    replication._ha_link({"local": None, "named_broker": None})
    assert replication.master_address == MASTER, "the last word stands"
    replication._ha_link({"local": None, "named_broker": "10.0.0.3:10911"})
    assert replication.master_address is None
    world.close()


class Tables:
    """BrokerOuterAPI: notes who was asked for tables, and has none."""

    def __init__(self, world: World) -> None:
        self.asked: list[str] = []
        synchronize = world.replication.synchronize
        saved = SimpleNamespace(save_if_changed=lambda: True)
        for part, kinds in (
            (synchronize._known, ("_topics", "_mappings", "_groups")),
            (synchronize._offsets, ("_offsets", "_delay_offsets")),
        ):
            part._api = self
            for kind in kinds:
                setattr(part, kind, saved)

    def get_table(self, broker: str, _code: int, _timeout_ms: int) -> None:
        self.asked.append(broker)

    def get_page(self, broker: str, _code: int, _fields: object, _timeout_ms: int) -> None:
        self.asked.append(broker)


def found(verdict: Verdict, master_max: int, master: str | None = MASTER) -> Inspection:
    return Inspection(verdict=verdict, text="a text", master_address=master, master_max=master_max)


def synchronize(world: World) -> str | None:
    """One round: why nothing was taken over; None when it was."""
    world.replication.synchronize.sync_all()
    status = world.replication.synchronize.status()[SyncKind.TOPICS]
    return None if status.last_success_ms else status.last_error


def test_logs_that_differ_keep_the_tables_apart(world: World) -> None:
    """Only a comparison takes the objection back, a blind "go" does not."""
    tables = Tables(world)
    world.replication.on_master(MASTER, "10.0.0.1:10912")
    inspected = world.replication._inspected
    for verdict in (Verdict.AHEAD, Verdict.DIVERGED):
        inspected(found(verdict, 500))
        inspected(found(Verdict.WAIT, -1))
        inspected(found(Verdict.GO, -1))
        assert f"{verdict}: a text" in str(synchronize(world))
    assert tables.asked == []
    inspected(found(Verdict.GO, 500))
    assert synchronize(world) is None
    assert tables.asked


def test_what_a_life_before_found_counts(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.replication._inspected(found(Verdict.DIVERGED, 500))
    world.close()
    again = World(tmp_path)
    Tables(again)
    again.replication.on_master(MASTER, "10.0.0.1:10912")
    again.replication._inspected(found(Verdict.GO, -1))
    assert "diverged, when our log was last compared" in str(synchronize(again))
    again.replication._inspected(found(Verdict.GO, 500))
    assert synchronize(again) is None
    again.close()


def test_who_may_copy_our_offsets(tmp_path: Path) -> None:
    """Nobody whose records they may not rest on: a master would pass over what it stored."""
    world = World(tmp_path)
    replication = world.replication
    assert "never compared" in (replication.find_offsets_objection() or "")
    replication._inspected(found(Verdict.WAIT, -1))
    assert "never compared" in (replication.find_offsets_objection() or "")
    replication._inspected(found(Verdict.GO, 500))
    assert replication.find_offsets_objection() is None
    for verdict in (Verdict.AHEAD, Verdict.DIVERGED):
        replication._inspected(found(verdict, 500))
        objection = replication.find_offsets_objection()
        assert objection == f"its log is {verdict}, compared with its master's"
    world.close()


def test_a_master_that_does_not_let_us_compare_may_copy_our_offsets(tmp_path: Path) -> None:
    """As it lets us follow it: a Java one, for example."""
    world = World(tmp_path)
    world.replication._inspected(found(Verdict.GO, -1))
    assert world.replication.find_offsets_objection() is None
    world.close()


def test_nobody_copies_our_offsets_after_a_cut(tmp_path: Path) -> None:
    write_request(tmp_path, ResyncRequest(action=ResyncAction.TRUNCATE, offset=7))
    finish_request(tmp_path)
    world = World(tmp_path)
    world.replication._inspected(found(Verdict.GO, 500))
    assert "the log was cut at 7" in (world.replication.find_offsets_objection() or "")
    world.close()
    master = World(tmp_path, brokerRole="ASYNC_MASTER", brokerId="0")
    assert master.replication.find_offsets_objection() is None
    master.close()


def test_a_cut_that_ends_while_this_process_starts_is_seen(tmp_path: Path) -> None:
    """Process store cuts while the others wait for it, for as long as the copy takes."""
    write_request(tmp_path, ResyncRequest(action=ResyncAction.TRUNCATE, offset=7))
    world = World(tmp_path)
    finish_request(tmp_path)
    world.replication.start(ScheduledExecutor(SystemClock()))
    world.replication._inspected(found(Verdict.GO, 500))
    assert "the log was cut at 7" in (world.replication.find_offsets_objection() or "")
    assert world.replication._cut_log.objection is not None
    world.replication.shutdown()
    world.close()


def test_tables_wait_for_the_first_comparison_and_make_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master is silent first, then it lets nobody compare: nothing else is to be had there."""
    monkeypatch.setattr(master_inspector, "_BLIND_WAIT_MS", 0)
    tables = Tables(world)
    world.replication.on_master(MASTER, "10.0.0.1:10912")
    asked: list[int] = []
    answers: list[RemotingCommand | RemotingConnectError] = [
        RemotingConnectError(MASTER, "refused"),
        RemotingCommand.request(28).response(16, "no permission"),
    ]

    def invoke_sync(_address: str, command: RemotingCommand, _timeout_ms: int) -> RemotingCommand:
        asked.append(command.code)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(world.client, "invoke_sync", invoke_sync, raising=False)
    world.page.counters[MAX_PHY_OFFSET] = 500
    assert "has not been compared" in str(synchronize(world))
    assert tables.asked == []
    assert synchronize(world) is None
    assert synchronize(world) is None
    assert asked == [28, 28], "once it is known how it is, nobody asks again"
    world.replication._ha_link({"local": None, "named_broker": None})
    answers.append(RemotingConnectError(MASTER, "refused"))
    tables.asked.clear()
    synchronize(world)
    assert tables.asked == [], "the link ended: who answers next may be another"


def test_files_of_ours_that_cannot_be_read(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tables(world)
    world.replication.on_master(MASTER, "10.0.0.1:10912")

    def fail(*_: object) -> Inspection:
        raise StoreError("commitlog: damaged")

    monkeypatch.setattr(world.replication._inspector, "inspect", fail)
    assert "has not been compared" in str(synchronize(world))
    assert "commitlog: damaged" in caplog.text


def test_process_ha_may_ask_whether_a_slave_tells_the_truth(world: World) -> None:
    asking, answering = create_channel()
    world.replication = world.build(answering)
    world.replication._requests.start()
    client = CommandClient(asking, "remoting", SystemClock())
    assert client.call("verify_replica", 5_000, ip="10.0.0.3", offset=5) == {"verified": None}
    world.replication._requests.shutdown()


def test_the_name_server_that_a_slave_embeds_is_nobody_to_wait_for(world: World) -> None:
    """It knows nobody but the slave: with haMasterAddress and no namesrvAddr it waited for ever."""
    replication: Any = world.replication
    replication._api.name_servers = ("10.0.0.2:9876",)

    def waits() -> bool:
        found = replication._inspector.inspect(100, 0, "10.0.0.1:10912")
        return "waiting until one is registered" in found.text

    assert waits()
    world.page.counters[EMBEDS_NAME_SERVER] = 1
    assert not waits()
