"""tools.chaos.schedule: the same seed gives the same faults, within the run's length."""

from __future__ import annotations

import itertools

import pytest

from tools.chaos.schedule import LINK_FAULTS, FaultKind, make_schedule

ALL = list(FaultKind)


def test_a_seed_is_a_schedule() -> None:
    first = make_schedule(5, 60, ALL, has_slave=True)
    assert first == make_schedule(5, 60, ALL, has_slave=True)
    assert first != make_schedule(6, 60, ALL, has_slave=True)
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
    assert {fault.broker for fault in faults} == {"master", "slave", "link"}
    killed = {fault.process for fault in faults if fault.kind is FaultKind.KILL}
    assert killed == {"store", "remoting", "ha", "supervisor"}
    stopped = {fault.process for fault in faults if fault.kind is FaultKind.STOP}
    assert stopped == {"store", "remoting", "ha"}


def test_without_a_slave_there_is_no_link() -> None:
    faults = [f for seed in range(50) for f in make_schedule(seed, 20, ALL, has_slave=False)]
    assert not {fault.kind for fault in faults} & LINK_FAULTS
    assert {fault.broker for fault in faults} == {"master"}
    with pytest.raises(ValueError, match="--replication"):
        make_schedule(1, 20, sorted(LINK_FAULTS), has_slave=False)
