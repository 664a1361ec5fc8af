"""mqadmin haStatus: replicas and slaves of ours and of Java, live, and brokers without answer."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from remoting.body.ha_runtime_info import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HAGroupInfo,
    HARoleInfo,
    HARuntimeInfo,
    SlaveSyncInfo,
)
from remoting.body.route import BrokerData, ClusterInfo
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.remoting.body.test_ha_runtime_info import JAVA_MASTER, JAVA_SLAVE
from tests.support.readiness import events_of
from tests.support.stolen_time import OwnTime
from tests.tools.fake_cluster import FakeCluster, running_cluster
from tests.tools.mqadmin_bench import Bench
from tools.command_line import CommandContext
from tools.commands.ha_status import duration_text, size_text
from tools.live_view import LiveView
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
    lag_bytes_exact=False,
    lag_seconds=77.0,
    lag_seconds_exact=False,
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
    assert gone.split()[:6] == [
        "b:3", "10.0.0.3:4711", "disconnected", "<=4.8", "MiB", "~77.0"
    ]  # fmt: skip
    assert gone.endswith(
        "2026-11-20 12:29:02  2026-11-20 12:29:02 silent: nothing for 20000 ms\\x1b[2J"
    )
    assert bar == (
        "  10.0.0.2 [#######-----------------------]  25 %  2.9 MiB to go, about 1 min 40 s left"
    )
    assert refused == "links refused or closed: silent 1, unknown_peer 3"


LEADER = HAGroupInfo(
    role="lead",
    takes_messages=True,
    member_id=2,
    epoch=7,
    master_id=2,
    sync_state_set=[2, 3],
    min_in_sync_replicas=2,
    confirm_offset=4_999_000,
    lease_millis=8_250,
    without_master_total_millis=3_400,
    last_role=HARoleInfo(
        role="lead",
        cause="notified",
        epoch=7,
        old_epoch=5,
        old_master_id=1,
        timestamp=1_795_177_732_448,
        without_master_millis=3_400,
        confirm_offset=600,
        log_end=693,
    ),
)


def test_the_group_of_a_member(mqadmin: Bench, cluster: FakeCluster) -> None:
    info = replace(MASTER, ha_connection_info=[], refusals=None, group_info=LEADER)
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(info)
    assert mqadmin.run("haStatus", "-b", cluster.address).out.splitlines()[1:] == [
        "  group       member 2, lead in epoch 7; master is broker 2; confirmed up to 4999000",
        "  SyncStateSet 2, 3 (minInSyncReplicas 2), takes messages, lease 8.2 s",
        "  no master   3.4 s in all since its start",
        "  last role   lead in epoch 7 at 2026-11-20 12:28:52 (notified), before that broker 1 in "
        "epoch 5, 3.4 s without a master; 93 bytes unconfirmed",
    ]
    shown = mqadmin.run_json("haStatus", "-b", cluster.address)[0]["status"]["groupInfo"]
    assert shown["lastRole"]["oldMasterId"] == 1
    assert shown["syncStateSet"] == [2, 3]


def test_a_group_in_trouble(mqadmin: Bench, cluster: FakeCluster) -> None:
    group = replace(
        LEADER,
        role="fenced",
        takes_messages=False,
        master_id=None,
        lease_millis=None,
        without_master_millis=12_340,
        two_masters_seen=4,
        last_role=HARoleInfo(role="fenced", cause="start\x1b[2J", timestamp=1_795_177_732_448),
    )
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(replace(SLAVE, group_info=group))
    out = mqadmin.run("haStatus", "-b", cluster.address).out
    assert "master is nobody" in out
    assert "(minInSyncReplicas 2), TAKES NO MESSAGES\n" in out
    assert "  NO MASTER   for 12.3 s, 3.4 s in all since its start" in out
    assert "TWO MASTERS were named in one epoch, 4 times" in out
    assert "(start\\x1b[2J); 0 bytes unconfirmed" in out


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
    assert "how far behind its master is unknown: the master does not answer" in outcome.out
    assert "cannot determine how far" in outcome.err
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
        "  log ends at 900, how far behind its master is unknown: the master does not answer",
    ]
    assert lines[3].endswith("last report never")
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("objection", "line"),
    [
        ("", "  promotable  yes"),
        ("replica.json: lacked\n3 bytes", "  promotable  no: replica.json: lacked\\x0a3 bytes"),
    ],
)
def test_whether_a_slave_may_be_promoted(
    mqadmin: Bench, cluster: FakeCluster, objection: str, line: str
) -> None:
    basis = "its master was last seen at noon"
    answer = replace(SLAVE, promotion_objection=objection, promotion_basis=basis)
    cluster.answers[RequestCode.GET_BROKER_HA_STATUS] = status(answer)
    members(cluster, {5: cluster.address})
    lines = mqadmin.run("haStatus", "-b", cluster.address).out.splitlines()
    at = lines.index(line)
    assert lines[at + 1] == "              its master was last seen at noon"


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
    assert (outcome.code, "-b ADDRESS and -c CLUSTER exclude each other" in outcome.err) == (
        2,
        True,
    )
    assert mqadmin.run("haStatus", "-c", "Nowhere").code == 1


class Screen:
    """What a terminal shows of what was written to it: the few codes that redrawing needs."""

    CODES: Final = re.compile(r"\x1b\[(\??)(\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")

    def __init__(self) -> None:
        self.lines, self.row, self.column = [""], 0, 0
        self.has_cursor = True

    def feed(self, text: str) -> Screen:
        at = 0
        while at < len(text):
            found = self.CODES.match(text, at)
            assert found is not None, f"not understood: {text[at : at + 20]!r}"
            at = found.end()
            private, number, code, control, plain = found.groups()
            if plain:
                self._write(plain)
            elif control:
                self.column = 0
                self.row += control == "\n"
                self.lines += [""] * (self.row + 1 - len(self.lines))
            else:
                self._obey(private + number + code)
        return self

    def _write(self, plain: str) -> None:
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + plain + line[self.column + len(plain) :]
        self.column += len(plain)

    def _obey(self, code: str) -> None:
        if code in ("?25l", "?25h"):
            self.has_cursor = code == "?25h"
        elif code == "2K":
            self.lines[self.row] = ""
        else:
            assert code.endswith("A"), f"not understood: {code}"
            self.row -= int(code[:-1] or 1)
            assert self.row >= 0


class Terminal:
    """haStatus -i as a process on a terminal of its own."""

    def __init__(self, broker: FakeCluster, *options: str, term: str = "xterm") -> None:
        self.ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        command = [sys.executable, "-m", "tools.mqadmin", "haStatus", "-b", broker.address]
        # Workers of a test run are told a width, which would count for more than the terminal's.
        sizes = ("COLUMNS", "LINES")
        inherited = {name: value for name, value in os.environ.items() if name not in sizes}
        self.process = subprocess.Popen(
            [*command, "-n", CLOSED, "-i", "0.1", *options],
            cwd=Path(__file__).parents[2],
            env={**inherited, "TERM": term, "TZ": "UTC"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.text = ""

    def read_until(self, condition: Callable[[str], object]) -> str:
        """What was written until then. AssertionError: it never came."""
        clock = OwnTime()
        while not condition(self.text):
            assert clock.s() < 30, self.text
            if events_of(self.ours, timeout_s=0.1):
                self.text += os.read(self.ours, 1 << 16).decode()
        return self.text

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send it a signal; its exit code, and all that it has written."""
        self.process.send_signal(number)
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            self.read_until(lambda _text: False)
        return self.process.wait(30), self.text

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self.ours)


TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", re.MULTILINE)


class TestLive:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_redrawn_in_place_on_a_terminal(
        self, broker: FakeCluster, number: signal.Signals, code: int
    ) -> None:
        """Three readings, the last with fewer lines, then the end: the last one is left."""
        terminal = Terminal(broker)
        try:
            terminal.read_until(lambda text: text.count("replicas in sync") == 2)
            shorter = replace(MASTER, ha_connection_info=[IN_SYNC], refusals={})
            broker.answers[RequestCode.GET_BROKER_HA_STATUS] = status(shorter)
            text = terminal.read_until(lambda text: "1 of 1 replicas in sync" in text)
            assert not Screen().feed(text.rpartition("\x1b")[0]).has_cursor
            ended, text = terminal.end(number)
        finally:
            terminal.close()
        assert ended == code
        assert "\x1b[2J" not in text, "a cleared screen flickers"
        screen = Screen().feed(text)
        assert screen.has_cursor
        shown = [line for line in screen.lines if line and "stopped" not in line]
        assert TIME.fullmatch(shown[0])
        assert shown[1].endswith("master, log ends at 5000000, 1 of 1 replicas in sync")
        assert len(shown) == 4, shown

    def test_a_failure_is_told_above_the_last_reading(self, broker: FakeCluster) -> None:
        terminal = Terminal(broker)
        try:
            terminal.read_until(lambda text: "replicas in sync" in text)
            broker.answers[RequestCode.GET_BROKER_HA_STATUS] = lambda request: request.response(
                1, "out of order"
            )
            text = terminal.read_until(lambda text: text.count("out of order") == 2)
            _, text = terminal.end(signal.SIGINT)
        finally:
            terminal.close()
        lines = [line for line in Screen().feed(text).lines if line]
        told = [row for row, line in enumerate(lines) if "out of order" in line]
        readings = [row for row, line in enumerate(lines) if "replicas in sync" in line]
        assert len(readings) == 1
        assert max(told) < readings[0]

    @pytest.mark.parametrize(("options", "term"), [((), "dumb"), ((), ""), (("--json",), "xterm")])
    def test_a_terminal_without_cursor_movements_and_json(
        self, broker: FakeCluster, options: tuple[str, ...], term: str
    ) -> None:
        terminal = Terminal(broker, *options, term=term)
        try:
            terminal.read_until(lambda text: text.count("\n") > 20 or text.count("}]\r\n") > 2)
            _, text = terminal.end(signal.SIGINT)
        finally:
            terminal.close()
        assert "\x1b" not in text

    def test_appended_elsewhere(
        self, broker: FakeCluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """In a pipe: every reading with its time, plain lines."""
        waits: list[float] = []

        def wait(seconds: float) -> bool:
            waits.append(seconds)
            return len(waits) == 3

        times = iter(range(1_795_177_732_448, 1_795_177_800_000, 1_000))
        arguments = ["haStatus", "-b", broker.address, "-i", "0.5", "-n", CLOSED]
        assert main(arguments, CommandContext(wait=wait, now_ms=lambda: next(times))) == 0
        assert waits == [0.5] * 3
        out = capsys.readouterr().out
        assert out.count("replicas in sync") == 3
        assert len(set(TIME.findall(out)) & set(out.splitlines())) == 3
        assert "\x1b" not in out

    def test_a_signal_waits_for_the_end_of_a_reading(
        self, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> None:
        """Whatever it interrupted would be drawn over the lines above."""
        monkeypatch.setenv("TERM", "xterm")
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
        with LiveView() as view:
            update = view._live.update

            def interrupted(*arguments: Any, **options: Any) -> None:
                signal.raise_signal(signal.SIGINT)
                update(*arguments, **options)

            monkeypatch.setattr(view._live, "update", interrupted)
            with pytest.raises(KeyboardInterrupt):
                view.show("whole")
        assert "whole" in out.getvalue()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_reading_is_one_write(self) -> None:
        """The terminal never shows half of one."""
        writes: list[str] = []

        class Stream(io.StringIO):
            def isatty(self) -> bool:
                return True

            def write(self, text: str) -> int:
                writes.append(text)
                return len(text)

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "stdout", Stream())
            with LiveView() as view:
                view.show("first\nreading")
                writes.clear()
                view.show("second\nreading")
                assert [text for text in writes if "second" in text] == ["".join(writes)]


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
