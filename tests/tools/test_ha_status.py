"""mqadmin haStatus: replicas and slaves of ours and of Java, live, and brokers without answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from remoting.body.ha_runtime_info import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    SlaveSyncInfo,
)
from remoting.body.route import BrokerData, ClusterInfo
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.remoting.body.test_ha_runtime_info import JAVA_MASTER, JAVA_SLAVE
from tests.tools.fake_cluster import FakeCluster, running_cluster
from tests.tools.mqadmin_bench import Bench
from tools.command_line import Surroundings
from tools.commands.ha_status import duration_text, size_text
from tools.mqadmin import main

CLOSED = "127.0.0.1:1"
IN_SYNC = HAConnectionRuntimeInfo(
    addr="10.0.0.1:4711",
    slave_ack_offset=5_000_000,
    in_sync=True,
    transferred_byte_in_second=2048,
    id="b:1",
    state="in_sync",
    counted=True,
    start_offset=0,
    lag_bytes=0,
    lag_seconds=0.0,
    lag_seconds_exact=True,
    connected_since=1_795_177_732_448,
)
CATCHING_UP = HAConnectionRuntimeInfo(
    addr="10.0.0.2:4711",
    slave_ack_offset=2_000_000,
    diff=3_000_000,
    transferred_byte_in_second=30_000,
    id="10.0.0.2",
    state="catching_up",
    counted=True,
    start_offset=1_000_000,
    lag_bytes=3_000_000,
    lag_seconds=12.34,
    lag_seconds_exact=False,
    connected_since=1_795_177_732_448,
)
GONE = HAConnectionRuntimeInfo(
    addr="10.0.0.3:4711",
    diff=5_000_000,
    id="b:3",
    state="disconnected",
    counted=False,
    lag_bytes=5_000_000,
    lag_seconds=77.0,
    lag_seconds_exact=True,
    connected_since=1_795_177_732_448,
    disconnected_since=1_795_177_742_448,
    last_error="silent: nothing for 20000 ms\x1b[2J",
    last_error_timestamp=1_795_177_742_448,
)
MASTER = HARuntimeInfo(
    master=True,
    master_commit_log_max_offset=5_000_000,
    in_sync_slave_nums=1,
    ha_connection_info=[IN_SYNC, CATCHING_UP, GONE],
    refusals={"unknown_peer": 3, "silent": 1},
    timestamp=1_795_177_800_000,
)
SLAVE = HARuntimeInfo(
    ha_client_runtime_info=HAClientRuntimeInfo(
        master_addr="10.0.0.9:10912",
        max_offset=4_998_976,
        transferred_byte_in_second=4096,
        last_read_timestamp=1_795_177_799_500,
        last_write_timestamp=1_795_177_799_900,
        state="transfer",
        local_addr="10.0.0.8:1234",
        connected_since=1_795_177_732_448,
        last_error="network: reset by peer",
        last_error_timestamp=1_795_177_730_448,
        last_error_over=True,
        last_inspection_timestamp=1_795_177_799_000,
        last_inspection="logs agree up to 4000000",
    ),
    refusals={},
    slave_sync={
        "topics": SlaveSyncInfo(last_success_timestamp=1_795_177_797_000),
        "delayOffsets": SlaveSyncInfo(
            last_error="10.0.0.9:10911: timeout",
            last_error_timestamp=1_795_177_742_448,
            failures=4,
        ),
    },
    timestamp=1_795_177_800_000,
)


def status(answer: HARuntimeInfo | bytes) -> Callable[[RemotingCommand], RemotingCommand]:
    body = answer if isinstance(answer, bytes) else answer.to_json_bytes()
    return lambda request: request.response(0, None, {}, body)


def members(cluster: FakeCluster, brokers: Mapping[int, str], name: str = "b") -> None:
    """The name server knows these brokers: id to address."""
    info = ClusterInfo(
        broker_addr_table={
            name: BrokerData(broker_name=name, cluster="C", broker_addrs=dict(brokers))
        },
        cluster_addr_table={"C": [name]},
    )
    body = info.to_json_bytes()
    cluster.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(
        0, None, {}, body
    )


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeCluster:
    """The cluster's one broker is the master of above."""
    members(cluster, {0: cluster.address})
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(MASTER)
    return cluster


def test_replicas_of_a_master(mqadmin: Bench, broker: FakeCluster) -> None:
    outcome = mqadmin.run("haStatus", "-b", broker.address)
    assert (outcome.code, outcome.err) == (0, "")
    head, columns, in_sync, catching_up, gone, bar, refused = outcome.out.splitlines()
    assert head == f"{broker.address}: master, log ends at 5000000, 1 of 3 replicas in sync"
    assert columns.split("  ")[0] == "#Replica"
    assert in_sync.split() == [
        *("b:1", "10.0.0.1:4711", "in_sync", "0", "B", "0.0", "2.0", "KiB/s"),
        *("2026-11-20", "12:28:52", "-"),
    ]
    assert catching_up.split()[:6] == [
        "10.0.0.2", "10.0.0.2:4711", "catching_up", "2.9", "MiB", ">=12.3"
    ]  # fmt: skip
    assert gone.split()[:6] == ["b:3", "10.0.0.3:4711", "disconnected", "4.8", "MiB", "77.0"]
    assert gone.endswith(
        "2026-11-20 12:29:02  2026-11-20 12:29:02 silent: nothing for 20000 ms\\x1b[2J"
    )
    assert bar == (
        "  10.0.0.2 [#######-----------------------]  25 %  2.9 MiB to go, about 1 min 40 s left"
    )
    assert refused == "links refused or closed: silent 1, unknown_peer 3"


def test_a_bar_that_does_not_move_and_one_that_is_not_counted(
    mqadmin: Bench, cluster: FakeCluster
) -> None:
    replica = HAConnectionRuntimeInfo(addr="10.0.0.2:1", diff=5, state="catching_up", counted=False)
    info = HARuntimeInfo(master=True, master_commit_log_max_offset=0, ha_connection_info=[replica])
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(info)
    out = mqadmin.run("haStatus", "-b", cluster.address).out
    assert "catching_up (not counted)" in out
    assert out.splitlines()[-1].endswith("100 %  5 B to go, standing still")


def test_a_slave_s_own_end(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(SLAVE)
    with running_cluster() as master:
        master.answers[RequestCode.GET_BROKER_HA_STATUS] = status(MASTER)
        members(cluster, {0: master.address, 5: cluster.address})
        outcome = mqadmin.run("haStatus", "-b", cluster.address)
        data = mqadmin.run_json("haStatus", "-b", cluster.address)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        f"b:5 {cluster.address}: slave of 10.0.0.9:10912 (HA port)",
        "  state       transfer since 2026-11-20 12:28:52, from 10.0.0.8:1234",
        "  log ends at 4998976, behind its master 1.0 KiB, - s",
        "  speed       4.0 KiB/s, last read 0.5 s ago, last report 0.1 s ago",
        "  last error  2026-11-20 12:28:50 network: reset by peer (over)",
        "  inspection  logs agree up to 4000000 (1.0 s ago)",
        "  #Metadata     #Last success  #Failures  #Last error",
        "  topics        3.0 s ago              0  -",
        "  delayOffsets  never                  4  2026-11-20 12:29:02 10.0.0.9:10911: timeout",
    ]
    assert (data[0]["brokerId"], data[0]["lagBytes"], data[0]["lagSeconds"]) == (5, 1024, None)


@pytest.mark.parametrize(
    ("state", "is_over", "line"),
    [
        ("transfer", False, "  error       2026-11-20 12:28:50 no room"),
        ("transfer", True, "  last error  2026-11-20 12:28:50 no room (over)"),
        ("resting", False, "  error       2026-11-20 12:28:50 no room"),
        # Of a broker that does not say.
        ("transfer", None, "  last error  2026-11-20 12:28:50 no room (over)"),
        ("resting", None, "  error       2026-11-20 12:28:50 no room"),
    ],
)
def test_an_error_is_the_slave_s_state_only_while_it_lasts(
    mqadmin: Bench, cluster: FakeCluster, state: str, is_over: bool | None, line: str
) -> None:
    client = replace(
        SLAVE.ha_client_runtime_info, state=state, last_error="no room", last_error_over=is_over
    )
    info = replace(SLAVE, ha_client_runtime_info=client)
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(info)
    assert line in mqadmin.run("haStatus", "-b", cluster.address).out.splitlines()


def test_an_error_of_a_replica_is_over_when_it_is_back(
    mqadmin: Bench, cluster: FakeCluster
) -> None:
    back = replace(GONE, state="catching_up", disconnected_since=None)
    info = replace(MASTER, ha_connection_info=[back])
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(info)
    assert "silent: nothing for 20000 ms\\x1b[2J (over)" in (
        mqadmin.run("haStatus", "-b", cluster.address).out
    )


def test_an_error_of_metadata_is_over_after_a_success(mqadmin: Bench, cluster: FakeCluster) -> None:
    failed = SlaveSyncInfo(
        last_success_timestamp=1_795_177_741_000,
        last_error="10.0.0.9:10911: timeout",
        last_error_timestamp=1_795_177_742_448,
        failures=4,
    )
    works = replace(failed, last_success_timestamp=1_795_177_743_000)
    info = replace(SLAVE, slave_sync={"topics": failed, "delayOffsets": works})
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(info)
    topics, delays = mqadmin.run("haStatus", "-b", cluster.address).out.splitlines()[-2:]
    assert topics.endswith("2026-11-20 12:29:02 10.0.0.9:10911: timeout")
    assert delays.endswith("2026-11-20 12:29:02 10.0.0.9:10911: timeout (over)")


@pytest.mark.parametrize("by_link", [True, False])
def test_what_the_master_says_of_the_slave_s_lag(
    mqadmin: Bench, cluster: FakeCluster, by_link: bool
) -> None:
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(SLAVE)
    addr, name = ("10.0.0.8:1234", None) if by_link else (None, "b:5")
    replica = HAConnectionRuntimeInfo(addr=addr, id=name, diff=500, lag_seconds=0.25)
    with running_cluster() as master:
        answer = HARuntimeInfo(master=True, ha_connection_info=[IN_SYNC, replica])
        master.answers[RequestCode.GET_BROKER_HA_STATUS] = status(answer)
        members(cluster, {0: master.address, 5: cluster.address})
        out = mqadmin.run("haStatus", "-b", cluster.address).out
    assert "behind its master 500 B, 0.2 s" in out


@pytest.mark.parametrize(
    ("brokers", "reason"),
    [
        ({}, "the name server does not know this address"),
        ({5: None}, "b has no running master"),
        ({0: CLOSED, 5: None}, CLOSED),
    ],
)
def test_a_slave_without_its_master(
    mqadmin: Bench, cluster: FakeCluster, brokers: dict[int, str | None], reason: str
) -> None:
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(SLAVE)
    members(cluster, {key: value or cluster.address for key, value in brokers.items()})
    outcome = mqadmin.run("haStatus", "-b", cluster.address)
    assert outcome.code == 0
    assert "behind its master -, - s" in outcome.out
    assert "is behind its master is not known" in outcome.err
    assert reason in outcome.err


def test_a_whole_cluster(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(SLAVE)
    with running_cluster() as master:
        master.answers[RequestCode.GET_BROKER_HA_STATUS] = status(MASTER)
        members(cluster, {0: master.address, 5: cluster.address, 7: CLOSED})
        for options in (["-c", "C"], []):
            outcome = mqadmin.run("haStatus", *options)
            assert outcome.code == 0
            titles = [line for line in outcome.out.splitlines() if line.startswith("b:")][:1]
            assert titles == [
                f"b:0 {master.address}: master, log ends at 5000000, 1 of 3 replicas in sync"
            ]
            assert f"b:5 {cluster.address}: slave of" in outcome.out
            assert f"b:7 {CLOSED}: no HA status: " in outcome.out
            assert outcome.err.startswith("mqadmin haStatus: broker b:7: ")
        data = mqadmin.run_json_with_complaints("haStatus", "-c", "C")
    assert [row["brokerId"] for row in data] == [0, 5, 7]
    assert data[0]["status"]["refusals"] == {"silent": 1, "unknown_peer": 3}
    assert data[0]["status"]["haConnectionInfo"][1]["lagSeconds"] == 12.34
    assert data[1]["lagBytes"] == 1024
    assert CLOSED in data[2]["error"]


def test_a_java_5_master(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(JAVA_MASTER)
    _, _, row = mqadmin.run("haStatus", "-b", cluster.address).out.splitlines()
    assert row.split() == [
        *("-", "127.0.0.1:40000", "in_sync", "100", "B", "-", "7", "B/s", "-", "-")
    ]


def test_a_java_5_slave(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(JAVA_SLAVE)
    members(cluster, {1: cluster.address})
    lines = mqadmin.run("haStatus", "-b", cluster.address).out.splitlines()
    assert lines[:3] == [
        f"b:1 {cluster.address}: slave of 127.0.0.1:10912 (HA port)",
        "  state       -",
        "  log ends at 900, behind its master -, - s",
    ]
    assert lines[3].endswith("last report never")
    assert len(lines) == 4


def test_java_4_does_not_know_the_request(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = lambda request: request.response(
        3, "request type 907 not supported"
    )
    outcome = mqadmin.run("haStatus", "-b", cluster.address)
    assert outcome.code == 1
    assert f"broker {cluster.address} does not know HA status (request 907)" in outcome.err
    members(cluster, {0: cluster.address})
    outcome = mqadmin.run("haStatus")
    assert outcome.code == 0
    assert "no HA status: broker" in outcome.out


def test_a_broker_that_refuses(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = lambda request: request.response(
        1, "replication cannot be asked just now"
    )
    outcome = mqadmin.run("haStatus", "-b", cluster.address)
    assert (outcome.code, "SYSTEM_ERROR (1): replication cannot" in outcome.err) == (1, True)


def test_wrong_usage(mqadmin: Bench) -> None:
    outcome = mqadmin.run("haStatus", "-b", "x:1", "-c", "C")
    assert (outcome.code, "only one of -b ADDRESS and -c CLUSTER" in outcome.err) == (2, True)
    assert mqadmin.run("haStatus", "-c", "Nowhere").code == 1


class TestLive:
    def run(self, broker: FakeCluster, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        waits: list[float] = []

        def wait(seconds: float) -> bool:
            waits.append(seconds)
            return len(waits) == 3

        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        arguments = ["haStatus", "-b", broker.address, "-i", "0.5", "-n", CLOSED]
        assert main(arguments, Surroundings(wait=wait)) == 0
        assert waits == [0.5] * 3

    def test_redrawn_in_place_on_a_terminal(
        self,
        broker: FakeCluster,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.run(broker, True, monkeypatch)
        rounds = capsys.readouterr().out.split("\x1b[H\x1b[2J")
        assert len(rounds) == 3
        assert rounds[0] == rounds[1] == rounds[2]

    def test_appended_elsewhere(
        self,
        broker: FakeCluster,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.run(broker, False, monkeypatch)
        out = capsys.readouterr().out
        assert out.count("replicas in sync") == 3
        assert "\x1b" not in out


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB"), (-5, "-5 B")],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.01, "1 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90_000, "25 h 0 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
