"""slave_synchronize: what a slave takes over, keeps and deletes, and what it says of it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.out.broker_outer_api import BrokerAnswerError, BrokerOuterAPI
from broker.slave import offset_synchronize, topic_group_synchronize
from broker.slave.cut_log import CutLog
from broker.slave.offset_synchronize import OffsetSynchronize
from broker.slave.slave_synchronize import MasterChecks, SlaveSynchronize
from broker.slave.sync_kind import SLAVE_SYNC_FAILURES, SLAVE_SYNC_SUCCESS, SyncKind
from broker.slave.sync_status import SyncStatus
from broker.slave.topic_group_synchronize import TopicGroupSynchronize, vip_address
from broker.wiring.broker_tables import OWN_GROUPS
from ipc.clock import SystemClock
from ipc.command_channel import CommandError
from ipc.control_page import ControlPage
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.kv_table import KVTable
from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.errors import RemotingConnectError
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig
from remoting.remoting_server import RemotingServer
from remoting.request_code import RequestCode
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionLike, Route
from remoting.response_code import ResponseCode
from remoting.selector_loop import SelectorLoop
from store.control_slots import DISPATCHED_OFFSET, MAX_PHY_OFFSET
from store.resync_request import ResyncAction, ResyncRequest, finish_request, write_request
from tests.broker.broker_fakes import CONFIG, GOLDEN_CONFIG, golden, json_of
from tests.broker.processor_world import World as ProcessorWorld
from tests.remoting.fake_peer import FakePeer
from tests.support.deadline import wait_until
from tests.support.shared_memory import close_page, fresh_page

MASTER, VIP, OWN = "10.0.0.1:10911", "10.0.0.1:10909", "10.0.0.2:10911"
TOPICS, OFFSETS, DELAYS, GROUPS = SyncKind
CODES = {
    TOPICS: RequestCode.GET_ALL_TOPIC_CONFIG,
    OFFSETS: RequestCode.GET_ALL_CONSUMER_OFFSET,
    DELAYS: RequestCode.GET_ALL_DELAY_OFFSET,
    GROUPS: RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}
ROUND = [21, 43, 28, 45, 28, 201]
"""The requests of a round; 28: where the log ended after a table of offsets was taken."""
OWN_GROUP = OWN_GROUPS[0]
"""A group of the broker's own."""
REMARKS = {
    TOPICS: "No topic in this broker",
    OFFSETS: "No consumer offset in this broker",
    DELAYS: "No delay offset in this broker",
    GROUPS: "No subscription group in this broker",
}


class Tables(ProcessorWorld):
    """One broker's four managers on real files, and the processors that answer from them."""

    def send(self, topic: str) -> None:
        self.topics.prepare_for_send(topic, "TBW102", 4, unit_mode=False, remote="r")

    def body(self, code: int) -> bytes:
        if code == RequestCode.GET_ALL_TOPIC_CONFIG:
            return self.mappings.with_mappings(self.topics.wrapper()).to_json_bytes()
        managers = {43: self.offsets, 45: self.schedule_offsets, 201: self.groups}
        return managers[code].encode()


class Api:
    """BrokerOuterAPI: the tables of a master, unless the test has put something in `answers`."""

    def __init__(self, master: Tables) -> None:
        self.master = master
        self.calls: list[tuple[str, int]] = []
        self.answers: dict[tuple[str, int], bytes | Exception | None] = {}
        self.on_call: Callable[[str, int], None] = lambda _broker, _code: None
        self.log_end = 0

    def get_table(self, broker: str, code: RequestCode, timeout_ms: int) -> bytes | None:
        assert timeout_ms == 3_000
        self.calls.append((broker, int(code)))
        self.on_call(broker, code)
        answer = self.answers.get((broker, code), b"")
        if isinstance(answer, Exception):
            raise answer
        if answer == b"" and code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = {"commitLogMinOffset": "0", "commitLogMaxOffset": str(self.log_end)}
            return KVTable(table=table).to_json_bytes()
        return answer if answer != b"" else self.master.body(code)

    def get_page(
        self, broker: str, code: RequestCode, _fields: object, timeout_ms: int
    ) -> RemotingCommand | None:
        """As a master that knows no pages."""
        body = self.get_table(broker, code, timeout_ms)
        return None if body is None else RemotingCommand(code=0, body=body)

    def fail(self, kind: SyncKind) -> None:
        for broker in (MASTER, VIP):
            self.answers[broker, CODES[kind]] = RemotingConnectError(broker, "refused")


class World:
    """A slave and its master."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.master = Tables(root / "master")
        self.api = Api(self.master)
        self.page = fresh_page()
        self.deleted: list[str] = []
        self.delete_error: Exception | None = None
        self.restart()

    def restart(self) -> None:
        """The slave's process starts (again) with its files."""
        self.slave = Tables(self.root / "slave")
        self.clock = self.slave.clock
        self.executor = ScheduledExecutor(self.clock)
        self.compared: list[str | None] = []
        self.distrusted: set[str] = set()
        self.silences = 0
        self.cut_log = CutLog(self.root / "slave")
        self.sync = sync_of(
            self.slave,
            self.api,
            self.delete,
            self.page,
            self.compare,
            self.find_objection,
            self.count_silence,
            self.cut_log,
        )
        self.sync.schedule_on(self.executor, CONFIG)
        self.sync.set_master_address(MASTER)

    def cut(self) -> None:
        """The slave's log was cut, and its process started again."""
        root = self.root / "slave"
        root.mkdir(exist_ok=True)
        write_request(root, ResyncRequest(action=ResyncAction.TRUNCATE, offset=1))
        finish_request(root)
        self.restart()

    def compare(self) -> None:
        """The logs are the same, whoever the master is."""
        self.compared.append(self.sync._master)
        self.sync.logs_compared(self.sync._master, None)

    def count_silence(self) -> None:
        self.silences += 1

    def find_objection(self, address: str) -> str | None:
        return f"{address} is a stranger" if address in self.distrusted else None

    def delete(self, topic: str) -> None:
        assert self.slave.topics.find(topic) is None, "first the table, then the queues"
        if self.delete_error is not None:
            raise self.delete_error
        self.deleted.append(topic)

    def round(self) -> None:
        self.clock.advance(10_000)
        self.sync.sync_all()

    def status(self, kind: SyncKind) -> SyncStatus:
        return self.sync.status()[kind]

    def saved(self, name: str) -> object:
        return json_of((self.root / "slave" / name).read_bytes())


def sync_of(
    slave: Tables,
    api: Api | BrokerOuterAPI,
    delete: Callable[[str], None],
    page: ControlPage,
    compare: Callable[[], None] = lambda: None,
    find_objection: Callable[[str], str | None] = lambda _address: None,
    on_silence: Callable[[], None] = lambda: None,
    cut_log: CutLog | None = None,
) -> SlaveSynchronize:
    cut_log = cut_log or CutLog(slave.offsets.path.parent)
    known = TopicGroupSynchronize(
        api, slave.topics, slave.mappings, slave.groups, delete, page.counters
    )
    return SlaveSynchronize(
        OWN,
        known,
        OffsetSynchronize(
            api,
            slave.offsets,
            slave.schedule_offsets,
            known,
            cut_log,
            lambda: page.counters[MAX_PHY_OFFSET],
        ),
        cut_log,
        MasterChecks(find_objection, compare, on_silence),
        page,
        slave.clock,
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    close_page(world.page)


# -- from whom -----------------------------------------------------------------------------------


def test_nothing_is_asked_of_a_stranger(world: World) -> None:
    """Neither its log nor a table, nor what follows a round (access files)."""
    followed: list[str] = []
    world.sync.also_copied.append(followed.append)
    world.distrusted.add(MASTER)
    world.sync.sync_all()
    assert (world.api.calls, world.compared, followed) == ([], [], [])
    assert {status.last_error for status in world.sync.status().values()} == {
        f"SlaveSyncError: {MASTER} is a stranger"
    }
    world.distrusted.clear()
    world.sync.sync_all()
    assert world.api.calls
    assert (world.compared, followed) == ([MASTER], [MASTER])


# -- when and where ------------------------------------------------------------------------------


def test_rhythm(world: World) -> None:
    """The first round at once: a slave may be promoted at any moment."""
    for wait_ms, rounds in ((0, 1), (9_999, 1), (1, 2), (10_000, 3)):
        world.clock.advance(wait_ms)
        world.executor.run_due()
        assert len(world.api.calls) == rounds * len(ROUND)
    assert world.api.calls[0] == (VIP, 21)
    assert world.api.calls[1 : len(ROUND)] == [(MASTER, code) for code in ROUND[1:]]


def test_the_interval_is_a_setting(world: World) -> None:
    executor = ScheduledExecutor(world.clock)
    world.sync.schedule_on(executor, replace(CONFIG, slave_sync_interval=500))
    for wait_ms in (0, 500):
        world.clock.advance(wait_ms)
        executor.run_due()
    assert len(world.api.calls) == 2 * len(ROUND)


@pytest.mark.parametrize("address", [None, OWN])
def test_nobody_to_follow(world: World, address: str | None) -> None:
    world.sync.set_master_address(address)
    world.round()
    assert world.api.calls == []
    assert world.status(TOPICS) == SyncStatus()


def test_a_master_that_changes_within_a_round_ends_it(world: World) -> None:
    world.api.on_call = lambda _broker, _code: world.sync.set_master_address("10.0.0.3:10911")
    world.round()
    assert world.api.calls[0] == (VIP, 21)
    assert {broker for broker, _ in world.api.calls[1:]} == {"10.0.0.3:10909", "10.0.0.3:10911"}
    assert [code for _, code in world.api.calls[1:]] == ROUND


def test_a_new_master_is_copied_from_at_once(world: World) -> None:
    world.executor.run_due()
    world.api.calls.clear()
    world.sync.set_master_address("10.0.0.3:10911")
    world.executor.run_due()
    assert [code for _, code in world.api.calls] == ROUND
    world.api.calls.clear()
    world.sync.link_opened()
    world.executor.run_due()
    assert world.api.calls == [], "everything is copied"


def test_what_failed_is_copied_again_when_the_link_is_up(world: World) -> None:
    """Before that the master may not be known to be ours."""
    world.api.fail(OFFSETS)
    world.executor.run_due()
    world.api.calls.clear()
    world.sync.link_opened()
    world.executor.run_due()
    assert [code for _, code in world.api.calls] == [21, 43, 45, 28, 201]


def test_a_link_that_opens_within_a_round_that_fails_is_not_forgotten(world: World) -> None:
    """Else the first copy is made ten seconds later, and a promotion until then is refused."""
    world.api.fail(OFFSETS)

    def open_link(_broker: str, code: int) -> None:
        if code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            world.api.answers.clear()
            world.api.on_call = lambda _broker, _code: None
            world.sync.link_opened()

    world.api.on_call = open_link
    world.sync.sync_all()
    assert world.status(OFFSETS).last_success_ms > 0
    world.api.calls.clear()
    world.executor.run_due()
    assert world.api.calls == []


def test_a_silent_master_is_told_of_once_a_round(world: World) -> None:
    """It may have a successor. Whoever refuses a table is there."""
    world.round()
    world.api.answers[VIP, CODES[OFFSETS]] = BrokerAnswerError("no")
    world.api.answers[MASTER, CODES[OFFSETS]] = BrokerAnswerError("no")
    world.round()
    assert world.silences == 0
    world.api.fail(OFFSETS)
    world.api.fail(DELAYS)
    world.round()
    assert world.silences == 1
    world.round()
    assert world.silences == 2


def test_one_round_at_a_time(world: World) -> None:
    world.api.on_call = lambda _broker, code: world.sync.sync_all() if code == 43 else None
    world.round()
    assert len(world.api.calls) == len(ROUND)


@pytest.mark.parametrize(
    "error", [RemotingConnectError(VIP, "refused"), BrokerAnswerError("no such code")]
)
def test_topics_come_from_the_main_port_when_the_vip_port_refuses(
    world: World, error: Exception
) -> None:
    world.api.answers[VIP, 21] = error
    world.master.send("t")
    world.round()
    assert world.api.calls[:2] == [(VIP, 21), (MASTER, 21)]
    assert world.slave.topics.find("t") is not None
    assert world.status(TOPICS).failures == 0


@pytest.mark.parametrize(
    ("address", "vip"),
    [
        ("1.2.3.4:10911", "1.2.3.4:10909"),
        ("h:3", "h:1"),
        *(("h:2", None), ("h", None), ("h:x", None), ("h:" + "9" * 5_000, None)),
    ],
)
def test_vip_address(address: str, vip: str | None) -> None:
    assert vip_address(address) == vip


# -- everything taken over, and saved ------------------------------------------------------------


def test_all_four_tables_are_the_masters_in_memory_and_on_disk(world: World) -> None:
    master = world.master
    master.send("t")
    master.groups.find_or_create("g")
    master.commit("g", "t", 7)
    master.schedule_offsets.update_offset(3, 9)
    world.round()
    slave = world.slave
    for code in (21, 43, 45, 201):
        assert json_of(slave.body(code)) == json_of(master.body(code))
    assert slave.topics.data_version == master.topics.data_version
    assert slave.groups.data_version == master.groups.data_version
    world.restart()
    for code in (21, 43, 45, 201):
        assert json_of(world.slave.body(code)) == json_of(master.body(code))
    files = sorted(path.name for path in (world.root / "slave").iterdir())
    world.round()
    assert sorted(path.name for path in (world.root / "slave").iterdir()) == files
    assert not any(name.endswith(".bak") for name in files), "each was written once"


def test_the_answers_of_a_java_master(world: World) -> None:
    """Golden bodies: the wire of a fresh one, the files of one that has worked."""
    for kind, code in CODES.items():
        _, answer = golden(code)
        assert answer is not None
        world.api.answers[VIP if kind is TOPICS else MASTER, code] = answer.body
    world.round()
    assert all(status.failures == 0 for status in world.sync.status().values())
    world.api.answers[VIP, 21] = (GOLDEN_CONFIG / "topics.json").read_bytes()
    world.api.answers[MASTER, 43] = (GOLDEN_CONFIG / "consumerOffset.json").read_bytes()
    world.api.answers[MASTER, 45] = (GOLDEN_CONFIG / "delayOffset.json").read_bytes()
    world.api.answers[MASTER, 201] = (GOLDEN_CONFIG / "subscriptionGroup.json").read_bytes()
    world.round()
    assert all(status.failures == 0 for status in world.sync.status().values())
    for name in (
        "topics.json",
        "consumerOffset.json",
        "delayOffset.json",
        "subscriptionGroup.json",
    ):
        saved = world.saved(name)
        if name == "topics.json":
            del saved["topicConfigTable"]["rmq_sys_REVIVE_LOG_GoldenCluster"]  # 5.x's, built in
        assert saved == json_of((GOLDEN_CONFIG / name).read_bytes())


def test_offsets_are_as_new_as_the_log_was_when_they_were_asked_for(world: World) -> None:
    """What comes while the master answers may be younger than its table."""
    world.master.commit("g", "t", 7)
    assert world.slave.offsets.known_to() is None
    page, get_table = world.page, world.api.get_table
    page.counters[MAX_PHY_OFFSET] = 100

    def asked(master: str, code: int, timeout_ms: int) -> bytes | None:
        if code == 43:
            page.counters[MAX_PHY_OFFSET] = 200
        return get_table(master, code, timeout_ms)

    world.api.get_table = asked  # type: ignore[method-assign]
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 7
    assert world.slave.offsets.known_to() == 100


def test_attributes_of_5_x_are_copied_verbatim(world: World) -> None:
    body = (
        b'{"dataVersion":{"counter":9,"stateVersion":2,"timestamp":5},"mappingDataVersion":{},'
        b'"topicConfigTable":{"t":{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,'
        b'"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"t","topicSysFlag":0,'
        b'"writeQueueNums":8}}}'
    )
    world.api.answers[VIP, 21] = body
    world.round()
    ours, java = json_of(world.slave.body(21)), json_of(body)
    assert ours["topicConfigTable"]["t"] == java["topicConfigTable"]["t"]
    assert ours["dataVersion"] == java["dataVersion"]


@pytest.mark.parametrize("kind", SyncKind)
def test_a_master_without_such_a_table_changes_nothing(world: World, kind: SyncKind) -> None:
    world.slave.send("t")
    world.slave.groups.find_or_create("g")
    world.slave.commit("g", "t", 5)
    world.slave.schedule_offsets.update_offset(1, 1)
    before = world.slave.body(CODES[kind])
    for broker in (MASTER, VIP):
        world.api.answers[broker, CODES[kind]] = None
    world.round()
    assert world.slave.body(CODES[kind]) == before
    status = world.status(kind)
    assert (status.failures, status.last_success_ms) == (0, world.clock.now)


def test_nothing_is_taken_over_while_the_logs_do_not_belong_together(world: World) -> None:
    world.sync.logs_compared(MASTER, "ahead: we hold 90 bytes more")
    world.round()
    world.sync.logs_not_comparable(MASTER)
    world.round()
    assert world.api.calls == []
    for kind in SyncKind:
        assert "90 bytes more" in str(world.status(kind).last_error)
    assert world.compared == [], "process ha goes on comparing"
    world.sync.logs_compared(MASTER, None)
    world.round()
    assert len(world.api.calls) == len(ROUND)


def test_nothing_is_taken_over_before_the_logs_were_compared(world: World) -> None:
    answers = iter((False, True))
    world.sync._compare_logs = lambda: world.compare() if next(answers) else None
    world.round()
    assert world.api.calls == []
    assert "not been compared with the master's yet" in str(world.status(TOPICS).last_error)
    world.round()
    world.round()
    assert len(world.api.calls) == 2 * len(ROUND)
    assert world.compared == [MASTER], "once is enough"


def test_each_master_is_compared_for_itself(world: World) -> None:
    world.round()
    world.sync.set_master_address(None)
    world.round()
    world.sync.set_master_address(MASTER)
    world.round()
    world.sync.set_master_address("10.0.0.3:10911")
    world.round()
    assert world.compared == [MASTER, "10.0.0.3:10911"]
    world.sync.link_lost()
    world.round()
    assert world.compared[2:] == ["10.0.0.3:10911"]


def test_a_master_that_cannot_be_compared(world: World) -> None:
    """It lets nobody ask for its log: that is no reason to do without its tables."""
    world.sync._compare_logs = lambda: world.sync.logs_not_comparable(MASTER)
    world.master.send("t")
    world.round()
    assert world.slave.topics.find("t") is not None


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SyncKind)
def test_one_kind_that_fails_stops_no_other(world: World, kind: SyncKind) -> None:
    world.round()
    first_ms = world.clock.now
    world.api.fail(kind)
    world.round()
    for other in SyncKind:
        status = world.status(other)
        if other is kind:
            assert (status.failures, status.last_success_ms) == (1, first_ms)
            assert status.last_error is not None
            assert "refused" in status.last_error
            assert status.last_error_ms == world.clock.now
        else:
            assert status == SyncStatus(last_success_ms=world.clock.now)
    counters = world.page.counters
    for other in SyncKind:
        assert counters[SLAVE_SYNC_SUCCESS + other] == world.status(other).last_success_ms
        assert counters[SLAVE_SYNC_FAILURES + other] == (other is kind)
    world.api.answers.clear()
    world.round()
    status = world.status(kind)
    assert (status.failures, status.last_success_ms) == (1, world.clock.now)
    assert status.last_error is not None, "the newest error stays to be seen"


@pytest.mark.parametrize("kind", SyncKind)
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[1]",
        b"{}",
        b'{"dataVersion":{},"topicConfigTable":{},"offsetTable":null}',
        b'{"dataVersion":{"counter":1},"topicConfigTable":{"t":5},"offsetTable":{"t":5},'
        b'"subscriptionGroupTable":{"g":5}}',
        b'{"topicConfigTable":{"t":{"topicName":"t"}},"subscriptionGroupTable":{"g":'
        b'{"groupName":"g"}},"offsetTable":[]}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_table_changes_nothing(world: World, kind: SyncKind, body: bytes) -> None:
    world.slave.send("t")
    world.slave.groups.find_or_create("h")
    world.slave.commit("h", "t", 5)
    world.slave.schedule_offsets.update_offset(1, 1)
    before = world.slave.body(CODES[kind])
    for broker in (MASTER, VIP):
        world.api.answers[broker, CODES[kind]] = body
    world.round()
    assert world.slave.body(CODES[kind]) == before
    assert world.status(kind).failures == 1
    assert world.deleted == []


def test_a_table_that_cannot_be_saved_is_a_failure_and_saved_later(world: World) -> None:
    blocked = world.root / "slave"
    blocked.write_bytes(b"a file where a directory should be")
    world.master.send("t")
    world.round()
    assert world.slave.topics.find("t") is not None, "it serves from memory"
    error = world.status(TOPICS).last_error
    assert error is not None
    assert "topics.json could not be saved" in error
    blocked.unlink()
    world.round()
    assert world.status(TOPICS).last_success_ms == world.clock.now
    assert "t" in (world.root / "slave" / "topics.json").read_text()


def test_the_same_failure_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world.api.fail(DELAYS)
    for _ in range(3):
        world.round()
    assert caplog.text.count("could not copy DELAY_OFFSETS") == 1
    assert world.status(DELAYS).failures == 3
    world.api.answers.clear()
    world.round()
    assert "DELAY_OFFSETS copied" in caplog.text


def test_the_page_outlives_the_process(world: World) -> None:
    world.api.fail(GROUPS)
    world.round()
    world.restart()
    assert world.status(GROUPS).failures == 1
    assert world.status(TOPICS).last_success_ms > 0
    world.round()
    assert world.page.counters[SLAVE_SYNC_FAILURES + GROUPS] == 2


# -- topics that vanish --------------------------------------------------------------------------


def test_a_deleted_topic_goes_with_its_queues_and_offsets(world: World) -> None:
    for topic in ("t", "u"):
        world.master.send(topic)
        world.master.commit("g", topic, 5)
    world.round()
    world.master.topics.delete("t")
    world.master.offsets.remove_topic("t")
    world.round()
    assert world.deleted == ["t"]
    assert world.slave.topics.find("t") is None
    assert world.slave.offsets.topics_of_group("g") == ["u"]
    assert '"t"' not in (world.root / "slave" / "topics.json").read_text()
    world.round()
    assert world.deleted == ["t"], "once"


def test_a_crash_in_a_deletion_is_told_by_the_next_life(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.master.send("t")
    world.round()
    world.master.topics.delete("t")
    world.delete_error = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        world.round()
    world.delete_error = None
    world.restart()
    caplog.clear()
    world.round()
    assert "topics ['t']: not on the master" in caplog.text


def test_the_queues_go_when_the_last_record_of_the_topic_has_come(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that arrives later would make them again."""
    caplog.set_level("INFO")
    counters = world.page.counters
    for topic in ("t", "u"):
        world.master.send(topic)
    world.api.log_end, counters[DISPATCHED_OFFSET] = 5_000, 4_000
    world.round()
    world.master.topics.delete("t")
    world.round()
    assert world.slave.topics.find("t") is None
    assert "topics ['t']: deleted on the master" in caplog.text
    world.api.log_end = 9_000
    world.master.topics.delete("u")
    for dispatched, deleted in (
        (4_999, []),
        (5_000, ["t"]),
        (8_999, ["t"]),
        (9_000, ["t", "u"]),
        (9_100, ["t", "u"]),
    ):
        counters[DISPATCHED_OFFSET] = dispatched
        world.round()
        assert world.deleted == deleted
    assert world.status(TOPICS).failures == 0
    asked = pairwise(code for _, code in world.api.calls)
    assert list(asked).count((21, 28)) == 2, "once for each"


def test_a_topic_that_comes_back_in_time_keeps_its_queues(world: World) -> None:
    world.master.send("t")
    world.api.log_end = 5_000
    world.round()
    world.master.topics.delete("t")
    world.round()
    world.master.send("t")
    world.round()
    world.page.counters[DISPATCHED_OFFSET] = 5_000
    world.round()
    assert world.deleted == []


@pytest.mark.parametrize("answer", [RemotingConnectError(MASTER, "refused"), b"{}", None])
def test_a_master_that_does_not_tell_where_its_log_ends(
    world: World, answer: Exception | bytes | None
) -> None:
    world.master.send("t")
    world.round()
    world.master.topics.delete("t")
    world.api.answers[MASTER, 28] = answer
    world.round()
    assert world.deleted == []
    assert "cannot get the end of the master's log" in str(world.status(TOPICS).last_error)
    world.api.answers.clear()
    world.round()
    assert world.deleted == ["t"]


def test_a_topic_of_ours_that_the_promoted_slave_never_had(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """We were the master and made "x" right before the end; the slave that took over has not seen
    it, and its edition is higher by now."""
    world.slave.send("t")
    world.slave.send("x")
    world.slave.topics.save_if_changed()
    for topic in ("t", "u", "v", "w"):
        world.master.send(topic)
    assert world.master.topics.data_version.counter > world.slave.topics.data_version.counter
    world.restart()
    world.round()
    assert world.slave.topics.find("x") is None
    assert world.deleted == []
    assert "topics ['x']: not on the master" in caplog.text
    assert "cleanUnusedTopic" in caplog.text
    world.round()
    assert world.deleted == []


def test_a_topic_that_the_master_before_had(world: World, tmp_path: Path) -> None:
    """A second slave, whose process lives on while another one takes over."""
    for topic in ("t", "x"):
        world.master.send(topic)
        world.master.groups.find_or_create(f"g-{topic}")
        world.master.commit(f"g-{topic}", topic, 5)
    world.round()
    world.api.master = Tables(tmp_path / "promoted")
    for topic in ("t", "u", "v", "w"):
        world.api.master.send(topic)
        world.api.master.groups.find_or_create(f"g-{topic}")
    world.sync.set_master_address("10.0.0.3:10911")
    for _ in range(2):
        world.round()
    assert world.slave.topics.find("x") is None
    assert world.deleted == []
    assert world.slave.offsets.query_offset("g-x", "x", 0) == 5
    world.api.master.topics.delete("u")
    world.round()
    assert world.deleted == ["u"], "what this one had named goes with it"


def test_deletions_that_wait_end_with_their_master(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.master.send("t")
    world.api.log_end = 5_000
    world.round()
    world.master.topics.delete("t")
    world.round()
    world.sync.set_master_address("10.0.0.3:10911")
    world.page.counters[DISPATCHED_OFFSET] = 5_000
    world.round()
    assert world.deleted == []
    assert f"topics ['t']: deleted on master {MASTER}, which is no longer the master" in caplog.text


def test_a_topic_deleted_while_the_slave_was_down(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows whether it was that: its queues stay until cleanUnusedTopic."""
    world.master.send("t")
    world.round()
    world.master.topics.delete("t")
    world.restart()
    world.round()
    assert world.deleted == []
    assert world.slave.topics.find("t") is None
    assert "topics ['t']: not on the master" in caplog.text
    assert "cleanUnusedTopic" in caplog.text


def test_offsets_that_the_master_keeps_stay(world: World) -> None:
    """A Java 4.9 master keeps the offsets of a deleted topic."""
    world.master.send("t")
    world.master.commit("g", "t", 5)
    world.round()
    world.master.topics.delete("t")
    world.round()
    assert world.deleted == ["t"]
    assert world.slave.offsets.query_offset("g", "t", 0) == 5


def test_failed_deletions_are_reported_and_tried_again(world: World) -> None:
    for topic in ("t", "u"):
        world.master.send(topic)
    world.round()
    for topic in ("t", "u"):
        world.master.topics.delete(topic)
    world.delete_error = CommandError("store: delete_topic: not now")
    world.round()
    status = world.status(TOPICS)
    assert status.failures == 1
    assert status.last_error is not None
    assert "t: store: delete_topic: not now; u: " in status.last_error
    assert '"t"' not in (world.root / "slave" / "topics.json").read_text()
    world.master.send("u")
    world.delete_error = None
    world.round()
    assert world.deleted == ["t"], "u is there again"
    assert world.status(TOPICS).last_success_ms == world.clock.now


def test_queues_are_never_deleted_for_a_master_that_lost_its_table(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("t", "u"):
        world.master.send(topic)
        world.master.commit("g", topic, 5)
    world.round()
    world.api.master = Tables(tmp_path / "empty")
    world.round()
    assert world.slave.topics.find("t") is None, "the table is the master's"
    assert world.deleted == []
    assert world.slave.offsets.query_offset("g", "t", 0) == 5
    assert "topics ['t', 'u']: not on the master" in caplog.text


def test_nor_when_the_slave_started_after_it(world: World, tmp_path: Path) -> None:
    for topic in ("t", "u"):
        world.master.send(topic)
    world.round()
    world.api.master = Tables(tmp_path / "young")
    world.api.master.send("v")
    world.restart()
    world.round()
    assert world.slave.topics.find("v") is not None
    assert world.deleted == []


def test_a_topic_that_came_to_life_here_loses_no_queues(world: World) -> None:
    """A heartbeat makes a retry topic here; the master's answer is a moment older."""
    world.round()
    world.slave.topics.create("%RETRY%g", 1, 6)
    world.slave.commit("g", "%RETRY%g", 3)
    world.master.send("other")
    world.round()
    assert world.slave.topics.find("%RETRY%g") is None
    assert world.deleted == []
    assert world.slave.offsets.query_offset("g", "%RETRY%g", 0) == 3


def test_system_topics_are_never_deleted(world: World) -> None:
    world.round()
    wrapper = world.master.topics.wrapper()
    only_one = {"TBW102": wrapper.topic_config_table["TBW102"]}
    world.api.answers[VIP, 21] = replace(
        wrapper, topic_config_table=only_one, data_version=wrapper.data_version.next_version(1)
    ).to_json_bytes()
    world.round()
    assert world.deleted == []
    assert world.slave.topics.find("SCHEDULE_TOPIC_XXXX") is not None
    assert world.slave.topics.find("broker-g") is not None


# -- groups that vanish --------------------------------------------------------------------------


def test_a_deleted_group_goes_with_its_offsets(world: World) -> None:
    for group in ("g", "h"):
        world.master.groups.find_or_create(group)
        world.master.commit(group, "t", 5)
    world.round()
    world.master.groups.delete("g")
    world.master.offsets.remove_group("g")
    world.round()
    assert world.slave.groups.find("g") is None
    world.round()
    assert world.slave.offsets.groups_of_topic("t") == ["h"]


def test_a_group_that_came_to_life_here_keeps_its_offsets(world: World) -> None:
    """It consumed here while the master was away; the master asks for its offsets yet."""
    world.round()
    world.slave.groups.find_or_create("g")
    world.slave.commit("g", "t", 5)
    world.master.groups.find_or_create("other")
    world.round()
    assert world.slave.groups.find("g") is None
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 5


# -- consumer offsets ----------------------------------------------------------------------------


def test_what_a_5_5_1_master_tells_of_pulls_is_taken(world: World) -> None:
    body = b'{"offsetTable":{"t@g":{0:5}},"pullOffsetTable":{"t@g":{0:9,1:3},"odd":{0:1}}}'
    world.api.answers[MASTER, 43] = body
    world.round()
    offsets = world.slave.offsets
    assert (offsets.query_offset("g", "t", 0), offsets.query_pull_offset("g", "t", 0)) == (5, 9)
    assert offsets.query_pull_offset("g", "t", 1) == 3
    assert b"pullOffsetTable" not in world.slave.body(43), "what 4.9 and 5.5.0 answer"
    world.api.answers[MASTER, 43] = b'{"offsetTable":{"t@g":{0:6}},"pullOffsetTable":7}'
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 5, "no table of offsets"


def test_the_larger_offset_stays_but_a_reset_is_taken(world: World) -> None:
    world.master.commit("g", "t", 100)
    world.round()
    world.slave.commit("g", "t", 150)
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 150
    world.master.commit("g", "t", 40)
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 40
    world.master.commit("g", "t", 60)
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 60


def test_after_the_log_was_cut_the_masters_offsets_replace(world: World) -> None:
    """Until every table was copied once, over restarts, too."""
    world.cut()
    world.slave.commit("g", "t", 150, 3)
    world.slave.commit("only-here", "t", 7)
    for topic in ("revive", "revive-of-it"):
        world.slave.offsets.commit_own_offset("here", OWN_GROUP, topic, 0, 99)
    world.slave.offsets.persist()
    world.master.commit("g", "t", 100, 5)
    world.master.offsets.commit_own_offset("there", OWN_GROUP, "revive", 0, 10)
    world.api.fail(DELAYS)
    world.round()
    assert world.slave.offsets.query_offsets("g", "t") == {0: 100, 1: 5}
    assert world.slave.offsets.query_offset("only-here", "t", 0) == 7
    assert world.slave.offsets.query_offset(OWN_GROUP, "revive", 0) == 10
    assert world.slave.offsets.query_offset(OWN_GROUP, "revive-of-it", 0) is None
    assert world.cut_log.objection is not None
    world.restart()
    world.slave.offsets.load()
    world.slave.commit("g", "t", 160)
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 100
    world.api.answers.clear()
    world.round()
    assert world.cut_log.objection is None
    world.slave.commit("g", "t", 160)
    world.round()
    world.restart()
    assert world.cut_log.objection is None
    assert world.saved("consumerOffset.json")["offsetTable"]["t@g"] == {"0": 160, "1": 5}


def test_after_a_cut_no_queue_of_the_brokers_own_groups_keeps_an_offset_of_its_own(
    world: World,
) -> None:
    """A check point that another master wrote to queue 7 would never be read."""
    world.cut()
    for queue_id, offset in ((0, 9), (7, 99)):
        world.slave.offsets.commit_own_offset("here", OWN_GROUP, "revive", queue_id, offset)
    world.master.offsets.commit_own_offset("there", OWN_GROUP, "revive", 0, 4)
    world.round()
    assert world.slave.offsets.query_offsets(OWN_GROUP, "revive") == {0: 4}
    saved = world.saved("consumerOffset.json")["offsetTable"]
    assert saved[f"revive@{OWN_GROUP}"] == {"0": 4}


def test_after_a_cut_a_master_without_offsets_has_none_rather_than_ours(world: World) -> None:
    """What a Java master says of an empty table, and which none of its rows is taken from."""
    world.cut()
    world.slave.offsets.commit_own_offset("here", OWN_GROUP, "revive", 0, 99)
    world.slave.schedule_offsets.update_offset(3, 99)
    world.api.answers[MASTER, CODES[OFFSETS]] = None
    world.api.answers[MASTER, CODES[DELAYS]] = None
    world.round()
    assert world.cut_log.objection is None
    assert world.slave.offsets.query_offset(OWN_GROUP, "revive", 0) is None
    assert world.slave.schedule_offsets.offsets() == {}


def test_tables_of_two_masters_do_not_make_one_copy(world: World) -> None:
    world.cut()
    world.api.fail(DELAYS)
    world.round()
    other = "10.0.0.3:10911"
    world.api.answers[other, CODES[GROUPS]] = RemotingConnectError(other, "refused")
    world.sync.set_master_address(other)
    world.round()
    assert world.cut_log.objection is not None


def test_a_mark_that_cannot_be_removed_is_removed_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cut()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fails)
        world.round()
    assert world.cut_log.objection is not None
    world.round()
    assert world.cut_log.objection is None


def fails(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_first_sight_after_a_restart_is_no_reset(world: World) -> None:
    world.master.commit("g", "t", 100)
    world.round()
    world.slave.commit("g", "t", 150)
    world.slave.offsets.save_if_changed()
    world.master.commit("g", "t", 90)
    world.restart()
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 150


def test_a_master_that_returns_with_older_offsets_is_no_reset(world: World) -> None:
    """It crashed before it had saved; consumers went on at the slave."""
    world.master.commit("g", "t", 100)
    world.round()
    world.api.fail(OFFSETS)
    world.round()
    world.slave.commit("g", "t", 5_000)
    world.master.commit("g", "t", 95)
    world.api.answers.clear()
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 5_000
    world.master.commit("g", "t", 20)
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 20, "from now on it would be one"


def test_another_master_with_lower_offsets_is_no_reset(world: World) -> None:
    world.master.commit("g", "t", 100)
    world.round()
    world.master.commit("g", "t", 95)
    world.sync.set_master_address("10.0.0.3:10911")
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 100


def test_a_row_that_vanishes_stays_and_may_begin_anew(world: World) -> None:
    world.master.commit("g", "t", 100)
    world.round()
    world.master.offsets.remove_topic("t")
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 100
    world.master.commit("g", "t", 3)
    world.round()
    assert world.slave.offsets.query_offset("g", "t", 0) == 3


# -- delay offsets -------------------------------------------------------------------------------


def test_delay_offsets_are_the_masters_whatever_was_here(world: World) -> None:
    world.slave.schedule_offsets.update_offset(1, 50)
    world.slave.schedule_offsets.update_offset(2, 50)
    world.master.schedule_offsets.update_offset(1, 7)
    world.round()
    assert world.slave.schedule_offsets.offsets() == {1: 7}
    assert world.saved("delayOffset.json") == {"offsetTable": {"1": 7}}


# -- offsets wait for the log --------------------------------------------------------------------


def await_log(world: World) -> None:
    """The first copy is made, and the log stands at 5,000. From then on the master is ahead."""
    world.page.counters[MAX_PHY_OFFSET] = world.api.log_end = 5_000
    world.round()
    world.api.log_end = 7_000
    world.master.commit("g", "t", 9)
    world.master.schedule_offsets.update_offset(3, 4)


def copied(world: World) -> tuple[int | None, int | None]:
    slave = world.slave
    return slave.offsets.query_offset("g", "t", 0), slave.schedule_offsets.find_offset(3)


def test_a_table_counts_once_the_log_holds_what_it_rests_on(world: World) -> None:
    """What was popped is behind the offset, and its check point is not here yet."""
    await_log(world)
    before_ms = world.status(OFFSETS).last_success_ms
    world.round()
    asked_ms = world.clock.now
    for end in (5_000, 6_999):
        world.page.counters[MAX_PHY_OFFSET] = end
        world.clock.advance(100)
        world.executor.run_due()
        assert copied(world) == (None, None)
        assert {world.status(kind).last_success_ms for kind in (OFFSETS, DELAYS)} == {before_ms}
    world.page.counters[MAX_PHY_OFFSET] = 7_000
    world.clock.advance(100)
    world.executor.run_due()
    assert copied(world) == (9, 4)
    assert world.saved("delayOffset.json") == {"offsetTable": {"3": 4}}
    for kind in (OFFSETS, DELAYS):
        assert world.status(kind).last_success_ms == asked_ms < world.clock.now
        assert world.page.counters[SLAVE_SYNC_SUCCESS + kind] == asked_ms
        assert world.status(kind).failures == 0


def test_the_end_is_asked_for_after_the_table(world: World) -> None:
    """What the master stores in between may be what the table rests on."""
    await_log(world)

    def store_more(_broker: str, code: int) -> None:
        if code in (43, 45):
            world.api.log_end += 1_000

    world.api.on_call = store_more
    world.page.counters[MAX_PHY_OFFSET] = 7_000
    world.round()
    assert copied(world) == (None, None)


def test_a_slave_that_is_always_behind_copies_nevertheless(world: World) -> None:
    """A table that is replaced by a newer one in each round would never count."""
    await_log(world)
    for offset in range(10, 16):
        world.round()
        world.page.counters[MAX_PHY_OFFSET] = world.api.log_end
        world.api.log_end += 1_000
        world.master.commit("g", "t", offset)
    assert copied(world)[0] in range(9, 16)


def test_the_last_waiting_table_ends_its_round(world: World) -> None:
    """What follows a round (replica.json, the timers' check point) waits for no other one."""
    await_log(world)
    followed: list[str] = []
    world.sync.also_copied.append(followed.append)
    world.round()
    assert followed == [MASTER]
    world.page.counters[MAX_PHY_OFFSET] = 7_000
    world.clock.advance(100)
    world.executor.run_due()
    assert followed[1:2] == [MASTER]


@pytest.mark.parametrize("change", ["link", "master", "objection"])
def test_what_waits_ends_with_its_link_and_its_master(world: World, change: str) -> None:
    await_log(world)
    world.round()
    if change == "link":
        world.sync.link_opened()
    elif change == "master":
        world.sync.set_master_address("10.0.0.3:10911")
    else:
        world.sync.logs_compared(MASTER, "diverged")
    world.page.counters[MAX_PHY_OFFSET] = 7_000
    world.api.log_end = 9_000
    world.clock.advance(200)
    world.executor.run_due()
    assert copied(world) == (None, None)


def test_a_master_that_does_not_say_where_its_log_ends(world: World) -> None:
    await_log(world)
    world.api.answers[MASTER, RequestCode.GET_BROKER_RUNTIME_INFO] = BrokerAnswerError("code 1")
    world.round()
    assert copied(world) == (None, None)
    assert world.status(OFFSETS).last_error == "BrokerAnswerError: code 1"
    assert world.status(GROUPS).failures == 0


# -- over real sockets ---------------------------------------------------------------------------


class LogEnd:
    """28: an empty log."""

    def process_request(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        table = {"commitLogMinOffset": "0", "commitLogMaxOffset": "0"}
        return request.response(ResponseCode.SUCCESS, body=KVTable(table=table).to_json_bytes())


class Served:
    """A master's processors behind our server, on its main port only."""

    def __init__(self, master: Tables) -> None:
        self.loop = SelectorLoop("master-loop")
        processors = (master.admin_topic(), master.admin_offset(), master.admin_group())
        routes = {code: Route(each) for each in processors for code in each.table}
        routes[RequestCode.GET_BROKER_RUNTIME_INFO] = Route(LogEnd())
        self.server = RemotingServer(self.loop, RequestDispatcher(routes))
        self.listening, self._vip = listen_alone()
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.server.add_listener(self.listening)
        self.server.start()
        self.loop.start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.server.shutdown)
        self.loop.stop()
        self.loop.close()
        self.listening.close()
        self._vip.close()


def listen_alone() -> tuple[socket.socket, socket.socket]:
    """A listening socket, and one that holds the VIP port beside it, where nobody may listen."""
    while True:
        listening, vip = socket.create_server(("127.0.0.1", 0)), socket.socket()
        try:
            vip.bind(("127.0.0.1", listening.getsockname()[1] - 2))
        except OSError:  # Somebody has it already.
            listening.close()
            vip.close()
        else:
            return listening, vip


@pytest.fixture
def client() -> Iterator[RemotingClient]:
    client = RemotingClient(RemotingClientConfig())
    client.start()
    yield client
    client.shutdown()


def test_our_server_our_client_a_master_that_goes_and_comes_back(
    tmp_path: Path, client: RemotingClient
) -> None:
    """No VIP port listens; the master comes back at another address."""
    master, slave = Tables(tmp_path / "m"), Tables(tmp_path / "s")
    master.send("t")
    master.commit("g", "t", 7)
    master.schedule_offsets.update_offset(3, 9)
    master.groups.find_or_create("g")
    page = fresh_page()
    executor = ScheduledExecutor(SystemClock())
    executor.start()
    sync = sync_of(slave, BrokerOuterAPI(client), lambda _topic: None, page)
    try:
        served = Served(master)
        sync.set_master_address(served.address)
        sync.logs_compared(served.address, None)
        executor.submit("sync", sync.sync_all)
        wait_until(lambda: page.counters[SLAVE_SYNC_SUCCESS + GROUPS])
        for code in (21, 43, 45, 201):
            assert json_of(slave.body(code)) == json_of(master.body(code))
        served.close()
        sync.sync_all()
        assert [status.failures for status in sync.status().values()] == [1, 1, 1, 1]
        served = Served(master)
        master.send("u")
        sync.set_master_address(served.address)
        sync.logs_compared(served.address, None)
        sync.sync_all()
        assert slave.topics.find("u") is not None
        assert [status.failures for status in sync.status().values()] == [1, 1, 1, 1]
        served.close()
    finally:
        executor.shutdown(5_000)
        close_page(page)


def test_a_master_that_hangs_costs_its_timeouts_only(
    tmp_path: Path, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (topic_group_synchronize, offset_synchronize):
        monkeypatch.setattr(module, "TIMEOUT_MS", 50)
    page = fresh_page()
    with FakePeer(lambda _connection, _command: None) as peer:
        sync = sync_of(
            Tables(tmp_path), BrokerOuterAPI(client), lambda _topic: pytest.fail("no"), page
        )
        sync.set_master_address(peer.address)
        sync.logs_compared(peer.address, None)
        sync.sync_all()
    assert [status.failures for status in sync.status().values()] == [1, 1, 1, 1]
    close_page(page)


# -- static topics -------------------------------------------------------------------------------


def note_calls(
    monkeypatch: pytest.MonkeyPatch, table: object, names: tuple[str, ...], seen: list[str]
) -> None:
    """Add each call of these methods to `seen`."""
    for name in names:
        method = getattr(table, name)

        def noted(*arguments: Any, name: str = name, method: Any = method) -> Any:
            seen.append(f"{type(table).__name__}.{name}")
            return method(*arguments)

        monkeypatch.setattr(table, name, noted)


def test_the_mappings_of_static_topics_come_with_the_topics(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's slave takes over their version only."""
    detail = TopicQueueMappingDetail(
        topic="static",
        total_queues=1,
        bname=CONFIG.broker_name,
        hosted_queues={0: [LogicQueueMappingItem(bname=CONFIG.broker_name)]},
    )
    world.master.topic("static", 1)
    world.master.mappings.update(detail, force=False)
    steps: list[str] = []
    for manager in (world.slave.mappings, world.slave.topics):
        note_calls(monkeypatch, manager, ("replace_all", "save_if_changed"), steps)
    world.round()
    name, topics = "TopicQueueMappingManager", "TopicConfigManager"
    assert steps == [f"{name}.replace_all", f"{topics}.replace_all"] + [
        f"{manager}.save_if_changed" for manager in (name, topics)
    ], "never the topic without its mapping: it would be read as an ordinary one"
    assert world.slave.mappings.table == {"static": detail}
    assert world.slave.mappings.data_version == world.master.mappings.data_version
    assert "static" in str(world.saved("topicQueueMapping.json"))
    world.master.mappings.delete("static")
    world.round()
    assert world.slave.mappings.table == {}
