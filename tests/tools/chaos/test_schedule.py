"""tools.chaos.schedule: the same seed gives the same faults, within the run's length."""

from __future__ import annotations

import itertools

import pytest

from tools.chaos.schedule import (
    BOTH,
    CLOCK_STEPS_MS,
    DISK_FAULTS,
    LINK_FAULTS,
    POWER_CUTS,
    ROUND_TRIPS_MS,
    FaultKind,
    make_schedule,
)

ALL = list(FaultKind)
NINE = ALL[:9]


def test_a_seed_is_a_schedule() -> None:
    first = make_schedule(5, 60, NINE, has_slave=True)
    assert first == make_schedule(5, 60, NINE, has_slave=True)
    assert first != make_schedule(6, 60, NINE, has_slave=True)
    assert [fault.text() for fault in first[:2]] == [
        "   1.12 s  cut link for 1.47 s",
        "   4.27 s  kill ha of master for 0.63 s",
    ]


def test_faults_follow_each_other_and_end_in_time() -> None:
    for seed in range(200):
        faults = make_schedule(seed, 20, ALL, has_slave=True)
        assert faults
        for before, after in itertools.pairwise(faults):
            assert before.at_s + before.lasts_s < after.at_s
        assert faults[-1].at_s + faults[-1].lasts_s <= 19.5


def test_every_kind_and_target_comes_up() -> None:
    faults = [f for seed in range(100) for f in make_schedule(seed, 20, ALL, has_slave=True)]
    assert {fault.kind for fault in faults} == set(ALL)
    assert {fault.broker for fault in faults} == {"master", "slave", "link", BOTH}
    assert {fault.kind for fault in faults if fault.broker == BOTH} == POWER_CUTS
    killed = {fault.process for fault in faults if fault.kind is FaultKind.KILL}
    assert killed == {"store", "remoting", "ha", "supervisor"}
    stopped = {fault.process for fault in faults if fault.kind is FaultKind.STOP}
    assert stopped == {"store", "remoting", "ha"}
    details = {(fault.kind, fault.detail) for fault in faults if fault.detail}
    assert details == {
        (FaultKind.FSYNC_ERROR, "/commitlog/"),
        (FaultKind.FSYNC_ERROR, "/consumequeue/"),
        (FaultKind.FSYNC_ERROR, "/checkpoint"),
        (FaultKind.SLOW_FSYNC, "2"),
        (FaultKind.FULL_DISK, "full_disk"),
        (FaultKind.FULL_DISK, "short_space"),
        (FaultKind.TORN_TAIL, "cut"),
        (FaultKind.TORN_TAIL, "garble"),
        *((FaultKind.PROMOTE, link) for link in ("slow", "partition", "cut", "one_way")),
        *(
            (FaultKind.MASTER_LOST, link)
            for link in ("slow", "partition", "one_way_log", "one_way", "cut")
        ),
    }


def test_syncs_are_slower_than_the_broker_waits_where_there_is_time() -> None:
    kinds = [FaultKind.SLOW_FSYNC]
    faults = [f for seed in range(9) for f in make_schedule(seed, 60, kinds, has_slave=True)]
    assert {fault.detail for fault in faults} == {"10"}
    assert min(fault.lasts_s for fault in faults) > 10


def test_amounts_and_targets() -> None:
    kinds = [FaultKind.LOSSY, FaultKind.CLOCK_JUMP, FaultKind.FD_EXHAUSTION, FaultKind.PROMOTE]
    faults = [f for seed in range(100) for f in make_schedule(seed, 20, kinds, has_slave=True)]
    amounts = {kind: {f.amount_ms for f in faults if f.kind is kind} for kind in kinds}
    assert amounts == {
        FaultKind.LOSSY: set(ROUND_TRIPS_MS),
        FaultKind.CLOCK_JUMP: set(CLOCK_STEPS_MS),
        FaultKind.FD_EXHAUSTION: {0},
        FaultKind.PROMOTE: {0},
    }
    exhausted = {(f.broker, f.process) for f in faults if f.kind is FaultKind.FD_EXHAUSTION}
    assert exhausted == {("master", "remoting"), ("master", "ha"), ("slave", "remoting")}
    assert {f.broker for f in faults if f.kind is FaultKind.PROMOTE} == {"master"}
    jump = next(f for f in faults if f.amount_ms == -3_600_000)
    assert f"clock_jump -3,600,000 ms {jump.broker} for" in jump.text()


def test_without_a_slave_there_is_no_link() -> None:
    faults = [f for seed in range(50) for f in make_schedule(seed, 20, ALL, has_slave=False)]
    kinds = {fault.kind for fault in faults}
    assert not kinds & {*LINK_FAULTS, FaultKind.ROT, FaultKind.MASTER_LOST}
    assert kinds >= DISK_FAULTS - {FaultKind.ROT}
    assert {fault.broker for fault in faults} == {"master"}
    with pytest.raises(ValueError, match="--replication"):
        make_schedule(1, 20, sorted(LINK_FAULTS), has_slave=False)
