"""One line of the dump: every field from real slots, page and children."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.failover.messages import Cause, Taken
from broker.failover.role_log import RoleLog
from broker.metrics import metrics_table as table
from broker.metrics.dump_marks import LAG_LE_MS
from broker.metrics.member_facts import find_member_facts
from broker.metrics.metrics_dump import MetricsDump, dump_settings
from broker.metrics.replica_view import ReplicaView
from broker.metrics.replication_snapshot import ReplicationSnapshot, config_digest
from broker.settings.changed_settings import ChangedSettings
from broker.settings.config_update import BrokerConfigUpdate
from broker.settings.startup_options import StartupOptions
from broker.slave.sync_kind import SLAVE_SYNC_FAILURES, SLAVE_SYNC_SUCCESS
from conf.installation import software_version
from ha.control_slots import (
    MEMBER_ID,
    MEMBER_ORDER,
    ORDER_TAKEN,
    REPLICATED_OFFSET,
    MemberRole,
    order_after,
)
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, MetricSlotsReader, create_metric_slots
from remoting.metrics.metric import Metric
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page

SETTINGS = {
    "brokerName": "broker-a",
    "brokerClusterName": "C1",
    "brokerId": "0",
    "brokerRole": "SYNC_MASTER",
    "brokerIP1": "10.0.0.1",
    "brokerIP2": "10.0.0.1",
}


class Broker:
    """Everything a snapshot reads; two processes that count."""

    def __init__(self, **settings: str) -> None:
        self.clock = ManualClock(monotonic_ms=100_000)
        self.page = fresh_page()
        self.is_ready = True
        fd = create_metric_slots()
        self.remoting = MetricSlots(fd, ProcessIndex.REMOTING)
        self.ha = MetricSlots(fd, ProcessIndex.HA)
        self.reader = MetricSlotsReader(fd)
        os.close(fd)
        self.children: list[Any] = [
            self._child("store", ProcessIndex.STORE),
            self._child("ha", ProcessIndex.HA),
            self._child("remoting", ProcessIndex.REMOTING),
        ]
        self.options = StartupOptions.from_settings({**SETTINGS, **settings})
        self.changes_fd = ChangedSettings.create()
        self.sight = ReplicaView(self.reader, self.page, lambda: self.children, self.clock)
        self.snapshot = ReplicationSnapshot(
            self.options,
            ChangedSettings(self.changes_fd),
            self,
            self.page,
            lambda: self.children,
            self.clock,
            find_member_facts(self.options, self.page.counters, self.clock),
        )

    def take(self, written_ms: int | None = None) -> dict[str, Any]:
        """A snapshot; `written_ms`: monotonic time of the line before."""
        now_ms = self.clock.monotonic_ms()
        return self.snapshot.take(now_ms - 5_000 if written_ms is None else written_ms)

    def look(self) -> Any:
        """As a BrokerCollector."""
        return self.sight.look()

    def ready_reason(self) -> str:
        """As a BrokerCollector."""
        return "" if self.is_ready else "the store is not ready"

    @staticmethod
    def _child(name: str, index: ProcessIndex) -> Any:
        return SimpleNamespace(
            spec=SimpleNamespace(name=name, index=index), process="runs", restarts=0, started_ms=0
        )

    def put(
        self, slots: MetricSlots, metric: Metric, labels: tuple[str, ...], *values: float
    ) -> None:
        first = slots.find(metric.name, labels, metric.size)
        for number, value in enumerate(values):
            slots.values[first + number] = value

    def ha_looks(self) -> None:
        self.put(self.ha, table.HA_OBSERVED_MS, (), self.clock.monotonic_ms())

    def replica(self, name: str, **values: float) -> None:
        """Values of one replica by the name of the metric's constant."""
        for metric, value in values.items():
            labels = (name, "SYNC_MASTER")
            self.put(self.ha, getattr(table, metric), labels, value)

    def close(self) -> None:
        for slots in (self.remoting, self.ha, self.reader):
            slots.close()
        close_page(self.page)
        os.close(self.changes_fd)


@pytest.fixture
def broker() -> Iterator[Broker]:
    found = Broker()
    yield found
    found.close()


def fill(broker: Broker) -> None:
    """A master with a replica in sync, one that lags, and one that left."""
    counters = broker.page.counters
    counters[MIN_PHY_OFFSET], counters[MAX_PHY_OFFSET] = 4096, 1_000_000
    counters[REPLICATED_OFFSET] = 999_000
    put, remoting, ha = broker.put, broker.remoting, broker.ha
    put(remoting, table.MESSAGES_IN, ("T1", "Normal", "false"), 10)
    put(remoting, table.MESSAGES_IN, ("T2", "Normal", "false"), 5)
    put(remoting, table.THROUGHPUT_IN, ("T1", "Normal", "false"), 1000)
    put(remoting, table.HA_SYNC_RESULT, ("ok",), 7)
    put(remoting, table.HA_SYNC_RESULT, ("flush_slave_timeout",), 2)
    put(remoting, table.HA_ACK_LATENCY, (), 3, 4, *[0] * 13, 1, 6.5)
    for request, response, result, count, ms in (
        ("send_message_v2", "success", "success", 20, 30.0),
        ("send_batch_message", "flush_slave_timeout", "success", 2, 5000.0),
        ("send_message", "topic_not_exist", "success", 3, 1.5),
        ("send_message", "unknown", "success", 1, 0.5),
        ("send_message_v2", "success", "oneway", 50, 10.0),
        ("pull_message", "success", "success", 70, 10.0),
    ):
        labels = ("remoting", request, response, "false", result)
        put(remoting, table.RPC_LATENCY, labels, count, *[0] * 9, ms)
    for topic, halves, commits in (("T1", 4, 5), ("T2", 1, 2)):
        put(remoting, table.HALF_MESSAGES, (topic,), halves)
        put(remoting, table.COMMIT_MESSAGES, (topic,), commits)
    put(remoting, table.OLDEST_HALF, ("T1", "P"), 61.5)
    put(remoting, table.OLDEST_HALF, ("T2", "P"), 3)
    put(remoting, table.ROLLBACK_MESSAGES, ("T1",), 2)
    put(remoting, table.TRANSACTION_CHECKS, ("T1",), 9)
    put(remoting, table.HALVES_GIVEN_UP, ("T2",), 1)
    put(ha, table.HA_MASTER_MAX_OFFSET, (), 1_000_000)
    put(ha, table.HA_UNREPLICATED_BYTES, (), 1000)
    put(ha, table.HA_OLDEST_UNREPLICATED, (), 0.25)
    put(ha, table.HA_UNREPLICATED_EXACT, (), 1)
    broker.ha_looks()
    broker.replica(
        "broker-a:1",
        HA_REPLICA_CONNECTED=1,
        HA_REPLICA_IN_SYNC=1,
        HA_ACK_OFFSET=999_000,
        HA_REPLICA_LAG_BYTES=1000,
        HA_REPLICA_LAG_SECONDS=0.25,
        HA_REPLICA_LAG_EXACT=1,
        HA_TRANSFERRED=995_000,
        HA_RECONNECTS=2,
    )
    put(ha, table.HA_REJECTED_ACKS, ("broker-a:1", "beyond_log"), 1)
    put(ha, table.HA_REJECTED_ACKS, ("broker-a:1", "went_back"), 3)
    put(ha, table.HA_STATE_SECONDS, ("broker-a:1", "in_sync"), 60.5)
    put(ha, table.HA_STATE_SECONDS, ("broker-a:1", "catching_up"), 1.0006)
    broker.replica(
        "10.0.0.7", HA_REPLICA_CONNECTED=1, HA_REPLICA_IN_SYNC=0, HA_REPLICA_LAG_BYTES=800_000
    )
    broker.replica("broker-a:2", HA_REPLICA_CONNECTED=0, HA_REPLICA_IN_SYNC=0)
    broker.replica("__overflow__", HA_REPLICA_CONNECTED=1)


LE = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]


NOTHING_SINCE = {"remote": None, "last_error": None, "lag_time": [0] * (len(LAG_LE_MS) + 1)}


def test_every_field(broker: Broker) -> None:
    fill(broker)
    broker.children[1].restarts = 4

    taken = broker.take()

    config = taken.pop("config")
    assert len(config) == 12
    assert int(config, 16) >= 0
    assert taken == {
        "since": 94_750,
        "cluster": "C1",
        "broker": "broker-a",
        "broker_id": 0,
        "host": "10.0.0.1:8888",
        "role": "SYNC_MASTER",
        "version": software_version(),
        "ready": True,
        "min_offset": 4096,
        "max_offset": 1_000_000,
        "replicated_offset": 999_000,
        "msgs_in": 15,
        "bytes_in": 1000,
        "sync": {
            "ok": 7,
            "flush_slave_timeout": 2,
            "slave_not_available": 0,
            "flush_disk_timeout": 0,
        },
        "sends": {
            "ok": 20,
            "flush_slave_timeout": 2,
            "slave_not_available": 0,
            "flush_disk_timeout": 0,
            "refused": 4,
            "latency": {
                "le": [0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1, 2, 3],
                "counts": [26, *[0] * 9],
                "sum": 5.032,
            },
        },
        "ack_latency": {"le": LE, "counts": [3, 4, *[0] * 13, 1], "sum": 6.5},
        "unreplicated_bytes": 1000,
        "oldest_unreplicated_ms": 250,
        "exposure": None,
        "transactions": {
            "halves": 5,
            "oldest_ms": 61_500,
            "commits": 7,
            "rollbacks": 2,
            "checks": 9,
            "given_up": 1,
        },
        "processes": [
            {"name": "store", "up": True, "restarts": 0},
            {"name": "ha", "up": True, "restarts": 4},
            {"name": "remoting", "up": True, "restarts": 0},
        ],
        "lag_le": list(LAG_LE_MS),
        "replicas": [
            {
                "id": "10.0.0.7",
                "connected": True,
                "in_sync": False,
                "state": "catching_up",
                "ack_offset": 0,
                "lag_bytes": 800_000,
                "lag_ms": 0,
                "lag_exact": False,
                "transferred": 0,
                "reconnects": 0,
                "rejected_acks": 0,
                "state_ms": {"in_sync": 0, "catching_up": 0, "disconnected": 0},
                **NOTHING_SINCE,
                "lag_ms_max": 0,
            },
            {
                "id": "broker-a:1",
                "connected": True,
                "in_sync": True,
                "state": "in_sync",
                "ack_offset": 999_000,
                "lag_bytes": 1000,
                "lag_ms": 250,
                "lag_exact": True,
                "transferred": 995_000,
                "reconnects": 2,
                "rejected_acks": 4,
                "state_ms": {"in_sync": 60_500, "catching_up": 1001, "disconnected": 0},
                **NOTHING_SINCE,
                "lag_ms_max": 250,
            },
            {
                "id": "broker-a:2",
                "connected": False,
                "in_sync": False,
                "state": "disconnected",
                "ack_offset": 0,
                "lag_bytes": 0,
                "lag_ms": 0,
                "lag_exact": False,
                "transferred": 0,
                "reconnects": 0,
                "rejected_acks": 0,
                "state_ms": {"in_sync": 0, "catching_up": 0, "disconnected": 0},
                **NOTHING_SINCE,
                "lag_ms_max": 0,
            },
        ],
        "metadata": [],
    }


def test_before_anybody_has_counted(broker: Broker) -> None:
    taken = broker.take()
    assert taken["unreplicated_bytes"] is None
    assert taken["oldest_unreplicated_ms"] is None
    assert taken["replicas"] == []
    assert taken["msgs_in"] == taken["max_offset"] == 0
    assert taken["ack_latency"] == {"le": LE, "counts": [0] * 16, "sum": 0.0}


@pytest.mark.parametrize("how", ["dead", "hung"])
def test_nobody_is_connected_while_ha_is_gone(broker: Broker, how: str) -> None:
    fill(broker)
    broker.clock.advance(3_000)
    broker.page.counters[MAX_PHY_OFFSET] += 500
    if how == "dead":
        broker.children[1].process = None

    taken = broker.take()

    assert taken["processes"][1]["up"] is (how == "hung")
    assert [row["state"] for row in taken["replicas"]] == ["disconnected"] * 3
    row = taken["replicas"][1]
    assert (row["connected"], row["in_sync"], row["lag_exact"]) == (False, False, False)
    assert row["state_ms"] == {"in_sync": 60_500, "catching_up": 1001, "disconnected": 3_000}
    assert (row["lag_bytes"], row["lag_ms"]) == (1500, 3250)
    # What was acknowledged after its last look is not known.
    assert (taken["unreplicated_bytes"], taken["oldest_unreplicated_ms"]) == (None, None)

    broker.children[1].process = "runs"
    broker.ha_looks()  # It has not booked the gap yet.
    again = broker.take()["replicas"][1]
    assert again["state"] == "in_sync"
    assert again["state_ms"]["disconnected"] == 3_000


def test_what_is_a_bound_is_not_told_as_a_fact(broker: Broker) -> None:
    fill(broker)
    broker.put(broker.ha, table.HA_UNREPLICATED_EXACT, (), 0)
    taken = broker.take()
    assert (taken["unreplicated_bytes"], taken["oldest_unreplicated_ms"]) == (None, None)


def test_not_ready(broker: Broker) -> None:
    broker.is_ready = False
    assert broker.take()["ready"] is False


def test_what_a_deleted_topic_counted_stays(broker: Broker) -> None:
    labels = ("T1", "Normal", "false")
    broker.put(broker.remoting, table.MESSAGES_IN, labels, 10)
    broker.put(broker.remoting, table.MESSAGES_IN, ("T2", "Normal", "false"), 1)
    assert broker.take()["msgs_in"] == 11
    broker.remoting.hide(table.MESSAGES_IN.name, labels)
    assert broker.take()["msgs_in"] == 11
    broker.put(broker.remoting, table.MESSAGES_IN, labels, 4)
    assert broker.take()["msgs_in"] == 15
    broker.remoting.hide(table.MESSAGES_IN.name, labels)
    broker.put(broker.remoting, table.MESSAGES_IN, labels, 3)  # deleted and made between two lines
    assert broker.take()["msgs_in"] == 18


@pytest.mark.parametrize("role", ["SYNC_MASTER", "SLAVE"])
def test_consumer_groups_are_told_by_masters_where_some_are_named(role: str) -> None:
    broker = Broker(brokerRole=role, brokerId=str(int(role == "SLAVE")))
    assert "groups" not in broker.take()
    broker.remoting.find("dump_group_looks")
    taken = broker.take()
    broker.close()
    assert ("groups" in taken) == (role != "SLAVE")
    if role != "SLAVE":
        assert taken["groups"]["rows"] == []


def test_a_slave_tells_its_metadata() -> None:
    broker = Broker(brokerRole="SLAVE", brokerId="1")
    now_ms, counters = broker.clock.now_ms(), broker.page.counters
    counters[SLAVE_SYNC_SUCCESS] = now_ms - 1500
    counters[SLAVE_SYNC_SUCCESS + 2] = now_ms + 70  # the wall clock went back
    counters[SLAVE_SYNC_FAILURES + 3] = 6

    taken = broker.take()

    assert (taken["role"], taken["broker_id"]) == ("SLAVE", 1)
    assert taken["transactions"] is None
    assert taken["metadata"] == [
        {"kind": "topics", "age_ms": 1500, "age_ms_max": 1500, "failures": 0},
        {"kind": "consumer_offsets", "age_ms": None, "age_ms_max": None, "failures": 0},
        {"kind": "delay_offsets", "age_ms": 0, "age_ms_max": 0, "failures": 0},
        {"kind": "subscription_groups", "age_ms": None, "age_ms_max": None, "failures": 6},
    ]
    broker.close()


def test_config_digest() -> None:
    one = {"a": "1", "b": "x\udc80"}
    assert config_digest(one) == config_digest(dict(reversed(one.items())))
    assert config_digest(one) != config_digest({**one, "a": "2"})
    assert len(config_digest(one)) == 12


class NoReaders:
    """A SettingsUser whose processes take every value."""

    def offer(self, options: StartupOptions, keys: Collection[str]) -> None:
        pass

    def use(self, options: StartupOptions, keys: Collection[str]) -> None:
        pass


def test_a_setting_that_a_request_changes_is_in_the_next_line(tmp_path: Path) -> None:
    broker = Broker(storePathRootDir=str(tmp_path))
    settings = dump_settings(broker.options)
    assert settings is not None
    dump = MetricsDump(settings, broker.snapshot.take, broker.clock)
    updates = BrokerConfigUpdate(
        broker.options,
        broker.clock,
        config_file=tmp_path / "broker.conf",
        user=NoReaders(),
        changed=ChangedSettings(broker.changes_fd),
    )
    in_force = [updates.all_configs()]
    for text in ("brokerPermission=4", "fileReservedTime=24", "flushDiskType=SYNC_FLUSH", ""):
        broker.clock.advance(dump.turn())
        updates.update(text, "10.0.0.9:1")
        in_force.append(updates.all_configs())
    dump.finish()
    (path,) = [path for path in settings.directory.rglob("*.gz") if path.is_file()]
    found = [json.loads(line)["config"] for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert found == [config_digest(each) for each in in_force]
    assert len(set(found)) == 3, "flushDiskType counts after a restart"
    broker.close()


def test_a_table_that_is_being_written(broker: Broker) -> None:
    changed = ChangedSettings(broker.changes_fd)
    changed.write({"brokerPermission": "4"})
    before = broker.take()["config"]
    os.pwrite(broker.changes_fd, b'{"brokerPermission":"4","dele', 4)
    assert broker.take()["config"] == before
    changed.write({"brokerPermission": "4", "deleteWhen": "05"})
    expected = config_digest({**broker.options.settings(), **changed.read()})
    assert broker.take()["config"] == expected != before


def test_the_largest_age_of_metadata_since_the_last_written_line() -> None:
    broker = Broker(brokerRole="SLAVE", brokerId="1")

    def copied(ms_ago: int) -> None:
        broker.page.counters[SLAVE_SYNC_SUCCESS] = broker.clock.now_ms() - ms_ago

    def ages(written_ms: int) -> tuple[int, int]:
        row = broker.take(written_ms)["metadata"][0]
        return row["age_ms"], row["age_ms_max"]

    copied(1_000)
    assert ages(0) == (1_000, 1_000)
    first_ms = broker.clock.monotonic_ms()
    broker.clock.advance(60_000)
    copied(2_000)
    assert ages(first_ms) == (2_000, 59_000), "it was that old just before the copy"
    broker.clock.advance(5_000)
    assert ages(first_ms) == (7_000, 59_000), "that line could not be written"
    second_ms = broker.clock.monotonic_ms()
    broker.clock.advance(5_000)
    assert ages(second_ms) == (12_000, 12_000)
    broker.close()


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_the_age_of_metadata_while_the_wall_clock_is_set(step_ms: int) -> None:
    """The truth is the monotonic time since the copy, whatever the wall clock says."""
    broker = Broker(brokerRole="SLAVE", brokerId="1")
    clock, counters = broker.clock, broker.page.counters

    def ages(written_ms: int) -> tuple[int, int]:
        row = broker.take(written_ms)["metadata"][0]
        return row["age_ms"], row["age_ms_max"]

    counters[SLAVE_SYNC_SUCCESS] = clock.now_ms()
    assert ages(0) == (0, 0)
    for passed_ms in (5_000, 10_000, 15_000):  # no copy succeeds
        first_ms = clock.monotonic_ms()
        clock.advance(5_000)
        if passed_ms == 5_000:
            clock.jump_to(clock.now_ms() + step_ms)
        assert ages(first_ms) == (passed_ms, passed_ms)
    second_ms = clock.monotonic_ms()
    clock.advance(3_000)
    counters[SLAVE_SYNC_SUCCESS] = clock.now_ms()
    clock.advance(2_000)
    assert ages(second_ms) == (2_000, 18_000)

    third_ms = clock.monotonic_ms()
    clock.advance(2_000)
    counters[SLAVE_SYNC_SUCCESS] = clock.now_ms()
    clock.jump_to(clock.now_ms() + step_ms)  # between the copy and the look
    clock.advance(3_000)
    age_ms, age_ms_max = ages(third_ms)
    assert 3_000 <= age_ms <= 7_000, "it was copied since the copy before"
    assert 4_000 <= age_ms_max <= 7_000
    broker.close()


def test_the_age_of_a_table_that_waited_for_the_log() -> None:
    """It was asked for before the line before this one."""
    broker = Broker(brokerRole="SLAVE", brokerId="1")
    asked_ms = broker.clock.now_ms()
    broker.page.counters[SLAVE_SYNC_SUCCESS] = asked_ms - 10_000
    for _ in range(6):
        broker.take()
        broker.clock.advance(5_000)
    broker.page.counters[SLAVE_SYNC_SUCCESS] = asked_ms
    assert broker.take()["metadata"][0]["age_ms"] == 30_000
    broker.close()


def test_a_member_has_the_id_and_the_role_of_now(tmp_path: Path) -> None:
    conf = {"enableControllerMode": "true", "storePathRootDir": str(tmp_path)}
    broker = Broker(brokerRole="ASYNC_MASTER", brokerId="1", **conf)
    counters, seen = broker.page.counters, []
    for role in (None, MemberRole.LEAD, MemberRole.FOLLOW, MemberRole.LEAD, MemberRole.FENCED):
        if role is not None:
            counters[MEMBER_ID] = 3
            counters[MEMBER_ORDER] = order_after(counters[MEMBER_ORDER], role)
            counters[ORDER_TAKEN] = counters[MEMBER_ORDER]
        line = broker.take()
        registered = line["member"]["broker_id"]
        seen.append((line["broker_id"], registered, line["role"], bool(line["metadata"])))
    follows, leads = (3, 3, "SLAVE", True), (3, 0, "SYNC_MASTER", False)
    assert seen == [(1, 0, "SLAVE", True), leads, follows, leads, follows]
    assert line["member"]["role"] == "FENCED"
    broker.close()


def test_a_follower_shows_nobody_of_the_time_when_it_led(tmp_path: Path) -> None:
    """Process `ha` removes the rows a moment after the order was taken."""
    conf = {"enableControllerMode": "true", "storePathRootDir": str(tmp_path)}
    broker = Broker(**conf)
    counters, seen = broker.page.counters, []
    broker.ha_looks()
    broker.replica("broker-a:2", HA_REPLICA_CONNECTED=1)
    for role in (MemberRole.LEAD, MemberRole.FOLLOW):
        counters[MEMBER_ID] = 3
        counters[MEMBER_ORDER] = order_after(counters[MEMBER_ORDER], role)
        counters[ORDER_TAKEN] = counters[MEMBER_ORDER]
        seen.append([row["id"] for row in broker.take()["replicas"]])
    assert seen == [["broker-a:2"], []]
    broker.close()


def test_each_role_is_told_in_one_line_that_was_written(tmp_path: Path) -> None:
    """In the next one where a line could not be written; those of earlier lives in the first."""
    conf = {"enableControllerMode": "true", "storePathRootDir": str(tmp_path)}
    broker = Broker(**conf)
    log = RoleLog(tmp_path / "memberRoles.json", broker.page.counters, broker.clock)
    taken = Taken(Cause.POLLED, 6, 1, frozenset({2, 3}), 600, 693)
    told = []

    def take(written_ms: int) -> None:
        told.append([role["number"] for role in broker.take(written_ms).get("roles", [])])

    log.took(MemberRole.FENCED, 6, taken)
    take(1)
    log.took(MemberRole.LEAD, 7, taken)
    take(1)  # The first line failed.
    take(2)
    log.took(MemberRole.FOLLOW, 8, taken)
    take(3)
    take(4)
    assert told == [[1], [1, 2], [], [3], []]
    broker.close()


def test_without_a_controller_a_line_says_nothing_of_a_group() -> None:
    broker = Broker()
    assert not {"member", "roles"} & broker.take().keys()
    broker.close()
