"""Replication now: what haStatus says, by its own functions; groups, members, roles in tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from console import questions
from console.health import group_url
from console.page import ConsoleError
from console.snapshot import Told
from console.views import replication
from remoting.body.ha_runtime_info import HAGroupInfo, HARoleInfo
from tests.console.pages import (
    HOSTILE,
    NOT_KNOWN,
    NOW,
    java,
    page,
    reader,
    rows,
    seen,
    shown,
    texts,
)
from tests.tools.fake_cluster import FakeCluster, running_cluster
from tests.tools.mqadmin_bench import Bench
from tests.tools.test_ha_status import IN_SYNC, MASTER, SLAVE, members, status
from tools.admin_client import AdminClient, NameServers

REPLICATION, GROUP, _ = replication.VIEWS
BEHIND = replace(
    MASTER, ha_connection_info=[replace(IN_SYNC, diff=77), *MASTER.ha_connection_info[1:]]
)
LEADER = replace(
    BEHIND,
    group_info=HAGroupInfo(
        role="lead",
        takes_messages=True,
        epoch=7,
        sync_state_set=[1, 2],
        min_in_sync_replicas=2,
        without_master_total_millis=1_500,
        last_role=HARoleInfo(
            role="lead",
            cause="notified",
            epoch=7,
            old_epoch=6,
            old_master_id=2,
            timestamp=NOW - 60_000,
            without_master_millis=900,
            confirm_offset=100,
            log_end=2_148,
        ),
    ),
)


@contextmanager
def two_brokers() -> Iterator[tuple[FakeCluster, FakeCluster]]:
    with running_cluster() as master, running_cluster() as slave:
        members(master, {0: master.address, 1: slave.address})
        master.answers[907] = status(BEHIND)
        slave.answers[907] = status(SLAVE)
        yield master, slave


def test_json_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with two_brokers() as (master, slave):
        printed = Bench(master, capsys).run_json("haStatus")
        with AdminClient(NameServers((master.address,)), lambda: NOW) as client:
            brokers = []
            for broker_id, cluster in ((0, master), (1, slave)):
                one = seen(broker_id=broker_id)
                place = replace(one.place, address=cluster.address)
                told = Told(questions.HA_STATUS.run(client, cluster.address), NOW)
                brokers.append(replace(one, place=place, ha=told))
    who = reader(*brokers)
    assert page(replication.group, who, cluster="C", name="b").data == printed
    assert page(replication.replication, who).data == printed
    assert printed[1]["lagBytes"] == 77  # and not two empty lists


def test_a_silent_broker_is_said_beside_what_it_said_last() -> None:
    ha = replace(seen(ha=MASTER).ha, error="timeout", error_at_ms=NOW)
    never = seen(broker_id=1, ha=Told(None, 0, "refused", NOW))
    data = page(replication.group, reader(seen(ha=ha), never), cluster="C", name="b").data
    assert data[0]["error"] == "timeout"
    assert data[0]["status"]["inSyncSlaveNums"] == 1
    assert data[1]["error"] == "refused"
    replicas = rows(page(replication.replication, reader(seen(ha=ha))), "replicas")
    assert {row["state"] for row in replicas} == {"stale"}


def test_groups_are_rows() -> None:
    metrics = {"rocketmq_ha_replica_in_sync": [({"replica": "a:1", "role": "SYNC_MASTER"}, 1.0)]}
    found = page(
        replication.replication,
        reader(
            seen("a", ha=MASTER, metrics=metrics),
            seen("b", ha=LEADER),
            seen("c", 1, ha=SLAVE),
            java("d", ha=Told(None, 0, NOT_KNOWN, NOW)),
        ),
    )
    a, b, c, d = rows(found, "groups")
    assert (a["inSync"], a["replicas"], a["refusedLinks"]) == (1, 3, 4)
    assert (a["ackLevel"], a["epoch"]) == ("SYNC_MASTER", None)
    assert b["ackLevel"] == "2 of 2 in the SyncStateSet"
    assert (b["takesMessages"], b["epoch"], b["withoutMaster"]) == ("yes", 7, 1.5)
    assert c["master"] == "gone"
    assert d["logEnd"] is None
    (said,) = found.context["without"]
    assert said.startswith("d:0: it does not know HA status (request 907)")


def test_one_group_says_all_that_its_members_say() -> None:
    found = page(
        replication.group,
        reader(
            seen(ha=LEADER), seen(broker_id=1, ha=replace(SLAVE, promotion_objection="too old"))
        ),
        cluster="C",
        name="b",
    )
    master, slave = rows(found, "members")
    assert (master["role"], master["epoch"], master["logEnd"]) == ("lead", 7, 5_000_000)
    assert (slave["promotable"], slave["says"], slave["lagBytes"]) == (
        "no: too old",
        "transfer",
        77,
    )
    (role,) = texts(found, "roles")
    assert role[1:3] + role[4:] == [
        "lead",
        "7",
        "notified",
        "broker 2 in epoch 6",
        "0.9",
        "2.0 KiB",
    ]
    topics, delays = rows(found, "metadata")
    assert (topics["kind"], topics["age"]) == ("topics", 3.0)
    assert (delays["age"], delays["failures"]) == (None, 4)
    assert [(row["reason"], row["count"]) for row in rows(found, "refusals")] == [
        ("silent", 1),
        ("unknown_peer", 3),
    ]
    assert "promotable  no: too old" in found.context["said"][1]


def test_the_lag_of_a_replica_is_plotted_with_its_gaps() -> None:
    who = reader(seen(ha=MASTER))
    owner = "b0:10911 b:1"
    who.history.add(NOW - 20_000, {(owner, "lag_seconds"): 2.0})
    who.history.add(NOW, {(owner, "lag_seconds"): 3.0})
    data = page(replication.lag_series, who, cluster="C", name="b").data
    assert data["series"][0]["name"] == "b:1"
    assert data["series"][0]["values"][-5:] == [2.0, None, None, None, 3.0]


def test_unknown_groups_and_hostile_names() -> None:
    with pytest.raises(ConsoleError, match="there is no broker group"):
        page(replication.group, reader(), cluster="C", name="x")
    who = reader(seen(HOSTILE, ha=LEADER), seen(HOSTILE, 1, ha=SLAVE))
    html = shown(GROUP, who, {"cluster": "C", "name": HOSTILE})
    assert "<img" not in html
    assert "<img" not in shown(REPLICATION, who)
    url = group_url("a/b", "c&name=d?..")
    assert url == "/replication/group?cluster=a%2Fb&name=c%26name%3Dd%3F.."
