"""tools.chaos.promotion: what a lost master's consumer has seen, and what its offsets promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.chaos.ack_log import SEND_OK, Ack, AckLog, make_body
from tools.chaos.chaos_options import ChaosOptions
from tools.chaos.disk_faults import DiskBreaker, DiskLosses, PowerCut
from tools.chaos.promotion import CommittedOffsets, cut_seen
from tools.chaos.schedule import FaultKind

NOT_ON_THE_SLAVE = 12


def acks(*codes: int) -> list[Ack]:
    """Of queue 0, by offset."""
    return [Ack(0, at, 0, at, code) for at, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("codes", "now", "kept"),
    [
        ((SEND_OK, SEND_OK, SEND_OK), b"abc", b"abc"),
        ((SEND_OK, SEND_OK, NOT_ON_THE_SLAVE), b"ab", b"ab"),
        ((SEND_OK, SEND_OK), b"abx", b"ab"),
        ((SEND_OK, NOT_ON_THE_SLAVE, NOT_ON_THE_SLAVE), b"axc", b"a"),
        ((SEND_OK, NOT_ON_THE_SLAVE, NOT_ON_THE_SLAVE), b"abcd", b"abc"),
        # Lost though acknowledged: the follower keeps it, so that it is judged.
        ((SEND_OK, SEND_OK, NOT_ON_THE_SLAVE), b"axy", b"ab"),
    ],
)
def test_what_was_not_acknowledged_may_be_replaced(
    codes: tuple[int, ...], now: bytes, kept: bytes
) -> None:
    seen = {0: [b"%c" % each for each in b"abc"], 1: []}
    held = {0: [b"%c" % each for each in now]}
    assert cut_seen(seen, acks(*codes), held) == {0: [b"%c" % each for each in kept], 1: []}


@pytest.fixture
def offsets() -> Iterator[CommittedOffsets]:
    """Whose thread finds nobody to commit to."""
    made = CommittedOffsets(lambda: ("127.0.0.1", 1), lambda: 0)
    yield made
    made.stop()


def test_what_a_lost_master_took_last_is_not_promised_later(offsets: CommittedOffsets) -> None:
    offsets._commits[:] = [(1.0, 10), (2.0, 20), (3.0, 30)]
    assert [offsets.as_of(at) for at in (0.5, 2.0, 9.0)] == [0, 20, 30]
    offsets.forget_since(2.5)
    assert offsets.as_of(9.0) == 20


def options(**changes: object) -> ChaosOptions:
    standard: dict[str, object] = {
        "seconds": 3.0,
        "kinds": [FaultKind.PROMOTE, FaultKind.POWER_CUT],
        "flush": "sync",
        "replication": "sync",
        "ack_level": "flushed",
        "rate": 800.0,
    }
    return ChaosOptions(**{**standard, **changes})  # type: ignore[arg-type]


def test_disks_may_fail_where_what_they_cost_is_known() -> None:
    for changes in ({}, {"flush": "async"}, {"ack_level": "validated"}):
        options(**changes).check()
    with pytest.raises(ValueError, match="disk faults are for one slave"):
        options(slaves=2).check()


def test_what_a_cut_slave_lacked_when_it_was_promoted(tmp_path: Path) -> None:
    """What was answered in good time before the cut stays promised, and what has its place."""
    log = AckLog(tmp_path / "acks.log")
    bodies = [make_body(0, n, 40) for n in range(4)]
    answered = [Ack(0, n, 0, n, SEND_OK, answered_s=at) for n, at in enumerate((80, 98, 99, 99))]
    for ack in answered:
        log.answered(ack)
    breaker = object.__new__(DiskBreaker)
    breaker._acks = log
    breaker.losses = DiskLosses(cuts=[PowerCut(100.0, takes_all=True)])
    breaker.forget_lost({0: [bodies[3], bodies[1], bodies[3]]})
    assert log.acks == answered[:2]
    assert breaker.losses.codes == {SEND_OK: 2}
    log.close()


def test_how_many_have_what_is_answered_send_ok() -> None:
    kinds = [FaultKind.STOP]
    assert options(kinds=kinds).in_sync_replicas == 2
    assert options(kinds=kinds, slaves=2).in_sync_replicas == 3
    assert options(kinds=[FaultKind.PROMOTE], slaves=2).in_sync_replicas == 2
    assert options(kinds=kinds, replication="async").in_sync_replicas == 1
    assert options(kinds=kinds, slaves=2, in_sync=2).in_sync_replicas == 2
    with pytest.raises(ValueError, match="in_sync is 4: it counts the master"):
        options(kinds=kinds, slaves=2, in_sync=4).check()
