"""ha.ha_status: what process ha answers about itself, as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ha.control_slots import ISOLATED, ISOLATED_AWAITS
from ha.ha_client_info import HAClientInfo
from ha.ha_status import HaStatus
from ha.last_error import SeenError
from ha.refusals import RefusalCounters, RefusalReason
from ha.replica_clock import ReplicaClock
from ha.replica_memory import KnownReplica
from ha.replica_totals import ReplicaTotals
from ha.replication_lag import ReplicationLag
from store.commit_log_reader import CommitLogReader
from store.control_slots import STORE_TIMESTAMP
from tests.ha.client_info import client_info
from tests.ha.replica_world import ReplicaWorld
from tests.support.plain_log import FILE_SIZE, PlainLog


class World(ReplicaWorld):
    """A log with a record each second; the last was stored now."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(fallbehind_max=2000)
        self.log = PlainLog(tmp_path / "commitlog")
        for number in range(20):
            self.log.append(b"x" * 200, store_timestamp=self.clock.now_ms() - 1000 * (19 - number))
        self.log_ends_at(self.log.end)
        self.page.counters[STORE_TIMESTAMP] = self.clock.now_ms()
        self.refusals = RefusalCounters(self.page)
        self.client: HAClientInfo | None = None

    def status(self) -> dict[str, Any]:
        reader = CommitLogReader(self.log.directory, FILE_SIZE, self.page)
        client = self.client
        status = HaStatus(
            self.page,
            self.clock,
            self.registry,
            ReplicationLag(reader, self.clock),
            self.refusals.snapshot,
            None if client is None else lambda: client,
        ).status()
        assert json.loads(json.dumps(status)) == status
        return status


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_master_without_replicas(world: World) -> None:
    assert world.status() == {
        "master": True,
        "masterCommitLogMaxOffset": world.log.end,
        "inSyncSlaveNums": 0,
        "haConnectionInfo": [],
        "haClientRuntimeInfo": {},
        "refusals": {},
        "timestamp": world.clock.now_ms(),
    }


def test_an_isolated_broker_says_for_whom_it_waits(world: World) -> None:
    world.page.counters[ISOLATED] = ISOLATED_AWAITS + 7
    text = "isolated until its group is linked (totalReplicas), waits for broker id 7"
    assert world.status()["isolated"] == text


def test_every_field_of_a_replica(world: World) -> None:
    ack = world.log.records[15][0]
    world.registry.set_members("b", {1: "10.0.0.1"})
    connected_ms = world.clock.now_ms()
    slave = world.connect("10.0.0.1:4711", ack)
    slave.sent(world.log.end, 500, world.clock.monotonic_ms())
    world.clock.advance(1000)
    world.registry.observe(world.clock.monotonic_ms())
    world.refusals.count(RefusalReason.SILENT)
    status = world.status()
    lag = world.log.end - ack
    assert status["refusals"] == {"silent": 1}
    assert status["haConnectionInfo"] == [
        {
            "addr": "10.0.0.1:4711",
            "slaveAckOffset": ack,
            "diff": lag,
            "inSync": False,
            "transferredByteInSecond": 500,
            "transferFromWhere": world.log.end,
            "id": "b:1",
            "state": "catching_up",
            "counted": True,
            "startOffset": ack,
            "lagBytes": lag,
            "lagBytesExact": True,
            "lagSeconds": 5.0,
            "lagSecondsExact": True,
            "connectedSince": connected_ms,
            "disconnectedSince": None,
            "lastError": None,
            "lastErrorTimestamp": None,
            "reconnects": 0,
            "stateSeconds": {"in_sync": 0.0, "catching_up": 1.0, "disconnected": 0.0},
        }
    ]
    world.ack(slave, world.log.end)
    world.service.evaluate()
    status = world.status()
    [replica] = status["haConnectionInfo"]
    assert status["inSyncSlaveNums"] == 1
    assert (replica["state"], replica["inSync"]) == ("in_sync", True)
    assert (replica["diff"], replica["lagBytes"], replica["lagSeconds"]) == (0, 0, 0.0)


def test_a_replica_that_left_falls_further_behind(world: World) -> None:
    slave = world.connect("10.0.0.1:4711", world.log.end)
    world.service.remove(slave, RefusalReason.NETWORK, "reset by peer")
    [before] = world.status()["haConnectionInfo"]
    assert (before["state"], before["lagBytes"]) == ("disconnected", 0)
    gone_ms = world.clock.now_ms()
    world.clock.advance(3000)
    world.log.append(b"y" * 300, store_timestamp=world.clock.now_ms())
    world.log_ends_at(world.log.end)
    world.clock.advance(7000)
    [after] = world.status()["haConnectionInfo"]
    assert after["lagBytes"] == after["diff"] > 300
    assert after["lagSeconds"] == 7.0
    assert after["disconnectedSince"] == after["lastErrorTimestamp"] == gone_ms
    assert after["lastError"] == "network: reset by peer"
    assert after["transferredByteInSecond"] == 0
    assert world.status()["inSyncSlaveNums"] == 0


def test_an_empty_slave_of_an_old_master_lacks_what_is_left_only(world: World) -> None:
    slave = world.progress("10.0.0.1:1")
    slave.position = FILE_SIZE
    world.service.add(slave)
    [replica] = world.status()["haConnectionInfo"]
    assert replica["slaveAckOffset"] == 0
    assert replica["lagBytes"] == world.log.end - FILE_SIZE


def test_a_slave_s_own_end(world: World) -> None:
    world.client = client_info()
    status = world.status()
    assert (status["master"], status["masterCommitLogMaxOffset"]) == (False, 0)
    assert status["haClientRuntimeInfo"] == {
        "masterAddr": "10.0.0.9:10912",
        "transferredByteInSecond": 99,
        "maxOffset": 4000,
        "lastReadTimestamp": 1_700_000_000_100,
        "lastWriteTimestamp": 1_700_000_000_200,
        "state": "transfer",
        "localAddr": "10.0.0.1:4711",
        "connectedSince": 1_699_999_999_000,
        "lastError": None,
        "lastErrorTimestamp": None,
        "lastErrorOver": None,
        "lastInspection": "logs agree up to 4000",
        "lastInspectionTimestamp": 1_699_999_999_500,
    }
    error = SeenError("network: refused", 1_700_000_000_300)
    world.client = replace(world.client, master_address=None, last_error=error)
    own = world.status()["haClientRuntimeInfo"]
    assert (own["masterAddr"], own["lastError"]) == (None, "network: refused")
    assert (own["lastErrorTimestamp"], own["lastErrorOver"]) == (1_700_000_000_300, False)


def test_what_a_killed_process_took_is_not_known(world: World) -> None:
    """The lag is "at most", until the slave reports again."""
    ack, sent = world.log.records[12][0], world.log.records[15][0]
    known = KnownReplica(
        id="10.0.0.1",
        remote="10.0.0.1:4710",
        ack_offset=ack,
        position=ack,
        connected_since_ms=5,
        left_ms=None,
    )
    totals = ReplicaTotals(ReplicaClock(world.clock.monotonic_ms()))
    world.registry.restore(known, totals, ack_limit=sent, is_named=False)
    [row] = world.status()["haConnectionInfo"]
    assert row["lagBytes"] == world.log.end - ack
    assert (row["lagBytesExact"], row["lagSecondsExact"]) == (False, False)
    again = world.connect("10.0.0.1:4712", sent)
    [row] = world.status()["haConnectionInfo"]
    assert row["lagBytes"] == world.log.end - sent
    assert (row["lagBytesExact"], row["lagSecondsExact"]) == (True, True)
    world.service.remove(again, None, "gone")
    [row] = world.status()["haConnectionInfo"]
    assert (row["lagBytesExact"], row["lagSecondsExact"]) == (True, True), "it is known"
