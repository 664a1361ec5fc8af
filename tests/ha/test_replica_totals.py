"""ha.replica_totals: what is counted of one replica."""

from __future__ import annotations

from ha.refusals import RefusalReason
from ha.replica_clock import ReplicaClock
from ha.replica_totals import ReplicaTotals, TotalsNow
from ha.slave_progress import ReplicaState


def before(**state_ms: int) -> TotalsNow:
    return TotalsNow(
        transferred=500,
        reconnects=3,
        rejected_acks={RefusalReason.DECREASING: 1},
        state_ms={state: state_ms.get(state.value, 0) for state in ReplicaState},
    )


def test_the_first_connection_is_no_reconnect() -> None:
    totals = ReplicaTotals(ReplicaClock(0))
    seen = []
    for _ in range(3):
        totals.connect()
        seen.append(totals.now().reconnects)
    assert seen == [0, 1, 2]


def test_it_goes_on_from_what_a_predecessor_counted() -> None:
    totals = ReplicaTotals(ReplicaClock(0), before(catching_up=1))
    totals.connect()
    totals.reject_ack(RefusalReason.DECREASING)
    totals.reject_ack(RefusalReason.NEGATIVE)
    totals.transferred += 7
    now = totals.now()
    assert (now.transferred, now.reconnects) == (507, 4)
    assert now.rejected_acks == {RefusalReason.DECREASING: 2, RefusalReason.NEGATIVE: 1}


def test_who_was_only_missed_until_now_connects_for_the_first_time() -> None:
    totals = ReplicaTotals(ReplicaClock(0), before(disconnected=10_000))
    totals.connect()
    assert totals.now().reconnects == 3


def test_the_same_replica_under_a_worse_id() -> None:
    named, by_ip = (ReplicaTotals(ReplicaClock(0)) for _ in range(2))
    named.connect()
    named.transferred = 100
    by_ip.connect()
    by_ip.transferred = 20
    by_ip.reject_ack(RefusalReason.BEYOND_SENT)
    by_ip.clock.observe(ReplicaState.in_sync, 500)
    named.absorb(by_ip)
    now = named.now()
    assert (now.transferred, now.reconnects) == (120, 1)
    assert now.rejected_acks == {RefusalReason.BEYOND_SENT: 1}
    assert sum(now.state_ms.values()) == 0, "that time was counted here already"


def test_a_named_one_that_never_was_here_absorbs_the_first_connection() -> None:
    named, by_ip = (ReplicaTotals(ReplicaClock(0)) for _ in range(2))
    by_ip.connect()
    named.absorb(by_ip)
    assert named.now().reconnects == 0
    named.connect()
    assert named.now().reconnects == 1


def test_connected_time_is_all_but_disconnected() -> None:
    assert before(in_sync=5, catching_up=2, disconnected=9).connected_ms == 7
