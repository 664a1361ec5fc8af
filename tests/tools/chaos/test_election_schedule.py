"""Faults of a group with controllers, planned from a seed."""

from __future__ import annotations

import pytest

from tools.chaos.election_schedule import ElectionFault, plan_faults


def test_the_same_seed_gives_the_same_faults() -> None:
    kinds = list(ElectionFault)
    assert plan_faults(7, 5, kinds, 3.0) == plan_faults(7, 5, kinds, 3.0)
    assert plan_faults(7, 5, kinds, 3.0) != plan_faults(8, 5, kinds, 3.0)
    assert plan_faults(7, 5, kinds, 3.0)[:3] == plan_faults(7, 3, kinds, 3.0)


def test_every_kind_comes_and_its_values_fit() -> None:
    faults = [each for seed in range(300) for each in plan_faults(seed, 3, list(ElectionFault), 3)]
    assert {fault.kind for fault in faults} == set(ElectionFault)
    for fault in faults:
        assert 0.3 <= fault.pause_s <= 1.3
        assert 0.2 <= fault.lasts_s <= 6
        assert bool(fault.process) == ("process" in fault.kind)
        assert bool(fault.amount_ms) == (fault.kind is ElectionFault.CLOCK_JUMP)
        assert fault.kind in fault.text()
    stops = [fault.lasts_s for fault in faults if fault.kind is ElectionFault.STOP_MASTER]
    # Some end before anybody notices, most last until another master is elected.
    assert min(stops) < 2.5 < 4.5 < max(stops)
    supervisors = {fault.kind for fault in faults if fault.process == "supervisor"}
    assert supervisors == {ElectionFault.KILL_PROCESS, ElectionFault.KILL_SLAVE_PROCESS}


def test_no_kind_is_left() -> None:
    with pytest.raises(ValueError, match="no kind of fault is left"):
        plan_faults(1, 1, [], 3.0)
