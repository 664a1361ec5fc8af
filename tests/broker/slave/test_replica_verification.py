"""broker.slave.replica_verification: a slave's claim, checked against what it really holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.slave.group_members import MemberAddress
from broker.slave.replica_verification import ReplicaVerification
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from store.control_slots import MIN_PHY_OFFSET
from tests.broker.replica_pair import MASTER, FakeMaster, ReplicaPair
from tests.support.manual_clock import ManualClock

IP = MASTER.rpartition(":")[0]
SLAVES = pytest.mark.parametrize("java", [False, True], ids=["ours", "java"])


class Desk:
    """The pair's roles reversed: `own` is the master's log, `theirs` that of the slave at MASTER.

    Stands for RemotingClient and StoreAccess."""

    def __init__(self, pair: ReplicaPair) -> None:
        self.pair = pair
        self.clock = ManualClock()
        self.members: list[MemberAddress] | None = [MemberAddress(1, MASTER)]
        self.others: dict[str, FakeMaster] = {}
        self.asked: list[str] = []
        self.hints: list[int] = []
        self.verifier = ReplicaVerification(
            lambda: self.members, self, pair.reader, self, self.clock
        )

    def invoke_sync(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        self.asked.append(address)
        if address not in (MASTER, *self.others):
            self.clock.advance(max(timeout_ms, 0))
            raise RemotingConnectError(address, "refused")
        slave = self.others.get(address, self.pair.master)
        return slave.invoke_sync(MASTER, command, timeout_ms)

    def queues(self) -> Iterator[tuple[str, int]]:
        return iter([("T0", 0)])

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        return 0, len(self._units())

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        offset, record = self._units()[queue_offset]
        self.hints.append(offset)
        return offset, len(record), 0

    def _units(self) -> list[tuple[int, bytes]]:
        return self.pair.own.records

    def verify(self, offset: int, ip: str = IP) -> bool | None:
        verified: bool | None = self.verifier.handle({"ip": ip, "offset": offset})["verified"]
        return verified


@SLAVES
def test_a_slave_that_tells_the_truth(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=100, ours=20, java=java)
    desk = Desk(pair)
    assert desk.verify(pair.common_end) is True
    last, record = pair.master.log.records[-1]
    assert pair.master.asked == [last]
    assert last + len(record) == pair.common_end
    assert len(desk.hints) <= 8, "searched, not walked"


@SLAVES
def test_one_that_has_more_by_now(tmp_path: Path, java: bool) -> None:
    """Its own log went on after the report; and it may stop within a record."""
    pair = ReplicaPair(tmp_path, common=100, java=java)
    for offset, record in pair.own.records[-5:]:
        assert Desk(pair).verify(offset) is True
        assert Desk(pair).verify(offset + len(record) // 2) is True


@SLAVES
def test_a_log_of_another_masters(tmp_path: Path, java: bool) -> None:
    """It is as long, and its end even is the beginning of a record of ours."""
    pair = ReplicaPair(tmp_path, common=60, ours=30, theirs=40, java=java)
    desk = Desk(pair)
    for offset, _record in pair.own.records[62:]:
        assert desk.verify(offset) is False
    assert desk.verify(pair.common_end) is True


@SLAVES
def test_one_that_claims_more_than_it_has(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=60, ours=3, java=java)
    assert Desk(pair).verify(pair.common_end + 1) is False
    assert pair.master.asked == [], "its bounds say it"


def test_a_claim_beyond_our_end(tmp_path: Path) -> None:
    """Process ha refuses that by itself; here only the bytes count."""
    pair = ReplicaPair(tmp_path, common=60, theirs=3)
    assert Desk(pair).verify(pair.master.max_offset) is True


def test_an_empty_slave_claims_nothing(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=0, ours=30)
    desk = Desk(pair)
    assert desk.verify(0) is True
    assert desk.verify(1) is False
    pair.master.max_override = 1
    assert desk.verify(1) is True


@pytest.mark.parametrize("members", [None, [], [MemberAddress(1, "10.9.9.9:10911")]])
def test_nobody_to_ask(tmp_path: Path, members: list[MemberAddress] | None) -> None:
    pair = ReplicaPair(tmp_path, common=10)
    desk = Desk(pair)
    desk.members = members
    assert desk.verify(pair.common_end) is None
    assert desk.asked == []


def test_a_master_is_no_slave(tmp_path: Path) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=10))
    desk.members = [MemberAddress(0, MASTER)]
    assert desk.verify(5) is None


def test_one_that_cannot_be_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    pair = ReplicaPair(tmp_path, common=10)
    desk = Desk(pair)
    pair.master.is_silent = True
    assert desk.verify(pair.common_end) is None
    assert f"slave 1 at {MASTER} does not respond" in caplog.text
    pair.master.is_silent = False
    for codes in ((28,), (33,)):
        pair.master.refusal, pair.master.refuses = "No accessKey is configured", codes
        assert desk.verify(pair.common_end) is None
    assert "accessKey" in caplog.text


def test_one_that_has_deleted_what_would_be_compared(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=60)
    pair.master.min_offset = pair.own.records[-1][0] + 1
    assert Desk(pair).verify(pair.common_end) is None


def test_what_we_have_deleted_is_not_compared(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=60)
    pair.page.counters[MIN_PHY_OFFSET] = pair.own.file_size
    assert Desk(pair).verify(pair.own.file_size - 50) is True
    assert pair.master.asked == []


def test_several_on_one_host(tmp_path: Path) -> None:
    """One that fits is enough; one that differs outweighs one that is silent."""
    pair = ReplicaPair(tmp_path / "a", common=60, ours=30, theirs=40)
    good = ReplicaPair(tmp_path / "b", common=60, ours=30)
    silent, fits = f"{IP}:10921", f"{IP}:10931"
    desk = Desk(pair)
    end = pair.own.end
    desk.members = [MemberAddress(1, silent), MemberAddress(2, MASTER)]
    assert desk.verify(end) is False
    desk.others[fits] = FakeMaster(good.own)
    desk.members.append(MemberAddress(3, fits))
    assert desk.verify(end) is True
    desk.members = [MemberAddress(1, silent), MemberAddress(4, f"{IP}:10941")]
    assert desk.verify(end) is None


def test_silent_ones_share_the_time(tmp_path: Path) -> None:
    desk = Desk(ReplicaPair(tmp_path, common=10))
    desk.members = [MemberAddress(n, f"{IP}:{20_000 + n}") for n in range(1, 9)]
    before_ms = desk.clock.monotonic_ms()
    assert desk.verify(5) is None
    assert desk.clock.monotonic_ms() - before_ms <= 6_000
