"""broker.slave.pre_online: every step of a broker that starts isolated, and RocketMQ's traps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.slave.group_members import MemberAddress
from broker.slave.pre_online import (
    TRY_MS,
    ComeOnline,
    Isolation,
    Link,
    Pause,
    PreOnline,
    Seen,
    Step,
    TakeBack,
    Tell,
    linked_replicas,
)

MASTER = MemberAddress(0, "10.0.0.1:10911")
FIRST = MemberAddress(1, "10.0.0.2:10911")
SECOND = MemberAddress(2, "10.0.0.3:10911")
WAIT_MS = 60_000


def next_step(
    own: MemberAddress, state: Isolation, now_ms: int = 0, wait_ms: int = WAIT_MS, **seen: object
) -> Step:
    return PreOnline(own, wait_ms).next_step(
        state,
        Seen(now_ms=now_ms, **seen),  # type: ignore[arg-type]
    )


def told(member: MemberAddress, at_ms: int = 0, *settled: MemberAddress) -> Isolation:
    return Isolation(since_ms=0, told=member, told_ms=at_ms, settled=frozenset(settled))


FRESH = Isolation(since_ms=0)

# -- both roles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [MASTER, FIRST])
def test_no_name_server_answers(own: MemberAddress) -> None:
    assert next_step(own, FRESH, members=None) == Pause(None)
    assert next_step(own, FRESH, WAIT_MS - 1, members=None) == Pause(None)
    step = next_step(own, FRESH, WAIT_MS, members=None)
    assert step == ComeOnline(own.broker_id, own.address, (), waited_in_vain=True)
    assert next_step(own, FRESH, 10**9, wait_ms=0, members=None) == Pause(None)


@pytest.mark.parametrize("own", [MASTER, FIRST])
def test_nobody_else_is_registered(own: MemberAddress) -> None:
    """A lone slave records itself as the smallest id, and so acts [captured]."""
    assert next_step(own, FRESH, members=[]) == ComeOnline(own.broker_id, own.address)


@pytest.mark.parametrize(
    "left",
    [MASTER, MemberAddress(0, "10.9.9.9:1"), MemberAddress(5, MASTER.address)],
    ids=["itself", "its id elsewhere", "its address with another id"],
)
def test_a_killed_master_that_is_still_registered_does_not_wait_for_itself(
    left: MemberAddress,
) -> None:
    assert next_step(MASTER, FRESH, members=[left]) == ComeOnline(0, MASTER.address)
    assert next_step(MASTER, FRESH, members=[left, FIRST]) == Tell(FIRST, again=False)


def test_ids_that_no_broker_has_are_passed_over() -> None:
    odd = MemberAddress(-1, "10.0.0.9:10911")
    assert next_step(FIRST, FRESH, members=[odd]) == ComeOnline(1, FIRST.address)


# -- master ---------------------------------------------------------------------------------------


def test_a_master_takes_back_from_each_replica_in_the_order_of_ids() -> None:
    members = [SECOND, FIRST]
    rules, state, steps = PreOnline(MASTER, WAIT_MS), FRESH, []
    linked: set[MemberAddress] = set()
    for now_ms in range(0, 7_000, 1_000):
        step = rules.next_step(state, Seen(now_ms=now_ms, members=members, linked=linked))
        steps.append(step)
        match step:
            case Tell(member):
                state = rules.told(state, member, now_ms)
            case Pause(member):
                assert member is not None
                linked.add(member)
            case TakeBack(member):
                state = rules.settled(state, member)
    assert steps == [
        *(Tell(FIRST, again=False), Pause(FIRST), TakeBack(FIRST)),
        *(Tell(SECOND, again=False), Pause(SECOND), TakeBack(SECOND)),
        ComeOnline(0, MASTER.address),
    ]


def test_a_replica_is_told_before_its_link_counts() -> None:
    """A link from before may follow another broker's address of this id: 906 comes first."""
    assert next_step(MASTER, FRESH, members=[FIRST], linked=[FIRST]) == Tell(FIRST, again=False)


def test_the_link_of_one_replica_is_not_that_of_another() -> None:
    assert next_step(MASTER, told(FIRST), members=[FIRST, SECOND], linked=[SECOND]) == Pause(FIRST)


def test_a_replica_that_does_not_connect_is_told_again_every_ten_seconds() -> None:
    state = told(FIRST, at_ms=5)
    assert next_step(MASTER, state, TRY_MS + 4, members=[FIRST]) == Pause(FIRST)
    assert next_step(MASTER, state, TRY_MS + 5, members=[FIRST]) == Tell(FIRST, again=True)


def test_a_registered_replica_that_cannot_connect_keeps_its_master_away_for_a_time_only() -> None:
    """RocketMQ: for ever."""
    state = told(SECOND, 59_000, FIRST)
    members = [FIRST, SECOND]
    assert next_step(MASTER, state, WAIT_MS - 1, members=members) == Pause(SECOND)
    step = next_step(MASTER, state, WAIT_MS, members=members)
    assert step == ComeOnline(0, MASTER.address, (SECOND,), waited_in_vain=True)
    never = next_step(MASTER, state, 10**9, wait_ms=0, members=members)
    assert never == Tell(SECOND, again=True)


def test_any_number_of_registered_strangers_costs_one_wait() -> None:
    strangers = [MemberAddress(n, f"10.1.{n // 200}.{n % 200}:1") for n in range(1, 2_000)]
    step = next_step(MASTER, told(strangers[0]), WAIT_MS, members=strangers)
    assert isinstance(step, ComeOnline)
    assert len(step.missing) == len(strangers)


def test_a_replica_that_name_servers_have_dropped_is_not_waited_for() -> None:
    assert next_step(MASTER, told(FIRST), members=[]) == ComeOnline(0, MASTER.address)
    assert next_step(MASTER, told(FIRST), members=[SECOND]) == Tell(SECOND, again=False)


def test_who_was_asked_is_not_asked_again_though_the_list_is_fetched_anew() -> None:
    """Not by a place in the list: RocketMQ's index skips whoever has moved up to it."""
    state = Isolation(since_ms=0, settled=frozenset({FIRST}))
    third = MemberAddress(3, "10.0.0.4:10911")
    assert next_step(MASTER, state, members=[SECOND, third]) == Tell(SECOND, again=False)
    moved = replace(FIRST, address="10.0.0.9:10911")
    assert next_step(MASTER, state, members=[moved]) == Tell(moved, again=False)


# -- slave ----------------------------------------------------------------------------------------


def test_a_slave_follows_before_it_comes_online() -> None:
    members = [MASTER, SECOND]
    assert next_step(FIRST, FRESH, members=members) == Tell(MASTER, again=False)
    assert next_step(FIRST, told(MASTER), 1_000, members=members) == Pause(MASTER)
    assert next_step(FIRST, told(MASTER), TRY_MS, members=members) == Tell(MASTER, again=True)
    linked = next_step(FIRST, told(MASTER), 1_000, members=members, follows=True)
    assert linked == ComeOnline(0, MASTER.address)


def test_a_slave_waits_for_its_own_link_only_after_it_asked_this_master() -> None:
    other = MemberAddress(0, "10.0.0.7:10911")
    step = next_step(FIRST, told(other), members=[MASTER], follows=True)
    assert step == Tell(MASTER, again=False)


def test_a_slave_beside_a_slave_records_the_other_one_and_does_not_act_yet() -> None:
    """As in RocketMQ: the smallest id without the own one, until both see each other."""
    assert next_step(FIRST, FRESH, members=[FIRST, SECOND]) == ComeOnline(2, SECOND.address)
    assert next_step(SECOND, FRESH, members=[FIRST]) == ComeOnline(1, FIRST.address)


def test_a_slave_whose_link_is_refused_serves_reads_after_a_time() -> None:
    step = next_step(FIRST, told(MASTER, 59_000), WAIT_MS, members=[MASTER])
    assert step == ComeOnline(0, MASTER.address, (MASTER,), waited_in_vain=True)


def test_a_master_that_names_no_ha_port() -> None:
    seen = Seen(now_ms=0, members=[MASTER, SECOND])
    assert PreOnline(FIRST, 0).without_master(seen) == ComeOnline(0, MASTER.address)


# -- whose link it is -----------------------------------------------------------------------------


def linked(members: list[MemberAddress], links: list[Link], ours: str = "") -> set[int]:
    found = linked_replicas("broker-a", members, links, lambda ip: ip == ours)
    return {member.broker_id for member in found}


def test_a_named_link_belongs_to_its_id() -> None:
    same_host = [MemberAddress(n, f"10.0.0.2:{n}") for n in (1, 2, 3)]
    assert linked(same_host, [Link("broker-a:2", "10.0.0.2")]) == {2}
    assert linked(same_host, [Link("broker-b:2", "10.0.0.9")]) == set()


def test_an_id_that_a_stranger_has_registered_is_not_linked_by_our_replica() -> None:
    stranger = MemberAddress(1, "10.9.9.9:10911")
    link = Link("broker-a:1", "10.0.0.2")
    assert linked([stranger], [link]) == set()
    assert linked([stranger], [link], ours="10.9.9.9") == {1}, "haTrustedAddresses names it"


def test_several_brokers_on_one_host_need_a_link_each() -> None:
    """RocketMQ compares hosts only: the first one's link counts for all of them."""
    same_host = [MemberAddress(n, f"10.0.0.2:{n}") for n in (1, 2, 3)]
    assert linked(same_host, [Link("10.0.0.2", "10.0.0.2")]) == {1}
    two = [Link("10.0.0.2", "10.0.0.2"), Link("broker-a:1", "10.0.0.2")]
    assert linked(same_host, two) == {1, 2}
    assert linked(same_host, [*two, Link("10.0.0.2#2", "10.0.0.2")]) == {1, 2, 3}
    assert linked([FIRST], [Link("10.0.0.9", "10.0.0.9")]) == set()
