"""What a master's acks answer, at each setting: judged by who has the bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.failover.messages import LogEnds, ReplicaConnected
from broker.failover.settings import MemberSettings
from broker.failover.sync_state import SyncState
from remoting.response_code import ResponseCode

WEAK = MemberSettings("C", "cb", "b1")
SAFE = replace(WEAK, all_ack_in_sync_state_set=True, min_in_sync_replicas=2)
LOG = LogEnds(100, 90)


def _state(settings: MemberSettings, members: set[int]) -> SyncState:
    """Of broker 1; slaves 2 and 3 are connected and have 80 and 40."""
    state = SyncState(settings, 1, 0)
    state.learned(frozenset(members), 5)
    for broker_id, ack in ((2, 80), (3, 40)):
        state.connected(ReplicaConnected(broker_id, broker_id), 0, LOG)
        state.reported(broker_id, ack, 0, LOG)
    return state


@pytest.mark.parametrize(
    ("settings", "members", "answered"),
    [
        (SAFE, {1, 2, 3}, 40),
        (SAFE, {1, 2}, 80),
        (SAFE, {1}, 7),
        (SAFE, {1, 4}, 7),
        (replace(SAFE, min_in_sync_replicas=1), {1}, 90),
        (WEAK, {1, 2, 3}, 90),
        (replace(WEAK, in_sync_replicas=2), {1}, 80),
        (replace(WEAK, in_sync_replicas=3), {1}, 40),
        (replace(WEAK, in_sync_replicas=4), {1}, 7),
    ],
)
def test_up_to_where_sends_are_answered(
    settings: MemberSettings, members: set[int], answered: int
) -> None:
    """7 is what was answered before; 90 what the master has flushed."""
    assert _state(settings, members).acknowledged_offset(LOG, 7) == answered


@pytest.mark.parametrize(
    ("settings", "members", "read"),
    [
        (SAFE, {1, 2, 3}, 40),
        (SAFE, {1, 2}, 80),
        (SAFE, {1, 4}, 7),
        (SAFE, {1}, 90),
        (WEAK, {1, 2}, 90),
    ],
)
def test_up_to_where_consumers_read(settings: MemberSettings, members: set[int], read: int) -> None:
    """In the safe mode what every member has; 7 is what was read before."""
    assert _state(settings, members).confirm_offset(LOG, 7) == read


def test_two_connections_of_one_slave_are_one_replica() -> None:
    """RocketMQ counts connections: one slave with two would satisfy inSyncReplicas=3."""
    state = SyncState(replace(WEAK, in_sync_replicas=3), 1, 0)
    for connection in (1, 2):
        state.connected(ReplicaConnected(connection, 2), 0, LOG)
        state.reported(connection, 80, 0, LOG)
    assert state.acknowledged_offset(LOG, 7) == 7


def test_a_learner_gets_everything_and_never_joins() -> None:
    state = SyncState(SAFE, 1, 0)
    state.connected(ReplicaConnected(1, 2, async_learner=True), 0, LOG)
    state.reported(1, 100, 0, LOG)
    assert state.wanted(0, LOG, 0, tries_again=True) == {1}
    state.connected(ReplicaConnected(2, 3), 0, LOG)
    state.reported(2, 100, 0, LOG)
    assert state.wanted(0, LOG, 0, tries_again=True) == {1, 3}


def test_a_report_beyond_the_log_counts_up_to_its_end() -> None:
    state = _state(SAFE, {1, 2})
    state.reported(2, 1 << 62, 0, LOG)
    assert state.acks[2] == 100


def test_what_is_unsettled_counts_until_a_newer_set() -> None:
    state = _state(SAFE, {1, 2})
    state.asked(9, frozenset((1, 2, 3)))
    assert state.acknowledged_offset(LOG, 7) == 40
    state.learned(frozenset((1, 2)), 5)
    assert state.unsettled, "the same epoch settles nothing"
    state.learned(frozenset((1, 2)), 6)
    assert not state.unsettled
    assert state.acknowledged_offset(LOG, 7) == 80


def test_a_slave_that_leaves_while_it_is_asked_in() -> None:
    """Both sets may come into force until the controller has answered: RocketMQ counted by the
    newer one alone, and answered sends that a member of the other did not have."""
    state = _state(SAFE, {1, 3})
    state.asked(9, frozenset((1, 2, 3)))
    state.gone(2)
    assert state.wanted(0, LOG, 40, tries_again=True) == {1, 3}
    state.asked(10, frozenset((1, 3)))
    for _ in range(2):
        assert state.all_members() == {1, 2, 3}
        assert state.acknowledged_offset(LOG, 7) == 7, "2 may be elected, and has 7 only for sure"
        assert state.confirm_offset(LOG, 7) == 7
        state.failed(10, ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH)
    state.learned(frozenset((1, 2, 3)), 6)
    state.asked(11, frozenset((1, 3)))
    assert state.acknowledged_offset(LOG, 7) == 7
    state.learned(frozenset((1, 3)), 7)
    assert (state.acknowledged_offset(LOG, 7), state.confirm_offset(LOG, 7)) == (40, 40)


def test_an_old_connection_that_ends_late_takes_nobody_out() -> None:
    """It is the slave's: the connection that replaced it was there before."""
    state = _state(SAFE, {1, 2})
    state.connected(ReplicaConnected(12, 2), 0, LOG)
    state.reported(12, 90, 0, LOG)
    state.gone(2)
    assert state.wanted(0, LOG, 40, tries_again=False) >= {1, 2}
    assert state.acknowledged_offset(LOG, 7) == 90
    state.reported(2, 100, 0, LOG)
    assert state.acks[2] == 90, "and what it reported counts no more"
    state.gone(12)
    assert 2 not in state.wanted(0, LOG, 40, tries_again=False)
    assert state.acknowledged_offset(LOG, 7) == 7
