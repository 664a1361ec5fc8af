"""master_inspector: the verdict for every pair of logs, and for a master not to be asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.slave.master_inspector import MasterInspector, is_empty, judge_bounds
from broker.slave.remote_log import MasterFacts, MasterRefusesError, RemoteLog, read_facts
from ha.inspection import Inspection, Verdict
from remoting.remoting_command import RemotingCommand
from store.control_slots import MIN_PHY_OFFSET
from tests.broker.replica_pair import MASTER, ReplicaPair
from tests.remoting.golden_frames import GOLDEN, GoldenFrame
from tests.support.manual_clock import ManualClock
from tests.support.plain_log import FILE_SIZE

HA = "10.0.0.1:10912"
OWN = ("10.0.0.2:10911", "10.0.0.2:10912")
MASTERS = pytest.mark.parametrize("java", [False, True], ids=["ours", "java"])


class NoQueues:
    def queues(self) -> Iterator[tuple[str, int]]:
        return iter(())

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        raise AssertionError

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        raise AssertionError


class Desk:
    """An inspector between the two logs of a pair."""

    def __init__(self, pair: ReplicaPair) -> None:
        self.pair = pair
        self.clock = ManualClock()
        self.results: list[Inspection] = []
        self.silences: list[None] = []
        self.has_name_servers = True
        self.inspector = MasterInspector(
            pair.master,
            pair.reader,
            NoQueues(),
            self.clock,
            own_addresses=OWN,
            has_name_servers=lambda: self.has_name_servers,
            on_result=self.results.append,
            on_silence=lambda: self.silences.append(None),
        )
        self.inspector.set_master(MASTER, HA)

    def inspect(self, fixed: str | None = None) -> Inspection:
        return self.inspector.inspect(self.pair.own_max, self.pair.own_min, fixed)


# -- the bounds --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own_min", "own_max", "low", "high", "verdict"),
    [
        (0, 0, 0, 0, Verdict.START_AT),
        (0, 1, 0, 500, Verdict.START_AT),
        (0, 1, 4096, 9000, Verdict.START_AT),
        (0, 500, 0, 500, None),
        (0, 500, 0, 499, Verdict.AHEAD),
        (0, 500, 0, 0, Verdict.AHEAD),
        (0, 500, 4096, 9000, Verdict.BELOW_MIN),
        (0, 4096, 4096, 9000, Verdict.GO),
        (0, 4097, 4096, 9000, None),
        (4096, 4096, 0, 9000, Verdict.START_AT),
        (4096, 4096, 8192, 9000, Verdict.START_AT),
        (4096, 4096, 0, 2000, Verdict.START_AT),
        (4096, 5000, 0, 9000, None),
        (4096, 5000, 8192, 9000, Verdict.BELOW_MIN),
    ],
)
def test_what_the_bounds_alone_say(
    own_min: int, own_max: int, low: int, high: int, verdict: Verdict | None
) -> None:
    judged = judge_bounds(own_min, own_max, MasterFacts(low, high))
    assert (judged and judged[0]) == verdict


def test_empty() -> None:
    assert is_empty(0, 0)
    assert is_empty(0, 1)
    assert not is_empty(0, 2)
    assert is_empty(4096, 4096), "it begins there and holds nothing"
    assert not is_empty(4096, 4097)


# -- the master's answers ----------------------------------------------------------------------


def test_the_bounds_of_a_real_java_master() -> None:
    path = GOLDEN / "wire-json" / "028-GET_BROKER_RUNTIME_INFO" / "01.resp.bin"
    answer = GoldenFrame(path, "response").command()
    assert read_facts(MASTER, answer) == MasterFacts(0, 24731)


def test_the_record_of_a_real_java_master() -> None:
    directory = GOLDEN / "wire-json" / "033-VIEW_MESSAGE_BY_ID"
    facts = GOLDEN / "wire-json" / "028-GET_BROKER_RUNTIME_INFO" / "01.resp.bin"
    sent: list[RemotingCommand] = []

    class Replay:
        def invoke_sync(
            self, _address: str, command: RemotingCommand, _timeout_ms: int
        ) -> RemotingCommand:
            sent.append(command)
            path = facts if command.code == 28 else directory / "01.resp.bin"
            return GoldenFrame(path, "response").command()

    record = RemoteLog(Replay(), MASTER, ManualClock(), 1_000).record_at(405)
    assert record is not None
    assert len(record) == 215
    assert int.from_bytes(record[:4], "big") == 215
    assert int.from_bytes(record[28:36], "big") == 405
    asked = GoldenFrame(directory / "01.req.bin", "request").command()
    assert sent[1].code == asked.code
    assert sent[1].ext_fields["offset"] == asked.ext_fields["offset"]


def test_a_java_master_without_files() -> None:
    body = b'{"table":{"commitLogMinOffset":"-1","commitLogMaxOffset":"0"}}'
    answer = RemotingCommand.request(28).response(0, body=body)
    assert read_facts(MASTER, answer) == MasterFacts(0, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[",
        b'{"table":{"commitLogMaxOffset":"1"}}',
        b'{"table":{"commitLogMinOffset":"x"}}',
    ],
)
def test_an_answer_without_bounds(body: bytes) -> None:
    with pytest.raises(MasterRefusesError, match=r"10\.0\.0\.1:10911.*28"):
        read_facts(MASTER, RemotingCommand.request(28).response(0, body=body))


# -- verdicts ----------------------------------------------------------------------------------


@MASTERS
def test_go(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=100, theirs=20, java=java)
    desk = Desk(pair)
    result = desk.inspect()
    assert result == Inspection(
        verdict=Verdict.GO,
        text="the last record matches the master's",
        ha_address=HA,
        master_address=MASTER,
        start_offset=pair.own_max,
        master_min=0,
        master_max=pair.master.max_offset,
    )
    assert len(pair.master.asked) == 1
    assert desk.results == [result]


@MASTERS
def test_start_at_the_masters_min(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=0, theirs=150, java=java)
    pair.master.min_offset = 2 * FILE_SIZE
    for own_max in (0, 1):
        pair.own_max = own_max
        result = Desk(pair).inspect()
        assert (result.verdict, result.start_offset) == (Verdict.START_AT, 2 * FILE_SIZE)
    assert pair.master.asked == []


@MASTERS
def test_ahead(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=60, ours=7, java=java)
    result = Desk(pair).inspect()
    assert (result.verdict, result.common_offset) == (Verdict.AHEAD, pair.common_end)
    assert str(pair.own_max - pair.common_end) in result.text
    assert f"ends at {pair.common_end}" in result.text


@MASTERS
def test_ahead_and_diverged(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=60, ours=30, theirs=4, java=java)
    result = Desk(pair).inspect()
    assert (result.verdict, result.common_offset) == (Verdict.AHEAD, pair.common_end)


@MASTERS
def test_diverged(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=60, ours=4, theirs=30, java=java)
    result = Desk(pair).inspect()
    assert (result.verdict, result.common_offset) == (Verdict.DIVERGED, pair.common_end)
    assert result.master_max == pair.master.max_offset


@MASTERS
def test_nothing_in_common(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=0, ours=4, theirs=30, java=java)
    result = Desk(pair).inspect()
    assert (result.verdict, result.common_offset) == (Verdict.DIVERGED, -1)
    assert "no common record" in result.text


def test_below_min(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=10, theirs=150)
    pair.master.min_offset = 2 * FILE_SIZE
    result = Desk(pair).inspect()
    assert result.verdict is Verdict.BELOW_MIN
    assert str(2 * FILE_SIZE - pair.own_max) in result.text


def test_the_command(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=10, theirs=1)
    answer = Desk(pair).inspector.handle(
        {"max_phy_offset": pair.own_max, "min_phy_offset": 0, "ha_master_address": None}
    )
    assert answer == {
        "verdict": "go",
        "ha_address": HA,
        "master_address": MASTER,
        "start_offset": pair.own_max,
        "master_min": 0,
        "master_max": pair.master.max_offset,
        "common_offset": -1,
        "text": "the last record matches the master's",
        "ha_protocol": 0,
    }


@pytest.mark.parametrize(("told", "known"), [(None, 0), ("", 0), ("1", 1), ("7", 7)])
def test_whether_the_master_speaks_our_handshake(
    tmp_path: Path, told: str | None, known: int
) -> None:
    pair = ReplicaPair(tmp_path, common=10)
    pair.master.ha_protocol = told
    assert Desk(pair).inspect().ha_protocol == known


def test_deleted_files_of_our_own_are_not_looked_for(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=100, theirs=4, ours=2)
    for start in (0, FILE_SIZE):
        pair.own.path(start).unlink()
    pair.own_min = pair.page.counters[MIN_PHY_OFFSET] = 2 * FILE_SIZE
    result = Desk(pair).inspect()
    assert (result.verdict, result.common_offset) == (Verdict.DIVERGED, pair.common_end)


# -- a master that is not there ----------------------------------------------------------------


def test_a_restarted_name_server_does_not_hide_the_master_of_before(tmp_path: Path) -> None:
    """It names none until the master has registered again; RocketMQ's slave stays with it, too."""
    desk = Desk(ReplicaPair(tmp_path, common=3))
    desk.inspector.set_master(None, HA)
    assert desk.inspect().verdict is Verdict.GO
    assert desk.inspect().master_address == MASTER
    assert desk.inspector.master_address is None, "for others there is none"
    desk.inspector.set_master(None, "10.0.0.77:10912")
    assert desk.inspect().verdict is Verdict.WAIT


def test_no_address(tmp_path: Path) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=3))
    desk.inspector.set_master(None, None)
    result = desk.inspect()
    assert (result.verdict, result.ha_address) == (Verdict.WAIT, None)
    assert "haMasterAddress is not set" in result.text
    desk.inspector.set_master(MASTER, HA)
    assert desk.inspect().verdict is Verdict.GO


@pytest.mark.parametrize("fixed", [None, OWN[1]])
def test_our_own_address(tmp_path: Path, fixed: str | None) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=3))
    if fixed is None:
        desk.inspector.set_master(OWN[0], OWN[1])
    result = desk.inspect(fixed)
    assert result.verdict is Verdict.WAIT
    assert "is this broker's own" in result.text
    desk.inspector.set_master(OWN[0], HA)
    assert desk.inspector.master_address is None
    assert desk.inspect().verdict is Verdict.WAIT


def test_a_learnt_master_that_is_silent_is_waited_for(tmp_path: Path) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=3))
    desk.pair.master.is_silent = True
    for _ in range(2):
        result = desk.inspect()
        assert (result.verdict, result.ha_address) == (Verdict.WAIT, HA)
        assert f"{MASTER} does not respond" in result.text
        desk.clock.advance(20_000)


def test_a_fixed_address_wins(tmp_path: Path) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=3))
    assert desk.inspect("10.0.0.9:1").ha_address == "10.0.0.9:1"
    assert desk.inspect("short").ha_address == HA


def test_a_silent_master_is_not_followed_blindly_at_a_fixed_address(tmp_path: Path) -> None:
    """After a failover its successor listens there, and may lack what the local log has: mqchaos,
    seed 56002."""
    desk = Desk(ReplicaPair(tmp_path, common=3))
    desk.pair.master.is_silent = True
    for count in (1, 2):
        assert desk.inspect("10.0.0.9:1").verdict is Verdict.WAIT
        assert len(desk.silences) == count
        desk.clock.advance(60_000)
    desk.pair.master.is_silent = False
    assert desk.inspect("10.0.0.9:1").verdict is Verdict.GO
    assert len(desk.silences) == 2


def test_without_a_registered_master_a_fixed_address_is_not_followed_blindly(
    tmp_path: Path,
) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=3))
    desk.inspector.set_master(None, None)
    for _ in range(2):
        result = desk.inspect("10.0.0.9:1")
        assert (result.verdict, "no master is registered" in result.text) == (Verdict.WAIT, True)
        desk.clock.advance(60_000)


def test_without_name_servers_a_fixed_address_needs_no_answer(tmp_path: Path) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=3))
    desk.has_name_servers = False
    desk.inspector.set_master(None, None)
    assert desk.inspect("10.0.0.9:1").verdict is Verdict.WAIT
    desk.clock.advance(2_999)
    assert desk.inspect("10.0.0.9:1").verdict is Verdict.WAIT
    desk.clock.advance(1)
    result = desk.inspect("10.0.0.9:1")
    assert (result.verdict, result.ha_address) == (Verdict.GO, "10.0.0.9:1")
    assert result.start_offset == desk.pair.own_max
    assert "not compared" in result.text


def test_an_empty_slave_waits_a_while_for_a_fixed_master(tmp_path: Path) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=0, theirs=9))
    desk.inspector.set_master(None, None)
    assert desk.inspect(HA).verdict is Verdict.WAIT
    desk.clock.advance(9_999)
    assert desk.inspect(HA).verdict is Verdict.WAIT
    desk.clock.advance(1)
    result = desk.inspect(HA)
    assert (result.verdict, result.start_offset) == (Verdict.GO, 0)
    desk.inspector.set_master(MASTER, HA)
    assert desk.inspect(HA).verdict is Verdict.START_AT
    desk.pair.master.is_silent = True
    assert desk.inspect(HA).verdict is Verdict.WAIT


@pytest.mark.parametrize("code", [28, 33])
def test_a_master_with_access_control_is_not_compared(tmp_path: Path, code: int) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=3, ours=1, theirs=5))
    desk.pair.master.refusal = "AclException: no accessKey is configured"
    desk.pair.master.refuses = (code,)
    assert desk.inspect().verdict is Verdict.WAIT, "it may have booted just now"
    desk.clock.advance(10_000)
    result = desk.inspect()
    assert result.verdict is Verdict.GO
    assert "AclException" in result.text
    assert "not compared" in result.text


@pytest.mark.parametrize("fixed", [None, HA])
@pytest.mark.parametrize("after", range(6))
def test_silence_in_the_midst_is_never_a_go(tmp_path: Path, fixed: str | None, after: int) -> None:
    pair = ReplicaPair(tmp_path, common=60, ours=4, theirs=30)
    desk = Desk(pair)
    assert desk.inspect(fixed).verdict is Verdict.DIVERGED
    assert len(pair.master.asked) > after + 1
    pair.master.asked.clear()
    pair.master.silent_after = after + 1
    result = desk.inspect(fixed)
    assert result.verdict is Verdict.WAIT


def test_a_refusal_in_the_midst_is_never_a_go(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=60, ours=40)
    pair.master.refusal, pair.master.refuses = "busy", (33,)
    result = Desk(pair).inspect()
    assert result.verdict is Verdict.WAIT
    assert "bytes after the master's" in result.text
